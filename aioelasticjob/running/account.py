"""What one instance owes: which of its items, for which moment, and what becomes of those that it could not run.

It follows from state, not from wake-ups: an item held here whose record lies before the newest due moment is owed.
So a moment survives a re-sharding, whoever held the item when it came.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import inf

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.view import JobView
from aioelasticjob.model import SCHEDULED, Fire, FireSource
from aioelasticjob.running.clock_skew import AHEAD, ClockSkewMonitor, Reading
from aioelasticjob.running.commands import Command
from aioelasticjob.running.missed import MissedMoments
from aioelasticjob.running.schedule import Passed, Timetable
from aioelasticjob.running.state import BUSY, TABLE, Came, Items, Newest
from aioelasticjob.running.succession import Succession

SOON = 500  # milliseconds before its moment at which a claim may leave, and be refused


class Account:
    """The items held here and the moments that are due; times in milliseconds."""

    def __init__(self, me: str, view: JobView, reading: Reading, up_since: float, items: Items) -> None:
        self.clock = ClockSkewMonitor(reading)
        self.commands: list[Command] = []
        """What is to be done outside; whoever does it takes it away."""
        self.items = items
        items.join_again()
        self.held: frozenset[int] = frozenset()
        self.view = view
        """The newest view taken in."""
        self.missed = MissedMoments(self.clock, items, self.commands)
        self._me, self._up_since = me, up_since
        self._set_back = inf
        """To where the time was last set back: what came since then this instance was up for."""
        self._floor = 0
        """Up to this moment nothing is owed by anybody here."""
        self.timetable = Timetable(view.config.schedule, self.clock.now)
        self._scheduled_since = view.schedule_dated
        """Since when the schedule is in force as the registry says it, whose clock may be ahead."""

    @property
    def elsewhere(self) -> frozenset[int]:
        """Items of ours that another instance still runs."""
        return frozenset(number for number, item in self.items.items() if item.elsewhere)

    @property
    def config(self) -> JobConfig:
        """The configuration in force."""
        return self.view.config

    def owed(self, moment: int | None = None) -> frozenset[int]:
        """Return the items whose newest moment (or the one given) has not been claimed and is ours to claim."""
        owed = self._unclaimed(moment or self.timetable.newest)
        return owed - self.blocked() if owed else owed

    def _unclaimed(self, moment: int, among: Iterable[int] | None = None) -> frozenset[int]:
        """Return the items held here (``among`` those given) for which a moment has not been claimed or passed over."""
        if not self._floor < moment <= self.clock.now + AHEAD:  # else the time was set back, which is not concluded yet
            return frozenset()
        held = self.held if among is None else self.held.intersection(among)
        return frozenset(number for number in held if self.items[number].owes(moment))

    def _due(self, view: JobView | None = None) -> frozenset[int]:
        """Return the owed items that may run here: nobody misses the others, or their next holder reports them."""
        view = view or self.view
        if self._me not in view.eligible:
            return frozenset()
        due = self._unclaimed(self.timetable.newest) - self.blocked(view) - view.disabled_items
        if view is self.view:
            return due
        return frozenset(n for n in due if not self.items[n].rescued and view.assignment.get(n) == self._me)

    def blocked(self, view: JobView | None = None) -> frozenset[int]:
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
        return FireSource.MISFIRE if late or self.is_catch_up(newest) else FireSource.CRON

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

    def collapse(self, view: JobView, *, rerun: bool) -> None:
        """Let the moments that came during a flight become one: it is run once, or dropped.

        ``view`` is the newest: the items to run may have changed.  If it has another schedule, ``look`` does the rest.
        """
        table = self.timetable
        if view is not self.view and (succession := self._succession(view)).has_changed:
            table.advance(min(self.clock.now, succession.ended))
            missed = self._due(view).union(succession.given_away_since(self._due()))
            self._report(missed, min(table.newest - 1, succession.ended), BUSY)
        elif table.advance(self.clock.now):
            self._account(self._due(view), Came.RUNNING, misfire=rerun)
            if not rerun:
                self.pass_over()

    def runs_elsewhere(self, items: Collection[int], fire: Fire) -> None:
        """Take in that a claim found items to be run by another instance; ``released`` tells when that is over."""
        if fire.source in SCHEDULED:  # else what was asked for is put off
            self._account(self._unclaimed(self.timetable.newest, items), Came.REFUSED)
        for number in items:
            self.items[number].elsewhere = True

    def is_obstructed(self, items: Collection[int], fire: Fire) -> None:
        """Take in that something made by hand keeps items from being claimed."""
        if fire.source in SCHEDULED:
            self._account(self._unclaimed(self.timetable.newest, items), Came.OBSTRUCTED)
        else:
            self.missed.put(items, Passed(fire.slot, fire.slot), TABLE[Came.OBSTRUCTED].why)

    def reach(self, moment: int) -> None:
        """Move on to a moment that was claimed ahead: an item that came free meanwhile has missed the one before."""
        waiting = self._due()
        if self.timetable.advance(moment):
            self._account(waiting, Came.OVERTAKEN)

    def released(self, item: int) -> None:
        """Take back an item that has ended elsewhere; its newest moment is then a rerun, or dropped."""
        freed = self.items[item]
        freed.elsewhere = False
        if freed.seen is not None:
            freed.rescued = freed.rescued and item in self._in_rescue()  # what comes from now on it may miss, too
            self._account([item], Came.ELSEWHERE)

    def _account(self, items: Iterable[int], came: Came, *, misfire: bool | None = None, ended: float = inf) -> None:
        """Account for the moments that came to items in a state, up to when the schedule ``ended``, by the table."""
        numbers, rule, newest = frozenset(items), TABLE[came], self.timetable.newest
        fate = rule.fate(misfire=self.config.misfire if misfire is None else misfire)
        if not numbers or fate is Newest.EXCUSED:
            return self.pass_over(numbers)
        until, is_dropped = int(min(newest, ended)), newest <= self._floor  # then nothing here runs the newest any more
        is_missed, is_alike = fate in (Newest.RERUN, Newest.MISSED), not rule.why_newest
        self._report(numbers, until if is_dropped or (is_missed and is_alike) else until - 1, rule.why)
        for number in self._unclaimed(newest, numbers):
            if is_missed and not is_alike:
                self._report([number], until, rule.why_newest)
            if fate is Newest.LATE:
                self.items[number].late = newest
            elif fate is Newest.MISSED:
                self.items[number].floor = max(self.items[number].floor, until)

    def _report(self, items: Iterable[int], until: int, why: str) -> None:
        """Report the moments that these items have missed, that no claim has had and no report, if they came."""
        self.missed.report_withdrawn()
        until = min(until, self.clock.now + SOON)
        self.missed.report({item: self.items[item].accounted for item in items}, self.timetable, until, why)

    def _succession(self, view: JobView) -> Succession:
        return Succession(self.config.schedule, self._scheduled_since, view)
