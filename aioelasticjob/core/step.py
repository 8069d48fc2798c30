"""Decides, from facts, which moments of an instance's items are due, run, reported or excused.

Nothing here waits, reads a clock, asks the registry or writes a log.  Each method is given one fact, or answers a
question; afterwards ``reports`` holds what the driver has to report.  A method that needs the registry (``see``) is a
generator of commands.  Clock readings are facts too (``clock.take``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from aioelasticjob.core.account import SOON, Account
from aioelasticjob.core.clock_skew import ASTRAY
from aioelasticjob.core.commands import FollowReleases, NodeSteps, ReadItems, Steps
from aioelasticjob.core.entries import MAX_FUTURE
from aioelasticjob.core.future_records import FutureRecords
from aioelasticjob.core.missed import NEWS
from aioelasticjob.core.state import BUSY, ENDED, GONE, OURS, Came, Newest, Past, Timetable
from aioelasticjob.core.unattended import NO_INSTANCE_UP, Succession, UnattendedMoments
from aioelasticjob.core.view import JobView
from aioelasticjob.model import NONE, ClockReading


class JobState(Account):
    """The items of this instance, what it knows of them, and the moments that are due.  Times are in milliseconds.

    It has more than twelve methods: each step of applying a view is a method.
    """

    def __init__(self, me: str, view: JobView, reading: ClockReading, past: Past) -> None:
        super().__init__(me, view, reading, past)
        self._unattended = UnattendedMoments(me, self.clock, self.missed, self.items)
        self._in_force_since = int(view.schedules.since * 1000)
        """Since when the schedule is known to be in force."""
        self._dated_by = view.schedules.dated_by
        """The transaction that dated the schedule, or a later one."""
        self._joined = view.tree.zxid
        """The transaction up to which everything was there when this instance joined the job."""
        self._switched = False
        """Whether records were switched on or off since the items were last held."""

    @property
    def _future(self) -> FutureRecords:
        """The records from the future.  The object keeps nothing, so it is made when it is needed."""
        return FutureRecords(self.clock, self.missed, self.items, self.reports)

    def see(self, view: JobView) -> Steps[None]:
        """Apply a view (schedule, items gained and lost, what is switched off), and compute which moments are due.

        If the registry refuses a command, its error ends this generator, and the driver calls this method again later.
        The steps before that command have no effect when they are made again.  Items gained are held, and the view
        counts as applied (``looked_at``), only after their records were read and their missed moments marked; until
        then each call reads and marks them anew.
        """
        if self.only_time_has_passed(view):
            self.see_what_is_due(view)
            return
        self.note_change(view)
        self._follow_clock()
        self.follow_small_step_back()
        self.missed.report_given_back()
        if view is not self.looked_at:
            succession, was_monitored = Succession(self.view, view), self.view.config.monitor_execution
            if succession.has_changed:
                self._change_schedule(view, succession)
            is_monitored = view.config.monitor_execution
            if is_monitored is not was_monitored or any(
                one.recorded is not was_monitored for one in succession.between
            ):
                self._switch_monitoring(view, succession)
            self.view = view
            given = view.given_to(self._me)
            gained, rescued = self._let_go(view, given)
            if gained or rescued:
                yield from self._read(view, gained, rescued)
            unmarked = (yield from self._gain(view, gained)) if gained else NONE
            yield from self._hold(view, given, gained, unmarked)
        if not view.config.monitor_execution:
            known_since = max(self._past.newest_reported, self._in_force_since)
            yield from self._unattended.report_unrecorded(view, self.timetable, known_since)
        yield from self._settle_future(view)
        self.see_what_is_due(view)

    def note_change(self, view: JobView) -> None:
        """Note since when this instance may run nothing, also during an execution.

        The dates of the nodes below its server are not read, so nobody knows it later.
        """
        self._off_since = 0 if self._me in view.active else self._off_since or self.clock.now

    def _follow_clock(self) -> None:
        """Act on a time that was set.

        If it was set back, wait until it has stayed there, and then follow the schedule anew from there.  So a clock
        that is set back by mistake for some seconds costs only the moments in these seconds.
        """
        if self.clock.has_jumped():
            for item in self.items.values():
                item.future = None
            self._future.find(self.held, self.clock.set_to, 0)
        if self.clock.is_set_back():
            since = self._set_back = self.clock.since
            self.timetable = Timetable(self.view.config.schedule, since)
            now, changed = self.clock.now, self._in_force_since
            # of a schedule that came since then, only moments up to NEWS after its date were reported (report_hidden)
            beyond = max(now, changed + NEWS) if since < changed <= now else now + MAX_FUTURE
            self.missed.lower_all(beyond, since, changed if changed > now else 0)
            self._in_force_since = self.clock.in_time(self._in_force_since, self._dated_by)
            for number in self.held:
                item = self.items[number]
                begun = max(self._in_force_since, self._made_in_time(self.view, number))
                item.floor = min(item.floor, max(since, begun, item.reported))  # never report twice
            self._pass_over_reported(self.view)

    def _change_schedule(self, view: JobView, succession: Succession) -> None:
        """Close the old schedule and begin the new one at the time at which it was written.

        That can be well before now, because this instance does not look at views during an execution.
        """
        written = self.clock.in_time(int(view.schedules.since * 1000), view.schedules.dated_by)
        ours = self.held - succession.handed_on(self.held, self._me)
        self._close_schedule(view, min(written, succession.ended), ours)
        open_ = ours - view.disabled_items if self._me in view.active else NONE
        self._report_between(view, succession, written, open_)
        self._begin_schedule(view, written, open_ - self.view.disabled_items)

    def _close_schedule(self, view: JobView, ended: int, ours: frozenset[int]) -> None:
        """Account for the moments of the old schedule up to its end."""
        missed = self._kept_from(view) | self._due_before(view)
        if ended < self._in_force_since:  # the registry's clock was behind when it dated the change, and may still be
            by_host = min(int(self.clock.host * 1000), self.clock.latest)
            ended = self.clock.now if self.clock.now > self._in_force_since else by_host
        self.timetable.advance(min(self.clock.latest + SOON, ended))
        self._account((missed | self._due_before(view)) & ours, Came.REPLACED, until=ended)

    def _report_between(self, view: JobView, succession: Succession, written: int, open_: frozenset[int]) -> None:
        """Report the moments of schedules in between, and those that claims and reports of the old schedule hide.

        ``open_`` are the items that were not handed on and are not switched off.
        """
        run, new = open_ - self.view.disabled_items, Timetable(view.config.schedule, self.clock.now)
        for one in succession.between:
            table = Timetable(one.cron, one.until)
            self.missed.report_hidden(run, table, self.timetable, one.since, one.until)
            last = {item: max(self.items[item].accounted, one.since) for item in open_}
            self.missed.report(last, table, min(one.until, self.clock.latest), ENDED)
        self.missed.report_hidden(run, new, self.timetable, written)

    def _begin_schedule(self, view: JobView, written: int, open_: frozenset[int]) -> None:
        """Follow the new schedule, and account for its moments that came before this instance looked at it.

        ``open_`` are the items of which it was reported what claims and reports of the old schedule hide.
        """
        self._in_force_since, self._dated_by = written, view.schedules.dated_by
        now = self.clock.now
        # if the clock was ahead, this instance may not know yet that it has been put right
        certain = max(written, min(now, int(self.clock.host * 1000)))
        self.timetable = Timetable(view.config.schedule, now)
        for number, item in self.items.items():
            if number not in open_:  # what a clock ahead has reported or passed over hides no moment of this schedule
                item.reported, item.floor = min(item.reported, certain), min(item.floor, certain)
            item.floor = max(item.floor, written)
            # a moment that a clock ahead has passed over hides none that have yet to come
            item.followed = min(item.accounted, now + SOON) if number in self.held else 0
            if item.future is not None:  # the clock that dated the schedule was right, so dates up to then are, too
                item.future = replace(item.future, found=now + int(ASTRAY * 1000))
        mine = {item for item in self._due_here() | self._due_here(view) if view.assignment.get(item) == self._me}
        self._report(mine, min(self.timetable.newest - 1, self._busy_until), BUSY, Came.UNHEARD.value.newest)
        self._busy_until = 0  # if the time is set back, no later moment came during that run
        self._account(mine, Came.UNHEARD)
        self._pass_over_reported(view)  # schedules may share moments

    def _switch_monitoring(self, view: JobView, succession: Succession) -> None:
        """Adapt to a job whose records were switched on or off, or both since the last look.

        If they were switched off, report now what other instances have kept this one from running, and the runs that
        were cut off: later no record shows it.  If they were switched on, run nothing again only because it has no
        record, and report what was due.
        """
        self._switched = True
        if not view.config.monitor_execution:
            self._account(self._kept_from(view), Came.UNRECORDED)
            items = {number: self.items[number] for number in self.held - view.rescues.keys()}
            lost = {number: item.record for number, item in items.items() if item.cut_off and not item.elsewhere}
            if not self.view.config.failover:  # then this instance knows only of its own runs that they are over
                lost = {n: record for n, record in lost.items() if record.instance == self._me}
            self.missed.report_lost_runs(lost)
            for item in map(self.items.__getitem__, self.held):
                item.assume(item.record.slot)
            return
        since = next((one.since for one in view.schedules.since_switch), int(view.schedules.since * 1000))
        written = self.clock.in_time(since, view.schedules.dated_by)
        self.timetable.advance(min(self.clock.latest, written))
        due = self._kept_from(view) | self._due_before(view)
        handed_on = succession.handed_on(due, self._me)
        self._account(due - handed_on, Came.UNRECORDED, until=written)
        for number in handed_on:
            self._account([number], Came.UNRECORDED, until=view.given_at(number))
        self._in_force_since, self._dated_by = max(self._in_force_since, written), view.schedules.dated_by
        for item in map(self.items.__getitem__, self.held):
            item.unrecorded = item.record.slot

    def _let_go(self, view: JobView, given: Mapping[int, int]) -> tuple[frozenset[int], frozenset[int]]:
        """Forget the items that this instance has lost: all but those ``given`` to it.

        Return the items that it has gained, and those that it holds and whose rescuers wrote the records.
        """
        # also if an earlier look has read some of the records before an error ended it
        renew = self._switched and view.config.monitor_execution
        for number, item in self.items.items():
            if renew or item.given != given.get(number):
                item.forget()
        self.held = frozenset(number for number in self.held if self.items[number].seen is not None)
        gained = frozenset(number for number in given if self.items[number].seen is None)
        ended = self.held - view.orphans - view.rescues.keys() if view.config.monitor_execution else NONE
        return gained, frozenset(number for number in ended if self.items[number].cut_off)

    def _read(self, view: JobView, gained: frozenset[int], rescued: frozenset[int]) -> NodeSteps[None]:
        """Read the records of items gained, and of items whose rescue has ended."""
        is_monitored, items = view.config.monitor_execution, gained | rescued
        # records from before they were switched off show what was claimed
        running: frozenset[int] = yield ReadItems(items if is_monitored or self._switched else NONE, items)
        if not is_monitored:
            if self._switched:
                lost = (number for number in gained - running if self.items[number].cut_off)
                self.missed.report_lost_runs({number: self.items[number].record for number in lost})
            for number in gained:
                self.items[number].assume(self._seen_to(view, number))
        elif view.config.failover:
            for number in rescued:  # the whole rescue may lie between two views
                self.items[number].rescued = True
        else:
            lost = (number for number in gained - running if self.items[number].cut_off)
            self.missed.report_lost_runs({number: self.items[number].record for number in lost})

    def _gain(self, view: JobView, gained: frozenset[int]) -> NodeSteps[frozenset[int]]:
        """Compute from which moment on this instance has to run the items gained, and report earlier missed ones.

        The result is the items that could not be marked.
        """
        self._future.find(gained, self.clock.now)
        self._report_unrecorded(view, gained)
        misfire, is_active = view.config.misfire, self._me in view.active
        up_since, in_force_since = self._up_and_in_force_since(view, gained)
        made = {item: self._made_in_time(view, item) for item in gained}
        for item in gained:
            gain = self.items[item]
            reported = 0 if misfire else gain.reported  # without misfire, what was reported as missed is never run
            ran = min(gain.ran, gain.reported, self.clock.now)  # an item that was made anew has no record of it
            gain.floor = max(made[item], up_since, in_force_since, reported, ran, gain.unrecorded)
            if not is_active:  # moments before the instance may run the item are not missed
                gain.floor = max(gain.floor, self.timetable.newest)
            gain.followed = gain.accounted
        spans = [(Timetable(one.cron, one.until), one.since, one.until) for one in view.schedules.since_switch]
        spans.append((self.timetable, in_force_since, self.clock.now + int(ASTRAY * 1000)))
        dates = {item: (made[item], self.items[item].floor) for item in gained}
        return (yield from self._unattended.report(view, spans, dates))

    def _report_unrecorded(self, view: JobView, gained: frozenset[int]) -> None:
        """Report moments of items just given that came before records were last switched on or off.

        No record shows them, but this instance has not run them.  What came before an item was given to this instance
        is reported by its former holder.
        """
        given = view.given_to(self._me) if self._me in view.active else {}
        open_ = gained - view.disabled_items
        new = [n for n in open_ if self._joined < given.get(n, 0) != self.items[n].given]
        why, since = Came.UNRECORDED.value.why, {number: view.given_at(number) for number in new}
        for one in view.schedules.former if new else ():
            if one not in view.schedules.since_switch:
                after = {number: max(at, one.since) for number, at in since.items()}
                self.missed.report(after, Timetable(one.cron, one.until), min(one.until, self.clock.latest), why)

    def _hold(
        self, view: JobView, given: Mapping[int, int], gained: frozenset[int], unmarked: frozenset[int]
    ) -> Steps[None]:
        """Hold the items that are assigned to this instance, except those that could not be marked.

        Those are gained with the next view.  If this view is the first to show that an item runs on another instance,
        that run is followed, because no view will show its end.
        """
        self.held, self._switched = frozenset(given) - unmarked, False
        for number, item in self.items.items():
            item.given = 0 if number in unmarked else given.get(number, 0)
        for number in unmarked:
            self.items[number].forget()
        none_up_until = min(self.timetable.newest - 1, view.up_since * 1000, self._past.since * 1000)
        for why, numbers in self._by_cause(view, gained - unmarked).items():
            if view.config.catch_up:  # the newest of them is run, and nobody has reported the older ones
                self._report(numbers, int(none_up_until), NO_INSTANCE_UP, Newest.RUN)
            self._account(numbers, Came.BLOCKED, why=why)
        self.looked_at, begun = view, self._begun_elsewhere()
        for number in begun:
            self.items[number].elsewhere = True
        self._note_rescued()
        if begun:
            yield FollowReleases(begun)

    def _settle_future(self, view: JobView) -> NodeSteps[None]:
        """Lower or report records from the future, once it is certain that the clock is right.

        Items that are switched off are left for later.
        """
        if self.clock.unsteady or self._me not in view.active:
            return
        for number in self.items.keys() - self.held:  # the new holders report or lower these records
            self.items[number].future = None
        open_ = self.held - view.disabled_items
        self._account(self._future.lower(view, open_), Came.SET_BACK)
        yield from self._future.report(view, self.timetable, open_)

    def _seen_to(self, view: JobView, item: int) -> int:
        """Return up to which moment an item may have been run, by others or by this instance's earlier life."""
        claimed = 0 if self.items[item].seen is None else self.items[item].record.slot
        return min(self.clock.now, max(view.given_at(item), self._past.newest_reported, claimed))

    def _made_in_time(self, view: JobView, number: int) -> int:
        """Return when the item was made, or last taken from a paused instance: earlier moments are not due.

        The dates are corrected if the registry's clock was ahead then.  What is unknown is 0.
        """
        node = view.tree.get(view.layout.item(number).sharding)
        if node is None:
            return 0
        found, in_time = node.stat, self.clock.in_time
        made = min(in_time(int(found.ctime * 1000), found.czxid), self.items[number].written_after(found.czxid))
        return int(max(made, in_time(int(found.mtime * 1000), found.mzxid) if found.version else 0))

    def _up_and_in_force_since(self, view: JobView, gained: frozenset[int]) -> tuple[int, int]:
        """Return since when an instance is up, and since when the schedule is in force: the same for all items."""
        caught_up = self.clock.now / 1000 - view.config.catch_up if view.config.catch_up else inf
        up_since = min(view.up_since, self._past.since, caught_up)
        written = min((self.items[item].written_after(self._dated_by) for item in gained), default=inf)
        since = min(self.clock.in_time(self._in_force_since, self._dated_by), written)
        if since < self._in_force_since:  # the clock was ahead: the schedule is no newer than items made after it
            since = min([since, *(view.made_after(item, self._dated_by) for item in gained)])
        return self.clock.in_time(int(up_since * 1000)), int(since)

    def _by_cause(self, view: JobView, gained: frozenset[int]) -> dict[str, list[int]]:
        """Return items by the reason why they were not run before; "" unless the instance that ran them is gone."""
        found = dict[str, list[int]]()
        for number in sorted(gained):
            last = self.items[number].record.instance
            why = OURS if last in self._past.instances else GONE.format(last)
            found.setdefault(why if last and last not in view.instances else "", []).append(number)
        return found

    def _begun_elsewhere(self) -> frozenset[int]:
        """Return the items whose last run is neither settled nor marked as an orphan: it may still be going on."""
        view = self.view
        found = view.config.failover or view.config.streaming  # in other jobs a claim finds it out
        held = ((number, self.items[number]) for number in self.held - view.orphans - view.rescues.keys())
        # ``locked``: the job has left this instance's own lock before it joined again under the same session
        return frozenset(
            number
            for number, item in held
            if not item.elsewhere
            and (item.locked or (found and item.cut_off and item.record.begun != item.released_run))
        )

    def _note_rescued(self) -> None:
        """Report moments that came while items of this instance were rescued, once it may run the items again."""
        rescued, still = (number for number, item in self.items.items() if item.rescued), self._in_rescue() & self.held
        self._account([n for n in rescued if n in self.held - still and not self.items[n].elsewhere], Came.BLOCKED)
        for number, item in self.items.items():
            item.rescued = number in still
