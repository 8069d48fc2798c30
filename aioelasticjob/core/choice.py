"""Chooses what an instance runs next: an orphan first, then what an operator asked for, then what is due.

Nothing here waits.  ``Choice.next_run`` returns a generator of commands.  A run is decided on one view, and the claim
checks that this view still holds.  The time and the state of the items are looked at anew after each command.

The generator ends when the run begins, so the next one is chosen among the items that do not run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from aioelasticjob.core.account import JobState
from aioelasticjob.core.commands import (
    AwaitMoment,
    AwaitRescueEnd,
    ClaimItems,
    ClaimResult,
    GiveBack,
    NoteAnswer,
    ReadItems,
    ReadOffsets,
    ReadRequested,
    RemoveOrphanMark,
    RunItems,
    SettleEnded,
    Steps,
)
from aioelasticjob.core.effects import MAX_OPERATIONS
from aioelasticjob.core.items import Found, Item, learned
from aioelasticjob.core.request_runs import ended_as
from aioelasticjob.core.requested_runs import RequestedRuns
from aioelasticjob.core.requests import is_id
from aioelasticjob.core.view import JobView
from aioelasticjob.errors import ClockSkew, RegistryError, SessionEnded, Suspended
from aioelasticjob.model import (
    ASKED,
    NONE,
    SCHEDULED,
    Claim,
    EndedItem,
    Fire,
    FireSource,
    Progress,
    Requested,
    VersionedRecord,
)

MayHaveOffsets: TypeAlias = Callable[[frozenset[int]], frozenset[int]]

MOST_TOGETHER = MAX_OPERATIONS // 6
"""How many items are claimed and settled in one transaction at most; with more, the settlement is written first."""
RESCUE = "to take an orphan"
"""The purpose of the requests of a rescue, for the log line if the registry refuses one."""


class Choice:
    """Chooses the next run of one instance.  ``lead`` is how many milliseconds before a moment its claim is sent.

    A run is led from its claim to its begin.  When it is over and settled, ``ended`` is called.
    """

    def __init__(self, me: str, state: JobState, lead: int, may_have_offsets: MayHaveOffsets) -> None:
        self._me = me
        self._state = state
        self._lead = lead
        self._may_have_offsets = may_have_offsets
        """Returns those of some items that may have an offset."""
        self._requested = RequestedRuns(me, state)
        self._declined: frozenset[int] = NONE
        """The orphans that this instance does not rescue because of the clock skew, as it has reported already."""

    def next_run(self, view: JobView) -> Steps[ClaimResult | None] | None:
        """Return the run that comes first, whose result is that of its claim; None if there is nothing to run now."""
        if view.orphans or view.requested:
            return self._run_unscheduled(view)
        return None if self.schedule_waits else self._due(view) or self._due_soon(view)

    def ended(self, claim: Claim, written: Mapping[int, VersionedRecord]) -> Steps[None]:
        """Note that the run of a claim is over, and what its settlement has written."""
        state = self._state
        state.ended(written, claim)
        if state.view.config.independent_items:
            return
        if claim.fire.source is FireSource.FAILOVER and (own := state.held.intersection(claim.items)):
            yield AwaitRescueEnd(own)  # then their next moment is run together with the others
            state.read_again(own)

    @property
    def schedule_waits(self) -> bool:
        """Whether no orphan and nothing that is due is claimed until a run here has ended.

        Then only requests are answered, and none while a stream goes on: it ends first.
        """
        config = self._state.view.config
        if config.independent_items or not self._state.open:
            return False
        return config.streaming or self._state.runs_for_schedule

    def settle_unclaimed(self, view: JobView, *, is_claiming: bool) -> Steps[None]:
        """Settle what has ended and is not settled together with a claim, now or soon.

        If nothing was claimed, though it could have been, no moment is waited for (``is_claiming`` is False).
        """
        soon = self._state.clock.now + self._lead if is_claiming else 0
        yield from self.settle(self._state.to_settle(view, soon))

    def settle(self, items: Collection[int]) -> Steps[None]:
        """Settle what has ended of these items."""
        yield from self._settle(self._state.take_unsettled(items))

    def _settle(self, ended: Mapping[int, EndedItem]) -> Steps[None]:
        for claim, records in self._state.begin_to_settle(ended):
            yield SettleEnded(claim, records)

    def _run_unscheduled(self, view: JobView) -> Steps[ClaimResult | None]:
        """Run an orphan, or what an operator asked for; otherwise what is due."""
        may_rescue = bool(view.orphans) and not self.schedule_waits
        taken = (yield from self._rescue(view)) if may_rescue else None
        if taken is None:
            taken = yield from self._requested.answer(view, self._run_held)
        if taken is None and not self.schedule_waits and (run := self._due(view) or self._due_soon(view)):
            taken = yield from run
        return taken

    def _due(self, view: JobView) -> Steps[ClaimResult | None] | None:
        """Return the run of the items that are due.  If the clock skew is too large, they are not run."""
        state = self._state
        if not view.assignment_stands or self._me not in view.active:
            return None
        due = state.due()
        if view.config.independent_items and due.on_time:
            due.late.clear()  # they are claimed next, so the others do not count as late
        items = due.items
        if not items:
            return None
        if skew := state.intolerable_skew():
            return self._refuse(view, items, skew)
        state.accept()
        newest = state.timeline.newest
        is_late = bool(due.late) or state.is_catch_up(newest)
        delay = state.timeline.start_of(newest) - newest
        fire = Fire(newest, FireSource.MISFIRE, delay=delay) if is_late else _fire_of(newest, delay)
        return self._run_held(view, fire, items)

    def _refuse(self, view: JobView, items: frozenset[int], skew: ClockSkew) -> Steps[None]:
        if self._state.unsettled:  # then another pass refuses them
            yield from self.settle(self._state.unsettled)
        else:
            yield from self._state.refuse_due(view, items, skew)

    def _due_soon(self, view: JobView) -> Steps[ClaimResult] | None:
        """Return the run of the next moment, if it is to be claimed now.

        If the view or the time changes before the moment comes, the claim is given back, and the run is chosen anew.
        """
        state = self._state
        upcoming = state.timeline.upcoming or 0
        starts_at = state.timeline.starts_at
        if not 0 < starts_at - state.clock.now <= self._lead:
            return None
        if state.intolerable_skew():
            return None
        state.accept()
        if not (view.assignment_stands and view.config.monitor_execution and self._me in view.active):
            return None
        items = state.due_soon(upcoming)
        return self._run_held(view, _fire_of(upcoming, starts_at - upcoming), items) if items else None

    def _run_held(self, view: JobView, fire: Fire, items: frozenset[int]) -> Steps[ClaimResult]:
        """Run items that this instance holds."""
        with_offset = self._may_have_offsets(items)
        offsets: dict[int, str] = (yield ReadOffsets(with_offset)) if with_offset else {}
        held = self._state.items
        chosen = {item: held[item] for item in sorted(items) if item in held}
        return (yield from self._run(view, fire, chosen, offsets))

    def _run(self, view: JobView, fire: Fire, items: Mapping[int, Item], offsets: dict[int, str]) -> Steps[ClaimResult]:
        """Claim items, and begin to run those that the claim has got; return the result of the claim."""
        state = self._state
        if state.unsettled and len(items) + len(state.unsettled) > MOST_TOGETHER:
            yield from self.settle(state.unsettled)
            return ClaimResult()
        if view.tree.outdated:  # since this was decided, the connection may have been lost
            return ClaimResult()
        command, promised = state.claim(view, fire, items)
        taken = yield from self._claim(command)
        claim = taken.claim
        state.read_again(taken.renewed)
        if taken.obstructed:
            slot = fire.slot if fire.source in SCHEDULED else 0
            state.note_obstructed(taken.obstructed, slot)
        if fire.source in ASKED:
            self._requested.claimed(taken)
        if claim is None:
            return taken
        state.claimed(claim, promised)
        if fire.source in SCHEDULED and claim.is_recorded and not (yield from self._await_moment(view, claim)):
            state.ended({}, claim)
            yield GiveBack()
            return ClaimResult(renewed=frozenset(claim.items))
        yield RunItems(view, claim, offsets)
        return taken

    def _claim(self, command: ClaimItems) -> Steps[ClaimResult]:
        """Claim items.  If the claim settles what has ended, and is not accepted, that is settled alone."""
        try:
            taken: ClaimResult = yield command
        except RegistryError:
            yield from self._settle(command.settling)
            raise
        if taken.claim is None:
            yield from self._settle(command.settling)
        else:
            self._state.settled_with_claim(command.settling, taken.claim)
        return taken

    def _await_moment(self, view: JobView, claim: Claim) -> Steps[bool]:
        """Wait until the moment of a claim has come; the result is False if the claim is to be given back."""
        state = self._state
        start = claim.fire.start
        was_ahead = start > state.clock.now
        is_in_force: bool = yield AwaitMoment(view, claim)
        while is_in_force and state.clock.now < start:  # a timer may ring before the clock shows its time
            is_in_force = state.clock.is_soon(start) and (yield AwaitMoment(view, claim))
        # if this process was held up until the next moment has come as well, only that one is run
        timeline = state.timeline
        is_overtaken = was_ahead and timeline.has_moment(claim.fire.slot, timeline.has_come(state.clock.now))
        return is_in_force and not is_overtaken

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
        return None  # go on with requests and due items at once

    def _rescue_together(self, view: JobView, orphans: Sequence[int]) -> Steps[ClaimResult | None]:
        """Rescue the first of these orphans that can be rescued, together with those that were cut off in its run.

        The last rescue that an orphan may have is made alone: if another handler is what ends the process, the orphan
        would be cut off once more with it, and be given up.
        """
        fires = dict[object, dict[int, Fire]]()
        taken: ClaimResult | None = None
        found: Mapping[int, Found] = yield ReadItems(frozenset(orphans))
        items = {
            number: learned(one, view.item_nodes.given.get(number, 0), view.made_at(number), view.made_by(number))
            for number, one in found.items()
        }
        for number, item in items.items():
            if item.record.completed:
                yield RemoveOrphanMark(number, item.seen.version)
        lost = {
            number: item
            for number, item in items.items()
            if item.is_cut_off and not ended_as(view, number, item.record, item.seen.zxid)
        }
        asked = {number: item.record for number, item in lost.items() if is_id(item.record.request)}
        requested: dict[int, Requested] = (yield ReadRequested(asked)) if asked else {}
        for number, item in lost.items():
            record = item.record
            fire = Fire(record.moment, FireSource.FAILOVER, record.parameter, requested=requested.get(number))
            alone = number if record.rescues + 1 >= view.config.max_rescues else None
            together = fire.run, record.asked, fire.parameter, alone
            fires.setdefault(together, {})[number] = fire
        if fires:
            chosen = next(iter(fires.values()))
            # the run that was cut off may have saved the offset, so it is always read
            offsets: dict[int, str] = yield ReadOffsets(frozenset(chosen))
            rescued = {number: lost[number] for number in chosen}
            taken = yield from self._run(view, _shared_fire(chosen.values()), rescued, offsets)
            if taken.claim is None and taken.renewed:
                return (yield from self._rescue_together(view, orphans))  # a record was out of date
        return taken


def _groups_to_rescue(waiting: Sequence[int], instances: Collection[str], me: str) -> Iterator[Sequence[int]]:
    """Yield groups of orphans in the order in which an instance tries to rescue them: its own share, then the others.

    The shares follow from the ids of all instances, so two rescuers seldom compete for the same orphan.  One orphan may
    prevent the claim of its whole share.  So after a share, each of its orphans is tried alone.
    """
    shares = min(len(waiting), len(instances))
    place = sorted(instances).index(me)
    for n in range(shares):
        first = (place + n) % shares
        share = waiting[first::shares]
        yield share
        if len(share) > 1:
            yield from zip(share)


def _shared_fire(fires: Collection[Fire]) -> Fire:
    """Return one fire that rescues several items of a run, given the fire that would rescue each item alone."""
    fire = next(iter(fires))
    if (requested := fire.requested) is None:
        return fire
    progress = dict[int, tuple[Progress, int]]()
    for each in fires:
        if each.requested is not None:
            progress |= each.requested.progress
    return replace(fire, requested=replace(requested, progress=progress))


@lru_cache(maxsize=64)
def _fire_of(moment: int, delay: int) -> Fire:
    """Return the fire of a scheduled moment: one object for all jobs that wait for this moment."""
    return Fire(moment, FireSource.SCHEDULE, delay=delay)
