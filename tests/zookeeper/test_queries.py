"""Requests that change nothing, and what they answer."""

from struct import pack, unpack_from

import pytest

from aioelasticjob.zookeeper.codes import ErrorCode, OpCode
from aioelasticjob.zookeeper.jute import INT, NULL, Reader, pack_buffer, pack_string, pack_strings
from aioelasticjob.zookeeper.znode import STAT_SIZE
from tests.zookeeper.simulated_clients import Client, SimulatedServer, create, path_watch

END = pack(">ibi", -1, 1, -1)
DATA_CHANGED, CHILDREN_CHANGED = pack(">ii", 3, 3), pack(">ii", 4, 3)


@pytest.fixture
def world() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def client(world: SimulatedServer) -> Client:
    client = world.client()
    for path in ("/a", "/a/b", "/a/c"):
        client.ask(OpCode.CREATE, create(path))
    client.ask(OpCode.CREATE, create("/mine", 1))
    return client


def answer(client: Client, op: int, body: bytes = b"") -> bytes:
    ((_, _, error, answered),) = client.ask(op, body)
    assert error == ErrorCode.OK
    return answered


def error_of(client: Client, op: int, body: bytes = b"") -> int:
    return client.ask(op, body)[-1][2]


def header(op: int) -> bytes:
    return pack(">ibi", op, 0, -1)


def test_data_comes_with_its_stat(client: Client) -> None:
    body = answer(client, OpCode.GET_DATA, path_watch("/a"))
    assert body[:8] == pack_buffer(b"data")
    assert len(body) == 8 + STAT_SIZE


def test_children_come_with_or_without_the_stat(client: Client) -> None:
    plain = answer(client, OpCode.GET_CHILDREN, path_watch("/a"))
    assert plain == pack_strings(["b", "c"])
    assert answer(client, OpCode.GET_CHILDREN2, path_watch("/a"))[: len(plain)] == plain


def test_acls_are_shown_with_the_stat(client: Client) -> None:
    reader = Reader(answer(client, OpCode.GET_ACL, pack_string("/a")))
    assert [reader.integer(), reader.integer(), reader.string(), reader.string()] == [1, 31, "world", "anyone"]


@pytest.mark.parametrize(("path", "count"), [("/a", 2), ("/a/b", 0), ("/", 7)])
def test_all_descendants_are_counted(client: Client, path: str, count: int) -> None:
    assert answer(client, OpCode.GET_ALL_CHILDREN_NUMBER, pack_string(path)) == INT.pack(count)


@pytest.mark.parametrize(("prefix", "found"), [("/", ["/mine"]), ("", ["/mine"]), ("/mi", ["/mine"]), ("/x", [])])
def test_a_session_gets_the_list_of_its_own_ephemerals(
    client: Client, world: SimulatedServer, prefix: str, found: list[str]
) -> None:
    world.client().ask(OpCode.CREATE, create("/others", 1))
    assert answer(client, OpCode.GET_EPHEMERALS, pack_string(prefix)) == pack_strings(found)


def test_clients_are_told_who_they_are(client: Client) -> None:
    client.ask(OpCode.AUTH, INT.pack(0) + pack_string("digest") + pack_buffer(b"bob:secret"))
    reader = Reader(answer(client, OpCode.WHO_AM_I))
    own = {(reader.string(), reader.string()) for _ in range(reader.integer())}
    assert own == {("ip", "127.0.0.1"), ("digest", "bob")}


def test_several_reads_are_answered_each_for_itself(client: Client) -> None:
    body = answer(
        client,
        OpCode.MULTI_READ,
        header(OpCode.GET_DATA)
        + path_watch("/a", True)
        + header(OpCode.GET_CHILDREN)
        + path_watch("/a")
        + header(OpCode.GET_DATA)
        + path_watch("/nope")
        + END,
    )
    data = body[9 : 9 + 8 + STAT_SIZE]
    rest = body[9 + len(data) :]
    assert (unpack_from(">ibi", body), data[:8]) == ((OpCode.GET_DATA, 0, 0), pack_buffer(b"data"))
    children = pack(">ibi", OpCode.GET_CHILDREN, 0, 0) + pack_strings(["b", "c"])
    missing = pack(">ibi", -1, 0, ErrorCode.NO_NODE) + INT.pack(ErrorCode.NO_NODE)
    assert rest == children + missing + END
    assert error_of(client, OpCode.SET_DATA, pack_string("/a") + NULL + INT.pack(-1)) == 0
    assert client.heard() == []  # a multi-read leaves no watch


def test_a_write_among_reads_is_malformed(client: Client) -> None:
    write, read = header(OpCode.CREATE) + create("/x"), header(OpCode.GET_DATA) + path_watch("/a")
    assert client.ask(OpCode.MULTI_READ, write + END)[0][2:] == (ErrorCode.MARSHALLING_ERROR, END)
    assert client.ask(OpCode.MULTI_READ, read + write + END)[0][2:] == (ErrorCode.MARSHALLING_ERROR, b"")


def test_kinds_of_nodes_within_a_multi_follow_from_the_flags(client: Client) -> None:
    results = answer(
        client,
        OpCode.MULTI,
        header(OpCode.CREATE2)
        + create("/m1")
        + header(OpCode.CREATE)
        + create("/m2", 4)
        + header(OpCode.CREATE_TTL)
        + create("/m3", 5)
        + pack(">q", 1000)
        + END,
    )
    assert unpack_from(">i", results)[0] == OpCode.CREATE
    kinds = [unpack_from(">i", results, results.index(pack_string(path)) - 9)[0] for path in ("/m2", "/m3")]
    assert kinds == [OpCode.CREATE2, OpCode.CREATE2]
    ttl_without_its_operation = header(OpCode.CREATE) + create("/m4", 5) + END
    assert error_of(client, OpCode.MULTI, ttl_without_its_operation) == ErrorCode.MARSHALLING_ERROR
    assert error_of(client, OpCode.MULTI, header(OpCode.SET_ACL) + END) == ErrorCode.MARSHALLING_ERROR


def test_watches_are_taken_up_again_with_what_was_missed(client: Client) -> None:
    zxid = client.world.processor.tree.zxid
    client.ask(OpCode.SET_DATA, pack_string("/a") + NULL + INT.pack(-1))
    lists = [pack_strings(each) for each in (["/a", "/a/b"], ["/none"], ["/a"])]
    *missed, reply = client.ask(OpCode.SET_WATCHES, pack(">q", zxid) + b"".join(lists), xid=-8)
    assert [body for *_, body in missed] == [DATA_CHANGED + pack_string("/a")]
    assert reply[0] == -8
    client.ask(OpCode.SET_WATCHES2, pack(">q", zxid) + pack_strings([]) * 4 + pack_strings(["/a"]), xid=-8)
    event, _ = client.ask(OpCode.SET_DATA, pack_string("/a/c") + NULL + INT.pack(-1))
    assert event[3] == DATA_CHANGED + pack_string("/a/c")


@pytest.mark.parametrize("broken", [NULL, INT.pack(1) + NULL])
def test_lists_of_watches_hold_paths(client: Client, broken: bytes) -> None:
    body = pack(">q", 0) + broken + pack_strings([]) * 2
    assert error_of(client, OpCode.SET_WATCHES, body) == ErrorCode.MARSHALLING_ERROR


def test_a_persistent_watch_is_added_checked_and_taken_away(client: Client) -> None:
    assert answer(client, OpCode.ADD_WATCH, pack_string("/a") + INT.pack(0)) == INT.pack(0)
    assert answer(client, OpCode.CHECK_WATCHES, pack_string("/a") + INT.pack(1)) == b""
    event, _ = client.ask(OpCode.CREATE, create("/a/d"))
    assert event[3] == CHILDREN_CHANGED + pack_string("/a")
    assert answer(client, OpCode.REMOVE_WATCHES, pack_string("/a") + INT.pack(3)) == b""
    assert error_of(client, OpCode.REMOVE_WATCHES, pack_string("/a") + INT.pack(3)) == ErrorCode.NO_WATCHER
    assert error_of(client, OpCode.CHECK_WATCHES, pack_string("/a") + INT.pack(3)) == ErrorCode.NO_WATCHER


@pytest.mark.parametrize(
    ("op", "body", "error"),
    [
        (OpCode.EXISTS, NULL + b"\0", ErrorCode.MARSHALLING_ERROR),
        (OpCode.EXISTS, path_watch("/\0"), ErrorCode.BAD_ARGUMENTS),
        (OpCode.EXISTS, path_watch("/none"), ErrorCode.NO_NODE),
        (OpCode.GET_DATA, NULL + b"\0", ErrorCode.MARSHALLING_ERROR),
        (OpCode.GET_CHILDREN, path_watch("no slash"), ErrorCode.NO_NODE),
        (OpCode.ADD_WATCH, NULL + INT.pack(0), ErrorCode.MARSHALLING_ERROR),
        (OpCode.CHECK_WATCHES, pack_string("bad") + INT.pack(3), ErrorCode.MARSHALLING_ERROR),
        (OpCode.REMOVE_WATCHES, NULL + INT.pack(3), ErrorCode.NO_WATCHER),
        (OpCode.RECONFIG, NULL * 3 + pack(">q", -1), ErrorCode.RECONFIG_DISABLED),
        (OpCode.RECONFIG, b"", ErrorCode.MARSHALLING_ERROR),
    ],
)
def test_what_cannot_be_answered_is_refused(client: Client, op: OpCode, body: bytes, error: ErrorCode) -> None:
    assert error_of(client, op, body) == error


def test_a_reconfig_that_cannot_be_read_takes_no_number(client: Client) -> None:
    before = client.world.processor.tree.zxid
    assert client.ask(OpCode.RECONFIG)[0][1] == before
    assert client.ask(OpCode.RECONFIG, NULL * 3 + pack(">q", -1))[0][1] == before + 1


def test_a_transaction_over_no_path_takes_a_number_that_nobody_sees(client: Client) -> None:
    before = client.world.processor.tree.zxid
    broken = header(OpCode.DELETE) + NULL + INT.pack(-1) + END
    assert client.ask(OpCode.MULTI, broken) == [(1, before, ErrorCode.MARSHALLING_ERROR, END)]
    assert client.ask(OpCode.CREATE, create("/next"))[0][1] == before + 2


def test_a_plain_server_has_no_sasl(client: Client) -> None:
    assert client.ask(OpCode.SASL, pack_buffer(b"token")) == [(1, 0, 0, NULL)]
