"""Items whose run was cut off because their instance died."""

from __future__ import annotations

from collections.abc import Iterator

from aioelasticjob.coordination.effects import Forget, Mourn
from aioelasticjob.coordination.rules.situation import Situation


def mourn(now: Situation) -> Iterator[Mourn]:
    """The leader marks every item that was begun, is not completed and runs nowhere."""
    view = now.view
    if not (now.leading and view.config.failover):
        return
    for item, version in sorted(now.cut_off.items()):
        marks = (view.layout.item(item).orphan, view.layout.item(item).failover)
        wanted = item in view.items and item < view.config.sharding_total_count  # or ``forget`` would undo it for ever
        if wanted and not any(mark in view.tree for mark in marks):
            yield Mourn(item, version, now.runs.get(item))


def forget(now: Situation) -> Iterator[Forget]:
    """The leader removes marks that no rescuer may answer: failover is off, or the item is gone."""
    view = now.view
    if not now.leading:
        return
    count = view.config.sharding_total_count if view.config.failover else 0
    stale = [view.layout.item(item).orphan for item in sorted(view.orphans) if item >= count]
    if removable := tuple(path for path in stale if not view.obstructed(path)):
        yield Forget(removable)
