"""kazoo's client and recipes on the embedded server: synchronous, in threads, and by other people's hands."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    InvalidACLError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import KazooState, WatchedEvent
from kazoo.security import CREATOR_ALL_ACL, make_acl, make_digest_acl

from tests.support.embedded import EmbeddedServer
from tests.support.processes import TIMEOUT

Connect = Callable[..., Any]
T = TypeVar("T")


@pytest.fixture
def connect(embedded: EmbeddedServer) -> Iterator[Connect]:
    clients: list[Any] = []

    def start(chroot: str = "", **options: object) -> Any:
        client = KazooClient(embedded.address + chroot, timeout=TIMEOUT, **options)
        clients.append(client)
        client.start(TIMEOUT)
        return client

    yield start
    for client in clients:
        client.stop()
        client.close()


@pytest.fixture
def client(connect: Connect) -> Any:
    return connect()


def test_every_basic_operation(client: Any) -> None:
    assert client.create("/a", b"one") == "/a"
    assert client.set("/a", b"two", version=0).version == 1
    data, stat = client.get("/a")
    assert (data, stat.version, stat.dataLength, stat.numChildren) == (b"two", 1, 3, 0)
    path, stat = client.create("/a/b-", b"", sequence=True, include_data=True)
    assert (path, stat.version) == ("/a/b-0000000000", 0)
    children, stat = client.get_children("/a", include_data=True)
    assert (children, stat.cversion) == (["b-0000000000"], 1)
    client.ensure_path("/deep/er/still")
    assert client.sync("/a") == "/a"
    client.delete("/a", recursive=True)
    assert client.exists("/a") is None


def test_errors_have_their_names(client: Any) -> None:
    client.create("/a/b", makepath=True)
    client.create("/e", ephemeral=True)
    for error, call in (
        (NodeExistsError, lambda: client.create("/a")),
        (NoNodeError, lambda: client.get("/nope")),
        (NotEmptyError, lambda: client.delete("/a")),
        (BadVersionError, lambda: client.set("/a", b"", version=7)),
        (NoChildrenForEphemeralsError, lambda: client.create("/e/x")),
        (NoAuthError, lambda: client.set("/zookeeper/config", b"")),
        (InvalidACLError, lambda: client.create("/x", acl=[make_acl("nonsense", "x", all=True)])),
    ):
        with pytest.raises(error):
            call()


def test_transactions_are_whole(client: Any) -> None:
    transaction: TransactionRequest = client.transaction()
    transaction.create("/t", b"x")
    transaction.set_data("/t", b"y", version=0)
    transaction.check("/t", version=1)
    transaction.create("/t/seq-", sequence=True)
    transaction.delete("/t/seq-0000000000")
    created, changed, checked, sequence, deleted = transaction.commit()
    assert (created, changed.version, checked, sequence, deleted) == ("/t", 1, True, "/t/seq-0000000000", True)

    failing = client.transaction()
    failing.create("/u")
    failing.delete("/nope")
    failing.create("/v")
    assert [type(each) for each in failing.commit()] == [RolledBackError, NoNodeError, RuntimeInconsistency]
    assert client.exists("/u") is None


def test_watches_fire_once_and_in_order(client: Any, connect: Connect) -> None:
    seen: queue.Queue[WatchedEvent] = queue.Queue()
    other = connect()
    client.exists("/w", watch=seen.put)
    other.create("/w")
    assert seen.get(timeout=TIMEOUT).type == "CREATED"
    client.get("/w", watch=seen.put)
    client.get_children("/w", watch=seen.put)
    other.create("/w/x")
    other.set("/w", b"1")
    other.set("/w", b"2")
    assert [seen.get(timeout=TIMEOUT).type for _ in range(2)] == ["CHILD", "CHANGED"]
    client.sync("/")
    assert seen.empty()


def test_data_and_children_watch_recipes_follow_changes(client: Any, connect: Connect) -> None:
    data: queue.Queue[tuple[bytes | None, bool]] = queue.Queue()
    children: queue.Queue[list[str]] = queue.Queue()
    client.ensure_path("/kids")
    client.DataWatch("/data", lambda value, stat: data.put((value, stat is None)))
    client.ChildrenWatch("/kids", lambda names: children.put(sorted(names)))
    other = connect()
    other.create("/data", b"1")
    other.create("/kids/a")
    other.set("/data", b"2")
    other.create("/kids/b")
    assert [data.get(timeout=TIMEOUT), _until(data, (b"2", False))] == [(None, True), (b"2", False)]
    assert _until(children, ["a", "b"]) == ["a", "b"]
    other.delete("/data")
    assert data.get(timeout=TIMEOUT) == (None, True)


def _until(values: queue.Queue[T], wanted: T) -> T:
    while (value := values.get(timeout=TIMEOUT)) != wanted:
        pass
    return value


def test_a_lock_is_held_by_one(connect: Connect) -> None:
    inside, most = 0, 0
    guard = threading.Lock()

    def work(client: Any) -> None:
        nonlocal inside, most
        for _ in range(5):
            with client.Lock("/lock"):
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=work, args=(connect(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert (most, inside) == (1, 0)


def test_an_election_passes_on(connect: Connect) -> None:
    leaders: queue.Queue[str] = queue.Queue()
    elections = [connect().Election("/election", name) for name in ("ann", "bob")]
    threads = [
        threading.Thread(target=election.run, args=(leaders.put, name))
        for election, name in zip(elections, ("ann", "bob"), strict=True)
    ]
    for thread in threads:
        thread.start()
    assert {leaders.get(timeout=TIMEOUT) for _ in threads} == {"ann", "bob"}
    for thread in threads:
        thread.join(TIMEOUT)


def test_counters_queues_barriers_and_parties_meet(connect: Connect) -> None:
    first, second = connect(), connect()
    counter = first.Counter("/count")
    counter += 2
    again = second.Counter("/count")
    again += 3
    assert again.value == 5
    basket = first.Queue("/queue")
    basket.put(b"x")
    assert second.Queue("/queue").get() == b"x"
    party = second.Party("/party", "bob")
    first.Party("/party", "ann").join()
    party.join()
    assert sorted(party) == ["ann", "bob"]


def test_secrets_are_for_their_owner(connect: Connect) -> None:
    owner, stranger = connect(auth_data=[("digest", "bob:secret")]), connect()
    owner.create("/own", b"x", acl=CREATOR_ALL_ACL)
    owner.create("/named", b"x", acl=[make_digest_acl("bob", "secret", read=True)])
    for path in ("/own", "/named"):
        assert owner.get(path)[0] == b"x"
        with pytest.raises(NoAuthError):
            stranger.get(path)
    stranger.add_auth("digest", "bob:secret")
    assert stranger.get("/own")[0] == b"x"


def test_an_ephemeral_goes_with_its_session(client: Any, connect: Connect) -> None:
    gone = threading.Event()
    other = connect()
    other.create("/e", ephemeral=True)
    client.exists("/e", watch=lambda event: gone.set())
    other.stop()
    assert gone.wait(TIMEOUT)
    assert client.exists("/e") is None


def test_a_client_whose_session_another_ends_learns_that_it_is_lost(client: Any, connect: Connect) -> None:
    lost, back = threading.Event(), threading.Event()

    def listen(state: str) -> None:
        if state == KazooState.LOST:
            lost.set()
        elif lost.is_set() and state == KazooState.CONNECTED:
            back.set()

    client.create("/e", ephemeral=True)
    client.add_listener(listen)
    thief = connect(client_id=client.client_id)
    thief.stop()
    assert lost.wait(TIMEOUT)
    assert back.wait(TIMEOUT)
    assert client.retry(client.exists, "/e") is None


def test_a_chroot_hides_what_is_above(client: Any, connect: Connect) -> None:
    client.ensure_path("/below")
    inside = connect("/below")
    inside.create("/x", b"")
    assert client.get_children("/below") == ["x"]
    assert inside.get_children("/") == ["x"]


def test_words_are_answered(client: Any) -> None:
    assert client.command(b"ruok") == "imok"
    assert client.server_version() == (3, 8, 0)
    assert "standalone" in client.command(b"mntr")
