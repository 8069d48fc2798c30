"""The waits between the attempts of a run.  A wait ends early if this instance may not go on with the run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from anyio import CancelScope, move_on_after

from aioelasticjob.coordination.view import JobView
from aioelasticjob.jobs.context import Context
from aioelasticjob.latest import Latest
from aioelasticjob.model import Claim, FireSource

LEAVES = "this instance leaves"
SWITCHED_OFF = "the item, its server or the job was switched off"
HELD_ELSEWHERE = "another instance holds the item now"


class AttemptTimedOut(TimeoutError):
    """An attempt took longer than ``attempt_timeout``."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt that has failed."""

    context: Context
    error: Exception
    seconds: float
    """How long it took."""
    pause: float | None
    """Seconds until the next attempt; None if none follows."""


class RetryWaits:
    """The waits of one job in one session."""

    def __init__(self, views: Latest[JobView]) -> None:
        self._views = views
        self._open: dict[CancelScope, None] = {}
        self.leaves = False

    def leave(self) -> None:
        """End all waits: the job leaves, so no further attempt begins."""
        self.leaves = True
        for scope in self._open:
            scope.cancel()

    async def wait(self, claim: Claim, items: Collection[int], seconds: float) -> str:
        """Wait before the next attempt of a run of these items; return why none may begin, or "" if one may."""
        with move_on_after(seconds) as scope:
            self._open[scope] = None
            try:
                await self._views.until(lambda view: self.leaves or bool(why_not_again(view, claim, items)))
            finally:
                del self._open[scope]
        return LEAVES if self.leaves else why_not_again(self._views.value, claim, items)


def why_not_again(view: JobView, claim: Claim, items: Collection[int]) -> str:
    """Return why no further attempt of a run may begin according to a view; "" if one may."""
    me = claim.instance
    if me in view.instances and view.instances[me].leaving:
        return LEAVES
    if me not in view.active or not view.disabled_items.isdisjoint(items):
        return SWITCHED_OFF
    is_held = claim.fire.source is FireSource.FAILOVER or all(view.assignment.get(item) == me for item in items)
    return "" if is_held else HELD_ELSEWHERE
