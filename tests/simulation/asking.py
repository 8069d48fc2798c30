"""What programs ask of the jobs of a simulated cluster: runs of some items, now or later, and moments run again."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from aioelasticjob import operations
from aioelasticjob.clock import moment
from aioelasticjob.errors import ElasticJobError
from aioelasticjob.registry.session import Session
from tests.simulation.chaos import Chaos, Kinds, operate


async def ask(chaos: Chaos) -> None:
    """Somebody asks for runs, or cancels what was asked for, or runs that are under way."""
    job, dice = chaos.layout().job, chaos.dice
    choice, few, delay, back = dice.random(), dice.randint(1, 3), dice.uniform(0, 15), dice.uniform(2, 10)
    id = f"r{dice.randrange(10**6)}"

    async def act(session: Session) -> None:
        with suppress(ElasticJobError):  # the job may not allow it now, and what was asked for may be over
            now = moment(await session.server_time())
            if choice < 0.25:
                await operations.ask(session, job, id=id)
            elif choice < 0.5:
                await operations.ask(session, job, delay=delay, id=id)
            elif choice < 0.8:
                start, at_once = now - timedelta(seconds=back), few if few < 3 else None
                await operations.backfill(session, job, start, now, items_at_once=at_once, id=id)
            elif choice < 0.9:
                await operations.cancel(session, job)
            else:
                open_ = [one for one in await operations.requests(session, job) if one.request.is_open]
                for one in open_[:1]:
                    await operations.cancel_request(session, job, one.request.id)

    await operate(chaos, f"ask something of {job}", act)


KINDS: Kinds = {"ask": (8, ask)}
"""What happens only if it is asked for by name: seeds from before there was any live as they did."""
