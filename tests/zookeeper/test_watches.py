"""Who hears of what."""

import pytest

from aioelasticjob.zookeeper.acl import OPEN_UNSAFE
from aioelasticjob.zookeeper.codes import ErrorCode, EventType, RequestError
from aioelasticjob.zookeeper.datatree import DataTree, TreeEvent
from aioelasticjob.zookeeper.messages import SetWatches
from aioelasticjob.zookeeper.watches import Mode, Watches
from aioelasticjob.zookeeper.znode import Znode

CREATED, DELETED = EventType.CREATED, EventType.DELETED
CHANGED, CHILDREN = EventType.DATA_CHANGED, EventType.CHILDREN_CHANGED


@pytest.fixture
def watches() -> Watches[str]:
    return Watches()


def heard(watches: Watches[str], path: str, kind: EventType) -> list[str]:
    return list(watches.heard_by(TreeEvent(path, kind, OPEN_UNSAFE)))


def test_an_ordinary_watch_is_heard_once(watches: Watches[str]) -> None:
    watches.data.add("/a", "ann")
    assert heard(watches, "/a", CHANGED) == ["ann"]
    assert heard(watches, "/a", CHANGED) == []
    assert (watches.data.by_path, watches.data.by_watcher, len(watches.data)) == ({}, {}, 0)


def test_children_and_data_are_watched_apart(watches: Watches[str]) -> None:
    watches.data.add("/a", "ann")
    watches.child.add("/a", "bob")
    assert heard(watches, "/a", CHILDREN) == ["bob"]
    assert heard(watches, "/a", CHANGED) == ["ann"]


def test_a_death_is_reported_to_both_and_to_each_once(watches: Watches[str]) -> None:
    watches.data.add("/a", "ann")
    watches.child.add("/a", "ann")
    watches.child.add("/a", "bob")
    assert heard(watches, "/a", DELETED) == ["ann", "bob"]
    assert heard(watches, "/a", DELETED) == []


def test_a_persistent_watch_stays_and_hears_of_children(watches: Watches[str]) -> None:
    watches.add("/a", "ann", Mode.PERSISTENT)
    for kind in (CREATED, CHANGED, CHILDREN, DELETED, CREATED):
        assert heard(watches, "/a", kind) == ["ann"]
    assert heard(watches, "/a/b", CREATED) == []


def test_a_recursive_watch_hears_of_everything_below_but_not_of_children(watches: Watches[str]) -> None:
    watches.add("/a", "ann", Mode.RECURSIVE)
    watches.add("/", "bob", Mode.RECURSIVE)
    assert heard(watches, "/a/b/c", CREATED) == ["ann", "bob"]
    assert heard(watches, "/a", CHANGED) == ["ann", "bob"]
    assert heard(watches, "/ab", DELETED) == ["bob"]
    assert heard(watches, "/a", CHILDREN) == []


def test_nested_watches_of_one_watcher_are_heard_as_one(watches: Watches[str]) -> None:
    watches.add("/a", "ann", Mode.RECURSIVE)
    watches.add("/a/b", "ann", Mode.RECURSIVE)
    watches.data.add("/a/b/c", "ann")
    assert heard(watches, "/a/b/c", DELETED) == ["ann"]


def test_the_last_mode_counts_as_in_the_real_server(watches: Watches[str]) -> None:
    watches.add("/a", "ann", Mode.PERSISTENT)
    watches.data.add("/a", "ann")
    assert [heard(watches, "/a", CHANGED), heard(watches, "/a", CHANGED)] == [["ann"], []]
    assert heard(watches, "/a", CHILDREN) == ["ann"]


@pytest.mark.parametrize(("kind", "left"), [(1, (True, False)), (2, (False, True)), (3, (False, False))])
def test_a_watch_is_taken_away_by_kind(watches: Watches[str], kind: int, left: tuple[bool, bool]) -> None:
    watches.add("/a", "ann", Mode.PERSISTENT)
    watches.remove("/a", "ann", kind)
    assert ("/a" in watches.data.by_path, "/a" in watches.child.by_path) == left


@pytest.mark.parametrize(("kind", "code"), [(1, ErrorCode.NO_WATCHER), (3, ErrorCode.NO_WATCHER), (4, -5), (0, -5)])
def test_what_is_not_watched_cannot_be_taken_away(watches: Watches[str], kind: int, code: int) -> None:
    watches.data.add("/a", "bob")
    with pytest.raises(RequestError) as refused:
        watches.remove("/a", "ann", kind)
    assert refused.value.code == code


def test_recursive_watches_cost_nothing_once_they_are_gone(watches: Watches[str]) -> None:
    watches.add("/a", "ann", Mode.RECURSIVE)
    watches.add("/a", "ann", Mode.RECURSIVE)
    watches.data.add("/a", "ann")
    assert heard(watches, "/a/b", CREATED) == []
    watches.forget("ann")
    assert (len(watches.data), len(watches.child)) == (0, 0)


def test_checking_asks_whether_anybody_watches(watches: Watches[str]) -> None:
    watches.data.add("/a", "bob")
    watches.check("/a", 2)
    with pytest.raises(RequestError):
        watches.check("/a", 1)


def test_an_unknown_mode_is_refused(watches: Watches[str]) -> None:
    for mode in (-1, 2, 3):
        with pytest.raises(RequestError):
            watches.add("/a", "ann", mode)


def test_who_returns_is_told_what_it_missed_and_watches_the_rest(watches: Watches[str]) -> None:
    tree = DataTree()
    for path, zxid in (("/old", 3), ("/new", 8), ("/parent", 2)):
        tree.restore(path, Znode(b"", zxid=zxid))
    tree.node("/parent").pzxid = 9
    wanted = SetWatches(5, ["/old", "/new", "/gone"], ["/old", "/none"], ["/old", "/parent", "/gone"], ["/p"], ["/r"])
    missed = list(watches.restore(wanted, "ann", tree))
    assert missed == [
        (CHANGED, "/new"),
        (DELETED, "/gone"),
        (CREATED, "/old"),
        (CHILDREN, "/parent"),
        (DELETED, "/gone"),
    ]
    assert set(watches.data.by_path) == {"/old", "/none", "/p", "/r"}
    assert set(watches.child.by_path) == {"/old", "/p", "/r"}
