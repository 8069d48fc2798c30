"""A configuration that one process cannot use and others can: that process runs nothing, and says why."""

from __future__ import annotations

import json
from contextvars import ContextVar
from dataclasses import dataclass, field

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext, operations
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core import declaration, view
from aioelasticjob.core.layout import Layout
from aioelasticjob.errors import ForeignData, InvalidSetting
from aioelasticjob.jobs import executors
from aioelasticjob.operations import JobStatus, NotPossible
from aioelasticjob.registry.transaction import Set
from aioelasticjob.testing import Process, VirtualClock
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

OLD, NEW = "0/5 * * * * ?", "2/10 * * * * ?"
TOKYO = {"cron": NEW, "timeZone": "Asia/Tokyo"}
LACKS: ContextVar[str] = ContextVar("LACKS", default="")
"""What the image of the present process lacks: the name of a time zone, or of an executor."""


@dataclass
class Images:
    """Workers on hosts of their own, whose images lack something."""

    here: SimulatedJobs
    runs: list[tuple[float, str, int]] = field(default_factory=list)
    """Second, worker, item."""
    apps: dict[str, ElasticJob] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)

    async def start(self, name: str, *, lacks: str = "") -> None:
        up, app = anyio.Event(), ElasticJob(self.here.address, clock=VirtualClock(), session_timeout=5)

        async def handler(context: ItemContext) -> None:
            self.runs.append((self.here.now(), name, context.item))

        async def main() -> None:
            LACKS.set(lacks)
            async with app.running():
                up.set()
                await anyio.sleep_forever()

        app.add(handler, name="job", cron=OLD, sharding_total_count=4, failover=True)
        self.processes[name] = self.here.faults.start(name, f"10.0.0.{len(self.apps) + 1}", main)
        self.apps[name] = app
        with anyio.fail_after(10):
            await up.wait()

    async def put(self, **keys: object) -> None:
        """Write keys into the configuration as an operator does whose own host lacks nothing."""
        stored = json.loads((await self.here.observer.get(LAYOUT.config)).data)
        await self.here.write(Set(LAYOUT.config, json.dumps({**stored, **keys}).encode(), -1))
        await anyio.sleep(2)  # the items are given to others

    async def ran(self, seconds: float) -> dict[str, set[int]]:
        """Let time pass; return at which seconds of ten each worker has run something meanwhile."""
        since = self.here.now()
        await anyio.sleep(seconds)
        found: dict[str, set[int]] = {}
        for at, name, _ in self.runs:
            if at >= since:
                found.setdefault(name, set()).add(round(at) % 10)
        return found

    async def status(self) -> JobStatus:
        return await operations.job(self.here.observer, "job", now=VirtualClock().now())

    def problem(self, name: str) -> str | None:
        return next(job.problem for job in self.apps[name].health.jobs if job.name == "job")


@pytest.fixture(autouse=True)
def images_lack_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers are in this process, so what their images lack is imitated where configurations are read."""
    parse, check = view.parse, executors.check

    def parse_here(data: bytes, layout: Layout) -> JobConfig:
        config = parse(data, layout)
        if config.time_zone == LACKS.get():
            raise ForeignData(f"{layout.config}: time_zone", config.time_zone, "there is no such time zone")
        return config

    def check_here(name: str) -> None:
        if name == LACKS.get():
            raise InvalidSetting("executor", name, "there is no such executor")
        check(name)

    monkeypatch.setattr(view, "parse", parse_here)
    monkeypatch.setattr(declaration.executors, "check", check_here)


@pytest.mark.parametrize("first", ["lacking", "whole"], ids=["it leads", "another one leads"])
def test_a_process_that_cannot_use_what_others_can_runs_nothing_and_says_why(
    first: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = Images(here)
        for name in sorted(["lacking", "whole"], key=lambda name: name != first):
            await them.start(name, lacks="Asia/Tokyo" if name == "lacking" else "")
        assert await them.ran(20) == {"lacking": {0, 5}, "whole": {0, 5}}
        await them.put(**TOKYO)
        assert await them.ran(30) == {"whole": {2}}
        status = await them.status()
        unable, able = sorted(status.instances, key=lambda one: not one.unusable)
        assert "there is no such time zone" in unable.unusable
        assert (able.holds, able.leads, unable.holds) == ((0, 1, 2, 3), True, ())
        assert "there is no such time zone" in (them.problem("lacking") or "")
        assert not them.apps["lacking"].health.ready
        assert them.problem("whole") is None
        assert len([text for text in caplog.messages if "this instance runs nothing" in text]) == 1
        await them.put(timeZone="UTC")
        assert await them.ran(20) == {"lacking": {2}, "whole": {2}}
        assert them.problem("lacking") is None
        assert not any(one.unusable for one in (await them.status()).instances)
        assert b'"unusable"' not in (await here.observer.get(LAYOUT.instance(unable.id))).data

    simulate(scene)


def test_a_process_without_the_executor_that_others_have_gives_its_items_to_them() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = Images(here)
        await them.start("lacking", lacks="process")
        await them.start("whole")
        await them.put(executor="process")
        assert await them.ran(20) == {"whole": {0, 5}}
        assert "there is no such executor" in (them.problem("lacking") or "")
        await them.put(executor="thread")
        assert await them.ran(20) == {"lacking": {0, 5}, "whole": {0, 5}}

    simulate(scene)


@pytest.mark.parametrize("keys", [{"timeZone": "Nowhere/Atall"}, TOKYO], ids=["an unknown name", "all images lack it"])
def test_a_configuration_that_nobody_can_use_leaves_the_last_valid_one_in_force(keys: dict[str, str]) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = Images(here)
        for name in ("one", "two", "three"):
            await them.start(name, lacks="Asia/Tokyo")
        await anyio.sleep(5)
        before = await here.observer.get(LAYOUT.sharding)
        leader = (await them.status()).leader
        await them.put(**keys)
        assert await them.ran(20) == {name: {0, 5} for name in ("one", "two", "three")}
        assert (await here.observer.get(LAYOUT.sharding)).stat.version == before.stat.version
        status = await them.status()
        assert status.leader == leader
        assert not any(one.unusable for one in status.instances)

    simulate(scene)


def test_while_all_that_can_use_it_are_gone_nobody_goes_back_to_the_old_schedule() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = Images(here)
        await them.start("lacking", lacks="Asia/Tokyo")
        await them.start("whole")
        await them.put(**TOKYO)
        them.processes["whole"].terminate()
        await anyio.sleep(10)
        assert await them.ran(20) == {}
        status = await them.status()
        assert (status.state, status.leader) == ("nobody able", None)
        with pytest.raises(NotPossible, match="cannot use the job's configuration"):
            await operations.ask(here.observer, "job")
        warnings = (await operations.preview(here.observer, "job", {"description": "x"}, now=0)).warnings
        assert warnings == ("no process can use the present configuration: it takes effect when that changes",)
        await them.start("whole again")
        await anyio.sleep(5)
        assert await them.ran(20) == {"whole again": {2}}

    simulate(scene)


def test_a_process_that_joins_again_in_a_new_session_still_runs_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = Images(here)
        await them.start("lacking", lacks="Asia/Tokyo")
        await them.start("whole")
        await them.put(**TOKYO)
        here.faults.partition(["10.0.0.1"], ["10.0.9.9"])
        await anyio.sleep(15)
        here.faults.heal()
        await anyio.sleep(15)
        assert [one.id for one in (await them.status()).instances if one.unusable]
        assert await them.ran(20) == {"whole": {2}}

    simulate(scene)
