"""The rules of failover, for items whose run was cut off."""

from __future__ import annotations

from collections.abc import Iterator

from aioelasticjob.coordination.effects import GiveUpRun, MarkOrphan, RemoveMarks
from aioelasticjob.coordination.rules.rule_input import RuleInput


def mark_orphans(now: RuleInput) -> Iterator[MarkOrphan]:
    """The leader marks every item whose run was cut off as an orphan, unless it gives the run up.

    A run was cut off if it was begun, is not completed and runs nowhere.
    """
    view = now.view
    if not (now.leading and view.config.failover):
        return
    for item, version in sorted(now.cut_off.items()):
        marks = (view.layout.item(item).orphan, view.layout.item(item).failover)
        wanted = (
            item in view.items and item < view.config.sharding_total_count
        )  # or ``unmark_orphans`` would undo it for ever
        if wanted and not any(mark in view.tree for mark in marks) and _rescues(now, item) < view.config.max_rescues:
            yield MarkOrphan(item, version, now.runs.get(item))


def give_up_runs(now: RuleInput) -> Iterator[GiveUpRun]:
    """The leader settles a run as failed after ``max_rescues`` rescues in a row were cut off: its handler may be why.

    Without a limit, a handler that ends its process would end one instance after the other.  If an instance has handed
    the run over, its mark is removed as well, because rescuers ignore the mark of a run that is to be given up.
    """
    view = now.view
    if not (now.leading and view.config.failover):
        return
    for item, version in sorted(now.cut_off.items()):
        paths = view.layout.item(item)
        if paths.failover not in view.tree and _rescues(now, item) >= view.config.max_rescues:
            marked = paths.orphan in view.tree and not view.obstructed(paths.orphan)
            yield GiveUpRun(item, version, now.runs[item], round(now.time * 1000), marked)


def _rescues(now: RuleInput, item: int) -> int:
    return now.runs[item].rescues if item in now.runs else 0


def unmark_orphans(now: RuleInput) -> Iterator[RemoveMarks]:
    """The leader removes marks of orphans that nobody may rescue, because failover is off or the item is gone."""
    view = now.view
    if not now.leading:
        return
    count = view.config.sharding_total_count if view.config.failover else 0
    stale = [view.layout.item(item).orphan for item in sorted(view.orphans) if item >= count]
    if removable := tuple(path for path in stale if not view.obstructed(path)):
        yield RemoveMarks(removable)
