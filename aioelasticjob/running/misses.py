"""Reports moments that passed without a run: each of them once, by the instance that holds the item."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from aioelasticjob.clock import Clock
from aioelasticjob.coordination.membership import Member
from aioelasticjob.coordination.view import JobView
from aioelasticjob.events import Events, Misfired
from aioelasticjob.model import Record
from aioelasticjob.running.clockwork import Clockwork
from aioelasticjob.running.schedule import Passed, Timetable

AWAY = "the registry was away"
BUSY = "the last run was still going on"
UNRECORDED = "records were switched off before it could be run"
SKIPPED = "the clock was set ahead and skipped them"

log = logging.getLogger(__name__)


class Misses:
    """What one instance says of the moments that its items missed: an event, a count and a line in the log."""

    def __init__(self, member: Member, clock: Clock, events: Events, clockwork: Clockwork) -> None:
        self._member, self._clock, self._events, self._clockwork = member, clock, events, clockwork
        self._known: dict[int, int] = {}
        """The newest moment of each item that was run or reported here."""
        self._mourned: dict[int, int] = {}
        """When the run began that was last reported as cut off, by item."""

    def ran(self, items: Iterable[int], slot: int) -> None:
        """Note that items were run for a moment; lowering the number of items may remove their records."""
        for item in items:
            self._known[item] = max(slot, self._known.get(item, 0))

    @property
    def newest_of_all(self) -> int:
        """The newest moment of any item that was run or reported here, 0 if there is none."""
        return max(self._known.values(), default=0)

    def lower(self, item: int, moment: int) -> None:
        """Take nothing later than a moment for known of an item: the clock was ahead, and what follows comes again."""
        self._known[item] = min(moment, self._known.get(item, 0))

    def lower_all(self, beyond: int, moment: int) -> None:
        """Take nothing later than a moment for known of the items of which something later than ``beyond`` is."""
        for item in [item for item, known in self._known.items() if known > beyond]:
            self.lower(item, moment)

    def newest(self, item: int) -> int:
        """Return the newest moment of an item that was run or reported here, 0 if there is none."""
        return self._known.get(item, 0)

    def knows(self, item: int, moment: int) -> bool:
        """Whether an item's moment, or a later one, was run here or told of."""
        return self._known.get(item, 0) >= moment > 0

    def tell(self, last: Mapping[int, int], table: Timetable, until: int, why: str) -> None:
        """Tell that the moments up to ``until`` have passed without a run, for each item those after its ``last``.

        Of the moments that came while this process could not hear the registry, that is the reason, whatever ``why``;
        so it is of those that the clock skipped.
        """
        oldest = min(last.values(), default=until)
        away = [(began, ended, AWAY) for began, ended in self._clockwork.outages()]
        for began, ended, reason in sorted([*away, *((*jump, SKIPPED) for jump in self._clockwork.skipped)]):
            if began <= until and oldest < ended:
                self._tell(last, table, min(until, began - 1), why)
                self._tell(last, table, min(until, ended), reason)
        self._tell(last, table, until, why)

    def _tell(self, last: Mapping[int, int], table: Timetable, until: int, why: str) -> None:
        alike: dict[int, list[int]] = {}
        for item, known in last.items():
            alike.setdefault(max(known, self._known.get(item, 0)), []).append(item)
        for known, items in alike.items():
            if (passed := table.passed(known, until)) is not None:
                self._known.update(dict.fromkeys(items, passed.last))
                self.put(items, passed, why)

    def put(self, items: Iterable[int], passed: Passed, why: str, cut_off: str = "") -> None:
        """Report moments that the schedule may not have, or a run that was cut off."""
        concerned = tuple(sorted(items))
        if not concerned:
            return
        job, slot, moments = self._member.layout.job, passed.last, passed.count
        log.warning("misfire: %s", why, extra={"job": job, "slot": slot, "items": concerned, "moments": moments})
        self._events.counts[job].misfired += moments * len(concerned)
        me, now = self._member.id, self._clock.now()
        self._events.put(Misfired(job, me, passed.first, slot, concerned, moments, why, cut_off, now))

    def mourn(self, cut_off: Mapping[int, Record]) -> None:
        """Report runs that were cut off and are not rescued, each once: when an item is gained, or claimed anew.

        The run may still have been going on when its item was gained.
        """
        for item, record in cut_off.items():
            if self._mourned.get(item) != record.begun:
                self._mourned[item] = record.begun
                slot = Passed(record.moment, record.moment)
                self.put([item], slot, "its run was cut off, and failover is off", record.instance)

    def report_removed_orphans(self, before: JobView, view: JobView) -> None:
        """Report runs that nobody will rescue, for their items are gone: the leader, who has removed them, does."""
        if view.leader == self._member.id:
            for item, (slot, cut_off) in before.orphaned.items():
                if item >= view.config.sharding_total_count and item not in view.orphaned:
                    why = "its run was cut off, and the item is gone with the lower count"
                    self.put([item], Passed(slot, slot), why, cut_off)
