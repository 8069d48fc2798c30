"""Records from the future: they were written while the registry's clock, which jobs use, was ahead.

The clock has been set back since.  If a record claims moments up to one minute ahead, it stands: those moments were run
early or reported, and are not run again.  But if the item or its schedule was made while the clock was ahead, nobody
has run the moments before that, so they are reported as missed.  (It was made while the clock was ahead if its date is
later than the time at which the record was found.  Otherwise it has no moments before its date.)  If a record claims
moments more than a minute ahead, its item would not run for too long, so the record is lowered to the present.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from aioelasticjob.coordination.missed_marks import MARKS_PER_TRANSACTION
from aioelasticjob.coordination.record_cache import MAX_FUTURE, MissedMark
from aioelasticjob.coordination.view import JobView
from aioelasticjob.running.clock_skew import AHEAD
from aioelasticjob.running.commands import Command, MarkMissed, SayLowered
from aioelasticjob.running.missed import MissedMoments
from aioelasticjob.running.schedule import Passed, Timetable
from aioelasticjob.running.state import SET_BACK, Items
from aioelasticjob.running.unattended import made_at


class FutureRecords:
    """The items whose records claim moments that have yet to come.  Times are in milliseconds."""

    def __init__(self, missed: MissedMoments, items: Items, commands: list[Command]) -> None:
        self._missed, self._items, self._commands = missed, items, commands

    def find(self, items: Iterable[int], now: int, since: int, tolerated: int = AHEAD) -> None:
        """Find such items among those whose records have just been read.  The time was last set at ``since``."""
        for item in map(self._items.__getitem__, items):
            item.far_ahead, item.ahead_since = item.record.slot > now + MAX_FUTURE, None
            if item.record.slot > now + tolerated:
                item.ahead_since, item.ahead_found = max(since, now - MAX_FUTURE), now

    def find_anew(self, items: Iterable[int], now: int, since: int) -> None:
        """Search all items of this instance again, because the time has been set to ``now``, ahead or back."""
        for item in self._items.values():
            item.ahead_since = None
        self.find(items, now, since, 0)

    def schedule_changed(self, now: int) -> None:
        """Assume that what is dated up to now was made in time: the schedule now in force was."""
        for item in self._items.values():
            item.ahead_found = now + AHEAD

    def settle(
        self, view: JobView, table: Timetable, items: frozenset[int], then: Callable[[frozenset[int]], None]
    ) -> None:
        """Report the moments that nobody will run, and lower the records that claim too much.

        ``items`` are the items of this instance that are to be run; disabled ones are left for later.  ``then`` is
        called with the items whose records were lowered.
        """
        lowered, missed, until = set[int](), dict[int, Passed](), dict[int, int]()
        for number in items:
            item = self._items[number]
            if item.ahead_since is None:
                continue
            slot, reported = item.record.slot, item.mark
            began = int(view.schedule_dated * 1000), made_at(view, number)
            in_time = [moment for moment in began if moment <= item.ahead_found]  # else the clock was ahead
            since = item.ahead_since = max(item.ahead_since, *in_time, 0)
            opened = until[number] = min(slot, max(began))
            if reported.since is not None and opened <= reported.until:  # after an earlier set-back
                opened = min(opened, reported.since)
            passed = table.passed(since, opened)
            if item.far_ahead:
                self._lower(number, since)
                lowered.add(number)
            elif passed is not None:
                missed[number] = passed
            else:
                item.ahead_since = None
        self._mark(view, missed, until, lambda: then(frozenset(lowered)))

    def _mark(
        self, view: JobView, missed: Mapping[int, Passed], until: Mapping[int, int], then: Callable[[], None]
    ) -> None:
        """Mark the missed moments, then report them.  Without a mark, the next holder would report them again."""
        part = dict(sorted(missed.items())[:MARKS_PER_TRANSACTION])

        def marked(items: frozenset[int] | None) -> None:
            if items is None:
                return then()  # the view is outdated
            for passed in sorted({part[item] for item in items}, key=lambda gap: (gap.first, gap.last)):
                alike = [item for item in items if part[item] == passed]
                self._missed.put(alike, passed, SET_BACK)
                self._items.ran(alike, passed.last)
            for item in part:
                self._items[item].ahead_since = None
            self._mark(view, {item: passed for item, passed in missed.items() if item not in part}, until, then)

        if not part:
            return then()
        said = {item: MissedMark(until[item], self._items[item].ahead_since) for item in part}
        self._commands.append(MarkMissed(view, said, marked))

    def _lower(self, number: int, since: int) -> None:
        item = self._items[number]
        slot, known = item.record.slot, item.reported
        since = max(since, known) if known <= item.ahead_found else since  # ``known`` was run here at the right time
        self._commands.append(SayLowered(number, slot, since))
        item.lower(since)
        item.reported, item.ahead_since = min(since, item.reported), None
