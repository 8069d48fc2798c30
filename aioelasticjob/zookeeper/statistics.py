"""What `srvr`, `mntr` and `cons` count: packets and latencies, of the server and of each connection."""

from dataclasses import dataclass


@dataclass(slots=True)
class Latency:
    """Packets in and out, and how long answers took (ms)."""

    received: int = 0
    sent: int = 0
    answered: int = 0
    min_latency: int = 0
    max_latency: int = 0
    total_latency: int = 0

    @property
    def average(self) -> float:
        """The mean latency."""
        if not self.answered:
            return 0.0
        return self.total_latency / self.answered

    def answer(self, packets: int, latency: int | None) -> None:
        """Count packets that went out together, so long after they were asked for, if they were."""
        self.sent += packets
        if latency is None:
            return
        self.min_latency = min(self.min_latency, latency) if self.answered else latency
        self.max_latency = max(self.max_latency, latency)
        self.total_latency += latency * packets
        self.answered += packets

    def reset(self) -> None:
        """Begin to count anew."""
        self.received = 0
        self.sent = 0
        self.answered = 0
        self.min_latency = 0
        self.max_latency = 0
        self.total_latency = 0


@dataclass(slots=True)
class Traffic(Latency):
    """What went over one connection."""

    established: int = 0  # ms since the epoch
    last_op: str = "NA"
    last_cxid: int = -1
    last_zxid: int = -1
    last_response: int = 0  # ms on the server's own clock
    last_latency: int = 0
