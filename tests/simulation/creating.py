"""What operators do to created jobs while everything else goes wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from aioelasticjob import operations
from aioelasticjob.errors import ElasticJobError
from aioelasticjob.registry.session import Session
from tests.simulation.chaos import Chaos, Kinds, operate
from tests.simulation.creations import NAMES, any_settings

OFTEN = 0.8
"""How many of these acts begin in a second."""


async def create(chaos: Chaos) -> None:
    """An operator creates a job, or finds one of that name."""
    creations, job = chaos.cluster.creations, chaos.dice.choice(NAMES)
    settings = any_settings(chaos.dice)
    await _act(chaos, f"create {job}", lambda session: creations.create(session, job, settings))


async def change(chaos: Chaos) -> None:
    """An operator changes a created job."""
    job = chaos.dice.choice(NAMES)
    settings = any_settings(chaos.dice)
    await _act(chaos, f"change {job}", lambda session: operations.configure(session, job, settings))


async def remove(chaos: Chaos) -> None:
    """An operator removes a created job, and may lose patience."""
    creations, job = chaos.cluster.creations, chaos.dice.choice(NAMES)
    patience = chaos.dice.uniform(0.5, 4)
    await _act(chaos, f"remove {job}", lambda session: creations.remove(session, job, patience))


async def _act(chaos: Chaos, what: str, act: Callable[[Session], Awaitable[object]]) -> None:
    async def tried(session: Session) -> None:
        with suppress(ElasticJobError):  # it is there already, is gone, or something else was written meanwhile
            await act(session)

    await operate(chaos, what, tried)


KINDS: Kinds = {"create": (3, create), "change": (1, change), "remove": (2, remove)}
"""What operators do, and how often compared to the rest."""
