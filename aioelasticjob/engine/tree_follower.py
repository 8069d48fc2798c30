"""Follows a part of the registry that belongs to no job, as long as the session is open."""

from __future__ import annotations

from asyncio import Event
from collections.abc import Collection
from contextlib import closing

from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from aioelasticjob.engine.refusals import Refusals
from aioelasticjob.errors import RegistryError, SessionEnded
from aioelasticjob.ground.latest import Latest
from aioelasticjob.registry.mirror import Follower
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.tree import Tree


async def follow_roots(
    session: Session,
    roots: Collection[str],
    trees: Latest[Tree],
    refusals: Refusals,
    what: str,
    *,
    task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
) -> None:
    """Keep ``trees`` up to date with all nodes at and below ``roots`` until the session is closed.

    The task counts as started once the nodes were read.  It also does if the registry refuses that: then it is tried
    again and again.  ``what`` is the purpose of the reads, for the log line about that.
    """
    changed = Event()
    refused = 0

    def show() -> None:
        if follower.trees.value != trees.value:  # after an outage they mostly are as before
            trees.set(follower.trees.value)

    with closing(Follower(session, roots, (), changed.set)) as follower:
        follower.trees.listen(show)
        refusal = await _caught_up(follower)
        task_status.started()
        while not isinstance(refusal, SessionEnded):
            if refusal is None:
                refusals.accepted(what)
                refused = 0
                await changed.wait()
                changed.clear()
            else:
                refusals.refused(what, refusal)
                await session.back_off(refused)
                refused += 1
            refusal = await _caught_up(follower)


async def _caught_up(follower: Follower) -> RegistryError | None:
    """Read what has changed; return the error if the registry refuses that."""
    try:
        await follower.catch_up()
    except RegistryError as error:
        return error
    return None
