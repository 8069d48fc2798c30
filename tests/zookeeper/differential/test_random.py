"""Random conversations, whole and damaged: whatever the clients say, both servers answer the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from .scenario import Servers, same
from .wire import OPEN, Field, Long, Op, Raw, Record, acl, jute, multi, record
from .world import Client, World

pytestmark = pytest.mark.zookeeper

NAMES = ("a", "b", "c")
PATHS = ("", "/x", "/y", "/x/x", "/x/y", "/x/x/x", "/y/x", "/x/s-", "/x/x/", "//x", "/z/z")
BOB = "bob:fyVmFCwVbTJYrznoSu1koqYEYF0="
LISTS: tuple[list[Record], ...] = (
    [acl(31, "world", "anyone")], [acl(1, "world", "anyone")], [acl(31, "digest", BOB)], [acl(31, "auth", "")],
    [acl(23, "world", "anyone"), acl(8, "ip", "127.0.0.1")], [acl(15, "ip", "127.0.0.0/8"), acl(17, "digest", BOB)], [],
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Below:
    """A path below the root of the scenario, which is known only when it is played."""

    path: str


Template: TypeAlias = "Field | Below | tuple[Below, ...]"


@dataclass(frozen=True, slots=True)
class Plain:
    """A request of one operation."""

    op: Op
    fields: tuple[Template, ...]


@dataclass(frozen=True, slots=True)
class Several:
    """A multi or a multi of reads."""

    op: Op
    parts: tuple[Plain, ...]


Request: TypeAlias = "Plain | Several"


@dataclass(frozen=True, slots=True)
class Say:
    """A client sends some requests, not waiting for answers."""

    client: str
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """A client comes back on a new connection, with its session or with a new one."""

    client: str
    new_session: bool


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a request that are overwritten, cut off or added."""

    changes: tuple[tuple[int, int], ...]
    cut: int
    added: bytes

    def done_to(self, body: bytes) -> bytes:
        damaged = bytearray(body[: max(0, len(body) - self.cut)] + self.added)
        for place, byte in self.changes:
            if damaged:
                damaged[place % len(damaged)] = byte
        return bytes(damaged)


def asks(ops: Op | tuple[Op, ...], *fields: SearchStrategy[Template]) -> SearchStrategy[Plain]:
    """Requests of one of these operations with such fields."""
    return st.builds(Plain, st.sampled_from(ops if isinstance(ops, tuple) else (ops,)), st.tuples(*fields))


paths = st.sampled_from(PATHS).map(Below)
some_paths = st.lists(paths, max_size=3).map(tuple)
versions = st.sampled_from((-1, -1, -1, 0, 1, 2, -2))
data = st.sampled_from((None, b"", b"1", b"22", b"x" * 50))
lists = st.sampled_from((LISTS[0], LISTS[0], *LISTS))
kinds = st.sampled_from((0, 0, 0, 1, 1, 2, 3, 4, 9))
reading = (Op.GET_ACL, Op.SYNC, Op.GET_EPHEMERALS, Op.GET_ALL_CHILDREN_NUMBER)
watching = (Op.EXISTS, Op.GET_DATA, Op.GET_CHILDREN, Op.GET_CHILDREN2)

creates = asks((Op.CREATE, Op.CREATE, Op.CREATE2), paths, data, lists, kinds)
containers = asks(Op.CREATE_CONTAINER, paths, data, lists, st.just(4))
lasting = asks(Op.CREATE_TTL, paths, data, lists, st.sampled_from((5, 6)), st.just(Long(10**9)))
deletes = asks(Op.DELETE, paths, versions)
sets = asks(Op.SET_DATA, paths, data, versions)
checks = asks(Op.CHECK, paths, versions)
writes = st.one_of(creates, creates, containers, deletes, deletes, sets)
multis = st.builds(Several, st.just(Op.MULTI), st.lists(st.one_of(writes, lasting, checks), max_size=5).map(tuple))
gets = asks((Op.GET_DATA, Op.GET_CHILDREN), paths, st.booleans())
multi_reads = st.builds(Several, st.just(Op.MULTI_READ), st.lists(gets, max_size=3).map(tuple))
reads = st.one_of(asks(watching, paths, st.booleans()), asks(reading, paths))
set_acls = asks(Op.SET_ACL, paths, lists, versions)
add_watches = asks(Op.ADD_WATCH, paths, st.sampled_from((0, 1)))
remove_watches = asks((Op.REMOVE_WATCHES, Op.CHECK_WATCHES), paths, st.sampled_from((1, 2, 3)))
set_watches = asks(Op.SET_WATCHES2, st.sampled_from((Long(0), Long(2**60))), *[some_paths] * 5)
logins = asks(Op.AUTH, st.just(0), st.just("digest"), st.sampled_from((b"bob:secret", b"alice:x")))
requests = st.one_of(
    writes, writes, lasting, checks, multis, multi_reads, reads, reads, set_acls, add_watches, remove_watches,
    set_watches, asks(Op.WHO_AM_I),
)  # fmt: skip

names = st.sampled_from(NAMES)
# A login goes alone: the real server answers it out of turn.
logged_in = st.builds(Say, names, logins.map(lambda login: (login,)))
says = st.builds(Say, names, st.lists(requests, min_size=1, max_size=4).map(tuple))
turns = st.builds(Turn, names, st.booleans())
conversations = st.lists(st.one_of(*[says] * 8, logged_in, turns), min_size=1, max_size=25)

# Not damaged: what closes the connection (a reset may overtake the last reply), and lasting nodes (a negative time to
# live ends the real server's process).
whole = st.one_of(writes, multis, multi_reads, reads, set_acls, add_watches, set_watches)
places = st.tuples(st.integers(0, 200), st.sampled_from((0, 1, 2, 4, 0x2F, 0x7F, 0x80, 0xC3, 0xED, 0xFF)))
damages = st.builds(
    Damage,
    st.lists(places, max_size=3).map(tuple),
    st.sampled_from((0, 0, 0, 1, 4, 9)),
    st.sampled_from((b"", b"", b"\0")),
)
damaged = st.lists(st.tuples(whole, damages), min_size=1, max_size=12)

# Strings as they come: any characters, lone surrogates among them, and bytes that are no UTF-8 at all.
units = st.sampled_from(b"\x00/.:a19\x7f\x80\xbf\xc0\xc1\xc3\xe0\xe2\xed\xef\xf0\xf4\xf5\xff\x9f\xa0\x82\xac\xf8")
text = st.text(st.characters(exclude_categories=[]), max_size=8)
strings = st.one_of(
    st.lists(units, max_size=8).map(bytes), text.map(lambda value: value.encode("utf-8", "surrogatepass"))
)
addresses = st.text("0123456789./:+- x٣", max_size=14).map(str.encode)

thorough = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@thorough
@given(conversation=conversations)
def test_both_servers_say_the_same(servers: Servers, conversation: list[Say | Turn]) -> None:
    same(lambda w: _converse(w, conversation), servers)


@thorough
@given(conversation=damaged)
def test_both_servers_make_the_same_of_damage(servers: Servers, conversation: list[tuple[Request, Damage]]) -> None:
    def play(w: World) -> None:
        w.names.counts_requests = not w.newer
        a = w.client()
        for request, damage in conversation:
            if w.newer and _is_answered_otherwise(request):
                continue
            a.send(request.op, Raw(damage.done_to(jute(*_fields(request, w.root)))))
            a.settle()

    same(play, servers)


@thorough
@given(pairs=st.lists(st.tuples(strings, addresses), min_size=1, max_size=8))
def test_both_servers_read_strings_alike(servers: Servers, pairs: list[tuple[bytes, bytes]]) -> None:
    def play(w: World) -> None:
        a = w.client()
        for string, address in pairs:
            below = f"{w.root}/".encode() + string  # bytes and strings look the same on the wire
            a.call(Op.SYNC, string)
            a.call(Op.CREATE, below, b"", OPEN, 0)
            a.call(Op.CREATE, below, b"", OPEN, 2)
            a.call(Op.EXISTS, below, True)
            a.call(Op.SET_DATA, below, b"", -1)
            a.call(Op.DELETE, below, -1)
            a.call(Op.SET_ACL, w.root, [record(31, b"digest", string), acl(31, "world", "anyone")], -1)
            if not (w.newer and b":" in address):  # it knows IPv6
                a.call(Op.SET_ACL, w.root, [record(31, b"ip", address), acl(31, "world", "anyone")], -1)
            a.call(Op.GET_ACL, w.root)
            a.call(Op.AUTH, 0, "digest", string)
        a.call(Op.WHO_AM_I)
        a.call(Op.GET_CHILDREN, w.root, False)

    same(play, servers)


def _converse(w: World, conversation: list[Say | Turn]) -> None:
    clients = {name: w.client(name) for name in NAMES}
    for line in conversation:
        match line:
            case Turn():
                clients[line.client] = _turned(w, clients[line.client], line)
            case Say():
                for request in line.requests:
                    if w.newer and _is_answered_otherwise(request):
                        continue
                    clients[line.client].send(request.op, *_fields(request, w.root))
                clients[line.client].settle()  # not every request has an answer
    for client in clients.values():
        client.settle()


def _is_answered_otherwise(request: Request) -> bool:
    """Whether ZooKeeper 3.9 and newer answer a request otherwise than 3.8.

    `exists` asks for permission to read.  A check outside a multi is no request of clients.  Watches of several modes
    on one path are all kept.  Flags that do not exist, within a multi, refuse all of it.
    """
    if request.op in (Op.EXISTS, Op.CHECK, Op.ADD_WATCH, Op.SET_WATCHES2):
        return True
    return isinstance(request, Several) and any(9 in part.fields for part in request.parts)


def _turned(w: World, client: Client, turn: Turn) -> Client:
    if not turn.new_session:
        return client.reconnect(turn.client)
    client.call(Op.CLOSE_SESSION)
    client.read_to_end()
    return w.client(turn.client)


def _fields(request: Request, root: str) -> tuple[Field, ...]:
    match request:
        case Plain():
            return tuple(_placed(field, root) for field in request.fields)
        case Several():
            return (multi(*((part.op, record(*_fields(part, root))) for part in request.parts)),)


def _placed(template: Template, root: str) -> Field:
    match template:
        case Below(path):
            return f"{root}{path}"
        case tuple():
            return [f"{root}{below.path}" for below in template if isinstance(below, Below)]
        case _:
            return template
