"""A job that cannot run in this process for the time being: it is there, it says why, and it waits for its turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anyio import CancelScope, Event, create_task_group, move_on_after

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.coordinator import dismissed
from aioelasticjob.coordination.membership import Member, join, leave
from aioelasticjob.coordination.view import read
from aioelasticjob.errors import RegistryError
from aioelasticjob.latest import Latest
from aioelasticjob.registry.session import SessionState
from aioelasticjob.registry.tree import Tree

FAREWELL = 1.0
"""Seconds that unregistering may take."""


async def stand_by(member: Member, config: JobConfig, trees: Latest[Tree], leaving: Event) -> bool:
    """Be registered and run nothing until this instance knows all that the job requires.

    ``config`` is the process's own: nothing of it is written, and nothing of it is compared with the registry's, which
    may mean something else to those who know all of it.  Return whether the job is to be joined now: it is not when an
    operator has asked this instance to leave.

    Raises:
        RegistryError: the registry could not be read, or the session is over.
    """
    await join(member, config, trees, config)
    stays = True
    async with create_task_group() as tasks:

        async def end_with(event: Callable[[], Awaitable[object]]) -> None:
            await event()
            tasks.cancel_scope.cancel()

        tasks.start_soon(end_with, leaving.wait)
        tasks.start_soon(end_with, lambda: _session_over(member))
        while stays and (tree := trees.value) is not None:
            stays = not await dismissed(member, read(tree, member.layout, config))
            if not member.lacks(tree):
                break
            await trees.until(lambda newer, old=tree: newer is not old)  # type: ignore[misc]
        tasks.cancel_scope.cancel()
    try:
        with CancelScope(shield=True), move_on_after(FAREWELL):
            await leave(member)
    except RegistryError:
        pass  # the session's end removes the instance all the same
    return stays


async def _session_over(member: Member) -> None:
    over = (SessionState.EXPIRED, SessionState.CLOSED)
    await member.session.status.until(lambda now: now.state in over or now.incarnation != member.incarnation)
