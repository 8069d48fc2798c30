"""The tree against the simplest model there is, a dictionary of paths: any sequence of writes, in multis or not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aioelasticjob.zookeeper.acl import OPEN_UNSAFE
from aioelasticjob.zookeeper.codes import ErrorCode, OpCode, RequestError
from aioelasticjob.zookeeper.datatree import AppliedOperation, Author, DataTree
from aioelasticjob.zookeeper.messages import Check, Create, Delete, SetData, Write

names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
versions = st.sampled_from([-1, -1, -1, 0, 1, 2])
sessions = st.sampled_from([11, 12])
flags = st.sampled_from([0, 0, 0, 1, 2, 3])
writes: st.SearchStrategy[Write] = st.one_of(
    st.builds(lambda path, flag: Create(OpCode.CREATE2, path, b"", OPEN_UNSAFE, flag), paths, flags),
    st.builds(Delete, paths, versions),
    st.builds(SetData, paths, st.binary(max_size=4), versions),
    st.builds(Check, paths, versions),
)


@dataclass(frozen=True)
class Node:
    """What the model knows of a znode."""

    data: bytes
    owner: int
    born: int
    changed: int
    family: int
    version: int = 0
    births: int = 0


Model = dict[str, Node]


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def apply(model: Model, write: Write, session: int, zxid: int) -> Model | ErrorCode:
    """Tell what the tree looks like after a write, in the words of the documentation."""
    model = dict(model)
    path = write.path
    assert path is not None
    if isinstance(write, Create):
        parent = parent_of(path)
        if parent not in model:
            return ErrorCode.NO_NODE
        if write.flags in (2, 3):
            path += f"{model[parent].births:010}"
        if path in model:
            return ErrorCode.NODE_EXISTS
        if model[parent].owner:
            return ErrorCode.NO_CHILDREN_FOR_EPHEMERALS
        model[path] = Node(write.data or b"", session if write.flags in (1, 3) else 0, zxid, zxid, zxid)
        model[parent] = replace(model[parent], births=model[parent].births + 1, family=zxid)
        return model
    if path not in model:
        return ErrorCode.NO_NODE
    assert not isinstance(write, (Create,))
    if write.version not in (-1, model[path].version):
        return ErrorCode.BAD_VERSION
    if isinstance(write, Delete):
        if any(parent_of(each) == path for each in model if each != "/"):
            return ErrorCode.NOT_EMPTY
        del model[path]
        model[parent_of(path)] = replace(model[parent_of(path)], family=zxid)
    elif isinstance(write, SetData):
        model[path] = replace(model[path], data=write.data or b"", version=model[path].version + 1, changed=zxid)
    return model


class Gardening(RuleBasedStateMachine):
    """Writes to both and compares."""

    own: ClassVar[set[str]] = {"/zookeeper", "/zookeeper/quota", "/zookeeper/config"}

    @initialize()
    def plant(self) -> None:
        self.tree = DataTree()
        self.model: Model = {"/": Node(b"", 0, 0, 0, 0)}

    def author(self, session: int) -> Author:
        self.tree.zxid += 1
        return Author(session, (), self.tree.zxid, self.tree.zxid)

    @rule(write=writes, session=sessions)
    def one(self, write: Write, session: int) -> None:
        author = self.author(session)
        expected = apply(self.model, write, session, author.zxid)
        if isinstance(expected, ErrorCode):
            with pytest.raises(RequestError) as refused:
                self.tree.apply(write, author)
            assert refused.value.code is expected
        else:
            self.tree.apply(write, author)
            self.model = expected

    @rule(several=st.lists(writes, max_size=6), session=sessions)
    def together(self, several: list[Write], session: int) -> None:
        author, model = self.author(session), self.model
        for done, write in enumerate(several):
            expected = apply(model, write, session, author.zxid)
            if isinstance(expected, ErrorCode):
                rest = [ErrorCode.RUNTIME_INCONSISTENCY] * (len(several) - done - 1)
                assert list(self.tree.apply_all(several, author)) == [ErrorCode.OK] * done + [expected, *rest]
                return
            model = expected
        assert all(isinstance(result, AppliedOperation) for result in self.tree.apply_all(several, author))
        self.model = model

    @rule(session=sessions)
    def leave(self, session: int) -> None:
        zxid = self.author(session).zxid
        self.tree.end_session(session, zxid)
        for path in [path for path, node in self.model.items() if node.owner == session]:
            del self.model[path]
            self.model[parent_of(path)] = replace(self.model[parent_of(path)], family=zxid)

    @invariant()
    def they_agree(self) -> None:
        seen = {
            path: Node(node.data or b"", node.owner, node.czxid, node.mzxid, node.pzxid, node.version, node.cversion)
            for path, node in self.tree.nodes.items()
            if path and path not in self.own
        }
        assert seen == self.model
        for path, node in self.tree.nodes.items():
            assert all(f"{path.rstrip('/')}/{child}" in self.tree.nodes for child in node.children)
        owned = {path for paths in self.tree.ephemerals.values() for path in paths}
        assert owned == {path for path, node in self.model.items() if node.owner}
        assert self.tree.data_size == sum(len(path) + len(node.data or b"") for path, node in self.tree.nodes.items())


TestGardening = Gardening.TestCase
TestGardening.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
