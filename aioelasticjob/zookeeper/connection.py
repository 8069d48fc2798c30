"""One client's connection as a plain object: bytes in, frames out of them; frames in, bytes out of them."""

from dataclasses import dataclass, field

from aioelasticjob.zookeeper.acl import Identity
from aioelasticjob.zookeeper.javaset import spread, string_hash
from aioelasticjob.zookeeper.jute import INT, MalformedError
from aioelasticjob.zookeeper.statistics import Traffic

MAX_FRAME = 0xFFFFF  # jute.maxbuffer


@dataclass(slots=True, eq=False)
class Connection:
    """The server's side of one connection."""

    host: str
    port: int
    max_frame: int
    traffic: Traffic
    identities: list[Identity] = field(default_factory=list)
    session: int = 0
    timeout: int = 0
    connected: bool = False  # whether the connect request was answered
    closing: bool = False  # whether to close once the output is written
    asked: int | None = None  # when the requests that are being answered arrived, ms on the server's own clock
    backlog: int = 0  # bytes of output that have not reached the transport
    _output: list[bytes] = field(default_factory=list)
    _input: bytes = b""
    _position: int = 0

    def __post_init__(self) -> None:
        self.identities.append(Identity("ip", self.host))

    def feed(self, data: bytes) -> None:
        """Take what arrived."""
        self._input = self._input[self._position :] + data if self._position < len(self._input) else data
        self._position = 0

    def four_letter_word(self) -> str | None:
        """Name the word at the very start of the stream, if it looks like one."""
        word = self._input[:4]
        return word.decode("ascii") if len(word) == 4 and word.isalpha() else None

    def next_frame(self) -> bytes | None:
        """Cut the next whole frame, or nothing yet.

        Raises: MalformedError for a length no client may send.
        """
        start = self._position + 4
        if start > len(self._input):
            return None
        length: int = INT.unpack_from(self._input, self._position)[0]
        if not 0 <= length <= self.max_frame:
            raise MalformedError(f"frame of {length} bytes")
        end = start + length
        if end > len(self._input):
            return None
        self._position = end
        return self._input[start:end]

    def add_identity(self, identity: Identity) -> None:
        """Remember who the client has proved to be."""
        if identity not in self.identities:
            self.identities.append(identity)
            self.identities.sort(key=_java_bucket)

    def send(self, frame: bytes) -> None:
        """Queue output."""
        self._output.append(frame)
        self.backlog += len(frame)

    def take_output(self) -> tuple[bytes, int]:
        """Hand out what is queued, as one piece, and of how many frames it is."""
        packets = len(self._output)
        output = self._output[0] if packets == 1 else b"".join(self._output)
        self._output.clear()
        return output, packets


def _java_bucket(who: Identity) -> int:
    """Say where the reference server's set has an identity: clients see them, and `auth` names them, in that order."""
    return spread(37 * (37 * 17 + string_hash(who.scheme)) + string_hash(who.id)) & 15
