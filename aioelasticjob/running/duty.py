"""What one instance owes: which of its items, for which moment.

It follows from state, not from wake-ups: an item held here whose record lies before the newest due moment is owed.
So a moment survives a re-sharding, whoever held the item when it came.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from aioelasticjob.clock import Clock
from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.claims import SCHEDULED
from aioelasticjob.coordination.ledger import TOLERATED, Ledger, is_cut_off
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.progress import Offsets
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import ClockSkew
from aioelasticjob.events import Events
from aioelasticjob.model import Fire, FireSource
from aioelasticjob.running.absence import ENDED, Absence, given_at, made_at, made_by
from aioelasticjob.running.ahead import SET_BACK, Ahead
from aioelasticjob.running.clockwork import AHEAD, ASTRAY, Clockwork
from aioelasticjob.running.misses import AWAY, BUSY, UNKNOWN, UNRECORDED, Misses
from aioelasticjob.running.schedule import Passed, Timetable
from aioelasticjob.running.state import Items
from aioelasticjob.running.succession import Succession

SOON = 500  # milliseconds before its moment at which a claim may leave, and be refused


class Duty:
    """The items held here, what is known of them, and the moments that are due; times in milliseconds."""

    def __init__(
        self, member: Member, view: JobView, clock: Clock, events: Events, up_since: float, items: Items
    ) -> None:
        self._clockwork = Clockwork(member.session, clock)
        self.items = items
        items.join_again()
        self.ledger, self.offsets = Ledger(member, self._clockwork.believable, items), Offsets(member)
        self.held: frozenset[int] = frozenset()
        self.view = view
        """The newest view taken in."""
        self.misses = Misses(member, clock, events, self._clockwork, items)
        self._ahead = Ahead(member, self.ledger, self.misses, items)
        self._absence = Absence(member, self.ledger, self.misses)
        self._member, self._up_since = member, up_since
        self._set_back = inf
        """To where the time was last set back: what came since then this instance was up for."""
        self._since = int(view.scheduled_since * 1000)
        """Since when the schedule is known to be in force."""
        self._floor = 0
        """Up to this moment nothing is owed by anybody here."""
        self._looked_at: JobView | None = None
        self._switched = False
        """Whether records were switched on or off since the items were last held."""
        self.accounted = 0
        """The newest moment that an earlier life of this process has seen to."""
        self.timetable = Timetable(view.config.schedule, self.now())
        self._scheduled_since = view.schedule_dated
        """The same as the registry says it, whose clock may be ahead."""

    @property
    def elsewhere(self) -> frozenset[int]:
        """Items of ours that another instance still runs."""
        return frozenset(number for number, item in self.items.items() if item.elsewhere)

    @elsewhere.setter
    def elsewhere(self, items: frozenset[int]) -> None:
        for number in items:
            self.items[number].elsewhere = True

    @property
    def config(self) -> JobConfig:
        """The configuration in force."""
        return self.view.config

    def now(self) -> int:
        """Return the time that the job goes by."""
        return self._clockwork.now()

    def intolerable_skew(self) -> ClockSkew | None:
        """Return the clocks' difference if it is beyond what the job tolerates."""
        return self._clockwork.intolerable(self.config)

    @property
    def unsteady(self) -> float:
        """Return after how many seconds to look again because the time was set; infinite if it was not."""
        wait = self._clockwork.unsteady if self._clockwork.may_be_set_back or self._ahead else 0.0
        return max(wait, 0.01) if wait else inf  # timers are rounded; once the time is steady, every look sees to it

    async def look(self, view: JobView) -> frozenset[int]:
        """Take in a view: schedule, items gained and lost, what is switched off; and what has become due.

        Return the items begun elsewhere that this view was the first to show: they are ``freed`` when that run is over,
        which no view will tell.
        """
        before, begun = self.view, frozenset[int]()
        self._follow_clock()
        self.misses.tell_withdrawn()
        if view is not self._looked_at:
            if self._succession(view).has_changed:
                self._change_schedule(view)
            if view.config.monitor_execution != before.config.monitor_execution:
                self._switch_monitoring(view)
            self.misses.report_removed_orphans(before, view)
            self.view = view
            await self._hold(view)
            self._looked_at, begun = view, self._begun_elsewhere()
            self.elsewhere |= begun
            self._note_rescued()
        await self._absence.report_unrecorded(view, self.timetable, max(self.accounted, self._since), self.now())
        await self._settle_ahead(view)
        self._advance()
        self._drop_after_outage()
        closed = self.held & view.disabled_items if self._member.id in view.eligible else self.held
        taken_off = self.taken_off()  # what passed before that is missed all the same
        self._report_gaps(number for number in closed & taken_off if not self.items[number].closed)
        for number, item in self.items.items():
            item.closed = number in closed
        if self._member.id not in view.eligible:
            self.pass_over()
        self.pass_over(self.held & view.disabled_items)
        return begun

    def _follow_clock(self) -> None:
        """Notice that the time was set.

        That it was set back is believed once it has stayed there, and then all begins anew from there: what was set by
        mistake for some seconds costs no more than the moments in them.
        """
        self.now()
        if self._clockwork.has_jumped():
            self._ahead.find_anew(self.held, self._clockwork.set_to, self._clockwork.since)
        if self._clockwork.is_set_back():
            since = self._set_back = self._clockwork.since
            self.timetable = Timetable(self.config.schedule, since)
            self.misses.lower_all(self.now() + TOLERATED, since, self._since if self._since > self.now() else 0)
            self._since = since if self._since > self.now() + AHEAD else self._since
            for item in map(self.items.__getitem__, self.held):
                item.floor = min(max(self._floor, item.floor), max(since, item.reported))  # reports stay
            self._floor = min(self._floor, since)

    async def _settle_ahead(self, view: JobView) -> None:
        """See to records from the future, once it is certain that they are."""
        if not self._ahead or self._clockwork.unsteady or self._member.id not in view.eligible:
            return
        lowered = await self._ahead.settle(view, self.timetable, self.held - view.disabled_items)
        for item in map(self.items.__getitem__, lowered):
            item.floor = min(item.floor, item.record.slot)
        self._tell(lowered, 0, self.timetable.newest - 1, SET_BACK)

    def owed(self, moment: int | None = None) -> frozenset[int]:
        """Return the items whose newest moment (or the one given) has not been claimed and is ours to claim."""
        owed = self._unclaimed(moment or self.timetable.newest)
        return owed - self.taken_off() if owed else owed

    def _unclaimed(self, moment: int) -> frozenset[int]:
        """Return the items held here for which a moment has neither been claimed nor passed over."""
        if not self._floor < moment <= self.now() + AHEAD:  # else the time was set back, which is not concluded yet
            return frozenset()
        return frozenset(number for number in self.held if self.items[number].owes(moment))

    def _due(self, view: JobView | None = None) -> frozenset[int]:
        """Return the owed items that may run here: nobody misses the others, or their next holder reports them."""
        view = view or self.view
        if self._member.id not in view.eligible:
            return frozenset()
        due = self._unclaimed(self.timetable.newest) - self.taken_off(view) - view.disabled_items
        if view is self.view:
            return due
        return frozenset(n for n in due if not self.items[n].rescued and view.assignment.get(n) == self._member.id)

    def taken_off(self, view: JobView | None = None) -> frozenset[int]:
        """Return the items that others run, rescue or have yet to rescue."""
        return self._in_rescue(view).union(self.elsewhere)

    def _in_rescue(self, view: JobView | None = None) -> frozenset[int]:
        view = view or self.view
        if not view.config.failover:
            return frozenset()
        return view.orphans.union(view.rescues, (number for number in self.held if self.items[number].cut_off))

    def source(self, items: Iterable[int]) -> FireSource:
        """Return why items would be run for the newest moment now: on time, or as the rerun for what was missed."""
        newest = self.timetable.newest
        late = any(item.late == newest or item.knows(newest) for item in map(self.items.__getitem__, items))
        late = late or self._clockwork.was_away(newest) or self.is_catch_up(newest)
        return FireSource.MISFIRE if late else FireSource.CRON

    def _drop_after_outage(self) -> None:
        """Report the newest moment, unless it is to be run again, if it came while the registry could not be heard."""
        newest = self.timetable.newest
        if not self.config.misfire and self._clockwork.was_away(newest) and (due := self._due()):
            self._tell(due, newest - 1, newest, AWAY)
            self.pass_over(due)

    def is_catch_up(self, slot: int) -> bool:
        """Whether nobody was up when the moment came."""
        return slot < min(self.view.up_since * 1000, self._up_since * 1000, self._set_back)

    def pass_over(self, items: Iterable[int] | None = None) -> None:
        """Owe the newest moment no longer: to these items, or to any."""
        if items is None:
            self._floor = max(self._floor, self.timetable.newest)
        else:
            for item in items:
                self.items[item].floor = self.timetable.newest

    def _start_anew(self, moment: int) -> None:
        """Owe nothing that came up to a moment: it was another schedule's."""
        self._floor = max(self._floor, moment)
        for item in self.items.values():
            item.floor = max(item.floor, moment)

    def collapse(self, view: JobView, *, rerun: bool) -> None:
        """Let the moments that came during a flight become one: it is run once, or dropped.

        ``view`` is the newest: the items to run may have changed.  If it has another schedule, ``look`` does the rest.
        """
        before, table = self.timetable.newest, self.timetable
        if self._succession(view).has_changed:
            written = self._succession(view).ended
            table.advance(min(self.now(), written))
            missed = self._due(view).union(self._succession(view).given_away_since(self._due()))
            self._tell(missed, before - 1, min(table.newest - 1, written), BUSY)
        elif table.advance(self.now()):
            self._tell(self._due(view), before - 1, table.newest, BUSY)
            if not rerun:
                self.pass_over()

    def miss(self, items: Iterable[int], fire: Fire, why: str) -> None:
        """Report that a fire cannot have these items, as far as they still owe its moment."""
        newest, missed = self.timetable.newest, frozenset(items)
        if fire.source in SCHEDULED:
            self._tell(missed & self._unclaimed(newest), newest - 1, newest, why)
        else:
            self.misses.put(missed, Passed(fire.slot, fire.slot), why)

    def reach(self, moment: int) -> None:
        """Move on to a moment that was claimed ahead: an item that came free meanwhile has missed the one before."""
        waiting, before = self._due(), self.timetable.newest
        if self.timetable.advance(moment):
            self._tell(waiting, before - 1, self.timetable.newest - 1, "another instance still ran it")

    def freed(self, item: int) -> None:
        """Take back an item that has ended elsewhere; its newest moment is then a rerun, or dropped."""
        newest, freed = self.timetable.newest, self.items[item]
        freed.elsewhere = False
        if freed.seen is not None:
            freed.rescued = freed.rescued and item in self._in_rescue()  # what comes from now on it may miss, too
            self._report_gaps([item])
        if self.config.misfire:
            freed.late = newest
        elif item in self._unclaimed(newest):
            self._tell([item], newest - 1, newest, "another instance still ran it")
            self.pass_over([item])

    def _switch_monitoring(self, view: JobView) -> None:
        """Run nothing again for lack of a record, and report what others kept us from running while records say so."""
        self._switched = True
        if not view.config.monitor_execution:
            kept_from = (self.taken_off() & self.held) - self.view.disabled_items
            self._tell(kept_from, 0, self.timetable.newest, UNRECORDED)
            self.pass_over(kept_from)
            for item in self.held:
                self.ledger.assume([item], self.items[item].last)
            return
        known = (self.ledger.slot(item) for item in self.ledger.known())
        self._floor = max(self._floor, int(view.configured_at * 1000), *known)

    async def _hold(self, view: JobView) -> None:
        given = {
            item: view.tree.get(view.layout.item(item).instance).stat.mzxid  # type: ignore[union-attr]  # it is assigned
            for item, holder in view.assignment.items()
            if holder == self._member.id
        }
        held = frozenset(given)
        kept = {item for item in held if self.items[item].given == given[item]}
        renew = self._switched and view.config.monitor_execution
        self.ledger.forget(self.ledger.known() if renew else self.ledger.known() - kept)
        self.held &= self.ledger.known()
        gained = held - self.ledger.known()
        if view.config.monitor_execution:
            await self._learn(view, gained)
        else:
            await self.ledger.learn(gained if self._switched else ())  # which were claimed while there were records
            for item in gained:
                self.ledger.assume([item], self._seen_to(view, item))
        await self.offsets.learn(gained)
        self._ahead.find(gained, self.now(), self._clockwork.since)
        for item in gained:
            gain = self.items[item]
            told = 0 if view.config.misfire else gain.reported  # which is not to be run any more
            gain.floor = max(self._begin_holding(view, item), told)
            gain.followed = gain.last
        spans = [(Timetable(one.cron, one.until), one.since, one.until) for one in view.recorded_schedules if gained]
        spans.append((self.timetable, self._since, self.now() + int(ASTRAY * 1000)))
        unsure = await self._absence.report(view, spans, {item: self.items[item].floor for item in gained})
        self.held, self._switched = held - unsure, False
        for number, one in self.items.items():
            one.given = given.get(number, 0)
        self.ledger.forget(unsure)  # they are gained with the next view
        self._report_gaps(gained - unsure)

    def _seen_to(self, view: JobView, item: int) -> int:
        """Return up to when others may have run an item, without a record or with one, or we in an earlier life."""
        claimed = self.ledger.slot(item) if item in self.ledger.known() else 0
        return min(self.now(), max(self._clockwork.in_time(given_at(view, item)), self.accounted, claimed))

    def _begin_holding(self, view: JobView, item: int) -> int:
        """Return the moment after which an item gained owes what comes."""
        caught_up = self.now() / 1000 - view.config.catch_up if view.config.catch_up else inf
        up_since = min(view.up_since, self._up_since, caught_up)
        in_time, written_after = self._clockwork.in_time, self.items[item].written_after
        made = in_time(made_at(view, item), written_after(made_by(view, item)))
        return max(made, in_time(int(up_since * 1000)), in_time(self._since, written_after(view.scheduled_by)))

    async def _learn(self, view: JobView, gained: frozenset[int]) -> None:
        """Read the records of items gained, and again what the rescuers of those that were cut off have written."""
        unsure = {item for item in self.held - view.orphans - view.rescues.keys() if self.items[item].cut_off}
        running = frozenset(await self.ledger.learn(gained | unsure))
        for item in unsure if view.config.failover else ():  # their rescue may be over before it was seen
            self.items[item].rescued = True
        await self.offsets.learn(unsure)
        if not view.config.failover:
            found = {item: self.ledger.record(item) for item in gained - running}
            self.misses.mourn({item: record for item, record in found.items() if is_cut_off(record)})

    def _begun_elsewhere(self) -> frozenset[int]:
        """Return the items whose last run nobody has ended or put up for rescue: it may be going on."""
        view = self.view
        found = view.config.failover or view.config.streaming  # else a claim finds it out, but for moments left open
        held = ((number, self.items[number]) for number in self.held - view.orphans - view.rescues.keys())
        # a lock of ours is left from before it joined again under this session
        return frozenset(n for n, item in held if not item.elsewhere and (item.locked or (found and item.cut_off)))

    def _report_gaps(self, items: Iterable[int]) -> None:
        """Report moments that came while nobody could run an item: only its next holder can report them."""
        newest = self.timetable.newest
        until = newest if newest <= self._floor else newest - 1  # which may still be run, unless it was dropped
        self._tell(items, 0, until, "nobody could run it when they came")

    def _tell(self, items: Iterable[int], after: int, until: int, why: str) -> None:
        """Report the moments later than ``after`` that these items have missed and have not claimed, if they came."""
        self.misses.tell_withdrawn()
        until = min(until, self.now() + SOON)
        self.misses.tell({item: max(after, self.items[item].last) for item in items}, self.timetable, until, why)

    def _note_rescued(self) -> None:
        """Report moments that came while our items were being rescued: only now may we run the items again."""
        rescued, still = (number for number, item in self.items.items() if item.rescued), self._in_rescue() & self.held
        self._report_gaps([n for n in rescued if n in self.held - still and not self.items[n].elsewhere])
        for number, item in self.items.items():
            item.rescued = number in still

    def _change_schedule(self, view: JobView) -> None:
        """Begin a schedule when it was written, not now: a flight may have kept us from looking; close the old one."""
        written, table = self._clockwork.in_time(int(view.scheduled_since * 1000)), self.timetable
        ours = self.held - self._succession(view).handed_on(self.held, self._member.id)
        before, taken_off, due = table.newest, self.taken_off() & ours, self._due() & ours
        ended = min(written, self._succession(view).ended)
        table.advance(ended)
        until = min(table.newest, ended)  # later ones are the next schedule's, if they are any
        self._tell(taken_off - self.view.disabled_items, 0, until, ENDED)
        self._tell(due, before - 1, until, ENDED)
        self._tell((self._due() & ours) - due, before, until, ENDED)
        if self._member.id in view.eligible:
            open_ = ours - view.disabled_items
            run = open_ - self.view.disabled_items
            for one in self._succession(view).between:
                self._tell_hidden(run, Timetable(one.cron, one.until), one.since, one.until)
                last = {item: max(self.items[item].last, one.since) for item in open_}
                self.misses.tell(last, Timetable(one.cron, one.until), one.until, ENDED)
            self._tell_hidden(run, Timetable(view.config.schedule, self.now()), written)
        self._since, self._scheduled_since = written, view.schedule_dated
        self.timetable = Timetable(view.config.schedule, self.now())
        self._start_anew(written)
        for number, item in self.items.items():
            item.followed = item.last if number in self.held else None
        self._ahead.schedule_changed(self.now())
        mine = {item for item in self._due() | self._due(view) if view.assignment.get(item) == self._member.id}
        self._tell(mine, written, self.timetable.newest - 1, UNKNOWN)
        if not view.config.misfire:  # schedules may share moments
            newest = self.timetable.newest
            self.pass_over(item for item in self._unclaimed(newest) if self.misses.knows(item, newest))

    def _tell_hidden(self, items: Iterable[int], table: Timetable, since: int, until: float = inf) -> None:
        """Report a schedule's moments that came before it was known here, and before what was run by the one before."""
        held = {number: self.items[number] for number in items}
        spans = {n: (max(since, item.followed or 0), int(min(until, item.last))) for n, item in held.items()}
        self.misses.tell_hidden(spans, table, self.timetable, UNKNOWN)

    def _succession(self, view: JobView) -> Succession:
        return Succession(self.config.schedule, self._scheduled_since, view)

    def _advance(self) -> None:
        waiting, table = self._due(), self.timetable
        before, came = table.newest, table.advance(self.now())
        if came and waiting:
            self._tell(waiting, before - 1, table.newest - 1, "the assignment was not settled")
        if came > 1:
            self._tell(self._due() - waiting, before, table.newest - 1, "this process was held up")
