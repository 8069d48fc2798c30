"""Reports moments that passed without a run: each of them once, by the instance that holds the item."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from aioelasticjob.clock import Clock, moment
from aioelasticjob.coordination.ledger import TOLERATED
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.view import JobView
from aioelasticjob.events import Events, Misfired
from aioelasticjob.model import Record
from aioelasticjob.running.clockwork import Clockwork
from aioelasticjob.running.limited_log import LimitedLog
from aioelasticjob.running.schedule import STEPS, Passed, Timetable
from aioelasticjob.running.state import Items

AWAY = "the registry was away"
BUSY = "the last run was still going on"
UNKNOWN = "they came before the new schedule was known here"
UNRECORDED = "records were switched off before it could be run"
UNKEPT = "its run was cut off, and no record of it is kept"
SKIPPED = "the clock was set ahead and skipped them"
WITHDRAWN = "who had claimed it was held up, and gave it back"

NEWS = 60_000
"""Milliseconds within which an instance that still runs items has heard of a new schedule, or its session has ended."""

log = logging.getLogger(__name__)


class Misses:
    """What one instance says of the moments that its items missed: an event, a count and a line in the log."""

    def __init__(self, member: Member, clock: Clock, events: Events, clockwork: Clockwork, items: Items) -> None:
        self._member, self._clock, self._events, self._clockwork = member, clock, events, clockwork
        self._items = items
        self._log = LimitedLog(log, member.layout.job)
        self.lower_all(clockwork.now() + TOLERATED, clockwork.now())  # the clock may have been ahead in an earlier life

    def ran(self, items: Iterable[int], slot: int) -> None:
        """Note that items were run for a moment; lowering the number of items may remove their records."""
        for item in items:
            self._items[item].reported = max(slot, self._items[item].reported)

    @property
    def newest_of_all(self) -> int:
        """The newest moment of any item that was run or reported here, 0 if there is none."""
        return max((item.reported for item in self._items.values()), default=0)

    def lower_all(self, beyond: int, moment: int, former: int = 0) -> None:
        """Take nothing later than a moment for known of the items of which something later than ``beyond`` is.

        Nor of those of which nothing later than ``former`` is: that was another schedule's.
        """
        for item in self._items.values():
            if item.reported > beyond or item.reported <= former:
                item.reported = min(moment, item.reported)

    def knows(self, item: int, moment: int) -> bool:
        """Whether an item's moment, or a later one, was run here or told of."""
        return self._items[item].knows(moment)

    def tell(self, last: Mapping[int, int], table: Timetable, until: int, why: str, *, late: bool = False) -> None:
        """Tell that the moments up to ``until`` have passed without a run, for each item those after its ``last``.

        Those up to the newest known of an item are left out, unless this comes ``late``, when the item may run again.
        Of the moments that came while this process could not hear the registry, that is the reason, whatever ``why``;
        so it is of those that the clock skipped.
        """
        after = {item: known if late else max(known, self._items[item].reported) for item, known in last.items()}
        oldest = min(after.values(), default=until)
        away = [(began, ended, AWAY) for began, ended in self._clockwork.outages()]
        for began, ended, reason in sorted([*away, *((*jump, SKIPPED) for jump in self._clockwork.skipped)]):
            if began <= until and oldest < ended:
                self._tell(after, table, min(until, began - 1), why)
                self._tell(after, table, min(until, ended), reason)
        self._tell(after, table, until, why)

    def tell_withdrawn(self) -> None:
        """Tell of moments that others gave back without a run, if a later one has been claimed or told of here.

        That was done while the item counted as claimed.  Else the moment is still owed, like any other.
        """
        for number, item in self._items.items():
            slot, item.withdrawn = item.withdrawn, 0
            if slot and (item.record.slot > slot or item.knows(slot + 1)):
                self.put([number], Passed(slot, slot), WITHDRAWN)

    def tell_hidden(
        self, spans: Mapping[int, tuple[int, int]], table: Timetable, followed: Timetable, why: str
    ) -> None:
        """Tell of the moments after the first and up to the second of each item's, that ``followed`` does not have.

        That schedule was followed meanwhile, so those that both have were run, or told of.  Nothing is told of a span
        longer than news may take: its end was claimed by a clock that was ahead.
        """
        for after, until in sorted(set(spans.values())):
            alike = [item for item, span in spans.items() if span == (after, until)]
            done = after if until - after <= NEWS else until
            while done < until:
                seen = followed.passed(done, until)
                self.tell(dict.fromkeys(alike, done), table, until if seen is None else seen.first - 1, why, late=True)
                done = until if seen is None else seen.first

    def _tell(self, after: dict[int, int], table: Timetable, until: int, why: str) -> None:
        alike: dict[int, list[int]] = {}
        for item, known in after.items():
            alike.setdefault(known, []).append(item)
        for known, items in alike.items():
            if (passed := table.passed(known, until)) is not None:
                after.update(dict.fromkeys(items, passed.last))
                self.ran(items, passed.last)
                self.put(items, passed, why)

    def put(self, items: Iterable[int], passed: Passed, why: str, cut_off: str = "") -> None:
        """Report moments that the schedule may not have, or a run that was cut off."""
        concerned = tuple(sorted(items))
        if not concerned:
            return
        job, slot, moments = self._member.layout.job, passed.last, passed.count
        message = f"{_items(concerned)} missed {_moments(passed)}: {why}"
        self._log.warning(why, message, slot=slot, items=concerned, moments=moments)
        self._events.counts[job].misfired += moments * len(concerned)
        me, now = self._member.id, self._clock.now()
        self._events.put(Misfired(job, me, passed.first, slot, concerned, moments, why, cut_off, now))

    def mourn(self, cut_off: Mapping[int, Record]) -> None:
        """Report runs that were cut off and are not rescued, each once: when an item is gained, or claimed anew.

        The run may still have been going on when its item was gained.
        """
        for item, record in cut_off.items():
            if self._items[item].lost_run != record.begun:
                self._items[item].lost_run = record.begun
                slot = Passed(record.moment, record.moment)
                self.put([item], slot, "its run was cut off, and failover is off", record.instance)

    def report_removed_orphans(self, before: JobView, view: JobView) -> None:
        """Report runs that nobody will rescue, for their items are gone: the leader, who has removed them, does."""
        if view.leader == self._member.id:
            for item, (slot, cut_off) in before.orphaned.items():
                if item >= view.config.sharding_total_count and item not in view.orphaned:
                    why = "its run was cut off, and the item is gone with the lower count"
                    self.put([item], Passed(slot, slot), why, cut_off)


def _items(items: tuple[int, ...]) -> str:
    """Return items in words; of more than ten the first and the last."""
    if len(items) > 10:
        return f"{len(items)} items ({items[0]} to {items[-1]})"
    return f"item{'s' if len(items) > 1 else ''} {', '.join(map(str, items))}"


def _moments(passed: Passed) -> str:
    """Return in words which scheduled moments passed without a run."""
    first, last = (moment(one / 1000).isoformat(timespec="seconds") for one in (passed.first, passed.last))
    if passed.count == 1:
        return f"the run of {last}"
    at_least = "at least " if passed.count >= STEPS else ""
    return f"{at_least}{passed.count} runs ({first} to {last})"
