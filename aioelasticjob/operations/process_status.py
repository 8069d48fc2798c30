"""The processes that cannot do something at present: how they are read, and followed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from aioelasticjob.core.layout import PROCESSES, child
from aioelasticjob.core.processes import ProcessStatus, process_status
from aioelasticjob.operations.status import JobStatus
from aioelasticjob.registry.mirror import follow_value
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.tree import Tree


async def processes(session: Session) -> tuple[ProcessStatus, ...]:
    """Read which processes of the namespace cannot do something at present, in the order of their ids.

    Raises:
        RegistryError: the registry could not be read.
    """
    await session.sync()
    return _processes_in(await session.subtree([PROCESSES]))


def processes_of(job: JobStatus, processes: Iterable[ProcessStatus]) -> tuple[ProcessStatus, ...]:
    """Return those of some processes in which the job has an instance."""
    sessions = {one.incarnation for one in job.instances}
    return tuple(one for one in processes if one.incarnation in sessions)


@asynccontextmanager
async def watch_processes(session: Session) -> AsyncIterator[AsyncIterator[tuple[ProcessStatus, ...]]]:
    """Follow which processes cannot do something: the iterator gives the present ones, then newer states.

    Raises:
        RegistryError: the registry may not be read, or the session is closed.
    """
    async with follow_value(session, PROCESSES, _processes_in) as states:
        yield states


def _processes_in(tree: Tree) -> tuple[ProcessStatus, ...]:
    found = list[ProcessStatus]()
    for id in tree.children(PROCESSES):
        node = tree.get(child(PROCESSES, id))
        if node is not None:
            status = process_status(id, node)
            if status.problems:
                found.append(status)
    return tuple(found)
