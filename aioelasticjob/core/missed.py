"""Reports moments that passed without a run: each once, by the instance that holds the item."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from aioelasticjob.core.clock_skew import AHEAD, ClockSkewMonitor
from aioelasticjob.core.commands import AnyReport, Report
from aioelasticjob.core.entries import MAX_FUTURE
from aioelasticjob.core.state import AWAY, REFUSED, UNKNOWN, Items, Newest, Passed, Timetable
from aioelasticjob.model import Record

NOT_RECORDED = "the run was cut off, and the job keeps no records"
NOT_KEPT = "an operator triggered the run, its stream gave way, and nothing was kept with which it could go on"
SKIPPED = "the clock was set ahead and skipped this time"
WAITED = "the clock had been set back, and this process waited to see whether that was a mistake"
GIVEN_BACK = "the instance that had claimed the item was too slow, and gave it back"

NEWS = 60_000
"""Milliseconds in which every instance learns of a new schedule.  An instance that does not has lost its session."""


class MissedMoments:
    """Decides which moments of its items one instance reports as missed."""

    def __init__(self, clock: ClockSkewMonitor, items: Items, reports: list[AnyReport]) -> None:
        self._clock, self._items, self._reports = clock, items, reports
        self.refusals: tuple[tuple[float, float], ...] = ()
        """How many seconds ago each span began and ended in which the registry refused what a run needs.

        The driver sets it.
        """
        self.lower_all(clock.now + MAX_FUTURE, clock.now)  # the clock may have been ahead before

    def lower_all(self, beyond: int, moment: int, former: int = 0) -> None:
        """Treat moments later than ``moment`` as not reported, for two kinds of items.

        For the first kind, a moment later than ``beyond`` was reported.  For the second kind, no moment later than
        ``former`` was reported, so all that was reported belongs to another schedule.
        """
        for item in self._items.values():
            if item.reported > beyond or item.reported <= former:
                item.reported = min(moment, item.reported)

    def report(
        self,
        last: Mapping[int, int],
        table: Timetable,
        until: int,
        why: str,
        *,
        late: bool = False,
        newest: Newest = Newest.MISSED,
    ) -> None:
        """Report the moments up to ``until`` that have passed without a run: for each item those after its ``last``.

        Moments up to the newest one reported for an item are left out, except with ``late``: then the item may have run
        again since.  The reason is a jump of the clock if it skipped the moments, or an outage of the registry during
        which they came, or else a refusal of what a run needs, or the wait after the clock was set back; if there was
        none of these, it is ``why``.
        ``newest`` says what happens to the newest moment that has come.
        """
        after = {item: known if late else max(known, self._items[item].reported) for item, known in last.items()}
        if min(after.values(), default=until) >= until:
            return
        clock = self._clock
        # the ends of an outage are dated by the clock as it is now: if it jumped meanwhile, they are in what it skipped
        reasons = (
            (SKIPPED, clock.skipped),
            (AWAY, clock.outages()),
            (REFUSED, clock.spans(self.refusals)),
            (WAITED, clock.waits),
        )
        spans = [(began, ended, reason) for reason, found in reasons for began, ended in found]
        ends = {end for began, ended, _ in spans for end in (began - 1, ended) if end < until}
        for end in sorted({until, *ends}):
            reason = next((reason for began, ended, reason in spans if began <= end <= ended), why)
            self._report(after, table, end, reason, newest)

    def report_given_back(self) -> None:
        """Report moments that another instance claimed and gave back, if a later one was claimed or reported meanwhile.

        If there is no later one, the moment is still due, like any other.
        """
        for number, item in self._items.items():
            slot, item.given_back = item.given_back, 0
            if slot and (item.record.slot > slot or item.knows(slot + 1)):
                self.put([number], Passed(slot, slot), GIVEN_BACK)

    def report_hidden(
        self, items: Iterable[int], table: Timetable, followed: Timetable, since: int, until: float = inf
    ) -> None:
        """Report moments of a new schedule that came while this instance still followed the old one, ``followed``.

        For each item, they are the moments after ``since`` and up to the newest one that was claimed, reported or
        passed over.  A moment that was reported counts although it has yet to be run late, because nobody else reports
        the moments before it.  A moment that a clock ahead has passed over hides none that have yet to come; one that
        it has reported hides those as well, so they are not run when they come.

        Moments that both schedules have were run or reported, so they are left out.  Nothing is reported if the span is
        longer than ``NEWS``: then a clock that was ahead claimed the moment at its end.
        """
        found, latest = {number: self._items[number] for number in items}, self._clock.now + AHEAD
        ends = {n: max(item.record.slot, item.reported, min(item.floor, latest)) for n, item in found.items()}
        spans = {n: (max(since, item.followed), int(min(until, ends[n]))) for n, item in found.items()}
        for number, (after, end) in spans.items():
            if max(after, self._clock.now) < end <= after + NEWS:
                found[number].floor = max(found[number].floor, end)  # what is reported before it comes is not run then
        for after, end in sorted(set(spans.values())):
            alike = [item for item, span in spans.items() if span == (after, end)]
            done = after if end - after <= NEWS else end
            while done < end:
                seen = followed.passed(done, end)
                last = end if seen is None else seen.first - 1
                self.report(dict.fromkeys(alike, done), table, last, UNKNOWN, late=True)
                done = end if seen is None else seen.first

    def _report(self, after: dict[int, int], table: Timetable, until: int, why: str, newest: Newest) -> None:
        alike: dict[Passed, list[int]] = {}
        found = {known: table.passed(known, until) for known in dict.fromkeys(after.values())}
        for item, known in after.items():
            if (passed := found[known]) is not None:
                alike.setdefault(passed, []).append(item)
        for passed, items in alike.items():
            after.update(dict.fromkeys(items, passed.last))
            self._items.reported(items, passed.last)
            self.put(items, passed, why, newest=newest)

    def put(
        self,
        items: Iterable[int],
        passed: Passed,
        why: str,
        cut_off: str = "",
        *,
        handled: bool = False,
        newest: Newest = Newest.MISSED,
    ) -> None:
        """Report moments that need not be in the schedule, or a run that was cut off."""
        if concerned := tuple(sorted(items)):
            self._reports.append(Report(concerned, passed, why, cut_off, handled, newest))

    def report_lost_runs(self, cut_off: Mapping[int, Record]) -> None:
        """Report runs that were cut off and are not rescued, each once; those of one moment and instance together.

        This is called when this instance gains an item whose run goes on nowhere, when it claims an item, and when
        records are switched off.  If a record claims a moment too far in the future, it may be lowered between two
        calls; the report names the moment that it claimed before.
        """
        together = dict[tuple[int, str], list[int]]()
        for item, record in cut_off.items():
            if self._items[item].lost_run != record.begun:
                self._items[item].lost_run = record.begun
                together.setdefault((self._items[item].moment_of(record), record.instance), []).append(item)
        for (moment, instance), items in together.items():
            self.put(items, Passed(moment, moment), "the run was cut off, and failover is off", instance)

    def report_removed(self, cut_off: Mapping[int, Record]) -> None:
        """Report runs that were cut off and that nobody runs again, because the leader has removed their items."""
        why = "the run was cut off, and the item was removed because the item count was lowered"
        for moment, instance in sorted({(record.moment, record.instance) for record in cut_off.values()}):
            items = [n for n, record in cut_off.items() if (record.moment, record.instance) == (moment, instance)]
            self.put(items, Passed(moment, moment), why, instance)
