"""The demonstration: start everything, watch, kill a worker if asked to, and check the result."""

from __future__ import annotations

import os
import sqlite3

from anyio import move_on_after, to_thread

from aioelasticjob.demo.check import Verdict, check
from aioelasticjob.demo.database import open_index
from aioelasticjob.demo.files import stamp
from aioelasticjob.demo.processes import Child, Crew, crew, start_server
from aioelasticjob.demo.scene import Scene
from aioelasticjob.demo.screen import Screen
from aioelasticjob.demo.stage import Plan, Stage
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session

TICK = 500
"""Milliseconds of the server's tick: sessions may be as short as two."""
KILL_AT = 0.35
"""Share of the files that are done when a worker is killed."""
NEXT_FIRE = 3.0
"""Seconds within which the job runs again and sees what has changed in the directory."""
CHECKS = 4
"""Checks made while the directory keeps changing."""


class BrokenOff(ElasticJobError):
    """The demonstration had to stop because its directory, its database or the disk is no longer usable."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(f"the demonstration broke off: {reason or type(reason).__name__}")
        self.reason = reason


async def play(plan: Plan, screen: Screen) -> Verdict:
    """Run the demonstration, and return the check of the index.  All processes that it started have ended on return.

    Raises:
        InvalidSetting: an option makes no sense.
        ElasticJobError: it could not be shown to the end.
    """
    try:
        return await _play(plan, screen)
    except (OSError, sqlite3.Error) as error:
        raise BrokenOff(error) from error


async def _play(plan: Plan, screen: Screen) -> Verdict:
    stage = Stage(plan, screen)
    await to_thread.run_sync(_prepare, stage, abandon_on_cancel=True)
    async with crew(plan.logs) as members:
        server = await start_server(members, TICK)
        registry = f"zk://{server}/demo"
        stage.tell(f"server started, {registry}")
        for _ in range(plan.workers):
            await stage.start_worker(members, registry)
        async with open_session(ConnectionSettings.parse(registry, session_timeout=10)) as session:
            if plan.kill:
                await _kill_and_replace(stage, session, members, registry)
            await stage.until(session, lambda scene: scene.complete)
            return await _check(stage, session)


def _prepare(stage: Stage) -> None:
    plan = stage.plan
    try:
        stage.progress.list()
    except OSError as error:
        raise InvalidSetting("directory", plan.directory, f"cannot be read: {error.strerror}") from None
    with open_index(plan.database) as index:
        # the database was made by an earlier demonstration: its files and fences belong to another registry
        index.clear()


async def _kill_and_replace(stage: Stage, session: Session, members: Crew, registry: str) -> None:
    """Kill a worker midway; start another one when its items have found new holders."""
    scene = await stage.until(session, lambda scene: _is_midway(scene) and stage.victim(scene))
    victim = stage.victim(scene)
    assert victim is not None  # the end of this process was expected
    stage.kill(victim, scene)
    await stage.until(session, lambda scene: _is_bereft(scene, victim))
    newcomer = await stage.start_worker(members, registry)
    await stage.until(session, lambda scene: _is_at_work(scene, newcomer))


def _is_midway(scene: Scene) -> bool:
    running = any(item.runner for item in scene.items)
    return scene.done >= KILL_AT * scene.total and (running or scene.complete)


def _is_bereft(scene: Scene, victim: Child) -> bool:
    """Whether a worker's items have moved; if no worker is left to take them, whether the registry has noticed."""
    others = any(worker.joined for worker in scene.workers if worker.name != victim.name)
    gone = not any(worker.joined for worker in scene.workers if worker.name == victim.name)
    return gone and (not others or not scene.held_by(victim.name))


def _is_at_work(scene: Scene, newcomer: Child) -> bool:
    joined = [worker.name for worker in scene.workers if worker.joined]
    if newcomer.name not in joined:
        return False
    return bool(scene.held_by(newcomer.name)) or len(scene.items) < len(joined)


async def _check(stage: Stage, session: Session) -> Verdict:
    """Check the index.  Files that were changed during the demonstration are checked again after the job's next run."""
    plan = stage.plan
    stage.tell("all files done; checking the database against the directory")
    await stage.look(session)
    for attempt in range(1, CHECKS + 1):
        verdict = await to_thread.run_sync(check, plan.directory, plan.database, plan.excluded, abandon_on_cancel=True)
        if verdict.right or attempt == CHECKS or not _has_changed(stage, verdict):
            break
        stage.tell(f"{len(verdict.faults):,} files changed meanwhile: waiting for the next run")
        with move_on_after(NEXT_FIRE):
            await stage.until(session, lambda _: False)
    return verdict


def _has_changed(stage: Stage, verdict: Verdict) -> bool:
    """Whether every fault is about a file that was changed, made or removed since the demonstration began."""

    def changed(path: str) -> bool:
        seen = stamp(os.path.join(stage.plan.directory, path))
        return seen[1] / 1e9 >= stage.began - 1 if seen else stage.progress.has_seen(path)

    return not verdict.twice and all(changed(path) for path in verdict.faults)
