"""Answers triggers and requests on one instance.  Nothing here waits: the answers are generators of commands.

The claim that runs a trigger's items removes it, so it is neither lost nor run twice.  For a request, the claim notes
how far its items have come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TypeAlias

from aioelasticjob.core.commands import ClaimResult, JoinRun, RemoveTrigger, SayNothingToRun, Steps
from aioelasticjob.core.diagnostics import missing_features_text, unusable_text
from aioelasticjob.core.records import too_large
from aioelasticjob.core.request_runs import RequestedRun, next_run
from aioelasticjob.core.state import Passed
from aioelasticjob.core.step import JobState
from aioelasticjob.core.view import JobView
from aioelasticjob.model import NONE, Fire, FireSource

OBSTRUCTED_FOR = 60.0
"""Seconds after which an item is tried again that nodes made by hand have kept from being claimed."""

Run: TypeAlias = Callable[[JobView, Fire, frozenset[int]], Steps[ClaimResult]]
"""Claims items, runs and settles them."""


class Triggers:
    """Answers the triggers of one instance, and keeps the items that could not be run at once."""

    def __init__(self, me: str, state: JobState) -> None:
        self._me, self._state = me, state
        self.deferred: dict[int, Fire] = {}
        """The fires of items that could not be claimed when their trigger was answered."""
        self._requested = RequestedRuns(me, state)
        self._answered = 0
        """The transaction that made the last trigger which was answered; the view may still show that trigger."""
        self._asked: frozenset[int] = NONE
        """All items that the present fire is meant for, whether or not they can be claimed now."""

    def answer(self, view: JobView, run: Run) -> Steps[ClaimResult | None]:
        """Run the items of a trigger or of a request; None if there is none that can be answered now."""
        if (later := self._ready(view)) is not None:
            return (yield from self._run_deferred(view, run, *later))
        if (fire := self._newest(view)) is None:
            return (yield from self._requested.answer(view, run))
        state = self._state
        refusal = state.intolerable_skew() or too_large((fire.parameter or "").encode())
        closed = refusal is not None or self._me not in view.active
        items = NONE if closed else state.held - view.disabled_items
        free = items - state.blocked()
        if not (yield JoinRun(fire, items)):
            return None
        if free and view.config.monitor_execution:
            self._asked = items
            return (yield from run(view, fire, free))
        if not (yield from self._drop(fire)):  # no claim is made that would remove the trigger
            return None
        if refusal is not None:  # after the removal: before, it would be reported again until the view is newer
            state.refuse(refusal)
        elif not items:
            self._say_why_nothing_runs(view)
        self._defer(items, fire)
        return ClaimResult()

    def claimed(self, fire: Fire, taken: ClaimResult) -> Steps[None]:
        """Keep the items that the claim for a trigger did not get: the trigger stays, or they are deferred."""
        if fire.requested is not None:
            self._requested.claimed(taken)
            return
        got = NONE if taken.claim is None else taken.claim.items.keys()
        if not got and (taken.stale or not (yield from self._drop(fire))):
            return
        for item in got | taken.obstructed:
            self.deferred.pop(item, None)
        self._defer(self._asked - got - taken.obstructed, fire)

    def give_up(self) -> None:
        """Report the deferred items as missed, because this instance leaves or its session is over."""
        self._report_missed(
            self.deferred, "an operator triggered the run, and this instance left before it could begin"
        )

    def _run_deferred(self, view: JobView, run: Run, fire: Fire, items: frozenset[int]) -> Steps[ClaimResult]:
        """Run deferred items.  They stay deferred until a claim has them, except if the clock skew is too large."""
        if skew := self._state.intolerable_skew():
            self._state.refuse(skew)
            for item in items:
                del self.deferred[item]
            return ClaimResult()
        self._asked = items
        return (yield from run(view, fire, items))

    def _newest(self, view: JobView) -> Fire | None:
        """Return the fire of this instance's trigger; None if there is none, or it cannot be answered yet."""
        path = view.layout.trigger(self._me)
        asked = view.tree.get(path)
        if asked is None or asked.stat.mzxid == self._answered or view.obstructed(path) or not view.assignment_stands:
            return None
        parameter = asked.text or None  # without data, the configured one is used
        moment = round(asked.stat.mtime * 1000)  # by the registry's clock, so that it is the same on all instances
        return Fire(moment, FireSource.TRIGGER, parameter, (path, asked.stat.version), asked.stat.mzxid)

    def _say_why_nothing_runs(self, view: JobView) -> None:
        """Say why a trigger runs nothing; nothing is said if this instance simply holds no items."""
        if self._me in view.lacking:
            why = missing_features_text(view.lacking[self._me])
        elif self._me in view.unable:
            why = unusable_text(view.unusable)
        elif view.paused:
            why = "the job is paused"
        elif self._me not in view.active:
            why = "this server is disabled or paused, or this instance is leaving"
        elif self._state.held:
            why = "all items that this instance holds are disabled"
        else:
            return
        self._state.reports.append(SayNothingToRun(why))

    def _drop(self, fire: Fire) -> Steps[bool]:
        """Remove a trigger that no claim removes; False if it has been replaced or removed meanwhile."""
        removed = fire.request is None or (yield RemoveTrigger(*fire.request))
        if removed:
            self._answered = fire.request_id
        return removed

    def _defer(self, items: Iterable[int], fire: Fire) -> None:
        """Defer items that cannot be run now."""
        self.deferred.update(dict.fromkeys(items, replace(fire, request=None)))

    def _ready(self, view: JobView) -> tuple[Fire, frozenset[int]] | None:
        """Return a deferred fire and the items that can run for it now; report items that have moved as missed."""
        fires = self.deferred
        why = "an operator triggered the run, and the item moved to another instance before it could begin"
        self._report_missed(fires.keys() - self._state.held, why)
        ready = fires.keys() - self._state.blocked() - view.disabled_items
        if not ready or not view.assignment_stands or self._me not in view.active:
            return None
        fire = fires[min(ready)]
        return fire, frozenset(item for item in ready if fires[item] == fire)

    def _report_missed(self, items: Collection[int], why: str) -> None:
        for item in sorted(items):
            fire = self.deferred.pop(item)
            self._state.missed.put([item], Passed(fire.slot, fire.slot), why)


class RequestedRuns:
    """Answers requests: triggers as soon as they are due, backfills in turns with the schedule."""

    def __init__(self, me: str, state: JobState) -> None:
        self._me, self._state = me, state
        self._waiting_for_view: dict[int, int] = {}
        """By item, the transaction of its last claim for a request, until the view shows claim and settlement."""
        self._obstructed: dict[int, float] = {}
        """Until when an item is not tried again, by the clock that nobody sets."""
        self._schedule_is_next = False
        """Whether the last run was a backfill's, so that scheduled moments go before the next one."""

    def answer(self, view: JobView, run: Run) -> Steps[ClaimResult | None]:
        """Run items for one request; None if there is none that can be answered now."""
        if not view.requested or (found := self._next(view)) is None:
            return None
        if skew := self._state.intolerable_skew():
            self._state.refuse(skew)
            return None
        self._state.accept()
        if not (yield JoinRun(found.fire, found.items)):
            return None
        return (yield from run(view, found.fire, found.items))

    def claimed(self, taken: ClaimResult) -> None:
        """Note what a claim has taken: until the view shows it, these items are not claimed for a request again."""
        if taken.claim is not None:
            self._waiting_for_view |= taken.claim.fences
        self._obstructed |= dict.fromkeys(taken.obstructed, self._state.clock.steady + OBSTRUCTED_FOR)

    def _next(self, view: JobView) -> RequestedRun | None:
        if not view.assignment_stands or self._me not in view.active:
            return None
        now, state = self._state.clock.now, self._state
        free = state.held - state.blocked() - view.disabled_items - self._not_ready(view)
        if (trigger := next_run(view, FireSource.TRIGGER, free, now)) is not None:
            return trigger
        waits = self._schedule_is_next and state.claimable()
        backfill = None if waits else next_run(view, FireSource.BACKFILL, free, now)
        self._schedule_is_next = backfill is not None
        return backfill

    def _not_ready(self, view: JobView) -> frozenset[int]:
        """Return the items that are not to be claimed for a request now."""
        zxid, now = view.tree.zxid, self._state.clock.steady
        self._waiting_for_view = {
            item: fence for item, fence in self._waiting_for_view.items() if self._written(view, item, fence) > zxid
        }
        self._obstructed = {item: until for item, until in self._obstructed.items() if until > now}
        if self._waiting_for_view and view.config.streaming:
            # On this view the request that a stream has left open seems to go on.  A stream that is begun on it would
            # give way to that request as if it were new, and the two would give way to one another again and again.
            return self._state.held
        return frozenset({*self._waiting_for_view, *self._obstructed})

    def _written(self, view: JobView, item: int, fence: int) -> int:
        """Return the newest transaction that has written how far an item has come with its last request.

        If somebody has removed that node, the settlement did not write it, so no view would show the settlement.
        """
        seen = self._state.items[item].seen
        is_noted = seen is not None and view.layout.request_item(seen.record.request, item) in view.tree
        return max(fence, seen.zxid) if seen is not None and is_noted else fence
