"""One scenario on one server: its clients, and the transcript of everything the server said."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Unpack

from .shapes import Names, begin, connect_tokens, reply_tokens
from .wire import (
    AUTH_XID,
    EVENT_XID,
    OPEN,
    PING_XID,
    SET_WATCHES_XID,
    Address,
    Connecting,
    Field,
    Link,
    Op,
    connect_request,
    frame,
    jute,
)

_FIXED_XIDS: Mapping[int, int] = {
    Op.PING: PING_XID,
    Op.AUTH: AUTH_XID,
    Op.SET_WATCHES: SET_WATCHES_XID,
    Op.SET_WATCHES2: SET_WATCHES_XID,
}
_OP_NAMES: Mapping[int, str] = {op: op.name.lower() for op in Op}


class World:
    """Clients of one server, one transcript, one subtree (`root`) that nobody else uses."""

    def __init__(self, address: Address, root: str, *, newer: bool = False) -> None:
        self.address, self.root, self.newer = address, root, newer
        """Whether the real server is ZooKeeper 3.9 or newer: then nothing may be asked that it answers otherwise."""
        self.names = Names(newer=newer)
        self.transcript: list[str] = []
        self._clients: list[Client] = []

    def client(self, name: str = "a", **connecting: Unpack[Connecting]) -> Client:
        """A connected client with a session."""
        client = Client(self, name)
        client.connect(connect_request(**connecting))
        return client

    def link(self) -> Link:
        """A bare connection."""
        return Link(self.address)

    def say(self, line: str) -> None:
        """Add a line to the transcript."""
        self.transcript.append(line)

    def adopt(self, client: Client) -> None:
        """See to it that the client's session ends with the scenario."""
        self._clients.append(client)

    def forget(self, client: Client) -> None:
        """The client outlives the scenario."""
        self._clients.remove(client)

    def close(self) -> None:
        """End all sessions, so that none expires in the middle of a later scenario."""
        for client in self._clients:
            client.dismiss()


@contextmanager
def world(address: Address, root: str, *, newer: bool = False) -> Iterator[World]:
    """A world with its subtree; zxids count from the subtree's creation."""
    here = World(address, root, newer=newer)
    keeper = Client(here, "keeper")
    here.forget(keeper)
    try:
        keeper.connect(connect_request(), quiet=True)
        begin(here.names, keeper.exchange(Op.CREATE2, root, b"", OPEN, 0))
        yield here
    finally:
        here.close()
        with suppress(OSError):  # a server that is gone has been noticed already
            _remove_tree(keeper, root)
        keeper.dismiss()


def _remove_tree(keeper: Client, path: str) -> None:
    listing = keeper.exchange(Op.GET_CHILDREN, path, False)
    if struct.unpack(">i", listing[12:16])[0] == 0:
        for name in _names(listing[16:]):
            _remove_tree(keeper, f"{path}/{name}")
    keeper.exchange(Op.DELETE, path, -1)


def _names(data: bytes) -> list[str]:
    names: list[str] = []
    offset = 4
    while offset < len(data):
        (length,) = struct.unpack_from(">i", data, offset)
        names.append(data[offset + 4 : offset + 4 + length].decode("utf-8", "surrogatepass"))
        offset += 4 + length
    return names


class Client:
    """One session on one connection; what comes back is written to the transcript in the order of arrival."""

    def __init__(self, home: World, name: str) -> None:
        self.name, self.session, self.password = name, 0, bytes(16)
        self.last_reply = b""
        self._home = home
        self.link = home.link()
        self._xid = 0
        self._asked: dict[int, list[int]] = {}
        home.adopt(self)

    def connect(self, request: bytes, *, quiet: bool = False) -> None:
        """Shake hands."""
        self.link.write(frame(request))
        reply = self.link.read_frame()
        if reply is None:
            self._say("closed")
            return
        if not quiet:
            self._say(connect_tokens(reply, self._home.names))
        if len(reply) >= 36:
            self.session, self.password = struct.unpack_from(">q", reply, 8)[0], reply[20:36]

    def reconnect(self, name: str, **connecting: Unpack[Connecting]) -> Client:
        """Another connection for the same session."""
        given = Connecting(session=self.session, password=self.password)
        given.update(connecting)
        return self._home.client(name, **given)

    def call(self, op: int, *fields: Field, xid: int | None = None) -> None:
        """Ask and wait for the answer."""
        asked = self.send(op, *fields, xid=xid)
        self.read_until(asked)

    def send(self, op: int, *fields: Field, xid: int | None = None) -> int:
        """Ask, without waiting."""
        if xid is None:
            self._xid += 1
            xid = _FIXED_XIDS.get(op, self._xid)
        self._asked.setdefault(xid, []).append(op)
        self.link.write(frame(jute(xid, op, *fields)))
        return xid

    def expect(self, xid: int, op: int) -> None:
        """A reply with this xid will answer such a request, which was written on the bare link."""
        self._asked.setdefault(xid, []).append(op)

    def read(self, count: int = 1) -> None:
        """So many frames."""
        for _ in range(count):
            self._read_one()

    def read_until(self, xid: int) -> None:
        """Frames up to the reply with this xid."""
        while self._read_one() not in (xid, None):
            pass

    def settle(self) -> None:
        """All events that are on their way: a ping comes back behind them."""
        self.send(Op.PING)
        while (data := self.link.read_frame()) is not None:
            xid = int(struct.unpack_from(">i", data)[0])
            if xid == PING_XID:
                self._asked[PING_XID].pop()
                return
            self._tell(xid, data)
        self._say("closed")

    def read_to_end(self) -> None:
        """Frames until the server closes."""
        while self._read_one() is not None:
            pass

    def exchange(self, op: int, *fields: Field) -> bytes:
        """Ask and get the reply, off the record."""
        self._xid += 1
        self.link.write(frame(jute(self._xid, op, *fields)))
        while (data := self.link.read_frame()) is not None:
            if struct.unpack_from(">i", data)[0] == self._xid:
                return data
        raise ConnectionError(f"closed on {op}")

    def dismiss(self) -> None:
        """End the session, wherever it is now."""
        self.link.close()
        if self.session:
            with suppress(OSError), self._home.link() as link:
                link.write(frame(connect_request(session=self.session, password=self.password)))
                link.read_frame()
                link.write(frame(jute(1, Op.CLOSE_SESSION)))
                link.read_all()

    def _read_one(self) -> int | None:
        try:
            data = self.link.read_frame()
        except TimeoutError:
            self._say("silent")
            return None
        if data is None:
            self._say("closed")
            return None
        xid = int(struct.unpack_from(">i", data)[0]) if len(data) >= 4 else 0
        self._tell(xid, data)
        return xid

    def _tell(self, xid: int, data: bytes) -> None:
        self.last_reply = data
        asked = self._asked.get(xid)
        op = Op.NOTIFICATION if xid == EVENT_XID and not asked else asked.pop(0) if asked else Op.ERROR
        self._say(f"{_OP_NAMES.get(op, op)}: {reply_tokens(op, data, self._home.names)}")

    def _say(self, text: str) -> None:
        self._home.say(f"{self.name} < {text}")
