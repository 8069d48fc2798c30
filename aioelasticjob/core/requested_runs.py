"""Answers requests on one instance.  Nothing here waits: the answers are generators of commands.

The claim that runs items for a request notes how far they have come with it, so no run is lost, and none is made twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from aioelasticjob.core.account import JobState
from aioelasticjob.core.commands import ClaimResult, JoinRun, Steps
from aioelasticjob.core.request_runs import RequestedRun, next_run
from aioelasticjob.core.view import JobView
from aioelasticjob.model import NONE, Fire, FireSource

OBSTRUCTED_FOR = 60.0
"""Seconds after which an item is tried again that nodes made by hand have kept from being claimed."""

Run: TypeAlias = Callable[[JobView, Fire, frozenset[int]], Steps[ClaimResult]]
"""Claims items, and begins to run them."""


class RequestedRuns:
    """Answers requests: triggers as soon as they are due, backfills in turns with the schedule."""

    def __init__(self, me: str, state: JobState) -> None:
        self._me = me
        self._state = state
        self._waiting_for_view: dict[int, int] = {}
        """By item, the transaction of its last claim for a request, until the view shows claim and settlement."""
        self._obstructed: dict[int, float] = {}
        """Until when an item is not tried again, by the clock that nobody sets."""
        self._refused = ""
        """The run that was refused last because of the clock skew, as this instance has reported already."""

    def answer(self, view: JobView, run: Run) -> Steps[ClaimResult | None]:
        """Run items for one request; None if there is none that can be answered now."""
        if not view.requested or (found := self._next(view)) is None:
            return None
        if skew := self._state.intolerable_skew():
            about = found.fire.run
            if about != self._refused:
                self._state.refuse(skew)
            self._refused = about
            return None
        self._refused = ""
        self._state.accept()
        if not (yield JoinRun(found.fire, found.items)):
            return None
        return (yield from run(view, found.fire, found.items))

    def claimed(self, taken: ClaimResult) -> None:
        """Note what a claim has taken: until the view shows it, these items are not claimed for a request again."""
        if taken.claim is not None:
            self._waiting_for_view |= {item: seen.zxid for item, seen in taken.claim.items.items()}
        self._obstructed |= dict.fromkeys(taken.obstructed, self._state.clock.steady + OBSTRUCTED_FOR)

    def _next(self, view: JobView) -> RequestedRun | None:
        if not view.assignment_stands or self._me not in view.active:
            return None
        if view.config.streaming and self._state.open:  # a stream ends before a request is answered
            return None
        now = self._state.clock.now
        state = self._state
        free = state.free() - self._not_ready(view)
        if (trigger := next_run(view, FireSource.TRIGGER, free, now)) is not None:
            return trigger
        return next_run(view, FireSource.BACKFILL, free - self._owed_to_schedule(free), now)

    def _owed_to_schedule(self, free: frozenset[int]) -> frozenset[int]:
        """Return the items whose last run was a backfill's, and which now run what the schedule asks for."""
        items = self._state.items
        backfilled = frozenset([item for item in free if items[item].record.source == FireSource.BACKFILL])
        return backfilled & self._state.due().items if backfilled else NONE

    def _not_ready(self, view: JobView) -> frozenset[int]:
        """Return the items that are not to be claimed for a request now."""
        zxid = view.tree.zxid
        now = self._state.clock.steady
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
        known = self._state.items.get(item)
        if known is None or view.layout.request_item(known.record.request, item) not in view.tree:
            return fence
        return max(fence, known.seen.zxid)
