"""Listeners around a flight: once in the whole cluster, and inside of that on every instance.

Of those that are called once, the first instance that comes to a run calls ``before``, and whoever comes later waits
until it is through; the instance that ends the last item calls ``after``.  Nobody waits for items to be claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anyio import move_on_after

from aioelasticjob.coordination.guarantee import BEGUN, FAILED, OVER, Guarantee, moment_of, run_of
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.view import JobView
from aioelasticjob.door import Door
from aioelasticjob.jobs.base import instance_context
from aioelasticjob.jobs.context import InstanceContext
from aioelasticjob.jobs.listeners import Around, JobListener, Listener, OnceListener
from aioelasticjob.latest import Latest
from aioelasticjob.model import Fire, FireSource, Outcome
from aioelasticjob.observers.failures import cause
from aioelasticjob.registry.txn import Check
from aioelasticjob.running.executor import Flight, execute

HARMLESS = "raised by a listener's `after`: the items themselves ended as their outcomes say"


async def enrol(listeners: Sequence[Listener], member: Member, fire: Fire, items: frozenset[int]) -> bool:
    """Note that items take part in a run that was asked for, before it is claimed; False if it is asked for no more."""
    if not items or not any(isinstance(listener, OnceListener) for listener in listeners):
        return True
    request = None if fire.request is None else Check(*fire.request)
    return await Guarantee(member).enrol(run_of(fire), items, request)


async def fly(flight: Flight, member: Member, views: Latest[JobView]) -> None:
    """Run a flight's handlers, and what listens around them."""
    if not (listeners := flight.job.listeners):
        with flight.handling():
            await execute(flight)
        return
    context = instance_context(flight.config, flight.claim, flight.checkpoints)
    shared = tuple(one for one in listeners if isinstance(one, OnceListener))
    once = _Once(shared, flight, member, views, context) if shared else None
    own = [one for one in listeners if isinstance(one, JobListener)]
    if await _before(flight, context, own, once):
        with flight.handling():
            await execute(flight)
        for listener in own:
            if listener.after is not None:
                await _after(flight, context, listener.after)
    if once is not None:
        await once.end()


async def _before(flight: Flight, context: InstanceContext, own: Sequence[JobListener], once: _Once | None) -> bool:
    """Call what is to be called before the items start; False if they must not, with their failure told."""
    try:
        if once is not None:
            await once.begin()
        for listener in own:
            if listener.before is not None:
                await _call(flight, listener.before, context)
    except Exception as error:
        flight.outcomes.update(dict.fromkeys(flight.claim.items, Outcome.FAILED))
        flight.complain(context, error)
        return False
    return True


async def _after(flight: Flight, context: InstanceContext, listener: Around) -> None:
    try:
        await _call(flight, listener, context)
    except Exception as error:
        error.add_note(HARMLESS)
        flight.complain(context, error)


async def _call(flight: Flight, listener: Around, context: InstanceContext) -> None:
    with flight.handling():
        async with Door("the listener"):
            await listener(context)


@dataclass(slots=True)
class _Once:
    """The part that a flight takes in a run of the whole cluster."""

    listeners: tuple[OnceListener, ...]
    flight: Flight
    member: Member
    views: Latest[JobView]
    context: InstanceContext
    run: str = ""

    async def begin(self) -> None:
        """Return once ``before`` of this run is through, called by us or by somebody else.

        Raises:
            TimeoutError: it took too long.
            RuntimeError: it failed on another instance.
            Exception: it failed here.
        """
        marks, claim = Guarantee(self.member), self.flight.claim
        self.run = await self._rescued(marks) or run_of(claim.fire)
        await marks.enrol(self.run, claim.items)
        await self._conclude(besides=self.run)
        while not await marks.turn(self.run, None):
            state = await marks.state(self.run)
            if state is not None:
                if state.startswith(FAILED):
                    raise RuntimeError(f"`before` {state}")
                return
            await self._wait(marks)
        await self._call_before(marks)

    async def end(self) -> None:
        """Note which items have ended, and call ``after`` if they were the last ones."""
        flight = self.flight
        unfinished = flight.reins.unfinished if flight.reins is not None else set[int]()
        try:
            await Guarantee(self.member).end(self.run, flight.outcomes.keys() - unfinished)
            await self._conclude()
        except Exception as error:
            error.add_note(HARMLESS)
            flight.complain(self.context, error)

    async def _rescued(self, marks: Guarantee) -> str | None:
        """Return the triggered run that a rescue goes on with, which the item's mark tells."""
        claim = self.flight.claim
        if claim.fire.source is not FireSource.FAILOVER:
            return None
        (item,) = claim.items
        if not (asked := claim.before[item].asked):
            return None
        begun = await marks.begun_in(item)
        return f"trigger-{asked}" if begun is None or moment_of(begun) is not None else begun

    async def _wait(self, marks: Guarantee) -> None:
        """Wait for whoever calls ``before``: as long as he may take, and as the registry to notice that he is dead."""
        longest = sum(one.started_timeout for one in self.listeners) + self.member.session.timeout
        with move_on_after(longest) as limit, self.flight.handling():
            await marks.called(self.run)
        if limit.cancelled_caught and (caller := await marks.caller(self.run)):
            raise TimeoutError(
                f"`before` is still being called by {caller}: waited {longest:g} s, started_timeout and session timeout"
            )

    async def _call_before(self, marks: Guarantee) -> None:
        noted = False
        try:
            for listener in self.listeners:
                if listener.before is not None:
                    await self._in_time(listener.before, listener.started_timeout)
        except Exception as error:
            await marks.note(self.run, f"{FAILED}on {self.member.id}: {cause(error)[:200]}")
            noted = True
            raise
        else:
            await marks.note(self.run, BEGUN)
            noted = True
        finally:
            if not noted:
                await marks.release(self.run)

    async def _in_time(self, listener: Around, seconds: float) -> None:
        with move_on_after(seconds) as limit:
            await _call(self.flight, listener, self.context)
        if limit.cancelled_caught:
            raise TimeoutError(f"`before` took longer than started_timeout = {seconds:g} s")

    async def _conclude(self, besides: str | None = None) -> None:
        """Call ``after`` of the runs that are over: ours, or earlier ones that some items have passed over."""
        marks = Guarantee(self.member)
        for run in await marks.due(self.views.value, besides):
            if not await marks.turn(run, BEGUN):
                continue  # somebody else calls it
            noted = False
            try:
                for listener in self.listeners:
                    if listener.after is not None:
                        await _after(self.flight, self._context_of(run), listener.after)
                await marks.note(run, OVER)
                noted = True
            finally:
                if not noted:
                    await marks.release(run)
            await marks.tidy(self.views.value)

    def _context_of(self, run: str) -> InstanceContext:
        moment, claim = moment_of(run), self.flight.claim
        if run == self.run:
            return self.context
        fire = Fire(claim.fire.slot, FireSource.TRIGGER) if moment is None else Fire(moment, FireSource.CRON)
        claim = replace(claim, fire=fire)
        return instance_context(self.flight.config, claim, self.flight.checkpoints)
