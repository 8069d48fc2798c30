"""Follows which servers operators have switched off in all jobs, once for all jobs of a process."""

from __future__ import annotations

from asyncio import Event
from contextlib import closing
from functools import partial

from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from aioelasticjob.errors import RegistryError, SessionEnded
from aioelasticjob.layout import SWITCHES
from aioelasticjob.registry.mirror import Follower
from aioelasticjob.registry.session import Session
from aioelasticjob.running.process_context import ProcessContext

PURPOSE = "to read which servers are switched off"
"""The purpose of the reads, for the log line if the registry refuses them."""


async def follow_switches(
    session: Session, shared: ProcessContext, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
) -> None:
    """Keep ``shared.switches`` up to date until the session is closed.

    The task counts as started once the nodes were read.  It also does if the registry refuses that: then the jobs run
    with what is known, and it is tried again and again.
    """
    refusals, refused, first = shared.refusals_of(SWITCHES), 0, True
    while True:
        changed = Event()
        with closing(Follower(session, (SWITCHES,), (), changed.set)) as follower:
            follower.trees.listen(partial(_show, follower, shared))
            error: RegistryError | None = None
            while error is None:
                error = await _catch_up(follower)
                if first:
                    task_status.started()
                    first = False
                if error is None:
                    refusals.accepted(PURPOSE)
                    refused = 0
                    await changed.wait()
                    changed.clear()
        if isinstance(error, SessionEnded):
            return
        refusals.refused(PURPOSE, error)
        await session.back_off(refused)
        refused += 1


async def _catch_up(follower: Follower) -> RegistryError | None:
    """Read what has changed, and return the error if that was impossible."""
    try:
        await follower.catch_up()
    except RegistryError as error:
        return error
    return None


def _show(follower: Follower, shared: ProcessContext) -> None:
    if follower.trees.value != shared.switches.value:  # after an outage they mostly are as before
        shared.switches.set(follower.trees.value)
