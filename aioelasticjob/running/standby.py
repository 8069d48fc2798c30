"""A job that cannot run in this process for the time being: it waits for its turn beside the jobs that can."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from anyio import CancelScope, create_task_group, move_on_after

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.coordinator import dismissed
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.membership import join, leave
from aioelasticjob.coordination.view import read
from aioelasticjob.errors import RegistryError
from aioelasticjob.latest import Latest
from aioelasticjob.registry.session import SessionState
from aioelasticjob.registry.tree import Tree

FAREWELL = 1.0
"""Seconds that unregistering may take, with what is published before."""


async def wait_until_known(member: Member, config: JobConfig, trees: Latest[Tree], leaving: Latest[bool]) -> bool:
    """Be registered and run nothing until this instance knows all that the job requires.

    ``config`` is the process's own: nothing of it is written, and nothing of it is compared with the registry's, which
    may mean something else to those who know all of it.  Return whether the job is to be joined now: it is not when an
    operator has asked this instance to leave.

    Raises:
        ForeignData: something in the registry keeps it from registering.
        RegistryError: the registry could not be read, or the session is over.
    """
    await join(member, config, trees, config)
    stays = True
    async with _while_in_session(member, leaving):
        while stays and member.lacks(tree := trees.value):
            if await dismissed(member, read(tree, member.layout, config)):
                stays = False
            else:
                await trees.until(lambda newer, old=tree: newer is not old)  # type: ignore[misc]
    with suppress(RegistryError), CancelScope(shield=True), move_on_after(FAREWELL):
        await leave(member)  # if that fails, the session's end removes the instance all the same
    return stays


async def wait_for_news(member: Member, trees: Latest[Tree], seen: Tree, leaving: Latest[bool]) -> None:
    """Wait until the registry holds something else of the job than was seen, or there is no time left to wait."""
    async with _while_in_session(member, leaving):
        await trees.until(lambda newer: newer is not seen)


@asynccontextmanager
async def _while_in_session(member: Member, leaving: Latest[bool]) -> AsyncIterator[None]:
    """Cancel the block when the job is to leave, or the session is over."""
    over = (SessionState.EXPIRED, SessionState.CLOSED)
    async with create_task_group() as tasks:

        async def cancel_after(event: Callable[[], Awaitable[object]]) -> None:
            await event()
            tasks.cancel_scope.cancel()

        def session_over() -> Awaitable[object]:
            return member.session.status.until(lambda now: now.state in over or now.incarnation != member.incarnation)

        tasks.start_soon(cancel_after, lambda: leaving.until(bool))
        tasks.start_soon(cancel_after, session_over)
        yield
        tasks.cancel_scope.cancel()
