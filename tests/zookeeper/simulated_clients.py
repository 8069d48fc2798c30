"""A processor and its clients without a network: frames in, frames out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct, pack

from aioelasticjob.zookeeper.acl import OPEN_UNSAFE
from aioelasticjob.zookeeper.connection import MAX_FRAME, Connection
from aioelasticjob.zookeeper.datatree import DataTree
from aioelasticjob.zookeeper.jute import INT, pack_buffer, pack_string
from aioelasticjob.zookeeper.processor import Processor
from aioelasticjob.zookeeper.replies import acls
from aioelasticjob.zookeeper.sessions import Sessions
from aioelasticjob.zookeeper.settings import Settings
from aioelasticjob.zookeeper.statistics import Traffic

HEADER = Struct(">iqi")
WELCOME = Struct(">iiqi16s")


def path_watch(path: str, watch: bool = False) -> bytes:
    return pack_string(path) + bytes([watch])


def create(path: str, flags: int = 0) -> bytes:
    return pack_string(path) + pack_buffer(b"data") + acls(OPEN_UNSAFE) + INT.pack(flags)


@dataclass
class SimulatedServer:
    """A processor, a time, and clients."""

    settings: Settings = field(default_factory=lambda: Settings(tick_time=100))
    now: int = 0

    def __post_init__(self) -> None:
        sessions = Sessions(tick=100, secret=b"secret")
        self.processor = Processor(self.settings, sessions, lambda: 1_000_000 + self.now, DataTree())

    def client(self, session: int = 0, password: bytes = bytes(16), timeout: int = 1000, seen: int = 0) -> Client:
        client = Client(self, Connection("127.0.0.1", 5, MAX_FRAME, Traffic()))
        frame = pack(">iqiq", 0, seen, timeout, session) + pack_buffer(password) + b"\0"
        self.processor.receive(client.connection, frame, self.now)
        (client.welcome,) = client.frames()
        _, client.timeout, client.session, _, client.password = WELCOME.unpack_from(client.welcome)
        return client


@dataclass
class Client:
    world: SimulatedServer
    connection: Connection
    welcome: bytes = b""
    timeout: int = 0
    session: int = 0
    password: bytes = b""

    def frames(self) -> Iterator[bytes]:
        output, _ = self.connection.take_output()
        while output:
            size = INT.unpack_from(output)[0]
            yield output[4 : 4 + size]
            output = output[4 + size :]

    def ask(self, op: int, body: bytes = b"", xid: int = 1) -> list[tuple[int, int, int, bytes]]:
        self.world.processor.receive(self.connection, pack(">ii", xid, op) + body, self.world.now)
        return self.heard()

    def heard(self) -> list[tuple[int, int, int, bytes]]:
        return [(*HEADER.unpack_from(frame), frame[16:]) for frame in self.frames()]
