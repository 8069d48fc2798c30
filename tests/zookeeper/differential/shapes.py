"""What replies are made of.  Turns reply bytes into tokens that two servers can be compared by, field by field.

Only what must differ is renamed: zxids count from the start of the scenario, session ids become their labels, times
become `now`, passwords become their kind.  All other bytes, and any byte too many or too few, stay visible.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping

from .wire import Op

HOUR_MS = 3_600_000
LONG = 300


class Names:
    """What the values of one scenario on one server are called.

    ``newer`` says that one of the servers is ZooKeeper 3.9 or newer, and so differs in three ways.  An event has the
    zxid of its change.  In a multi, `create2` is answered by its own code, and with a Stat, no longer as `create` is.
    Ephemeral nodes come in another order, which is that of a hash table.
    """

    def __init__(self, *, newer: bool) -> None:
        self.newer = newer
        self.counts_requests = True
        """Whether zxids are compared.  ZooKeeper 3.9 takes none for a request that cannot be read, 3.8 does."""
        self._zxid = self._time = 0
        self._sessions: dict[int, str] = {}

    def begin(self, zxid: int, time: int) -> None:
        """Count from this zxid and this time of the server's clock (ms)."""
        self._zxid, self._time = zxid, time

    def session(self, value: int) -> str:
        return "0" if value == 0 else self._sessions.setdefault(value, f"session{len(self._sessions)}")

    def owner(self, value: int) -> str:
        return self._sessions.get(value, f"{value & 0xFFFFFFFFFFFFFFFF:#x}")

    def zxid(self, value: int) -> str:
        if value <= 0:
            return str(value)
        if value < self._zxid:
            return "old"
        return f"+{value - self._zxid}" if self.counts_requests else "new"

    def time(self, value: int) -> str:
        if abs(value - self._time) > HOUR_MS:
            return str(value)
        return "now" if value >= self._time else "before"


class Reader:
    """Takes fields off the front of some bytes; a field that is not there ends the reading."""

    def __init__(self, data: bytes, names: Names) -> None:
        self._data, self.names = data, names

    def tail(self) -> bytes:
        return self._data

    def number(self) -> int:
        return int(struct.unpack(">i", self._take(4))[0])

    def long(self) -> int:
        return int(struct.unpack(">q", self._take(8))[0])

    def byte(self) -> int:
        return self._take(1)[0]

    def buffer(self) -> bytes | None:
        length = self.number()
        return None if length < 0 else self._take(length)

    def text(self) -> str:
        value = self.buffer()
        if value is None or len(value) > LONG:
            return _elided(value)
        try:
            return json.dumps(value.decode())
        except UnicodeDecodeError:
            return value.hex()

    def zxid(self) -> str:
        return self.names.zxid(self.long())

    def time(self) -> str:
        return self.names.time(self.long())

    def session(self) -> str:
        return self.names.session(self.long())

    def owner(self) -> str:
        return self.names.owner(self.long())

    def texts(self, *, in_order: bool = True) -> str:
        count = self.number()
        if count < 0:
            return "null"
        found = [self.text() for _ in range(count)]
        return f"[{' '.join(found if in_order else sorted(found))}]"

    def _take(self, count: int) -> bytes:
        if len(self._data) < count:
            raise EOFError
        taken, self._data = self._data[:count], self._data[count:]
        return taken


def _text(reader: Reader) -> str:
    return reader.text()


def _data(reader: Reader) -> str:
    value = reader.buffer()
    return _elided(value) if value is None or len(value) > LONG else repr(value)


def _elided(value: bytes | None) -> str:
    return "null" if value is None else f"{len(value)} bytes, sum {zlib.crc32(value):x}"


def _stat(reader: Reader) -> str:
    czxid, mzxid, ctime, mtime = reader.zxid(), reader.zxid(), reader.time(), reader.time()
    version, cversion, aversion, owner = reader.number(), reader.number(), reader.number(), reader.owner()
    length, children, pzxid = reader.number(), reader.number(), reader.zxid()
    return (
        f"stat(c={czxid} m={mzxid} p={pzxid} ct={ctime} mt={mtime} v={version} cv={cversion} av={aversion}"
        f" owner={owner} len={length} children={children})"
    )


def _identity(reader: Reader) -> str:
    return f"{reader.text()}:{reader.text()}"


def _identities(reader: Reader) -> str:
    return f"[{' '.join(_identity(reader) for _ in range(reader.number()))}]"


def _acls(reader: Reader) -> str:
    count = reader.number()
    return "null" if count < 0 else f"[{' '.join(f'{reader.number()} {_identity(reader)}' for _ in range(count))}]"


def _nothing(reader: Reader) -> str:
    return ""


def _both(*shapes: Callable[[Reader], str]) -> Callable[[Reader], str]:
    return lambda reader: " ".join(shape(reader) for shape in shapes)


def _multi(reader: Reader) -> str:
    results: list[str] = []
    while True:
        kind, done, err = reader.number(), reader.byte(), reader.number()
        if done:
            return "; ".join([*results, f"end({kind} {done} {err})"])
        if reader.names.newer and kind in (Op.CREATE, Op.CREATE2):
            path, *_ = _MULTI_SHAPES[kind](reader).split(" stat(")
            results.append(f"created {done} {err} {path}")
            continue
        results.append(f"{kind} {done} {err} {_MULTI_SHAPES[kind](reader)}")


_PATH_STAT = _both(_text, _stat)
_NAMES_STAT = _both(Reader.texts, _stat)
_DATA_STAT = _both(_data, _stat)

_MULTI_SHAPES: Mapping[int, Callable[[Reader], str]] = {
    Op.ERROR: lambda reader: str(reader.number()),
    Op.CREATE: _text,
    Op.CREATE2: _PATH_STAT,
    Op.DELETE: _nothing,
    Op.SET_DATA: _stat,
    Op.CHECK: _nothing,
    Op.GET_DATA: _DATA_STAT,
    Op.GET_CHILDREN: Reader.texts,
}

_SHAPES: Mapping[int, Callable[[Reader], str]] = {
    Op.NOTIFICATION: lambda reader: f"type={reader.number()} state={reader.number()} {reader.text()}",
    Op.CREATE: _text,
    Op.CREATE2: _PATH_STAT,
    Op.CREATE_CONTAINER: _PATH_STAT,
    Op.CREATE_TTL: _PATH_STAT,
    Op.EXISTS: _stat,
    Op.GET_DATA: _DATA_STAT,
    Op.SET_DATA: _stat,
    Op.GET_ACL: _both(_acls, _stat),
    Op.SET_ACL: _stat,
    Op.GET_CHILDREN: Reader.texts,
    Op.GET_CHILDREN2: _NAMES_STAT,
    Op.SYNC: _text,
    Op.MULTI: _multi,
    Op.MULTI_READ: _multi,
    Op.RECONFIG: _DATA_STAT,
    Op.GET_EPHEMERALS: lambda reader: reader.texts(in_order=not reader.names.newer),
    Op.GET_ALL_CHILDREN_NUMBER: lambda reader: str(reader.number()),
    Op.WHO_AM_I: _identities,
}


def reply_tokens(op: int, data: bytes, names: Names) -> str:
    """One reply to a request of this kind (Op.NOTIFICATION for an event), header and body."""
    reader = Reader(data, names)
    try:
        xid, zxid, err = reader.number(), reader.zxid(), reader.number()
    except EOFError:
        return f"short {data.hex()}"
    shape = _SHAPES.get(op, _nothing) if err == 0 and reader.tail() else _nothing
    if op == Op.NOTIFICATION and names.newer:
        zxid = "any"
    head = f"xid={xid} zxid={zxid} err={err}"
    return f"{head} {_shaped(shape, reader)}".rstrip()


def begin(names: Names, created: bytes) -> None:
    """Count from the node that this reply to a create2 tells of."""
    reader = Reader(created[16:], names)
    reader.text()
    zxid, _, time = reader.long(), reader.long(), reader.long()
    names.begin(zxid, time)


def connect_tokens(data: bytes, names: Names) -> str:
    """A connect reply."""
    return _shaped(_connect, Reader(data, names))


def _connect(reader: Reader) -> str:
    protocol, timeout, session, password = reader.number(), reader.number(), reader.session(), reader.buffer()
    kind = "null" if password is None else f"{'random' if any(password) else 'zero'}{len(password)}"
    return f"connected protocol={protocol} timeout={timeout} {session} password={kind}"


def _shaped(shape: Callable[[Reader], str], reader: Reader) -> str:
    before = reader.tail()
    try:
        text = shape(reader)
    except (EOFError, KeyError):
        return f"misshapen {before.hex()}"
    return f"{text} tail={reader.tail().hex()}" if reader.tail() else text
