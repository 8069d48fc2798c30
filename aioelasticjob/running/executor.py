"""One flight: the claimed items' handlers side by side, inside the session's deadline.  Errors end here as values."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from anyio import CancelScope, Event, create_task_group
from anyio.lowlevel import checkpoint_if_cancelled

from aioelasticjob.config import JobConfig
from aioelasticjob.door import Door
from aioelasticjob.jobs.base import Engine, Job, instance_context, item_context
from aioelasticjob.jobs.context import Checkpoints, Context
from aioelasticjob.jobs.dependencies import provided
from aioelasticjob.model import Claim, Outcome
from aioelasticjob.running.blocking import Means
from aioelasticjob.running.cut import Cut, tell
from aioelasticjob.running.reins import Reins
from aioelasticjob.running.trace import Trace


@dataclass(slots=True)  # one for every fire: a frozen one costs three times as much to make
class Flight:
    """All that one flight needs."""

    job: Job
    config: JobConfig
    claim: Claim
    checkpoints: Checkpoints
    means: Means
    complain: Callable[[Context, Exception], None]
    """Told of every failure."""
    reins: Reins | None = None
    """For jobs with an engine."""
    trace: Trace | None = None
    """Tells observers; None unless there are any."""
    begun: bool = False
    """Whether its moment has come and its handlers may have run."""
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    """How each item ended; those cut off stay absent."""
    is_proven: Callable[[], bool] = lambda: True
    """Whether the session is certain to live now; if not, the flight is cancelled."""
    handling: Callable[[], AbstractContextManager[None]] = nullcontext
    """Surrounds users' code: who stops gives it its time, and the registry less."""
    under_way: dict[asyncio.Task[object], Context] = field(default_factory=dict)
    """The handlers that have begun, by the tasks they run in."""

    def tell_unheeded(self) -> None:
        """Name the handlers that go on though they were cancelled; threads cannot do otherwise."""
        for task, context in self.under_way.items():
            over = task.done() or not self.outcomes.keys().isdisjoint(context.claimed)
            if not over and not self.job.blocking:
                tell(self.job, context, task)


async def execute(flight: Flight) -> None:
    """Run the handlers of all claimed items and note how each one ended."""
    config, claim, checkpoints = flight.config, flight.claim, flight.checkpoints
    if not flight.is_proven():
        await checkpoint_if_cancelled()  # a listener may have waited, and the machine may have slept meanwhile
    if flight.job.engine is not None:
        await _run_engine(flight, flight.job.engine)
    elif config.per == "instance":
        await _fly(flight, instance_context(config, claim, checkpoints), *claim.items)
    elif len(claim.items) == 1:
        (item,) = claim.items
        await _fly(flight, item_context(config, claim, item, checkpoints), item)
    else:
        await _fly_all(flight)


async def _run_engine(flight: Flight, engine: Engine) -> None:
    try:
        async with Door("the engine"):
            await engine(flight)
    except Exception as error:
        flight.outcomes |= dict.fromkeys(flight.claim.items.keys() - flight.outcomes.keys(), Outcome.FAILED)
        flight.complain(instance_context(flight.config, flight.claim, flight.checkpoints), error)


async def _fly_all(flight: Flight) -> None:
    """Run the items side by side.  To cancel them is up to the flight's Cut: a cancelled group would never stop it."""
    waiting, over = set(flight.claim.items), Event()

    async def one(item: int) -> None:
        try:
            await _fly(flight, item_context(flight.config, flight.claim, item, flight.checkpoints), item)
        finally:
            waiting.discard(item)
            if not waiting:
                over.set()

    async with create_task_group() as tasks:
        for item in flight.claim.items:
            tasks.start_soon(one, item)
        with CancelScope(shield=True):
            await over.wait()


async def _fly(flight: Flight, context: Context, *items: int) -> None:
    tracer, trace = flight.means.tracer, flight.trace
    if trace is not None:
        trace.started(context)
    if tracer is None:
        outcome = await _run(flight, context)
    else:
        with tracer.run(context, flight.config.job_type) as ended:
            outcome = await _run(flight, context)
            ended(outcome)
    flight.outcomes.update(dict.fromkeys(items, outcome))
    if trace is not None:
        trace.ended(items, outcome)


async def _run(flight: Flight, context: Context) -> Outcome:
    timeout, task = flight.config.timeout, asyncio.current_task()
    assert task is not None  # as always in a coroutine
    flight.under_way[task] = context
    try:
        async with Door("the handler"):
            if timeout is None:
                await _call(flight, context)
                return Outcome.COMPLETED
            unheeded = flight.tell_unheeded if flight.job.blocking else partial(tell, flight.job, context, task)
            with Cut(unheeded, after=timeout, threads=flight.job.blocking) as limit:
                await _call(flight, context)
    except Exception as error:
        _fail(flight, context, error)
        return Outcome.FAILED
    if limit.cancel_called:  # also when a thread went on to its end
        _fail(flight, context, TimeoutError(f"the run took longer than {timeout:g} s"))
        return Outcome.TIMED_OUT
    return Outcome.COMPLETED


def _fail(flight: Flight, context: Context, error: Exception) -> None:
    if flight.means.tracer is not None:
        flight.means.tracer.failed(error)
    flight.complain(context, error)


async def _call(flight: Flight, context: Context) -> None:
    job, means = flight.job, flight.means
    if job.needs is not None:
        async with provided(context, means.overrides, job.needs) as (given,):
            if job.blocking:
                await means.call(flight.config.executor, job.handler, context, **given)
            else:
                await job.handler(context, **given)
    elif job.blocking:  # a thread cannot be interrupted: its item stays ours until it has ended
        await means.call(flight.config.executor, job.handler, context)
    else:
        await job.handler(context)
