"""The server without network, disk and clock: frames in, frames out."""

from struct import pack

import pytest

from aioelasticjob.zookeeper.codes import ErrorCode, OpCode
from aioelasticjob.zookeeper.connection import MAX_FRAME, Connection
from aioelasticjob.zookeeper.jute import INT, MalformedError, pack_buffer, pack_string
from aioelasticjob.zookeeper.settings import Settings
from aioelasticjob.zookeeper.statistics import Traffic
from tests.zookeeper.simulated_clients import SimulatedServer, create, path_watch


@pytest.fixture
def world() -> SimulatedServer:
    return SimulatedServer()


def test_timeouts_are_negotiated_between_two_and_twenty_ticks(world: SimulatedServer) -> None:
    assert [world.client(timeout=timeout).timeout for timeout in (-5, 1, 500, 10**6)] == [200, 200, 500, 2000]


def test_a_client_from_before_the_read_only_byte_is_answered_without_it(world: SimulatedServer) -> None:
    connection = Connection("127.0.0.1", 5, MAX_FRAME, Traffic())
    world.processor.receive(connection, pack(">iqiq", 0, 0, 500, 0) + pack_buffer(bytes(16)), 0)
    assert len(connection.take_output()[0]) == 4 + 36
    assert len(world.client().welcome) == 37


def test_who_has_seen_the_future_is_sent_away(world: SimulatedServer) -> None:
    with pytest.raises(MalformedError):
        world.client(seen=99)


def test_a_session_moves_to_the_newest_connection(world: SimulatedServer) -> None:
    first = world.client()
    second = world.client(first.session, first.password)
    assert (second.session, second.password) == (first.session, first.password)
    assert first.connection.closing
    world.processor.end_connection(first.connection)
    assert world.processor.connections == {first.session: second.connection}


def test_a_connection_that_is_closed_hears_of_no_change(world: SimulatedServer) -> None:
    """It is closed once its output is written, which would never be so if there was ever more."""
    first = world.client()
    first.ask(OpCode.EXISTS, path_watch("/a", True))
    first.ask(OpCode.ADD_WATCH, pack_string("/") + INT.pack(1))
    second = world.client(first.session, first.password)
    second.ask(OpCode.CREATE, create("/a"))
    assert first.connection.closing
    assert first.heard() == []
    assert len(world.processor.watches.data) == 0


@pytest.mark.parametrize("password", [b"", b"x" * 16, bytes(16)])
def test_a_wrong_password_gets_session_zero_and_an_end(world: SimulatedServer, password: bytes) -> None:
    stranger = world.client(world.client().session, password)
    assert (stranger.session, stranger.timeout, stranger.password) == (0, 0, bytes(16))
    assert stranger.connection.closing


def test_an_expired_session_takes_its_connection_and_nodes_with_it(world: SimulatedServer) -> None:
    client, other = world.client(timeout=200), world.client(timeout=2000)
    client.ask(OpCode.CREATE, create("/e", 1))
    other.ask(OpCode.EXISTS, path_watch("/e", True))
    world.now = 300
    world.processor.expire(world.now)
    assert client.connection.closing
    assert other.heard() == [(-1, -1, 0, pack(">ii", 2, 3) + pack_string("/e"))]
    assert "/e" not in world.processor.tree.nodes
    assert world.client(client.session, client.password).session == 0


def test_every_request_keeps_the_session(world: SimulatedServer) -> None:
    client = world.client(timeout=200)
    for world.now in range(150, 2000, 150):
        world.processor.expire(world.now)
        assert client.ask(OpCode.PING, xid=-2) == [(-2, world.processor.tree.zxid, 0, b"")]


def test_requests_after_the_end_of_the_session_are_not_answered(world: SimulatedServer) -> None:
    client = world.client()
    (reply,) = client.ask(OpCode.CLOSE_SESSION)
    assert reply == (1, 2, 0, b"")
    assert client.ask(OpCode.PING) == []


def test_refused_writes_are_numbered_and_reads_are_not(world: SimulatedServer) -> None:
    client = world.client()
    zxids = [
        client.ask(op, body)[-1][1]
        for op, body in (
            (OpCode.CREATE, create("/a")),
            (OpCode.CREATE, create("/a")),
            (OpCode.EXISTS, path_watch("/a")),
            (OpCode.SYNC, pack_string("/a")),
            (OpCode.CREATE, b"cut"),
            (OpCode.MULTI, pack(">ibi", -1, 1, -1)),
        )
    ]
    assert zxids == [2, 3, 3, 3, 4, 5]


def test_the_watcher_hears_of_its_own_change_before_the_answer(world: SimulatedServer) -> None:
    client = world.client()
    client.ask(OpCode.CREATE, create("/a"))
    client.ask(OpCode.GET_DATA, path_watch("/a", True))
    event, reply = client.ask(OpCode.SET_DATA, pack_string("/a") + pack_buffer(b"") + INT.pack(-1), xid=7)
    assert event == (-1, -1, 0, pack(">ii", 3, 3) + pack_string("/a"))
    assert reply[0] == 7


def test_events_are_not_sent_to_clients_that_may_not_read(world: SimulatedServer) -> None:
    owner, stranger = world.client(), world.client()
    owner.ask(OpCode.AUTH, INT.pack(0) + pack_string("digest") + pack_buffer(b"bob:x"), xid=-4)
    secret = pack_string("/s") + pack_buffer(b"") + pack(">ii", 1, 31) + pack_string("auth") + pack_string("")
    stranger.ask(OpCode.EXISTS, path_watch("/s", True))
    stranger.ask(OpCode.GET_CHILDREN, path_watch("/", True))
    owner.ask(OpCode.CREATE, secret + INT.pack(0))
    assert [body[:8] for *_, body in stranger.heard()] == [pack(">ii", 4, 3)]


@pytest.mark.parametrize(
    ("op", "error", "closed"),
    [
        (0, ErrorCode.UNIMPLEMENTED, True),
        (999, ErrorCode.UNIMPLEMENTED, True),
        (OpCode.DELETE_CONTAINER, ErrorCode.BAD_ARGUMENTS, False),
        (OpCode.EXISTS, ErrorCode.MARSHALLING_ERROR, False),
        (OpCode.SET_WATCHES2, ErrorCode.MARSHALLING_ERROR, False),
    ],
)
def test_what_cannot_be_done_is_said(world: SimulatedServer, op: int, error: ErrorCode, closed: bool) -> None:
    client = world.client()
    ((xid, _, answered, body),) = client.ask(op)
    assert (xid, answered, body, client.connection.closing) == (1, error, b"", closed)


def test_a_check_alone_that_holds_is_not_answered_as_in_the_real_server(world: SimulatedServer) -> None:
    client = world.client()
    assert client.ask(OpCode.CHECK, pack_string("/") + INT.pack(0)) == []
    assert client.ask(OpCode.CHECK, pack_string("/") + INT.pack(5))[0][2] == ErrorCode.BAD_VERSION


def test_wrong_credentials_end_the_connection(world: SimulatedServer) -> None:
    client = world.client()
    assert client.ask(OpCode.AUTH, INT.pack(0) + pack_string("sasl") + pack_buffer(b""), xid=-4) == [
        (-4, 0, ErrorCode.AUTH_FAILED, b"")
    ]
    assert client.connection.closing


def test_who_knows_the_super_password_may_everything() -> None:
    world = SimulatedServer(Settings(super_digest="super:D/InIHSb7yEEbrWz8b9l71RjZJU="))
    client = world.client()
    refused = pack_string("/zookeeper/config") + pack_buffer(b"") + INT.pack(-1)
    assert client.ask(OpCode.SET_DATA, refused)[0][2] == ErrorCode.NO_AUTH
    client.ask(OpCode.AUTH, INT.pack(0) + pack_string("digest") + pack_buffer(b"super:test"), xid=-4)
    assert client.ask(OpCode.SET_DATA, refused)[0][2] == ErrorCode.OK


def test_containers_are_reaped_each_under_its_own_zxid(world: SimulatedServer) -> None:
    client = world.client()
    for name in ("/c", "/d"):
        client.ask(OpCode.CREATE_CONTAINER, create(name, 4))
        client.ask(OpCode.CREATE, create(f"{name}/x"))
        client.ask(OpCode.DELETE, pack_string(f"{name}/x") + INT.pack(-1))
    client.ask(OpCode.GET_CHILDREN, path_watch("/", True))
    before = world.processor.tree.zxid
    world.processor.reap()
    assert list(world.processor.tree.node("/").children) == ["zookeeper"]
    assert world.processor.tree.zxid == before + 2
    assert len(client.heard()) == 1


def test_changes_are_handed_out_once_with_the_newest_zxid(world: SimulatedServer) -> None:
    world.processor.keep_changes()
    client = world.client()
    client.ask(OpCode.CREATE, create("/a"))
    zxid, paths, sessions = world.processor.take_changes()
    assert (zxid, set(paths), sessions) == (2, {"/a", "/"}, {client.session: 1000})
    client.ask(OpCode.EXISTS, path_watch("/a"))
    assert world.processor.take_changes() == (None, {}, {})
    client.ask(OpCode.CREATE, create("/a"))
    assert world.processor.take_changes() == (3, {}, {})  # refused, but its number was told


def test_ticks_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 ms"):
        Settings(tick_time=0)
