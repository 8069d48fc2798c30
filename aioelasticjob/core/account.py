"""Computes which items this instance has to run for which moment, and what becomes of moments that it cannot run.

The answer follows from state and not from wake-ups: an item that this instance holds is due if its record is older
than the newest due moment.  So no moment is lost when an item moves: its new holder finds the moment due as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import inf

from aioelasticjob.core.clock_skew import AHEAD, ClockSkewMonitor
from aioelasticjob.core.commands import AnyReport, SayRefused
from aioelasticjob.core.missed import MissedMoments
from aioelasticjob.core.state import BUSY, Came, Newest, Passed, Past, Timetable
from aioelasticjob.core.unattended import Succession
from aioelasticjob.core.view import JobView
from aioelasticjob.errors import ClockSkew, ElasticJobError
from aioelasticjob.model import NONE, SCHEDULED, ClockReading, Fire, FireSource

SOON = 500  # a claim may be sent, and refused, up to so many milliseconds before its moment


class Account:
    """The items that this instance holds, and the moments that are due for them.  Times are in milliseconds.

    It has more than twelve methods: each fact and each question is a method.
    """

    def __init__(self, me: str, view: JobView, reading: ClockReading, past: Past) -> None:
        self.clock = ClockSkewMonitor(reading)
        self.reports: list[AnyReport] = []
        """What the driver has to report.  The driver removes each report when it has made it."""
        self.items = past.items
        self.items.join_again()
        self.held: frozenset[int] = NONE
        self.view = view
        """The newest view that this object was given."""
        self.missed = MissedMoments(self.clock, self.items, self.reports)
        self._me, self._past = me, past
        self._set_back = inf
        """The time to which the clock was last set back.  Later moments come while this instance is up."""
        self._waited = False
        """Whether the schedule's newest moment had yet to come at the last look, because the time went back."""
        self.timetable = Timetable(view.config.schedule, self.clock.now)
        self._off_since = 0
        """When this instance has noticed that it may run nothing; 0 if it may run items."""
        self._busy_until = 0
        """When the last run ended that was still going on when the schedule was changed, until the new one is followed.

        It is 0 if there was no such run.
        """
        self.looked_at: JobView | None = None
        """The newest view that was applied completely."""
        self._closed: frozenset[int] = NONE
        """The items held at the last look that may not run here: the item, this server or the job is switched off."""
        self._refuses = False
        """Whether this instance has refused the last fire."""

    @property
    def steady_in(self) -> float:
        """Seconds after which to call ``see`` again because the time was set; infinity if it was not."""
        wait = self.clock.unsteady
        if not wait or not (self.clock.may_be_set_back or any(item.future for item in self.items.values())):
            return inf
        return max(wait, 0.01)  # at least 10 ms: a rounded timer may fire before the time is steady

    def intolerable_skew(self) -> ClockSkew | None:
        """Return an error with the clock skew if the job does not tolerate it, else None."""
        return self.clock.intolerable(self.view.config)

    def refuse(self, why: ElasticJobError) -> None:
        """Report that this instance refuses a fire."""
        self.reports.append(SayRefused(why, again=self._refuses))
        self._refuses = True

    def accept(self) -> None:
        """Note that this instance runs fires again."""
        self._refuses = False

    def claimable(self, moment: int | None = None) -> frozenset[int]:
        """Return the items that this instance can claim now for the newest moment, or for the given one."""
        due = self._due(moment or self.timetable.newest)
        return due - self.blocked() if due else due

    def claimable_ahead(self, moment: int) -> frozenset[int]:
        """Return the items that this instance can claim ahead for a moment that has yet to come.

        An item whose moment was run or reported while a clock was ahead runs it late, and late runs are not claimed
        ahead.
        """
        ahead = frozenset([item for item in self.claimable(moment) if not self.items[item].knows(moment)])
        return self.held if ahead == self.held else ahead  # the collector need not visit a second object

    def _due(self, moment: int, among: Iterable[int] | None = None, *, now: int | None = None) -> frozenset[int]:
        """Return the items (of all held, or ``among`` some) for which a moment is due."""
        if moment > (now or self.clock.now) + SOON:  # it was due before the time was set back
            return frozenset()
        held = self.held if among is None else self.held.intersection(among)
        return frozenset([number for number in held if self.items[number].is_due(moment)])

    def _due_here(self, view: JobView | None = None) -> frozenset[int]:
        """Return the items that are due for the newest moment and may run here.

        Items that may not run here are left out: they miss no moment, or their next holder reports it.
        """
        view = view or self.view
        if self._me not in view.active:
            return frozenset()
        due = self._due(self.timetable.newest, now=self.clock.latest)
        due = due - self.blocked(view) - view.disabled_items if due else due
        if view is self.view:
            return due
        return frozenset(n for n in due if not self.items[n].rescued and view.assignment.get(n) == self._me)

    def _due_before(self, view: JobView) -> frozenset[int]:
        """Return the items that are due before a view is applied, also those that it is the first to show switched on.

        Nothing shows since when these were switched on.
        """
        return self._due_here() | (self._due_here(view) & self.view.disabled_items)

    def _kept_from(self, view: JobView) -> frozenset[int]:
        """Return the items that others keep this instance from running, also those that a view shows switched on."""
        return (self.held & self.blocked()) - (self.view.disabled_items & view.disabled_items)

    def blocked(self, view: JobView | None = None) -> frozenset[int]:
        """Return the items that other instances run or rescue, and the orphans that wait for a rescuer."""
        return self._in_rescue(view).union([number for number, item in self.items.items() if item.elsewhere])

    def _in_rescue(self, view: JobView | None = None) -> frozenset[int]:
        view = view or self.view
        if not view.config.failover:
            return frozenset()
        return view.orphans.union(view.rescues, (number for number in self.held if self.items[number].cut_off))

    def source(self, items: Iterable[int]) -> FireSource:
        """Return the source of a fire for the newest moment now: ``CRON``, or ``MISFIRE`` if it is run late."""
        newest = self.timetable.newest
        late = any(item.late == newest or item.knows(newest) for item in map(self.items.__getitem__, items))
        return FireSource.MISFIRE if late or self.is_catch_up(newest) else FireSource.CRON

    def is_catch_up(self, slot: int) -> bool:
        """Whether no instance was up when the moment came."""
        return slot < min(self.view.up_since * 1000, self._past.since * 1000, self._set_back)

    def only_time_has_passed(self, view: JobView) -> bool:
        """Whether a view was applied already, and nothing besides it has to be.  This is so for most fires."""
        if view is not self.looked_at or self.clock.is_disturbed or not view.config.monitor_execution:
            return False
        return not any(item.given_back or item.future is not None for item in self.items.values())

    def follow_small_step_back(self) -> None:
        """Let the schedule follow a time that went back a little, so that moments are run when they come.

        If the time went back further, the schedule follows once the time has come close to the newest moment again.
        Items that have waited until then have missed the moments before the newest one, also if nobody has looked
        shortly before the newest one came.

        Without ``misfire``, a moment that was reported is not run when it comes again.
        """
        if self.clock.now + SOON < self.timetable.newest <= self.clock.now + AHEAD:
            self._pass_over_reported(self.view, self.timetable.newest)
            self.timetable = Timetable(self.view.config.schedule, self.clock.now)
            self._account(self._due_here(), Came.SET_BACK)
        elif self._waited and self.timetable.newest <= self.clock.now + SOON:
            self._account(self._due_here(), Came.SET_BACK)
        self._waited = self.clock.now + SOON < self.timetable.newest

    def see_what_is_due(self, view: JobView) -> None:
        """Move the schedule on to the present, and account for the moments that have come."""
        self.follow_small_step_back()
        upcoming = self.timetable.upcoming
        if upcoming is not None and upcoming <= self.clock.now:
            waiting, came = self._due_here(), self.timetable.advance(self.clock.now)
            self._account(waiting, Came.UNSETTLED)
            if came > 1:
                self._account(self._due_here() - waiting, Came.HELD_UP)
        if self.clock.was_away(self.timetable.newest):
            self._account(self._due_here(), Came.DISCONNECTED)
        if self._closed or view.disabled_items or self._me not in view.active:
            self._close(view)

    def _close(self, view: JobView) -> None:
        """Excuse the moments of items that are switched off."""
        closed = self.held & view.disabled_items if self._me in view.active else self.held
        # blocked items have missed what came before they were switched off
        self._account((closed - self._closed) & self.blocked(), Came.BLOCKED)
        self.pass_over(closed)
        self._closed = closed

    def pass_over(self, items: Iterable[int]) -> None:
        """Treat the newest moment as no longer due for these items, and the moments before it as accounted for."""
        for item in items:
            self.items[item].floor = max(self.items[item].floor, self.timetable.newest)

    def _pass_over_reported(self, view: JobView, until: float = inf) -> None:
        """Without ``misfire``, do not run moments up to ``until`` that a clock ahead has reported as missed."""
        if not view.config.misfire:
            for item in map(self.items.__getitem__, self.held):
                item.floor = max(item.floor, int(min(item.reported, until)))

    def run_ended(self, view: JobView) -> None:
        """Combine the moments that came during an execution: the newest is run if misfire is on, else it is missed.

        ``view`` is the newest view, because the items to run may have changed.  If it has another schedule, the
        moments of the new one are accounted for when the state sees that view.
        """
        table = self.timetable
        if view is not self.view and (succession := Succession(self.view, view)).has_changed:
            self._busy_until = self.clock.now
            table.advance(min(self.clock.latest, succession.ended))
            due = self._due_before(view)
            missed = due - succession.handed_on(due, self._me)
            self._report(missed, min(table.newest - 1, succession.ended), BUSY, now=self.clock.latest)
        elif table.advance(self.clock.now):
            for item in self._due_here():  # what came before the item was switched off is missed; the rest is excused
                if (off := view.switched_off_at(item, self._me, self._off_since)) is not None:
                    self._report([item], min(table.newest, off), BUSY)
            self._account(self._due_here(view), Came.RUNNING, misfire=view.config.misfire)

    def note_running_elsewhere(self, items: Collection[int], fire: Fire) -> None:
        """Note that a claim found these items running on another instance.  ``released`` is called when that ends."""
        if fire.source in SCHEDULED:  # a run that somebody has asked for is made later instead
            self._account(self._due(self.timetable.newest, items), Came.FOUND_RUNNING)
        for number in items:
            self.items[number].elsewhere = True

    def note_obstructed(self, items: Collection[int], fire: Fire) -> None:
        """Note that nodes which somebody made by hand keep items from being claimed.

        Rescues and requests are tried again, so they have missed nothing.
        """
        if fire.source in SCHEDULED:
            self._account(self._due(self.timetable.newest, items), Came.OBSTRUCTED)
        elif fire.source is FireSource.TRIGGER and fire.requested is None:
            self.missed.put(items, Passed(fire.slot, fire.slot), Came.OBSTRUCTED.value.why)

    def advance_to(self, moment: int) -> None:
        """Move the schedule on to the moment of a claim, which may have been sent before the moment.

        An item that was released after the claim had been decided is not part of the claim: it has missed the moments
        before this one.
        """
        waiting = self._due_here()
        if self.timetable.advance(moment):
            self._account(waiting, Came.OVERTAKEN)

    def released(self, item: int) -> None:
        """Note that the item's run on another instance has ended.

        Its newest moment is run late if misfire is on; otherwise it is reported as missed.
        """
        account = self.items[item]
        account.elsewhere = False
        if account.seen is not None:
            account.rescued = account.rescued and item in self._in_rescue()  # then it stays blocked
            if account.cut_off and not self.view.config.failover:  # else each view would let it be followed again
                account.released_run = account.record.begun
            # a moment that a stream has left open elsewhere is not missed: the stream goes on here
            if self.view.config.misfire or account.run_until != self.timetable.newest:
                self._account([item], Came.ELSEWHERE)

    def _account(
        self, items: Iterable[int], came: Came, *, misfire: bool | None = None, until: float = inf, why: str = ""
    ) -> None:
        """Apply the state's rule to the moments that came while items were in it.

        Moments after ``until`` do not count: the schedule ended then, or the item was given away.  Nobody looks at that
        schedule again, so moments that had come before the time was set back count, as long as that step may be a
        mistake.  ``misfire`` is the view's unless it is given, and ``why`` replaces the reason of the rule.
        """
        numbers, rule = frozenset(items), came.value
        if not numbers:
            return
        newest = int(min(self.timetable.newest, until))
        fate = rule.fate(misfire=self.view.config.misfire if misfire is None else misfire)
        is_missed = fate in (Newest.MISSED_AND_LATE, Newest.MISSED)
        last = newest if is_missed and not rule.why_newest else newest - 1
        now = self.clock.now if until == inf else self.clock.latest
        self._report(numbers, last, why or rule.why, fate, now=now)
        due = self._due(self.timetable.newest, numbers)
        if is_missed and rule.why_newest:
            self._report(due, newest, rule.why_newest)
        for item in map(self.items.__getitem__, due):
            if fate is Newest.LATE:
                item.late = newest
            elif fate is Newest.MISSED:
                item.floor = max(item.floor, newest)

    def _report(
        self, items: Iterable[int], until: int, why: str, newest: Newest = Newest.MISSED, *, now: int | None = None
    ) -> None:
        """Report the moments up to ``until`` that these items have missed: those neither claimed nor reported yet."""
        self.missed.report_given_back()
        until = min(until, (now or self.clock.now) + SOON)
        last = {item: self.items[item].run_until for item in items}
        self.missed.report(last, self.timetable, until, why, newest=newest)
