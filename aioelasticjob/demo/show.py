"""The demonstration: start everything, watch, kill a worker if asked to, and check the result."""

from __future__ import annotations

import os
import sqlite3

from anyio import move_on_after, to_thread

from aioelasticjob.demo.check import IndexCheck, check
from aioelasticjob.demo.cluster import DemoCluster, DemoOptions
from aioelasticjob.demo.database import open_index
from aioelasticjob.demo.files import stamp
from aioelasticjob.demo.processes import DemoProcess, ProcessGroup, process_group, start_server
from aioelasticjob.demo.screen import Screen
from aioelasticjob.demo.snapshot import Snapshot
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.ground.plural import counted
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session

TICK_MILLISECONDS = 500
"""Milliseconds of the server's tick: sessions may be as short as two."""
KILL_AT = 0.35
"""Share of the files that are done when a worker is killed."""
NEXT_FIRE = 3.0
"""Seconds within which the job runs again and sees what has changed in the directory."""
MAX_CHECKS = 4
"""Checks made while the directory keeps changing."""


class BrokenOff(ElasticJobError):
    """The demonstration had to stop because its directory, its database or the disk is no longer usable."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(f"the demonstration broke off: {reason or type(reason).__name__}")
        self.reason = reason


async def show(plan: DemoOptions, screen: Screen) -> IndexCheck:
    """Run the demonstration, and return the check of the index.  All processes that it started have ended on return.

    Raises:
        InvalidSetting: an option makes no sense.
        ElasticJobError: it could not be shown to the end.
    """
    try:
        return await _show(plan, screen)
    except (OSError, sqlite3.Error) as error:
        raise BrokenOff(error) from error


async def _show(plan: DemoOptions, screen: Screen) -> IndexCheck:
    cluster = DemoCluster(plan, screen)
    await to_thread.run_sync(_prepare, cluster, abandon_on_cancel=True)
    async with process_group(plan.logs) as members:
        server = await start_server(members, TICK_MILLISECONDS)
        registry = f"zk://{server}/demo"
        cluster.tell(f"server started, {registry}")
        for _ in range(plan.workers):
            await cluster.start_worker(members, registry)
        async with open_session(ConnectionSettings.parse(registry, session_timeout=10)) as session:
            if plan.kill:
                await _kill_and_replace(cluster, session, members, registry)
            await cluster.until(session, lambda snapshot: snapshot.complete)
            return await _check(cluster, session)


def _prepare(cluster: DemoCluster) -> None:
    plan = cluster.plan
    try:
        cluster.progress.list()
    except OSError as error:
        raise InvalidSetting("directory", plan.directory, f"cannot be read: {error.strerror}") from None
    with open_index(plan.database) as index:
        # the database was made by an earlier demonstration: its files and fences belong to another registry
        index.clear()


async def _kill_and_replace(cluster: DemoCluster, session: Session, members: ProcessGroup, registry: str) -> None:
    """Kill a worker midway; start another one when its items have found new holders."""
    snapshot = await cluster.until(session, lambda snapshot: _is_midway(snapshot) and cluster.victim(snapshot))
    victim = cluster.victim(snapshot)
    assert victim is not None  # the end of this process was expected
    cluster.kill(victim, snapshot)
    await cluster.until(session, lambda snapshot: _has_lost_items(snapshot, victim))
    newcomer = await cluster.start_worker(members, registry)
    await cluster.until(session, lambda snapshot: _is_at_work(snapshot, newcomer))


def _is_midway(snapshot: Snapshot) -> bool:
    running = any(item.runner for item in snapshot.items)
    return snapshot.done >= KILL_AT * snapshot.total and (running or snapshot.complete)


def _has_lost_items(snapshot: Snapshot, victim: DemoProcess) -> bool:
    """Whether a worker's items have moved; if no worker is left to take them, whether the registry has noticed."""
    joined = {worker.name for worker in snapshot.workers if worker.joined}
    if victim.name in joined:
        return False
    return not joined or not snapshot.held_by(victim.name)


def _is_at_work(snapshot: Snapshot, newcomer: DemoProcess) -> bool:
    joined = [worker.name for worker in snapshot.workers if worker.joined]
    if newcomer.name not in joined:
        return False
    return bool(snapshot.held_by(newcomer.name)) or len(snapshot.items) < len(joined)


async def _check(cluster: DemoCluster, session: Session) -> IndexCheck:
    """Check the index.  Files that were changed during the demonstration are checked again after the job's next run."""
    plan = cluster.plan
    cluster.tell("all files done; checking the database against the directory")
    await cluster.look(session)
    for attempt in range(1, MAX_CHECKS + 1):
        verdict = await to_thread.run_sync(check, plan.directory, plan.database, plan.excluded, abandon_on_cancel=True)
        if verdict.right or attempt == MAX_CHECKS or not _has_changed(cluster, verdict):
            break
        cluster.tell(f"{counted(len(verdict.faults), 'file')} changed meanwhile: waiting for the next run")
        with move_on_after(NEXT_FIRE):
            await cluster.until(session, lambda _: False)
    return verdict


def _has_changed(cluster: DemoCluster, verdict: IndexCheck) -> bool:
    """Whether every fault is about a file that was changed, made or removed since the demonstration began."""

    def changed(path: str) -> bool:
        seen = stamp(os.path.join(cluster.plan.directory, path))
        if seen is None:
            return cluster.progress.has_seen(path)
        _, nanoseconds = seen
        return nanoseconds / 1e9 >= cluster.began - 1

    return not verdict.twice and all(changed(path) for path in verdict.faults)
