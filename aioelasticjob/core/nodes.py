"""What the mirrored nodes of a job's items and requests hold.

Of a newer tree only the nodes that have changed are read.  So what it costs to claim an item or to answer a request
does not depend on how many items the job has, and how many requests it keeps: most of these have ended.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from aioelasticjob.config.job import MAX_ITEMS
from aioelasticjob.core.layout import Layout, child
from aioelasticjob.core.requests import Cancellation, Request, decode, decode_cancellation, decode_progress
from aioelasticjob.model import NONE
from aioelasticjob.registry.tree import Node, Tree, changed_below

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
    read = items_named(names)
    there = set[int]()
    special = set[int]()
    assignment = {**before.assignment}
    given = {**before.given}
    for item in read:
        paths = layout.item(item)
        path = paths.sharding
        holder = paths.instance
        node = None
        if path in tree:
            there.add(item)
            node = tree.get(holder)
            if len(tree.children(path)) > (node is not None) or tree.children(holder):
                special.add(item)
        if node is None:
            assignment.pop(item, None)
            given.pop(item, None)
        else:
            assignment[item] = node.text
            given[item] = node.stat.mzxid
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


@dataclass(frozen=True, slots=True)
class BegunItems:
    """How far the items have come that have begun one request."""

    done: frozenset[int] = NONE
    """The items that have run all moments of the request."""
    under_way: frozenset[int] = NONE
    """The items whose last run has no outcome yet."""
    wrong: frozenset[str] = NONE
    """The names of the nodes that are no items."""


NOTHING_BEGUN = BegunItems()
"""No item has begun the request."""


@dataclass(frozen=True, slots=True)
class RequestNodes:
    """The requests and the wishes to stop runs of one job."""

    held: Mapping[str, Request | Cancellation] = field(default_factory=dict)
    """What each node holds, by name."""
    begun: Mapping[str, BegunItems] = field(default_factory=dict)
    """The nodes that have nodes below them, by name: items have begun these requests."""
    wrong: frozenset[str] = frozenset()
    """The names of the nodes that hold neither a request nor a wish to stop runs."""
    unfinished: tuple[Request, ...] = ()
    """The requests that have not been closed, or have nodes below them, in the order in which they are answered."""
    open: tuple[Request, ...] = ()
    """The requests of which runs may still begin, in this order."""
    cancellations: tuple[Cancellation, ...] = ()
    """Who wants runs to be stopped, and which, in the order of their names."""

    def begun_by(self, name: str) -> BegunItems:
        """Return how far the items have come that have begun a request."""
        return self.begun.get(name, NOTHING_BEGUN)


NO_REQUESTS = RequestNodes()
"""What the nodes of requests hold if there are none.  Jobs without requests share it."""


def order(request: Request) -> tuple[int, int, str]:
    """Return the key by which requests are sorted in the order in which they are answered."""
    return request.moment, request.number, request.id


def request_nodes(path: str, tree: Tree, before: RequestNodes, changed: Iterable[str]) -> RequestNodes:
    """Return what the nodes below ``path`` hold, given what they held before and the paths that may have changed."""
    names = changed_below(path, changed)
    if not names:
        return before
    held = dict(before.held)
    read = dict[str, Request | Cancellation | None]()
    for name in names:
        held.pop(name, None)
        if (node := tree.get(child(path, name))) is not None:
            read[name] = _held(name, node, before.held.get(name))
    held |= {name: one for name, one in read.items() if one is not None}
    begun = {name: items for name, items in before.begun.items() if name not in names}
    for name, one in read.items():
        if tree.children(child(path, name)):
            known = before.begun.get(name) if one is before.held.get(name) else None
            begun[name] = _begun_items(child(path, name), one, tree, known, changed)
    asked = [one for one in read.values() if isinstance(one, Request)]
    stops = [one for one in read.values() if isinstance(one, Cancellation)]
    wrong = {name for name, one in read.items() if one is None}
    unfinished = [one for one in asked if not one.closed or one.id in begun]
    still_open = [one for one in asked if one.is_open]
    cancellations = [one for one in before.cancellations if one.id not in names]
    cancellations += stops
    cancellations.sort(key=lambda one: one.id)
    return RequestNodes(
        held,
        begun,
        (before.wrong - names) | wrong,
        _sorted(before.unfinished, names, unfinished),
        _sorted(before.open, names, still_open),
        tuple(cancellations),
    )


def _held(name: str, node: Node, before: Request | Cancellation | None) -> Request | Cancellation | None:
    """Return what a node holds: the request that it held before if it has not been written since.

    A node is also read again when nodes below it have come or gone.
    """
    stat = node.stat
    if isinstance(before, Request) and before.number == stat.czxid and before.version == stat.version:
        return before
    return decode(name, node) or decode_cancellation(name, node)


def _begun_items(
    path: str, held: Request | Cancellation | None, tree: Tree, before: BegunItems | None, changed: Iterable[str]
) -> BegunItems:
    """Return how far items have come with the request ``held``, given how far they had come ``before``."""
    names = frozenset(tree.children(path)) if before is None else changed_below(path, changed)
    before = before or NOTHING_BEGUN
    items = items_named(names)
    done = set[int]()
    under_way = set[int]()
    for item in items:
        if (node := tree.get(child(path, item))) is not None:
            progress = decode_progress(node.data)
            if isinstance(held, Request) and held.following(progress) is None:
                done.add(item)
            if not progress.outcome:
                under_way.add(item)
    wrong = {name for name in names - {*map(str, items)} if child(path, name) in tree}
    return BegunItems(
        (before.done - items) | done, (before.under_way - items) | under_way, (before.wrong - names) | wrong
    )


def _sorted(before: Iterable[Request], names: Collection[str], read: Iterable[Request]) -> tuple[Request, ...]:
    """Return requests in their order, with those of some names replaced by those that were read."""
    found = [one for one in before if one.id not in names]
    for one in read:
        insort(found, one, key=order)
    return tuple(found)
