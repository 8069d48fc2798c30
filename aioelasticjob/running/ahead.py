"""Records from the future: they were written while the registry's clock, which jobs follow, was ahead.

The clock has been set back since.  If a record claims no more than a minute of the future, it stands: those moments
were run early or reported, and are not run again.  But if the item or its schedule began while the clock was ahead,
nobody has run the moments before that beginning, so they are reported as missed.  (It did if it is dated later than the
record was found; else it began in time, and has no moments before that.)  If a record claims more than a minute of the
future, its item would be silent for too long, so the record is lowered to the present.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from aioelasticjob.clock import moment
from aioelasticjob.coordination.absence import MARKED_AT_ONCE, mark
from aioelasticjob.coordination.ledger import TOLERATED, Ledger, Mark
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.view import JobView
from aioelasticjob.running.absence import made_at
from aioelasticjob.running.clockwork import AHEAD
from aioelasticjob.running.misses import Misses
from aioelasticjob.running.schedule import Passed, Timetable
from aioelasticjob.running.state import Items

SET_BACK = "the registry's clock was ahead and has been set back"

log = logging.getLogger(__name__)


class Ahead:
    """The items whose records claim moments that have yet to come; times in milliseconds."""

    def __init__(self, member: Member, ledger: Ledger, misses: Misses, items: Items) -> None:
        self._member, self._ledger, self._misses, self._items = member, ledger, misses, items

    def __bool__(self) -> bool:
        return any(item.ahead_since is not None for item in self._items.values())

    def find(self, items: Iterable[int], now: int, since: int, tolerated: int = AHEAD) -> None:
        """Look for such items among those whose records have just been read; the time has not been set ``since``."""
        for item in map(self._items.__getitem__, items):
            item.far_ahead, item.ahead_since = item.record.slot > now + TOLERATED, None
            if item.record.slot > now + tolerated:
                item.ahead_since, item.ahead_found = max(since, now - TOLERATED), now

    def find_anew(self, items: Iterable[int], now: int, since: int) -> None:
        """Look again among all items held: the time has been set to ``now``, either way."""
        for item in self._items.values():
            item.ahead_since = None
        self.find(items, now, since, 0)

    def schedule_changed(self, now: int) -> None:
        """Take what is dated up to now for begun in time: so it was, if the schedule now in force was."""
        for item in self._items.values():
            item.ahead_found = now + AHEAD

    async def settle(self, view: JobView, table: Timetable, items: frozenset[int]) -> frozenset[int]:
        """Report the moments that nobody will run, lower the records that claim too much; return the items lowered.

        ``items`` are those held that are to be run; the others have time.

        Raises:
            Suspended: there is no connection; what is left is done next time.
            SessionEnded: the session was lost.
        """
        lowered, missed, until = set[int](), dict[int, Passed](), dict[int, int]()
        for number in items:
            item = self._items[number]
            if item.ahead_since is None:
                continue
            slot, reported = item.record.slot, item.mark
            began = int(view.schedule_dated * 1000), made_at(view, number)
            in_time = [moment for moment in began if moment <= item.ahead_found]  # the others by a clock ahead
            since = item.ahead_since = max(item.ahead_since, *in_time, 0)
            opened = until[number] = min(slot, max(began))
            if reported.since is not None and opened <= reported.until:  # when the clock was set back before this
                opened = min(opened, reported.since)
            passed = table.passed(since, opened)
            if item.far_ahead:
                self._lower(number, since)
                lowered.add(number)
            elif passed is not None:
                missed[number] = passed
            else:
                item.ahead_since = None
        await self._tell(view, missed, until)
        return frozenset(lowered)

    async def _tell(self, view: JobView, missed: Mapping[int, Passed], until: Mapping[int, int]) -> None:
        """Report moments as missed, and mark their items, or the next holder would report them again."""
        for first in range(0, len(missed), MARKED_AT_ONCE):
            part = dict(sorted(missed.items())[first : first + MARKED_AT_ONCE])
            said = {item: Mark(until[item], self._items[item].ahead_since) for item in part}
            if (marked := await mark(self._member, self._ledger, view, said)) is None:
                return  # the view is old
            for passed in sorted({part[item] for item in marked}, key=lambda gap: (gap.first, gap.last)):
                alike = [item for item in marked if part[item] == passed]
                self._misses.put(alike, passed, SET_BACK)
                self._misses.ran(alike, passed.last)
            for item in part:
                self._items[item].ahead_since = None

    def _lower(self, number: int, since: int) -> None:
        item = self._items[number]
        slot, known = item.record.slot, item.reported
        since = max(since, known) if known <= item.ahead_found else since  # which was run here, and not by that clock
        log.warning(
            "%s: item %d is claimed up to %s, though it was only %s just now: the registry's clock was ahead.  The "
            "item counts as claimed up to now; the moment claimed is not run again, others up to it may run twice",
            self._member.layout.job,
            number,
            moment(slot / 1000).isoformat(timespec="seconds"),
            moment(since / 1000).isoformat(timespec="seconds"),
            extra={"job": self._member.layout.job, "item": number, "slot": slot},
        )
        self._ledger.lower(number, since)
        item.reported, item.ahead_since = min(since, item.reported), None
