"""The rules of failover, for items whose run was cut off."""

from __future__ import annotations

from collections.abc import Iterator

from aioelasticjob.coordination.effects import EndRun, MarkOrphan, RemoveMarks
from aioelasticjob.coordination.request_runs import ended_as
from aioelasticjob.coordination.rules.rule_input import RuleInput


def mark_orphans(now: RuleInput) -> Iterator[MarkOrphan]:
    """The leader marks every item whose run was cut off as an orphan, unless it ends the run itself.

    A run was cut off if it was begun, is not completed and runs nowhere.
    """
    view = now.view
    if not (now.leading and view.config.failover):
        return
    for item, run in sorted(now.cut_off.items()):
        marks = (view.layout.item(item).orphan, view.layout.item(item).failover)
        # otherwise ``unmark_orphans`` would undo it for ever
        wanted = item in view.items and item < view.config.sharding_total_count
        if wanted and not any(mark in view.tree for mark in marks) and not ended_as(view, item, run.record, run.fence):
            yield MarkOrphan(item, run.version, run.record)


def end_runs(now: RuleInput) -> Iterator[EndRun]:
    """The leader settles a run that was cut off and is not to be rescued.

    It gives a run up after ``max_rescues`` rescues in a row were cut off, because the run's handler may be why: without
    a limit, a handler that ends its process would end one instance after the other.  It ends a run as stopped if
    somebody had cancelled it: who cancels a thread that hangs, and kills its process because it goes on, does not want
    another instance to begin the run again.  If an instance has handed the run over, its mark is removed as well,
    because rescuers ignore the mark of such a run.
    """
    view = now.view
    if not (now.leading and view.config.failover):
        return
    for item, run in sorted(now.cut_off.items()):
        paths = view.layout.item(item)
        if paths.failover not in view.tree and (outcome := ended_as(view, item, run.record, run.fence)):
            marked = paths.orphan in view.tree and not view.obstructed(paths.orphan)
            yield EndRun(item, run.version, run.record, round(now.time * 1000), marked, outcome)


def unmark_orphans(now: RuleInput) -> Iterator[RemoveMarks]:
    """The leader removes marks of orphans that nobody may rescue, because failover is off or the item is gone."""
    view = now.view
    if not now.leading:
        return
    count = view.config.sharding_total_count if view.config.failover else 0
    stale = [view.layout.item(item).orphan for item in sorted(view.orphans) if item >= count]
    if removable := tuple(path for path in stale if not view.obstructed(path)):
        yield RemoveMarks(removable)
