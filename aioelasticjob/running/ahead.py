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

SET_BACK = "the registry's clock was ahead and has been set back"

log = logging.getLogger(__name__)


class Ahead:
    """The items whose records claim moments that have yet to come; times in milliseconds."""

    def __init__(self, member: Member, ledger: Ledger, misses: Misses) -> None:
        self._member, self._ledger, self._misses = member, ledger, misses
        self._since: dict[int, int] = {}
        """From when on the moments of each of them are in question."""
        self._found: dict[int, int] = {}
        """What the time was when each of them was found."""
        self._far: set[int] = set()
        """Those of them whose records claim too much."""

    def __bool__(self) -> bool:
        return bool(self._since)

    def find(self, items: Iterable[int], now: int, since: int, tolerated: int = AHEAD) -> None:
        """Look for such items among those whose records have just been read; the time has not been set ``since``."""
        for item in items:
            slot = self._ledger.slot(item)
            (self._far.add if slot > now + TOLERATED else self._far.discard)(item)
            if slot > now + tolerated:
                self._since[item], self._found[item] = max(since, now - TOLERATED), now
            else:
                self._since.pop(item, None)

    def find_anew(self, items: Iterable[int], now: int, since: int) -> None:
        """Look again among all items held: the time has been set to ``now``, either way."""
        self._since.clear()
        self.find(items, now, since, 0)

    def schedule_changed(self, now: int) -> None:
        """Take what is dated up to now for begun in time: so it was, if the schedule now in force was."""
        self._found = dict.fromkeys(self._found, now + AHEAD)

    async def settle(self, view: JobView, table: Timetable, items: frozenset[int]) -> frozenset[int]:
        """Report the moments that nobody will run, lower the records that claim too much; return the items lowered.

        ``items`` are those held that are to be run; the others have time.

        Raises:
            Suspended: there is no connection; what is left is done next time.
            SessionEnded: the session was lost.
        """
        lowered, missed, until = set[int](), dict[int, Passed](), dict[int, int]()
        for item in self._since.keys() & items:
            slot, reported = self._ledger.slot(item), self._ledger.missed(item)[0]
            began = int(view.schedule_dated * 1000), made_at(view, item)
            in_time = [moment for moment in began if moment <= self._found[item]]  # the others by a clock ahead
            since = self._since[item] = max(self._since[item], *in_time, 0)
            opened = until[item] = min(slot, max(began))
            if reported.since is not None and opened <= reported.until:  # when the clock was set back before this
                opened = min(opened, reported.since)
            passed = table.passed(since, opened)
            if item in self._far:
                self._lower(item, since)
                lowered.add(item)
            elif passed is not None:
                missed[item] = passed
            else:
                del self._since[item]
        await self._tell(view, missed, until)
        return frozenset(lowered)

    async def _tell(self, view: JobView, missed: Mapping[int, Passed], until: Mapping[int, int]) -> None:
        """Report moments as missed, and mark their items, or the next holder would report them again."""
        for first in range(0, len(missed), MARKED_AT_ONCE):
            part = dict(sorted(missed.items())[first : first + MARKED_AT_ONCE])
            said = {item: Mark(until[item], self._since[item]) for item in part}
            if (marked := await mark(self._member, self._ledger, view, said)) is None:
                return  # the view is old
            for passed in sorted({part[item] for item in marked}, key=lambda gap: (gap.first, gap.last)):
                alike = [item for item in marked if part[item] == passed]
                self._misses.put(alike, passed, SET_BACK)
                self._misses.ran(alike, passed.last)
            for item in part:
                del self._since[item]

    def _lower(self, item: int, since: int) -> None:
        slot, known = self._ledger.slot(item), self._misses.newest(item)
        since = max(since, known) if known <= self._found[item] else since  # which was run here, and not by that clock
        log.warning(
            "%s: item %d is claimed up to %s, though it was only %s just now: the registry's clock was ahead.  The "
            "item counts as claimed up to now; the moment claimed is not run again, others up to it may run twice",
            self._member.layout.job,
            item,
            moment(slot / 1000).isoformat(timespec="seconds"),
            moment(since / 1000).isoformat(timespec="seconds"),
            extra={"job": self._member.layout.job, "item": item, "slot": slot},
        )
        self._ledger.lower(item, since)
        self._misses.lower(item, since)
        del self._since[item]
