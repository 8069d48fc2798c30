"""What the nodes below ``sharding`` hold.  Of a newer tree only the items whose nodes have changed are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from aioelasticjob.job_settings import MAX_ITEMS
from aioelasticjob.layout import Layout, child
from aioelasticjob.model import NONE
from aioelasticjob.registry.tree import Tree, changed_below

MAX_NUMBER_DIGITS = len(str(MAX_ITEMS))
"""The most digits of an item's number.  A node with a longer name is not an item."""


@dataclass(frozen=True, slots=True)
class ItemNodes:
    """The items of one job that have a node, and who holds them."""

    items: frozenset[int] = NONE
    """The items that have a node."""
    assignment: Mapping[int, str] = field(default_factory=dict)
    """The instance that holds each item; items without a holder are absent."""
    given: Mapping[int, int] = field(default_factory=dict)
    """The transaction that gave each item to its holder."""
    special: frozenset[int] = NONE
    """The items that have more below them than the node of their holder: few items have, and only these are searched
    for flags, for rescues, and for mistakes of people."""
    wrong: frozenset[str] = NONE
    """The names of the nodes that are no items."""


NO_ITEMS = ItemNodes()
"""What the nodes of items hold if there are none."""


def item_nodes(layout: Layout, tree: Tree, before: ItemNodes, changed: Iterable[str]) -> ItemNodes:
    """Return what the nodes of items hold, given what they held before and the paths that may have changed."""
    names = changed_below(layout.sharding, changed)
    if not names:
        return before
    read, there, special = items_named(names), set[int](), set[int]()
    assignment, given = {**before.assignment}, {**before.given}
    for item in read:
        paths = layout.item(item)
        path, holder, node = paths.sharding, paths.instance, None
        if path in tree:
            there.add(item)
            node = tree.get(holder)
            if len(tree.children(path)) > (node is not None) or tree.children(holder):
                special.add(item)
        if node is None:
            assignment.pop(item, None)
            given.pop(item, None)
        else:
            assignment[item], given[item] = node.text, node.stat.mzxid
    wrong = {name for name in names - {*map(str, read)} if child(layout.sharding, name) in tree}
    return ItemNodes(
        _shared((before.items - read) | there),
        assignment,
        given,
        (before.special - read) | special or NONE,
        (before.wrong - names) | wrong or NONE,
    )


def is_item(name: str) -> bool:
    """Whether a node's name is the number of an item, without leading zeros."""
    return len(name) <= MAX_NUMBER_DIGITS and name.isascii() and name.isdigit() and str(int(name)) == name


def items_named(names: Iterable[str]) -> frozenset[int]:
    """Return the items whose numbers are among some names."""
    return frozenset([int(name) for name in names if is_item(name)]) or NONE


@lru_cache(maxsize=256)
def _shared(items: frozenset[int]) -> frozenset[int]:
    """Return the first set of the same items that was given here: jobs with the same items share it."""
    return items or NONE
