"""Runs what requests ask of the items that one instance holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import TypeAlias

from anyio import current_time

from aioelasticjob.coordination.claims import ClaimResult
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.request_runs import RequestedRun, next_due, next_run
from aioelasticjob.coordination.view import JobView
from aioelasticjob.jobs.listeners import Listener
from aioelasticjob.model import Fire, FireSource
from aioelasticjob.running.driver import StateDriver
from aioelasticjob.running.listeners import join_run
from aioelasticjob.running.stats import ExecutionStats

OBSTRUCTED_FOR = 60.0
"""Seconds after which an item is tried again that nodes made by hand have kept from being claimed."""

RunClaimed: TypeAlias = Callable[[JobView, Fire, frozenset[int]], Awaitable[bool]]


class RequestedRuns:
    """Answers requests: triggers as soon as they are due, backfills in turns with the schedule."""

    def __init__(
        self, member: Member, state: StateDriver, stats: ExecutionStats, listeners: Sequence[Listener]
    ) -> None:
        self._member, self._state, self._stats, self._listeners = member, state, stats, listeners
        self._waiting_for_view: dict[int, int] = {}
        """By item, the transaction of its last claim for a request, until the view shows it."""
        self._obstructed: dict[int, float] = {}
        """Until when an item is not tried again, by the loop's clock."""
        self._schedule_is_next = False
        """Whether the last run was a backfill's, so that scheduled moments go before the next one."""

    def next_due(self, view: JobView) -> float:
        """Return the seconds until a planned request is due; infinity if there is none."""
        if not view.requested:
            return inf
        now = self._state.clock.now
        moment = next_due(view, self._state.held, now)
        return inf if moment is None else max(0.0, (moment - now) / 1000)

    async def answer(self, view: JobView, run_claimed: RunClaimed) -> bool:
        """Run items for one request; True if there was one to answer."""
        if not view.requested or (found := self._next(view)) is None:
            return False
        if skew := self._state.intolerable_skew():
            self._stats.refused(skew)
            return False
        self._stats.accepted()
        if not await join_run(self._listeners, self._member, found.fire, found.items):
            return False
        await run_claimed(view, found.fire, found.items)
        return True

    def claimed(self, fire: Fire, taken: ClaimResult) -> None:
        """Note what a claim has taken: until the view shows it, these items are not claimed for a request again."""
        if taken.claim is not None:
            self._waiting_for_view |= {item: taken.claim.fences[item] for item in taken.claim.items}
        self._obstructed |= dict.fromkeys(taken.refused, current_time() + OBSTRUCTED_FOR)

    def _next(self, view: JobView) -> RequestedRun | None:
        if not view.settled or self._member.id not in view.active:
            return None
        now, state = self._state.now(), self._state
        free = state.held - state.blocked() - view.disabled_items - self._not_ready(view)
        if (trigger := next_run(view, FireSource.TRIGGER, free, now)) is not None:
            return trigger
        backfill = next_run(view, FireSource.BACKFILL, free, now)
        if self._schedule_is_next and state.owed():
            backfill = None
        self._schedule_is_next = backfill is not None
        return backfill

    def _not_ready(self, view: JobView) -> frozenset[int]:
        """Return the items that are not to be claimed for a request now."""
        zxid, now = view.tree.zxid, current_time()
        self._waiting_for_view = {item: fence for item, fence in self._waiting_for_view.items() if fence > zxid}
        self._obstructed = {item: until for item, until in self._obstructed.items() if until > now}
        return frozenset({*self._waiting_for_view, *self._obstructed})
