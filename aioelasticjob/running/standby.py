"""Lets a job wait that cannot run in this process at present, while the process's other jobs run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from anyio import CancelScope, create_task_group, move_on_after

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.commit import ENDED_STATES
from aioelasticjob.coordination.coordinator import dismissed
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.membership import join, leave
from aioelasticjob.coordination.view import read
from aioelasticjob.errors import RegistryError
from aioelasticjob.latest import Latest
from aioelasticjob.registry.tree import Tree

LEAVE_TIMEOUT = 1.0
"""Seconds that the last writes of a job may take: publishing its counts, and unregistering its instance."""


async def wait_until_known(member: Member, config: JobConfig, trees: Latest[Tree], leaving: Latest[bool]) -> str:
    """Register the instance, but run nothing until this release knows all features that the job requires.

    ``config`` is the configuration that this process declares.  It is neither written nor compared with the registry's:
    the registry's may have a meaning that this release does not know.  Return an empty text if the job can be joined
    now, and otherwise why this instance has to leave.

    Raises:
        ForeignData: something in the registry keeps it from registering.
        RegistryError: the registry could not be read, or the session is over.
    """
    await join(member, config, trees, config)
    why = ""
    async with _while_in_session(member, leaving):
        while not why and member.lacks(tree := trees.value):
            why = await dismissed(member, read(tree, member.layout, config))
            if not why:
                await trees.until(lambda newer, old=tree: newer is not old)  # type: ignore[misc]
    with suppress(RegistryError), CancelScope(shield=True), move_on_after(LEAVE_TIMEOUT):
        await leave(member)  # if that fails, the session's end removes the instance
    return why


async def wait_for_news(member: Member, trees: Latest[Tree], seen: Tree, leaving: Latest[bool]) -> None:
    """Wait until a node of the job changes, the job is to leave, or the session is over."""
    async with _while_in_session(member, leaving):
        await trees.until(lambda newer: newer is not seen)


@asynccontextmanager
async def _while_in_session(member: Member, leaving: Latest[bool]) -> AsyncIterator[None]:
    """Cancel the block when the job is to leave, or the session is over."""
    async with create_task_group() as tasks:

        async def cancel_after(event: Callable[[], Awaitable[object]]) -> None:
            await event()
            tasks.cancel_scope.cancel()

        def session_over() -> Awaitable[object]:
            return member.session.status.until(
                lambda now: now.state in ENDED_STATES or now.incarnation != member.incarnation
            )

        tasks.start_soon(cancel_after, lambda: leaving.until(bool))
        tasks.start_soon(cancel_after, session_over)
        yield
        tasks.cancel_scope.cancel()
