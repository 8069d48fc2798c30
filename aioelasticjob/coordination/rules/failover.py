"""Items whose run was cut off because their instance died."""

from __future__ import annotations

from collections.abc import Iterator

from aioelasticjob.coordination.effects import GiveUpRun, MarkOrphan, RemoveMarks
from aioelasticjob.coordination.rules.rule_input import RuleInput


def mark_orphans(now: RuleInput) -> Iterator[MarkOrphan]:
    """The leader marks every item that was begun, is not completed and runs nowhere, unless it is to be given up."""
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
    """The leader settles every run whose rescues were cut off so often in a row that its handler may well be why.

    Without a limit, a handler that ends its process would end one instance after the other.  A mark that an instance
    left when it handed the run over goes with it: rescuers leave such a mark alone.
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
    """The leader removes marks that no rescuer may answer: failover is off, or the item is gone."""
    view = now.view
    if not now.leading:
        return
    count = view.config.sharding_total_count if view.config.failover else 0
    stale = [view.layout.item(item).orphan for item in sorted(view.orphans) if item >= count]
    if removable := tuple(path for path in stale if not view.obstructed(path)):
        yield RemoveMarks(removable)
