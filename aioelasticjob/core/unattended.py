"""Reports moments that came while no instance was up: one instance does it, for the whole cluster.

It also finds out by which schedules the one that an instance follows was replaced, and when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aioelasticjob.core.clock_skew import ASTRAY, ClockSkewMonitor
from aioelasticjob.core.commands import MarkMissed, NodeSteps, ReadAccounted, WriteAccounted
from aioelasticjob.core.entries import MARKS_PER_TRANSACTION, AccountedMoment, MissedMark
from aioelasticjob.core.missed import MissedMoments
from aioelasticjob.core.schedules import FormerSchedule
from aioelasticjob.core.state import BUSY, ENDED, Item, Items, Timetable
from aioelasticjob.core.view import JobView

NO_INSTANCE_UP = "no instance was up"
ROUNDED = 0.001
"""Seconds by which two dates of one schedule may differ, because they are noted in milliseconds."""
RETRY_PAUSE = 5.0
"""Seconds until the instance tries again to write a note that the registry has refused."""
Span = tuple[Timetable, int, int]
"""A schedule, and the start and end of the time in which it was in force."""


class UnattendedMoments:
    """Reports the moments that came while no instance was up.  Moments are in milliseconds."""

    def __init__(self, me: str, clock: ClockSkewMonitor, missed: MissedMoments, items: Items) -> None:
        self._me, self._clock, self._missed, self._items = me, clock, missed, items
        self._reported = False
        """Whether this instance has reported what a job without records has missed."""
        self._again_at = 0.0
        """When it may try again, by the clock that nobody sets, after the registry has refused the note."""

    def report(
        self, view: JobView, spans: Sequence[Span], gained: Mapping[int, tuple[int, int]]
    ) -> NodeSteps[frozenset[int]]:
        """Report moments that no instance has run, for items just gained.  Items that are switched off miss none.

        ``gained`` says when each item was made, by a clock that was right, and after which moment this instance runs
        the item's moments itself.  ``spans`` are the schedules until now, oldest first, by the registry's clock: this
        host's may be behind.  All items are marked; otherwise their next holders would report the moments again.
        The result is the items that were not marked: the view is outdated, or this instance was removed.
        """
        after, missed = dict[int, int](), dict[int, int]()
        for number, (made, floor) in gained.items():
            item = self._items[number]
            last = max(item.record.slot, item.mark.until, made)
            for table, since, until in spans:
                if passed := table.passed(max(last, since), min(until, floor)):
                    after[number], missed[number] = last, passed.last
        while missed and self._me in view.instances:  # a removed instance leaves its items to others
            part = {item: MissedMark(missed[item]) for item in sorted(missed)[:MARKS_PER_TRANSACTION]}
            marked: frozenset[int] | None = yield MarkMissed(view, part)
            if marked is None:
                break
            if self._me in view.active:
                open_ = marked - view.disabled_items
                self._report_marked(view, spans, {item: (after[item], missed[item]) for item in open_})
            for number in part:
                del missed[number]
        return frozenset(missed)

    def _report_marked(self, view: JobView, spans: Sequence[Span], marked: Mapping[int, tuple[int, int]]) -> None:
        """Report the moments of items that may run here: those after the first number, and up to the second."""
        for table, since, until in spans:
            for newest in sorted({min(last, until) for _, last in marked.values()}):
                alike = {i: max(after, since) for i, (after, last) in marked.items() if min(last, until) == newest}
                nobody = newest if table is spans[-1][0] else int(min(newest, view.up_since * 1000))
                ends = {item: _run_ended(self._items[item], view.up_since) for item in alike}
                for ended in sorted(set(ends.values())):  # an instance was up until then
                    ran = {item: last for item, last in alike.items() if ends[item] == ended}
                    self._missed.report(ran, table, min(nobody, ended), BUSY)
                self._missed.report(alike, table, nobody, NO_INSTANCE_UP)
                self._missed.report(alike, table, newest, ENDED)

    def report_unrecorded(self, view: JobView, table: Timetable, known_since: int) -> NodeSteps[None]:
        """Report as the leader, once, what came while no instance was up, for all items of a job without records.

        An older release does not write up to which moment an instance was up.  Then nothing is reported, and the moment
        is written from now on.  If the registry refuses the note, it is tried again later, and items run meanwhile.
        """
        if view.leader != self._me or self._reported or self._clock.steady < self._again_at:
            return
        self._again_at, now, before = self._clock.steady + RETRY_PAUSE, self._clock.now, None
        known: AccountedMoment | None
        while (known := (yield ReadAccounted())) is not None and known != before:
            before, last = known, max(known.moment, known_since)
            passed = table.passed(last, int(min(view.up_since * 1000, now + ASTRAY * 1000)))
            until = now if not known.moment else 0 if passed is None else passed.last
            written: bool | None = (yield WriteAccounted(view, until, known.version)) if until else True
            if written is None:
                return  # the registry has refused it, which the job's health shows
            if written:
                if known.moment and passed is not None:
                    items = view.items - view.resting_items
                    open_ = [item for item in items if item < view.config.sharding_total_count]
                    after = {item: max(last, view.made_at(item)) for item in open_}
                    self._missed.report(after, table, passed.last, NO_INSTANCE_UP, late=True)
                self._reported = True
                return
            # another instance has written meanwhile, so it is read again


def _run_ended(item: Item, up_since: float) -> int:
    """Return when the run of the item's last scheduled moment ended; 0 if it was cut off, or if there is none.

    It is also 0 for a run that began after the absence, such as a rescue: that run did not keep the item busy before.
    """
    record = item.record
    return record.completed_at if record.completed and not record.asked and record.begun < up_since * 1000 else 0


class Succession:
    """Compares the schedule of the view that an instance follows with that of a newer view."""

    def __init__(self, before: JobView, view: JobView) -> None:
        self._view, followed = view, before.config.schedule
        self.between: list[FormerSchedule] = _after(view, before.schedules.dated)
        """The schedules that came after the one followed and have been replaced since, oldest first."""
        self.has_changed = view.config.schedule != followed or any(one.cron != followed for one in self.between)
        """Whether another schedule is in force, or the same one again after another."""
        self.ended = self.between[0].since if self.between else int(view.schedules.since * 1000)
        """When the schedule followed was replaced, in milliseconds, if ``has_changed``."""

    def handed_on(self, items: Iterable[int], me: str) -> frozenset[int]:
        """Return the items that another instance was given before the schedule ended.

        That instance reports what they missed, according to their records.  If this instance reported their newest
        moments now, the older ones would count as reported too if the items come back.
        """
        given = (item for item in items if self._view.assignment.get(item, me) != me)
        return frozenset(item for item in given if self._view.given_at(item) < self.ended)


def _after(view: JobView, since: float) -> list[FormerSchedule]:
    """Return the schedules noted after the one with this date and before the one in force.

    Their dates need not be in order, because the clock that dated them may have been set in between.
    """
    noted = [one.since / 1000 for one in view.schedules.former]
    same = [n for n, date in enumerate([*noted, view.schedules.dated]) if abs(date - since) <= ROUNDED]
    if same:
        return list(view.schedules.former[same[-1] + 1 :])
    return [one for one in view.schedules.former if one.since / 1000 > since]  # it was replaced unnoted
