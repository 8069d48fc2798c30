"""Records from the future: they were written while the registry's clock, which jobs use, was ahead.

The clock has been set back since.  If a record claims moments up to one minute ahead, it stands: those moments were run
early or reported, and are not run again.  If it claims later ones, its item would not run for too long, so the record
is lowered to the present.

The item or its schedule may have been made while the clock was ahead, too: then its date is later than the time at
which the record was found.  Nobody has run the moments before that date, so they are reported as missed.  An item that
was made earlier has no moments before its date.
"""

from __future__ import annotations

from collections.abc import Iterable

from aioelasticjob.core.clock_skew import AHEAD, ClockSkewMonitor
from aioelasticjob.core.commands import AnyReport, MarkMissed, NodeSteps, SayLowered
from aioelasticjob.core.effects import parts
from aioelasticjob.core.entries import MARKS_PER_TRANSACTION, MAX_FUTURE, MissedMark
from aioelasticjob.core.missed import MissedMoments
from aioelasticjob.core.state import SET_BACK, FutureRecord, Item, Items, Passed, Timetable
from aioelasticjob.core.view import JobView


class FutureRecords:
    """The items whose records claim moments that have yet to come.  Times are in milliseconds."""

    def __init__(self, clock: ClockSkewMonitor, missed: MissedMoments, items: Items, reports: list[AnyReport]) -> None:
        self._clock, self._missed, self._items, self._reports = clock, missed, items, reports

    def find(self, items: Iterable[int], now: int, tolerated: int = AHEAD) -> None:
        """Find such items among those whose records have just been read.

        If an item was given away and has come back, the time at which it was found first counts.  Dates between then
        and now were given by the clock that was ahead.  If the item's mark was written after the time was set last, the
        item has missed nothing before the moments that the mark is about.
        """
        for item in map(self._items.__getitem__, items):
            found = now if item.future is None else min(now, item.future.found)
            marked = item.mark.since or 0 if item.mark.zxid > self._clock.noticed_by else 0
            # a mark of the future was written while the clock was ahead, before this instance could notice that
            since = max(self._clock.since, marked if marked <= now else 0, now - MAX_FUTURE)
            future = FutureRecord(since, found, item.record.slot > now + MAX_FUTURE)
            item.future = future if _done(item) > now + tolerated else None

    def lower(self, view: JobView, items: Iterable[int]) -> frozenset[int]:
        """Lower the records that claim moments too far in the future, and return their items."""
        far = {n: future for n in items if (future := self._items[n].future) is not None and future.is_far}
        for number, future in far.items():
            item = self._items[number]
            since, _ = _in_question(view, number, item, future)
            self._reports.append(SayLowered(number, item.record.slot, since))
            item.lower(since)
            item.reported, item.floor, item.future = min(since, item.reported), min(since, item.floor), None
        return frozenset(far)

    def report(self, view: JobView, table: Timetable, items: Iterable[int]) -> NodeSteps[None]:
        """Mark the moments that nobody will run, then report them.

        Without a mark, the next holder would report them again.
        """
        missed, marks = dict[int, Passed](), dict[int, MissedMark]()
        for number in sorted(items):
            item = self._items[number]
            if (future := item.future) is None:
                continue
            since, dated = _in_question(view, number, item, future)
            opened = until = min(_done(item), dated)
            if item.mark.since is not None and until <= item.mark.until:  # after an earlier set-back
                opened = min(until, item.mark.since)
            if passed := table.passed(since, opened):
                missed[number], marks[number] = passed, MissedMark(until, since)
            else:
                item.future = None
        for part in parts(list(marks), MARKS_PER_TRANSACTION):
            marked: frozenset[int] | None = yield MarkMissed(view, {number: marks[number] for number in part})
            if marked is None:
                return  # the view is outdated
            for passed in sorted({missed[item] for item in marked}, key=lambda gap: (gap.first, gap.last)):
                alike = [item for item in marked if missed[item] == passed]
                self._missed.put(alike, passed, SET_BACK)
                self._items.reported(alike, passed.last)
            for number in part:
                self._items[number].future = None


def _done(item: Item) -> int:
    """Return up to which moment an item counts as run, reported or excused, also if it has no record."""
    return max(item.accounted, item.reported)


def _in_question(view: JobView, number: int, item: Item, future: FutureRecord) -> tuple[int, int]:
    """Return after which moment, and up to which one, nobody may have run an item's moments.

    A date up to ``found`` was given in time: the item has no moments before it, or they were run or reported here.  A
    later one is that of a clock ahead.
    """
    dates = int(view.schedules.dated * 1000), view.made_at(number)
    in_time = [date for date in (*dates, item.reported) if date <= future.found]
    return max([future.since, *in_time]), max(dates)
