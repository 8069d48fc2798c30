"""Lets a job wait that cannot run in this process at present, while the process's other jobs run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from anyio import create_task_group, move_on_after

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.membership import dismissed, join, leave
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
    async with unless(leaving):
        while not why and member.lacks(tree := trees.value):
            why = await dismissed(member, read(tree, member.layout, config))
            if not why:
                await trees.until(lambda newer, old=tree: newer is not old)  # type: ignore[misc]
    with suppress(RegistryError), move_on_after(LEAVE_TIMEOUT, shield=True):
        await leave(member)  # if that fails, the session's end removes the instance
    return why


@asynccontextmanager
async def unless(leaving: Latest[bool]) -> AsyncIterator[None]:
    """Cancel the block when the job is to leave.  When the session is over, the job's life cancels all its tasks."""
    async with create_task_group() as tasks:

        async def cancel() -> None:
            await leaving.until(bool)
            tasks.cancel_scope.cancel()

        tasks.start_soon(cancel)
        yield
        tasks.cancel_scope.cancel()
