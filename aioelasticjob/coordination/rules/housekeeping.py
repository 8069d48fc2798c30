"""What is left lying about."""

from __future__ import annotations

from collections.abc import Iterator

from aioelasticjob.coordination.effects import Forget, Prune
from aioelasticjob.coordination.rules.situation import Situation


def prune(now: Situation) -> Iterator[Prune]:
    """The leader removes items beyond the count, once nobody holds them."""
    view = now.view
    if not now.leading or not view.settled:
        return
    surplus = frozenset(item for item in view.items if item >= view.config.sharding_total_count)
    if surplus := surplus - view.assignment.keys():
        yield Prune(surplus)


def forget_requests(now: Situation) -> Iterator[Forget]:
    """On a tick the leader removes requests to instances that no longer exist."""
    if not (now.tick and now.leading):
        return
    layout, tree, alive = now.view.layout, now.view.tree, now.view.instances
    stale = [layout.shutdown(name) for name in tree.children(layout.shutdowns) if name not in alive]
    stale += [layout.trigger(name) for name in tree.children(layout.triggers) if name not in alive]
    if stale:
        yield Forget(tuple(stale))
