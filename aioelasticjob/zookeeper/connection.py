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
    nonce: str | None = field(default=None, repr=False)  # of the SASL challenge that is to be answered; "" afterwards
    connected: bool = False  # whether the connect request was answered
    closing: bool = False  # whether to close once the output is written
    asked: int | None = None  # when the requests that are being answered arrived, ms on the server's own clock
    backlog: int = 0  # bytes of output that have not reached the transport
    _output: list[bytes] = field(default_factory=list)
    _input: bytes | bytearray = b""  # a bytearray only once a frame has come in pieces: appending copies nothing then
    _position: int = 0

    def __post_init__(self) -> None:
        self.identities.append(Identity("ip", self.host))

    def feed(self, data: bytes) -> None:
        """Add bytes that have arrived."""
        if not self.unread:
            self._input = data
        else:
            if self._position or not isinstance(self._input, bytearray):
                self._input = bytearray(memoryview(self._input)[self._position :])
            self._input += data
        self._position = 0

    @property
    def unread(self) -> int:
        """How many bytes of input are kept that belong to an incomplete frame, or to one that was not read yet."""
        return len(self._input) - self._position

    def four_letter_word(self) -> str | None:
        """Name the word at the very start of the stream, if it looks like one."""
        word = bytes(self._input[:4])
        if len(word) < 4 or not word.isalpha():
            return None
        return word.decode("ascii")

    def next_frame(self) -> bytes | None:
        """Return the next complete frame, None if there is none yet.

        Raises: MalformedError for a length no client may send.
        """
        start = self._position + 4
        if start > len(self._input):
            return None
        length: int
        (length,) = INT.unpack_from(self._input, self._position)
        if not 0 <= length <= self.max_frame:
            raise MalformedError(f"frame of {length} bytes")
        end = start + length
        if end > len(self._input):
            return None
        frame = bytes(self._input[start:end])
        self._position = end
        if not self.unread:
            self._input = b""  # an idle client's last request is not kept
            self._position = 0
        return frame

    def add_identity(self, identity: Identity) -> None:
        """Note an identity that the client has proved."""
        if identity not in self.identities:
            self.identities.append(identity)
            self.identities.sort(key=_java_bucket)

    def send(self, frame: bytes) -> None:
        """Queue output."""
        self._output.append(frame)
        self.backlog += len(frame)

    def take_output(self) -> tuple[bytes, int]:
        """Return the queued output as one piece, and the number of its frames."""
        packets = len(self._output)
        output = self._output[0] if packets == 1 else b"".join(self._output)
        self._output.clear()
        return output, packets


class Unfinished:
    """Limits the bytes that all connections together keep of incomplete frames."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: dict[Connection, int] = {}  # the frame that is unfinished for longest first
        self._total = 0

    def keep(self, connection: Connection, *, fresh: bool) -> list[Connection]:
        """Take down what a connection keeps now, ``fresh`` if a frame has ended since; return whom to drop.

        Those are the connections whose frames have been unfinished for longest: an honest client is quick.
        """
        if fresh or not connection.unread:
            self.forget(connection)
        if not connection.unread:
            return []
        self._total += connection.unread - self._kept.get(connection, 0)
        self._kept[connection] = connection.unread
        dropped = []
        while self._total > self.most:
            slowest = next(iter(self._kept))
            self.forget(slowest)
            dropped.append(slowest)
        return dropped

    def forget(self, connection: Connection) -> None:
        """Count the bytes of a connection no longer."""
        self._total -= self._kept.pop(connection, 0)


def _java_bucket(who: Identity) -> int:
    """Say where the reference server's set has an identity: clients see them, and `auth` names them, in that order."""
    hash_code = 37 * (37 * 17 + string_hash(who.scheme)) + string_hash(who.id)
    return spread(hash_code) & 15
