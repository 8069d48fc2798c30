"""The tree: what each write does to it, and that a refused one does nothing."""

from dataclasses import dataclass, field

import pytest

from aioelasticjob.zookeeper.acl import OPEN_UNSAFE, Acl, Identity
from aioelasticjob.zookeeper.codes import CreateFlag, ErrorCode, EventType, OpCode, RequestError
from aioelasticjob.zookeeper.datatree import AppliedOperation, Author, DataTree
from aioelasticjob.zookeeper.messages import Check, Create, Delete, SetAcl, SetData, Write
from aioelasticjob.zookeeper.znode import CONTAINER_OWNER, ttl_owner

SESSION = 77
HERE = [Identity("ip", "127.0.0.1")]


@dataclass
class Gardener:
    """Writes to a tree, one zxid after the other, at a time that the test sets."""

    tree: DataTree = field(default_factory=DataTree)
    now: int = 1000

    def author(self) -> Author:
        self.tree.zxid += 1
        return Author(SESSION, HERE, self.tree.zxid, self.now)

    def do(self, write: Write) -> AppliedOperation:
        return self.tree.apply(write, self.author())

    def create(self, path: str, flag: CreateFlag = CreateFlag.PERSISTENT, data: bytes | None = b"") -> str:
        return self.do(Create(OpCode.CREATE, path, data, OPEN_UNSAFE, flag)).path

    def all(self, *writes: Write) -> list[AppliedOperation | ErrorCode]:
        return list(self.tree.apply_all(writes, self.author()))

    def refused(self, write: Write) -> ErrorCode:
        with pytest.raises(RequestError) as refused:
            self.do(write)
        return refused.value.code

    def events(self) -> list[tuple[str, EventType]]:
        events, self.tree.events = self.tree.events, []
        return [(event.path, event.kind) for event in events]


@pytest.fixture
def garden() -> Gardener:
    return Gardener()


def create(path: str, flag: int = 0, op: OpCode = OpCode.CREATE2, ttl: int = -1) -> Create:
    return Create(op, path, b"data", OPEN_UNSAFE, flag, ttl)


def test_a_new_tree_has_the_nodes_of_the_real_one() -> None:
    tree = DataTree()
    assert set(tree.nodes) == {"", "/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"}
    assert (tree.node("/zookeeper/config").aversion, tree.data_size) == (-1, 44)


def test_a_created_node_knows_when_and_by_which_write(garden: Gardener) -> None:
    garden.now = 5_000
    garden.create("/a", data=b"xyz")
    node = garden.tree.node("/a")
    assert (node.czxid, node.mzxid, node.pzxid, node.ctime, node.mtime) == (1, 1, 1, 5_000, 5_000)
    assert (node.version, node.cversion, node.aversion, node.owner, node.data) == (0, 0, 0, 0, b"xyz")


def test_a_birth_changes_the_parent(garden: Gardener) -> None:
    garden.create("/a")
    garden.create("/a/b")
    parent = garden.tree.node("/a")
    assert (parent.cversion, parent.pzxid, parent.mzxid, list(parent.children)) == (1, 2, 1, ["b"])


def test_sequence_numbers_count_births_not_the_living(garden: Gardener) -> None:
    garden.create("/a")
    names = [garden.create("/a/n-", CreateFlag.PERSISTENT_SEQUENTIAL) for _ in range(2)]
    garden.do(Delete(names[0], -1))
    garden.create("/a/plain")
    names.append(garden.create("/a/", CreateFlag.PERSISTENT_SEQUENTIAL))
    assert names == ["/a/n-0000000000", "/a/n-0000000001", "/a/0000000003"]


def test_the_counter_wraps_as_a_java_int(garden: Gardener) -> None:
    garden.create("/a")
    garden.tree.node("/a").cversion = 2**31 - 1
    first = garden.create("/a/n", CreateFlag.PERSISTENT_SEQUENTIAL)
    assert [first, garden.create("/a/n", CreateFlag.PERSISTENT_SEQUENTIAL)] == ["/a/n2147483647", "/a/n-2147483648"]


@pytest.mark.parametrize(
    ("write", "code"),
    [
        (create("/nope/x"), ErrorCode.NO_NODE),
        (create("/a"), ErrorCode.NODE_EXISTS),
        (create("/a/"), ErrorCode.BAD_ARGUMENTS),
        (create("/e/x"), ErrorCode.NO_CHILDREN_FOR_EPHEMERALS),
        (create("/x", 9), ErrorCode.BAD_ARGUMENTS),
        (create("/x", 5), ErrorCode.BAD_ARGUMENTS),
        (create("/x", 5, OpCode.CREATE_TTL, 0), ErrorCode.BAD_ARGUMENTS),
        (create("/x", 5, OpCode.CREATE_TTL, 2**40), ErrorCode.BAD_ARGUMENTS),
        (create("/x", 0, OpCode.CREATE_TTL, 10), ErrorCode.BAD_ARGUMENTS),
        (Create(OpCode.CREATE, "/x", b"", [], 0), ErrorCode.INVALID_ACL),
        (Delete("/a", 3), ErrorCode.BAD_VERSION),
        (Delete("/a", -1), ErrorCode.NOT_EMPTY),
        (Delete("/nope", -1), ErrorCode.NO_NODE),
        (Delete("/", -1), ErrorCode.BAD_ARGUMENTS),
        (Delete(None, -1), ErrorCode.MARSHALLING_ERROR),
        (SetData("/a", b"", 1), ErrorCode.BAD_VERSION),
        (SetData("/nope", b"", -1), ErrorCode.NO_NODE),
        (SetData("/zookeeper/config", b"", -1), ErrorCode.NO_AUTH),
        (SetData(None, b"", -1), ErrorCode.BAD_ARGUMENTS),
        (SetAcl("/a", OPEN_UNSAFE, 7), ErrorCode.BAD_VERSION),
        (SetAcl("/nope", [], 7), ErrorCode.INVALID_ACL),
        (Check("/a", 1), ErrorCode.BAD_VERSION),
        (Check("/nope", -1), ErrorCode.NO_NODE),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_trace(garden: Gardener, write: Write, code: ErrorCode) -> None:
    garden.create("/a")
    garden.create("/a/b")
    garden.create("/e", CreateFlag.EPHEMERAL)
    garden.events()
    before = {path: (node.stat(), node.data, node.acl) for path, node in garden.tree.nodes.items()}
    assert garden.refused(write) is code
    assert {path: (node.stat(), node.data, node.acl) for path, node in garden.tree.nodes.items()} == before
    assert garden.events() == []


def test_new_data_raises_the_version_and_nothing_of_the_parent(garden: Gardener) -> None:
    garden.create("/a")
    root = garden.tree.node("/").stat()
    garden.now = 9_000
    garden.do(SetData("/a", b"new", 0))
    node = garden.tree.node("/a")
    assert (node.data, node.version, node.mzxid, node.czxid, node.mtime) == (b"new", 1, 2, 1, 9_000)
    assert garden.tree.node("/").stat() == root


def test_a_new_acl_raises_its_own_version_only(garden: Gardener) -> None:
    garden.create("/a")
    garden.do(SetAcl("/a", [Acl(1, "world", "anyone")], 0))
    node = garden.tree.node("/a")
    assert (node.aversion, node.version, node.mzxid) == (1, 0, 1)
    assert garden.refused(SetData("/a", b"", -1)) is ErrorCode.NO_AUTH


def test_the_parent_decides_about_birth_and_death(garden: Gardener) -> None:
    garden.do(Create(OpCode.CREATE, "/a", b"", [Acl(1, "world", "anyone")], 0))
    assert garden.refused(create("/a/b")) is ErrorCode.NO_AUTH
    assert garden.refused(Delete("/a/b", -1)) is ErrorCode.NO_AUTH


def test_a_session_takes_its_nodes_with_it(garden: Gardener) -> None:
    garden.create("/a")
    garden.create("/a/e", CreateFlag.EPHEMERAL)
    garden.create("/f-", CreateFlag.EPHEMERAL_SEQUENTIAL)
    garden.events()
    garden.tree.end_session(SESSION, 9)
    assert set(garden.tree.nodes) == set(DataTree().nodes) | {"/a"}
    assert garden.tree.node("/a").pzxid == 9
    assert garden.tree.ephemerals == {}
    assert sorted(garden.events()) == [
        ("/", EventType.CHILDREN_CHANGED),
        ("/a", EventType.CHILDREN_CHANGED),
        ("/a/e", EventType.DELETED),
        ("/f-0000000001", EventType.DELETED),
    ]


def test_events_come_in_the_order_of_the_real_server(garden: Gardener) -> None:
    garden.create("/a")
    garden.do(SetData("/a", b"", -1))
    garden.do(Delete("/a", -1))
    assert garden.events() == [
        ("/a", EventType.CREATED),
        ("/", EventType.CHILDREN_CHANGED),
        ("/a", EventType.DATA_CHANGED),
        ("/a", EventType.DELETED),
        ("/", EventType.CHILDREN_CHANGED),
    ]


def test_containers_go_once_they_were_used_and_left(garden: Gardener) -> None:
    garden.do(create("/c", 4, OpCode.CREATE_CONTAINER))
    assert garden.tree.node("/c").owner == CONTAINER_OWNER
    assert garden.tree.stale(10**9) == []
    garden.create("/c/x")
    assert garden.tree.stale(10**9) == []
    garden.do(Delete("/c/x", -1))
    assert garden.tree.stale(0) == ["/c"]


def test_an_unused_container_goes_if_that_is_wanted(garden: Gardener) -> None:
    garden.do(create("/c", 4, OpCode.CREATE_CONTAINER))
    assert garden.tree.stale(garden.now + 500, never_used=500) == []
    assert garden.tree.stale(garden.now + 501, never_used=500) == ["/c"]


def test_a_node_outlives_its_time_only_while_it_has_children(garden: Gardener) -> None:
    garden.do(create("/t", 5, OpCode.CREATE_TTL, 300))
    assert garden.tree.node("/t").owner == ttl_owner(300)
    garden.create("/t/x")
    assert garden.tree.stale(garden.now + 301) == []
    garden.do(Delete("/t/x", -1))
    assert garden.tree.stale(garden.now + 300) == []
    assert garden.tree.stale(garden.now + 301) == ["/t"]


def test_a_change_gives_a_node_its_time_again(garden: Gardener) -> None:
    garden.do(create("/t", 5, OpCode.CREATE_TTL, 300))
    garden.now += 200
    garden.do(SetData("/t", b"", -1))
    assert garden.tree.stale(garden.now + 300) == []


def test_without_extended_types_there_is_no_time_to_live() -> None:
    garden = Gardener(DataTree(extended_types=False))
    assert garden.refused(create("/t", 5, OpCode.CREATE_TTL, 300)) is ErrorCode.UNIMPLEMENTED


def test_marks_of_containers_and_times_to_live_are_not_shown(garden: Gardener) -> None:
    garden.do(create("/c", 4, OpCode.CREATE_CONTAINER))
    garden.do(create("/t", 5, OpCode.CREATE_TTL, 300))
    garden.create("/e", CreateFlag.EPHEMERAL)
    owners = [int.from_bytes(garden.tree.node(path).stat()[44:52], "big") for path in ("/c", "/t", "/e")]
    assert owners == [0, 0, SESSION]


def test_a_transaction_sees_its_own_writes_under_one_zxid(garden: Gardener) -> None:
    done = garden.all(
        create("/a"), SetData("/a", b"2", 0), Check("/a", 1), create("/a/s-", 2), Delete("/a/s-0000000000", -1)
    )
    assert [each.op for each in done if isinstance(each, AppliedOperation)] == [
        OpCode.CREATE2,
        OpCode.SET_DATA,
        OpCode.CHECK,
        OpCode.CREATE2,
        OpCode.DELETE,
    ]
    node = garden.tree.node("/a")
    assert (node.czxid, node.mzxid, node.pzxid, node.cversion) == (1, 1, 1, 1)


def test_a_failed_transaction_leaves_the_tree_as_it_was(garden: Gardener) -> None:
    garden.create("/a")
    garden.create("/a/b", CreateFlag.EPHEMERAL)
    garden.do(create("/c", 4, OpCode.CREATE_CONTAINER))
    garden.events()
    before = {path: (node.stat(), node.data) for path, node in garden.tree.nodes.items()}
    indices = dict(garden.tree.ephemerals[SESSION]), dict(garden.tree.reapable), garden.tree.data_size
    answer = garden.all(
        create("/x", 1),
        SetData("/a", b"longer", -1),
        Delete("/a/b", -1),
        Delete("/c", -1),
        create("/a/s", 2),
        Delete("/a/nope", -1),
        create("/y"),
    )
    ok, missing, after = ErrorCode.OK, ErrorCode.NO_NODE, ErrorCode.RUNTIME_INCONSISTENCY
    assert answer == [ok] * 5 + [missing, after]
    assert {path: (node.stat(), node.data) for path, node in garden.tree.nodes.items()} == before
    assert (dict(garden.tree.ephemerals[SESSION]), dict(garden.tree.reapable), garden.tree.data_size) == indices
    assert garden.events() == []
    assert garden.create("/a/s", CreateFlag.PERSISTENT_SEQUENTIAL) == "/a/s0000000001"


def test_a_quota_counts_what_is_below_it(garden: Gardener) -> None:
    garden.create("/q", data=b"12")
    for path in ("/zookeeper/quota/q", "/zookeeper/quota/q/zookeeper_limits", "/zookeeper/quota/q/zookeeper_stats"):
        garden.create(path)
    stats = garden.tree.node("/zookeeper/quota/q/zookeeper_stats")
    assert stats.data == b"count=1,bytes=2"
    garden.create("/q/a", data=b"345")
    garden.do(SetData("/q/a", b"", -1))
    limits = "/zookeeper/quota/q/zookeeper_limits"
    garden.all(
        create("/q/b"), SetData("/q", b"much longer", -1), Delete("/q/a", -1), Delete(limits, -1), Delete("/-", 0)
    )
    assert (stats.data, stats.version, stats.mzxid) == (b"count=2,bytes=2", 0, stats.czxid)
    garden.do(Delete(limits, -1))
    garden.do(Delete("/q/a", -1))
    assert stats.data == b"count=2,bytes=2"


def test_what_changed_is_noted_for_a_disk_only(garden: Gardener) -> None:
    garden.create("/a")
    assert garden.tree.dirty is None
    garden.tree.dirty = {}
    garden.create("/a/b")
    garden.do(Delete("/a/b", -1))
    garden.create("/c")
    assert set(garden.tree.take_dirty()) == {"/a", "/a/b", "/c", "/"}
    assert garden.tree.take_dirty() == {}


def test_all_descendants_are_below(garden: Gardener) -> None:
    for path in ("/a", "/a/b", "/a/b/c", "/ab"):
        garden.create(path)
    assert set(garden.tree.below("/a")) == {"/a/b", "/a/b/c"}
    assert len(list(garden.tree.below("/"))) == 7
