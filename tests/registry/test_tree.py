"""Trees as values."""

from __future__ import annotations

import gc
import sys

from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.registry.tree import UNREAD_NODE, Node, Tree, _index, parent
from tests.support.stats import stat

PATHS = st.lists(st.sampled_from("abc"), max_size=4).map(lambda names: "/" + "/".join(names))
NODES = st.builds(lambda data, version: Node.of(data, stat(version=version)), st.binary(max_size=2), st.integers(0, 2))
CHANGES = st.dictionaries(PATHS, st.none() | NODES)


def node(data: bytes = b"") -> Node:
    return Node.of(data, stat())


@given(st.dictionaries(PATHS, NODES), st.lists(CHANGES, max_size=5))
def test_replacing_is_the_same_as_making_anew(nodes: dict[str, Node], rounds: list[dict[str, Node | None]]) -> None:
    tree, expected = Tree(nodes), dict(nodes)
    for zxid, changes in enumerate(rounds, 1):
        before, names = Tree(expected), {path: tree.children(path) for path in expected}
        replaced = tree.replace(changes, zxid)
        expected |= {path: changed for path, changed in changes.items() if changed is not None}
        expected = {path: old for path, old in expected.items() if changes.get(path, old) is not None}
        assert tree == before  # the old value stands
        assert {path: tree.children(path) for path in before} == names
        tree = replaced
        assert tree == Tree(expected)
        assert tree.zxid == zxid
        for path in {*expected, *map(parent, expected), "/"}:
            assert tree.children(path) == Tree(expected).children(path)
        assert tree._names == _index(expected)  # it keeps nothing about nodes that have gone
    assert list(tree) == sorted(expected)
    assert len(tree) == len(expected)
    assert all(tree.get(path) == expected.get(path) for path in (*expected, "/nowhere"))


@given(st.dictionaries(PATHS, NODES), PATHS)
def test_below_is_a_node_and_what_hangs_on_it(nodes: dict[str, Node], root: str) -> None:
    closed = {path: found for path, found in nodes.items() if all(up in nodes for up in above(path))}
    prefix = root.rstrip("/") + "/"
    wanted = {path: found for path, found in closed.items() if path == root or path.startswith(prefix)}
    assert Tree(closed, 7).below(root) == Tree(wanted)
    assert Tree(closed, 7).below(root).zxid == 7


def above(path: str) -> list[str]:
    found = []
    while path != "/":
        path = parent(path)
        found.append(path)
    return found[:-1]  # the root itself need not be there


def test_the_garbage_collector_visits_no_node_of_a_tree() -> None:
    tree = Tree({"/a": node(b"1")}).replace({"/b": node(b"2")}, 1)
    (nodes,) = (part for part in gc.get_referents(tree) if isinstance(part, dict) and part)
    assert len(nodes) == 2
    assert gc.is_tracked(nodes) is (sys.version_info >= (3, 14))  # 3.14 tracks every dictionary
    assert not any(map(gc.is_tracked, nodes.values()))


def test_children_are_sorted_names_even_of_a_parent_that_is_not_in_the_tree() -> None:
    tree = Tree({"/job/b": node(), "/job/a": node(), "/job/a/x": node()})
    assert tree.children("/job") == ("a", "b")
    assert tree.children("/") == ()
    assert "/job" not in tree


def test_trees_are_equal_by_their_nodes_alone() -> None:
    assert Tree({"/a": node()}, 1) == Tree({"/a": node()}, 2)
    assert Tree({"/a": node()}) != Tree({"/a": node(b"other")})
    assert Tree() != "tree"
    assert repr(Tree({"/a": node()}, 255)) == "Tree(1 nodes, zxid=0xff)"


def test_a_reader_that_has_lost_touch_makes_all_trees_outdated_that_it_has_shown_since_it_read_them() -> None:
    first = Tree({"/a": node()})
    second = first.replace({"/b": node()}, 1)
    third = second.replace({}, 2)
    third.mark_outdated()
    assert (first.outdated, second.outdated, third.outdated) == (True, True, True)
    assert not Tree({"/a": node()}).outdated
    second.accept_as_newest()
    assert not first.outdated


def test_a_tree_says_where_it_has_no_node() -> None:
    tree = Tree({"/a": UNREAD_NODE})
    assert tree.missing(["/b", "/a", "/c"]) == ("/b", "/c")
