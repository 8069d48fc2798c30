"""Chooses what an instance runs next: an orphan first, then what an operator asked for, then what is due.

Nothing here waits.  ``Choice.next_run`` returns a generator of commands.  A run is decided on one view, and the claim
checks that this view still holds.  The time and the state of the items are looked at anew after each command.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from aioelasticjob.core.commands import (
    AwaitMoment,
    AwaitRescueEnd,
    ClaimItems,
    ClaimResult,
    FollowReleases,
    GiveBack,
    NewestView,
    NoteAnswer,
    ReadItems,
    ReadOffsets,
    ReadRequested,
    RemoveOrphanMark,
    RunItems,
    Steps,
)
from aioelasticjob.core.request_runs import ended_as
from aioelasticjob.core.requests import is_id
from aioelasticjob.core.state import Item
from aioelasticjob.core.step import JobState
from aioelasticjob.core.triggers import Triggers
from aioelasticjob.core.view import JobView
from aioelasticjob.errors import RegistryError, SessionEnded, Suspended
from aioelasticjob.model import ASKED, NONE, SCHEDULED, Fire, FireSource, Requested

RESCUE = "to take an orphan"
"""The purpose of the requests of a rescue, for the log line if the registry refuses one."""


class Choice:
    """Chooses the next run of one instance.  ``lead`` is how many milliseconds before a moment its claim is sent.

    A run is led from its claim to its end, and the moments that came meanwhile are accounted for.
    """

    def __init__(self, me: str, state: JobState, lead: int) -> None:
        self._me, self._state, self._lead = me, state, lead
        self.triggers = Triggers(me, state)
        self._unclaimed_ahead = 0
        """The moment for which a claim ahead got no item; 0 if there is none.  It is claimed again when it comes."""
        self._declined: frozenset[int] = NONE
        """The orphans that this instance does not rescue because of the clock skew, as it has reported already."""

    def next_run(self, view: JobView) -> Steps[ClaimResult | None] | None:
        """Return the run that comes first, whose result is that of its claim; None if there is nothing to run now."""
        if view.orphans or self.triggers.deferred or view.requested or self._me in view.triggered:
            return self._run_unscheduled(view)
        return self._due(view) or self._due_soon(view)

    def _run_unscheduled(self, view: JobView) -> Steps[ClaimResult | None]:
        """Run an orphan, or what an operator asked for; otherwise what is due."""
        taken = (yield from self._rescue(view)) if view.orphans else None
        if taken is None:
            taken = yield from self.triggers.answer(view, self._run)
        if taken is None and (run := self._due(view) or self._due_soon(view)):
            taken = yield from run
        return taken

    def _due(self, view: JobView) -> Steps[ClaimResult] | None:
        """Return the run of the items that are due.  If the clock skew is too large, they are not run."""
        state = self._state
        items = state.claimable() if view.assignment_stands else NONE
        if not items:
            return None
        if skew := state.intolerable_skew():
            state.pass_over(items)
            state.refuse(skew)
            return None
        state.accept()
        return self._run(view, Fire(state.timetable.newest, state.source(items)), items)

    def _due_soon(self, view: JobView) -> Steps[ClaimResult] | None:
        """Return the run of the next moment, if it is to be claimed now.

        If the view or the time changes before the moment comes, the claim is given back, and the run is chosen anew.
        """
        upcoming, state = self._state.timetable.upcoming or 0, self._state
        if not 0 < upcoming - state.clock.now <= self._lead or upcoming == self._unclaimed_ahead:
            return None
        if state.intolerable_skew():
            return None
        state.accept()
        if not (view.assignment_stands and view.config.monitor_execution and self._me in view.active):
            return None
        items = state.claimable_ahead(upcoming)
        if view.disabled_items:
            items -= view.disabled_items
        return self._run(view, _fire_of(upcoming), items) if items else None

    def _run(self, view: JobView, fire: Fire, items: frozenset[int]) -> Steps[ClaimResult]:
        """Claim items, and run and settle those that the claim has got; return the result of the claim."""
        # the run that was cut off may have saved the orphan's offset, so it is always read
        is_rescue, state = fire.source is FireSource.FAILOVER, self._state
        with_offset = items if is_rescue else state.items.that_may_have_offsets(items)
        offsets: dict[int, str] = (yield ReadOffsets(with_offset)) if with_offset else {}
        # since this was decided, the connection may have been lost, or the record of an orphan may have changed
        if view.tree.outdated or (is_rescue and not _are_cut_off(map(state.items.__getitem__, items), fire)):
            return ClaimResult()
        taken: ClaimResult = yield ClaimItems(view, fire, items)
        claim = taken.claim
        # a moment that has come already may lie ahead again, because the time went back a little
        is_ahead = fire.source is FireSource.CRON and fire.slot > max(state.clock.now, state.timetable.newest)
        if is_ahead and claim is None:  # the items may be free when the moment comes
            self._unclaimed_ahead = 0 if taken.stale else fire.slot
            return taken
        state.missed.report_lost_runs(taken.cut_off)
        if fire.source in ASKED:
            yield from self.triggers.claimed(fire, taken)
        if claim is not None:
            if taken.renewed or taken.cut_off:  # offsets may have changed
                renewed = taken.renewed.union(taken.cut_off) & claim.items.keys()
                offsets = _without(renewed, offsets) | (yield ReadOffsets(renewed, claimed=True))
            if fire.source in SCHEDULED and claim.is_recorded:  # if others were given back, nobody would run them
                is_in_force = yield AwaitMoment(view, claim)
                while is_in_force and state.clock.now < fire.slot:  # a timer may ring before the clock shows its time
                    is_in_force = state.clock.is_soon(fire.slot) and (yield AwaitMoment(view, claim))
                # if this process was held up until the next moment has come as well, only that one is run
                if not is_in_force or (is_ahead and state.timetable.passed(fire.slot, state.clock.now)):
                    yield GiveBack()
                    return taken
        self._note_result(fire, taken)
        if taken.elsewhere and not is_rescue:
            yield _releases_to_follow(view, fire, taken.elsewhere)
        if claim is None:
            return taken
        del taken  # it is freed before the handler begins: see docs/why/running.md
        yield RunItems(view, claim, offsets)
        state.run_ended((yield NewestView()))
        return ClaimResult(claim)

    def _note_result(self, fire: Fire, taken: ClaimResult) -> None:
        """Note the result of a claim whose moment has come, also for the items that the claim did not get."""
        if fire.source is FireSource.CRON:
            self._state.advance_to(fire.slot)  # otherwise the moment would seem to have come during its own run
        if taken.obstructed:
            self._state.note_obstructed(taken.obstructed, fire)
        if taken.elsewhere and fire.source is not FireSource.FAILOVER:
            self._state.note_running_elsewhere(taken.elsewhere, fire)

    def _rescue(self, view: JobView) -> Steps[ClaimResult | None]:
        """Rescue some orphans in one run, and return the result of their claim; None if none was claimed."""
        if not (view.config.failover and self._me in view.active):
            return None
        waiting = sorted(filter(view.awaits_rescue, view.orphans - view.disabled_items))
        if skew := self._state.intolerable_skew():
            if not self._declined.issuperset(waiting):
                self._state.refuse(skew)
            self._declined = frozenset(waiting)
            return None
        for orphans in _groups_to_rescue(waiting, view.active, self._me):
            try:
                taken = yield from self._rescue_together(view, orphans)
                self._state.reports.append(NoteAnswer(RESCUE))
                if taken is not None and taken.claim is not None:
                    return taken
            except (Suspended, SessionEnded):
                raise
            except RegistryError as error:  # go on with the other orphans
                self._state.reports.append(NoteAnswer(RESCUE, error))
        return None  # go on with triggers and due items at once

    def _rescue_together(self, view: JobView, orphans: Sequence[int]) -> Steps[ClaimResult | None]:
        """Rescue the first of these orphans that can be rescued, together with those that were cut off in its run.

        The last rescue that an orphan may have is made alone: if another handler is what ends the process, the orphan
        would be cut off once more with it, and be given up.
        """
        entries, fires, taken = self._state.items, dict[object, dict[int, Fire]](), None
        yield ReadItems(frozenset(orphans), NONE)
        read = {number: entries[number].record for number in orphans}
        for number in (number for number, record in read.items() if record.completed):
            yield RemoveOrphanMark(number)
        lost = {n: one for n, one in read.items() if not (one.completed or ended_as(view, n, one, entries[n].fence))}
        asked = {number: record for number, record in lost.items() if is_id(record.request)}
        requested: dict[int, Requested] = (yield ReadRequested(asked)) if asked else {}
        for number, record in lost.items():
            moment = entries[number].moment_of(record)
            fire = Fire(moment, FireSource.FAILOVER, record.parameter, requested=requested.get(number))
            alone = number if record.rescues + 1 >= view.config.max_rescues else None
            fires.setdefault((fire.run, record.asked, fire.parameter, alone), {})[number] = fire
        if fires:
            chosen = next(iter(fires.values()))
            taken = yield from self._run(view, _shared_fire(chosen.values()), frozenset(chosen))
            claimed = frozenset(() if taken.claim is None else taken.claim.items)
            if not claimed and any(entries[n].seen is not None and entries[n].record != read[n] for n in chosen):
                return (yield from self._rescue_together(view, orphans))  # a record was out of date
            if own := claimed & self._state.held:
                yield AwaitRescueEnd(own)  # then their next moment is run together with the others
        for number in orphans:
            if number not in self._state.held:
                entries[number].forget()
        return taken


def _groups_to_rescue(waiting: Sequence[int], instances: Collection[str], me: str) -> Iterator[Sequence[int]]:
    """Yield groups of orphans in the order in which an instance tries to rescue them: its own share, then the others.

    The shares follow from the ids of all instances, so two rescuers seldom compete for the same orphan.  One orphan may
    prevent the claim of its whole share.  So after a share, each of its orphans is tried alone.
    """
    shares, place = min(len(waiting), len(instances)), sorted(instances).index(me)
    for share in (waiting[(place + n) % shares :: shares] for n in range(shares)):
        yield share
        if len(share) > 1:
            yield from zip(share)


def _shared_fire(fires: Collection[Fire]) -> Fire:
    """Return one fire that rescues several items of a run, given the fire that would rescue each item alone."""
    fire = next(iter(fires))
    if (requested := fire.requested) is None:
        return fire
    progress = {item: one for each in fires if each.requested for item, one in each.requested.progress.items()}
    return replace(fire, requested=replace(requested, progress=progress))


def _are_cut_off(items: Iterable[Item], fire: Fire) -> bool:
    """Whether the newest runs of these items are the ones that a fire rescues, and have not ended."""
    return all(item.cut_off and item.moment == fire.slot for item in items)


def _releases_to_follow(view: JobView, fire: Fire, elsewhere: frozenset[int]) -> FollowReleases:
    """Return the command that follows the runs which a claim has found on other instances."""
    is_missed = view.config.misfire and fire.source in SCHEDULED
    return FollowReleases(elsewhere, (view, fire.slot) if is_missed else None)


def _without(items: Collection[int], offsets: dict[int, str]) -> dict[int, str]:
    """Return the offsets of all other items.

    In a generator, a comprehension that reads a local variable costs one more object for each run under way.
    """
    return {item: offset for item, offset in offsets.items() if item not in items}


@lru_cache(maxsize=64)
def _fire_of(moment: int) -> Fire:
    """Return the fire of a scheduled moment: one object for all jobs that wait for this moment."""
    return Fire(moment, FireSource.CRON)
