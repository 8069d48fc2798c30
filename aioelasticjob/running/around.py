"""Listeners around a flight: on this instance, and once in the cluster."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from anyio import fail_after

from aioelasticjob.coordination.guarantee import clear_marks, is_last, leave_marks
from aioelasticjob.coordination.membership import Member
from aioelasticjob.coordination.view import JobView
from aioelasticjob.jobs.base import instance_context
from aioelasticjob.jobs.context import InstanceContext
from aioelasticjob.jobs.listeners import JobListener, Listener, OnceListener
from aioelasticjob.model import Claim, FireSource, Outcome
from aioelasticjob.running.executor import Flight, execute

log = logging.getLogger(__name__)


async def fly(flight: Flight, member: Member, view: JobView) -> None:
    """Run a flight's handlers, and what listens around them."""
    listeners, claim = flight.job.listeners, flight.claim
    if not listeners:
        await execute(flight)
        return
    context = instance_context(flight.config, claim, flight.checkpoints)
    if await before(listeners, member, view, claim, context):
        await execute(flight)
        await after(listeners, member, view, claim, context)
    else:
        flight.outcomes.update(dict.fromkeys(claim.items, Outcome.FAILED))


async def before(
    listeners: Sequence[Listener], member: Member, view: JobView, claim: Claim, context: InstanceContext
) -> bool:
    """Call what is to be called before the items start; False, with the reason logged, if the run must not begin."""
    try:
        for listener in listeners:
            if isinstance(listener, JobListener):
                if listener.before is not None:
                    await listener.before(context)
            elif listener.before is not None and claim.fire.source is not FireSource.FAILOVER:
                with fail_after(listener.started_timeout):
                    await _once_before(listener, member, view, claim, context)
    except Exception as error:
        log.error("a listener failed, the items are not run", exc_info=error, extra={"job": member.layout.job})
        return False
    return True


async def after(
    listeners: Sequence[Listener], member: Member, view: JobView, claim: Claim, context: InstanceContext
) -> None:
    """Call what is to be called after the items have ended."""
    for listener in listeners:
        try:
            if isinstance(listener, OnceListener):
                await _once_after(listener, member, view, claim, context)
            elif listener.after is not None:
                await listener.after(context)
        except Exception as error:
            log.error("a listener failed", exc_info=error, extra={"job": member.layout.job})


async def _once_before(
    listener: OnceListener, member: Member, view: JobView, claim: Claim, context: InstanceContext
) -> None:
    assert listener.before is not None
    parent, items = member.layout.started, _items(view, claim)
    mine = await leave_marks(member, parent, claim.items, claim.fire.slot)
    if await is_last(member, parent, items, claim.fire.slot, mine):
        await listener.before(context)
        await clear_marks(member, parent, items, claim.fire.slot)
    else:
        await member.session.wait_deleted(f"{parent}/{min(claim.items)}")


async def _once_after(
    listener: OnceListener, member: Member, view: JobView, claim: Claim, context: InstanceContext
) -> None:
    if listener.after is None:
        return
    parent, items = member.layout.completed, _items(view, claim)
    mine = await leave_marks(member, parent, claim.items, claim.fire.slot)
    if await is_last(member, parent, items, claim.fire.slot, mine):
        await listener.after(context)
        await clear_marks(member, parent, items, claim.fire.slot)


def _items(view: JobView, claim: Claim) -> list[int]:
    """Return the items of the whole moment: a trigger is for one instance, everything else is for all of them."""
    if claim.fire.source is FireSource.TRIGGER:
        return sorted(claim.items)
    return [item for item in range(view.config.sharding_total_count) if item not in view.disabled_items]
