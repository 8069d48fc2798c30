"""Ends runs early, if something else comes first: no further attempt begins, and a stream fetches no more batches.

A stream that is asked to end processes what it has fetched.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from anyio import CancelScope, Event, move_on_after

from aioelasticjob.core import records
from aioelasticjob.core.request_runs import requested_of
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.ending import Ending
from aioelasticjob.engine.run_counts import RunCounts
from aioelasticjob.events import Events
from aioelasticjob.ground.latest import Latest
from aioelasticjob.jobs.context import Context
from aioelasticjob.model import Claim, FireSource

LEAVES = "this instance leaves"
SWITCHED_OFF = "the item, its server or the job was switched off"
HELD_ELSEWHERE = "another instance holds the item now"


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

    def __init__(self, views: Latest[JobView], ending: Latest[Ending]) -> None:
        self._views = views
        self._ending = ending
        self._open: dict[CancelScope, None] = {}

    @property
    def leaves(self) -> bool:
        """Whether the job leaves."""
        return self._ending.value.leaves

    @property
    def hands_over(self) -> bool:
        """Whether the job leaves, and other instances run again what is cut off."""
        return self.leaves and self._views.value.config.failover

    def leave(self) -> None:
        """End all waits: the job leaves, so no further attempt begins."""
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
    is_rescue = claim.fire.source is FireSource.FAILOVER
    if is_rescue or all(view.assignment.get(item) == me for item in items):
        return ""
    return HELD_ELSEWHERE


@dataclass(slots=True)
class StreamControl:
    """Tells an engine when to end, and where to count."""

    view: JobView
    """The view on which the run was decided."""
    views: Latest[JobView]
    run_counts: RunCounts
    events: Events
    end: Event = field(default_factory=Event)
    """Set when the run is to end: then no further batch is fetched."""


def is_to_end(begun: JobView, now: JobView, claim: Claim) -> bool:
    """Whether a streaming run has to end, because an operator or the leader has changed something that waits for it.

    Elastic-Job ends a stream when an assignment is required (DataflowJobExecutor, isNeedSharding).  Here, a pause, a
    disabled server or item, a changed setting, a request, an orphan, and an item that this instance can run now end it
    too, because they wait for it as well.
    """
    if now is begun:
        return False
    me = claim.instance
    items = frozenset(claim.items)
    return (
        (begun.assignment_stands and not now.assignment_stands)
        or now.sharding_version != begun.sharding_version
        or now.config != begun.config
        or me not in now.active
        or not now.disabled_items.isdisjoint(items)
        or bool(requested_of(now, _within_reach(now, me)) - requested_of(begun, _within_reach(begun, me)))
        or (claim.fire.source is not FireSource.FAILOVER and any(now.assignment.get(item) != me for item in items))
        or (now.config.failover and any(map(now.awaits_rescue, now.orphans - now.disabled_items)))
        or bool(_within_reach(now, me) - _within_reach(begun, me) - items)
    )


def left_open(claim: Claim, items: Collection[int]) -> Claim:
    """Return the claim with the moment of these items marked as unclaimed, so that their holder claims it again.

    If somebody has asked for the run, nothing changes: the settlement leaves the request open.
    """
    changed = dict(claim.items)
    for item in items:
        seen = claim.items[item]
        changed[item] = replace(seen, record=records.left_open(seen.record))
    return replace(claim, items=changed)


def _within_reach(view: JobView, me: str) -> frozenset[int]:
    """Return the items of this instance that it can run: neither disabled, nor orphans, nor being rescued."""
    mine = frozenset(item for item, holder in view.assignment.items() if holder == me)
    return mine - view.disabled_items - view.orphans - view.rescues.keys()
