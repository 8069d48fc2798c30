"""What `srvr` and `mntr` count: packets and latencies, for the server and for each connection."""

from dataclasses import dataclass


@dataclass(slots=True)
class Statistics:
    """Packets in and out, and how long answers took (ms)."""

    started: int  # ms on the clock of the sessions
    received: int = 0
    sent: int = 0
    answered: int = 0
    min_latency: int = 0
    max_latency: int = 0
    total_latency: int = 0

    @property
    def average(self) -> float:
        """The mean latency."""
        return self.total_latency / self.answered if self.answered else 0.0

    def answer(self, packets: int, latency: int) -> None:
        """Count answers that took that long each."""
        self.min_latency = min(self.min_latency, latency) if self.answered else latency
        self.max_latency = max(self.max_latency, latency)
        self.total_latency += latency * packets
        self.answered += packets

    def reset(self) -> None:
        """Begin to count anew."""
        self.received = self.sent = self.answered = 0
        self.min_latency = self.max_latency = self.total_latency = 0

    def uptime(self, now: int) -> int:
        """Tell how long the server has been running."""
        return now - self.started
