"""A rolling restart of real workers is no fault: no job needs attention because of it, and no alert begins."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import anyio
import pytest

from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.operations.alerts.conditions import Facts, conditions
from aioelasticjob.operations.alerts.observed import ObservedRuns
from aioelasticjob.operations.alerts.plan import Planner
from tests.console.conftest import Play, Scene
from tests.support.processes import TIMEOUT, ChildProcess, workers

pytestmark = pytest.mark.process

JOBS = 40
WORKERS = 3


class Observer:
    """Notes what console and alerts say of jobs, whenever something changes."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._runs = ObservedRuns(scene.clock.now())
        self._planner = Planner("me", after=60.0, repeat=3600.0)
        self.need_attention: dict[str, set[str]] = {}
        """By job, the kinds of the reasons that there were at any time."""
        self.alerts: set[str] = set()
        """The keys of the alerts that would have begun."""

    async def watch(self) -> None:
        """Note it until cancelled."""
        watch = self._scene.registry
        async for snapshot in watch.snapshot:
            now = self._scene.clock.now()
            for name, health in self._scene.console.state.health_of(watch, snapshot).worst:
                self.need_attention.setdefault(name, set()).update(reason.kind for reason in health.reasons)
            jobs = tuple(snapshot.jobs.values())
            self._runs.see(jobs, now)
            found = conditions(Facts(jobs, self._runs, now, snapshot.processes))
            self.alerts |= {key.name for key in self._planner.plan(found, {}, lambda _: None, now).writes}


def _all_settled(instances: int, snapshot: RegistrySnapshot) -> bool:
    jobs = snapshot.jobs.values()
    return len(jobs) == JOBS and all(job.settled and len(job.instances) == instances for job in jobs)


def _all_have_run_since(moment: float, snapshot: RegistrySnapshot) -> bool:
    records = [item.record for job in snapshot.jobs.values() for item in job.items]
    return all(record is not None and record.outcome and record.begun > moment * 1000 for record in records)


def test_a_rolling_restart_of_forty_jobs_on_three_workers_is_no_fault(
    play: Play, sqlite_url: str, tmp_path: Path
) -> None:
    async def act(scene: Scene) -> None:
        with workers(tmp_path) as them:

            async def start(number: int) -> ChildProcess:
                words = ("-m", "tests.console.many_jobs_worker", scene.address, sqlite_url, str(JOBS))
                child = them.start(*words, environment={"AIOELASTICJOB_IP": f"10.0.0.{number}"})
                await asyncio.to_thread(child.wait_for_output, f"running {JOBS} jobs")
                return child

            running = [await start(number) for number in range(WORKERS)]
            with anyio.fail_after(TIMEOUT):
                await scene.registry.snapshot.until(partial(_all_settled, WORKERS))
            observer = Observer(scene)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(observer.watch)
                for number, child in enumerate(running):
                    assert await asyncio.to_thread(child.terminate) == 0
                    await start(number)
                    with anyio.fail_after(TIMEOUT):
                        await scene.registry.snapshot.until(partial(_all_settled, WORKERS))
                with anyio.fail_after(TIMEOUT):
                    await scene.registry.snapshot.until(partial(_all_have_run_since, scene.clock.now()))
                tasks.cancel_scope.cancel()
            assert observer.need_attention == {}
            assert observer.alerts == set()

    play(act, event_store=sqlite_url)
