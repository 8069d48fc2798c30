"""Calls listeners before and after an execution: some once in the whole cluster, others on every instance.

For listeners that are called once, the first instance that begins the run calls ``before``, and later instances wait
until that call has ended.  The instance that ends the last item calls ``after``.  No instance waits until all items
have been claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anyio import move_on_after

from aioelasticjob.core.view import JobView
from aioelasticjob.engine.cancellation import handler_scope
from aioelasticjob.engine.execution import Execution, execute
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.run_barrier import BEGUN, FAILED, OVER, RunBarrier, fire_of, moment_of, run_of
from aioelasticjob.errors import add_note
from aioelasticjob.ground.latest import Latest
from aioelasticjob.host.user_code import UserCode
from aioelasticjob.jobs.base import instance_context
from aioelasticjob.jobs.context import InstanceContext
from aioelasticjob.jobs.listeners import JobListener, Listener, ListenerFunction, OnceListener
from aioelasticjob.model import Fire, FireSource, Outcome
from aioelasticjob.observers.failures import cause
from aioelasticjob.registry.transaction import Check

HARMLESS = "raised by a listener's `after`: the items themselves ended as their outcomes say"


async def join_run(listeners: Sequence[Listener], member: Member, fire: Fire, items: frozenset[int]) -> bool:
    """Note, before a requested run is claimed, that items take part in it; False if its request has changed."""
    if fire.requested is None or not any(isinstance(listener, OnceListener) for listener in listeners):
        return True
    request = Check(member.layout.request(fire.requested.id), fire.requested.version)
    return await RunBarrier(member).join(run_of(fire), items, request)


async def with_listeners(execution: Execution, member: Member, views: Latest[JobView], calling: set[str]) -> None:
    """Call an execution's listeners, before and after its handlers are run.

    ``calling`` are the runs whose listeners another execution of this process calls now, once in the cluster.
    If a call of ``before`` fails, that is reported as the items' failure, and no handler is run.  ``after`` of a
    listener on every instance is called if its own ``before`` and those of all earlier listeners have succeeded.
    """
    listeners = execution.job.listeners
    context = instance_context(execution.config, execution.claim, execution.checkpoints, execution.job.parameter)
    shared = tuple(one for one in listeners if isinstance(one, OnceListener))
    once: _OncePerCluster | None = None
    if shared:
        once = _OncePerCluster(shared, execution, member, views, context, RunBarrier(member, calling))
    begun = list[JobListener]()
    try:
        if once is not None:
            await once.begin()
        for listener in listeners:
            if isinstance(listener, JobListener):
                if listener.before is not None:
                    await _call(execution, context, listener.before)
                begun.append(listener)
    except Exception as error:
        execution.outcomes.update(dict.fromkeys(execution.claim.items, Outcome.FAILED))
        execution.failed(context, error)
    else:
        await execution.stop_unless_proven()
        await execute(execution)
    for listener in reversed(begun):
        if listener.after is not None:
            await _after(execution, context, listener.after)
    if once is not None:
        await once.end()


async def _after(execution: Execution, context: InstanceContext, listener: ListenerFunction) -> None:
    try:
        await _call(execution, context, listener)
    except Exception as error:
        _report(execution, context, error)


def _report(execution: Execution, context: InstanceContext, error: Exception) -> None:
    """Report a failure of ``after``, which is no failure of the items: their events keep their own errors."""
    add_note(error, HARMLESS)
    execution.report_error(context, error, part="a listener's `after`", run_goes_on=True)


async def _call(execution: Execution, context: InstanceContext, listener: ListenerFunction) -> None:
    with execution.handling:
        async with UserCode("the listener"):
            await listener(context)


@dataclass(slots=True)
class _OncePerCluster:
    """Calls the listeners that are called once in the whole cluster, on behalf of one execution."""

    listeners: tuple[OnceListener, ...]
    execution: Execution
    member: Member
    views: Latest[JobView]
    context: InstanceContext
    barrier: RunBarrier
    run: str = ""

    async def begin(self) -> None:
        """Return once ``before`` of this run has ended, on this instance or another.

        Raises:
            TimeoutError: ``before`` took too long.
            RuntimeError: ``before`` failed on another instance.
            Exception: ``before`` failed on this instance.
        """
        barrier = self.barrier
        claim = self.execution.claim
        self.run = await self._rescued() or run_of(claim.fire)
        await barrier.join(self.run, claim.items)
        await self._conclude(besides=self.run)
        while not await barrier.acquire(self.run, None):
            state = await barrier.state(self.run)
            if state is not None:
                if state.startswith(FAILED):
                    raise RuntimeError(f"`before` {state}")
                return
            await self._wait()
        await self._call_before()

    async def end(self) -> None:
        """Note which items have ended, and call ``after`` if they were the last ones of the run."""
        execution = self.execution
        try:
            await self.barrier.end(self.run, execution.outcomes.keys() - execution.unfinished)
            await self._conclude()
        except Exception as error:
            _report(execution, self.context, error)

    async def _rescued(self) -> str | None:
        """Return the run that a rescue continues, if somebody has asked for it, according to its items' marks.

        If there is no mark, because the items have ended the run for the listeners, their records name the request.
        """
        claim = self.execution.claim
        if claim.fire.source is not FireSource.FAILOVER:
            return None
        last = next(iter(claim.before.values()))  # all items of a rescue were cut off in the same run
        if not last.asked:
            return None
        for item in claim.items:
            begun = await self.barrier.begun_in(item)
            if begun is not None and moment_of(begun) is None:
                return begun
        request = next((one for one in self.views.value.requests if one.id == last.request), None)
        if request is None:
            return f"trigger-{last.asked}"
        return run_of(Fire(last.asked, request.source, request_id=request.number))

    async def _wait(self) -> None:
        """Wait for the instance that calls ``before``: at most its time limits, plus the session timeout if it dies."""
        longest = sum(one.started_timeout for one in self.listeners) + self.member.session.timeout
        with move_on_after(longest) as limit, self.execution.handling:
            await self.barrier.wait_for_caller(self.run)
        if limit.cancelled_caught and (caller := await self.barrier.caller(self.run)):
            raise TimeoutError(
                f"`before` is still being called by {caller}: waited {longest:g} s, started_timeout and session timeout"
            )

    async def _call_before(self) -> None:
        noted = False
        try:
            for listener in self.listeners:
                if listener.before is not None:
                    await self._in_time(listener.before, listener.started_timeout)
        except Exception as error:
            why = cause(error)[:200]
            await self.barrier.note(self.run, f"{FAILED}on {self.member.id}: {why}")
            noted = True
            raise
        else:
            await self.barrier.note(self.run, BEGUN)
            noted = True
        finally:
            if not noted:
                await self.barrier.release(self.run)

    async def _in_time(self, listener: ListenerFunction, seconds: float) -> None:
        with handler_scope(listener, self.context, self.execution.limited_log, seconds):
            await _call(self.execution, self.context, listener)
            return
        raise TimeoutError(f"`before` took longer than started_timeout = {seconds:g} s")

    async def _conclude(self, besides: str | None = None) -> None:
        """Call ``after`` of the runs that are over: this one, or earlier ones in which some items took no part."""
        barrier = self.barrier
        for run in await barrier.finished_runs(self.views.value, besides):
            if not await barrier.acquire(run, BEGUN):
                continue  # another instance calls it
            try:
                for listener in reversed(self.listeners):
                    if listener.after is not None:
                        await _after(self.execution, self._context_of(run), listener.after)
                await barrier.note(run, OVER)
            except BaseException:
                await barrier.release(run)
                raise
            await barrier.tidy(self.views.value)

    def _context_of(self, run: str) -> InstanceContext:
        if run == self.run:
            return self.context
        execution = self.execution
        claim = execution.claim
        claim = replace(claim, fire=fire_of(run, self.views.value, claim.fire.slot))
        return instance_context(execution.config, claim, execution.checkpoints, execution.job.parameter)
