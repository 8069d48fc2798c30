"""What programs ask of the jobs of a simulated cluster: runs of some items, now or later, and moments run again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from types import MappingProxyType
from typing import TypeAlias

from anyio import create_task_group, sleep

from aioelasticjob import operations
from aioelasticjob.errors import ElasticJobError
from aioelasticjob.ground.times import moment
from aioelasticjob.registry.session import Session
from tests.simulation.chaos import Chaos, operate
from tests.simulation.cluster import Cluster
from tests.simulation.streaming import LAST

Wish: TypeAlias = Callable[[Session, str, Random], Awaitable[object]]
"""Asks something of a job."""


async def run_now(session: Session, job: str, dice: Random) -> None:
    """Ask for a run at once, of all items or of some."""
    await operations.ask(session, job, items=_items(dice), id=_id(dice))


async def run_later(session: Session, job: str, dice: Random) -> None:
    """Ask for a run after a while, which may expire before it can begin."""
    delay, expires = dice.uniform(0, 15), dice.choice([None, None, "2s", "8s"])
    await operations.ask(session, job, items=_items(dice), delay=delay, expires=expires, id=_id(dice))


async def backfill(session: Session, job: str, dice: Random) -> None:
    """Ask for the moments of the last seconds."""
    now, back, at_once = await _now(session), dice.uniform(2, 10), dice.choice([None, 1, 2])
    start = now - timedelta(seconds=back)
    await operations.backfill(session, job, start, now, items=_items(dice), items_at_once=at_once, id=_id(dice))


async def rerun(session: Session, job: str, dice: Random) -> None:
    """Ask for one of the moments that came in the last seconds."""
    now, back = await _now(session), dice.uniform(2, 12)
    schedule = (await operations.job(session, job, now=0)).config.schedule
    came = None if schedule is None else schedule.next_after(now - timedelta(seconds=back))
    if came is not None and came < now:
        await operations.rerun(session, job, came, items=_items(dice), id=_id(dice))


async def backfill_of_the_past(session: Session, job: str, dice: Random) -> None:
    """Ask a streaming job for the last moments that its schedule had."""
    start, at_once = LAST - timedelta(seconds=dice.randint(1, 3)), dice.choice([None, 1, 2])
    await operations.backfill(session, job, start, LAST, items=_items(dice), items_at_once=at_once, id=_id(dice))


async def rerun_of_the_past(session: Session, job: str, dice: Random) -> None:
    """Ask a streaming job for one of the last moments that its schedule had."""
    moment = LAST - timedelta(seconds=dice.randint(1, 9))
    await operations.rerun(session, job, moment, items=_items(dice), id=_id(dice))


async def cancel_runs(session: Session, job: str, dice: Random) -> None:
    """Stop the runs that are under way, or the run of one item."""
    await operations.cancel(session, job, item=dice.choice([None, 0, 1, 2]))


async def change_a_request(session: Session, job: str, dice: Random) -> None:
    """Cancel, pause or resume a request that has not ended."""
    acts = (operations.cancel_request, operations.pause_request, operations.resume_request)
    act = dice.choices(acts, (4, 2, 4))[0]
    is_open = [one.request.id for one in await operations.requests(session, job) if one.request.is_open]
    if is_open:
        await act(session, job, dice.choice(is_open))


WISHES: dict[Wish, int] = {
    run_now: 5,
    run_later: 5,
    backfill: 5,
    rerun: 3,
    cancel_runs: 5,
    change_a_request: 3,
}
"""What is asked, and how often compared to the rest."""

STREAM_WISHES: dict[Wish, int] = {
    run_now: 5,
    run_later: 5,
    backfill_of_the_past: 5,
    rerun_of_the_past: 3,
    cancel_runs: 2,
    change_a_request: 3,
}
"""The same for streaming jobs."""

OFTEN = 0.45
"""How many wishes there are in a second."""


async def rage(
    cluster: Cluster, dice: Random, seconds: float, wishes: Mapping[Wish, int] = MappingProxyType(WISHES)
) -> None:
    """Let programs ask for things for a while, several at a time."""
    chaos, end = Chaos(cluster, dice), cluster.history.now() + seconds
    async with create_task_group() as tasks:
        while (now := cluster.history.now()) < end:
            await sleep(min(end - now, dice.expovariate(OFTEN)))
            tasks.start_soon(_ask, chaos, wishes)
        tasks.cancel_scope.cancel()


async def _ask(chaos: Chaos, wishes: Mapping[Wish, int]) -> None:
    job, own = chaos.layout().job, Random(chaos.dice.random())
    (wish,) = own.choices(list(wishes), list(wishes.values()))

    async def act(session: Session) -> None:
        with suppress(ElasticJobError):  # the job may not allow it now, and what was asked for may be over
            await wish(session, job, own)

    await operate(chaos, f"{wish.__name__} of {job}", act)


def _id(dice: Random) -> str:
    return f"r{dice.randrange(10**6)}"


def _items(dice: Random) -> list[int] | None:
    return None if dice.random() < 0.6 else sorted(dice.sample(range(4), dice.randint(1, 2)))


async def _now(session: Session) -> datetime:
    return moment(await session.server_time("/systemTime/current"))
