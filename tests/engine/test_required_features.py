"""Workers of different releases run a job side by side: who lacks what it requires stands aside."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext, operations
from aioelasticjob.config import job as settings
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.operations import JobStatus, NotPossible
from aioelasticjob.registry.transaction import Create, Set
from aioelasticjob.testing import Process, VirtualClock
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

JOB = {"cron": "0/5 * * * * ?", "sharding_total_count": 4, "failover": True}


@dataclass
class Mixed:
    """Workers on hosts of their own, each of which knows some features."""

    here: SimulatedJobs
    monkeypatch: pytest.MonkeyPatch
    runs: list[tuple[float, str, int]] = field(default_factory=list)
    """Second, worker, item."""
    others: list[tuple[float, str]] = field(default_factory=list)
    apps: dict[str, ElasticJob] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    work: float = 0.1

    async def start(self, name: str, *features: str, **changes: Any) -> None:
        """Start a worker and wait until it is up, which it is though it may have to wait for its turn."""
        up, app = anyio.Event(), ElasticJob(self.here.address, clock=VirtualClock(), session_timeout=5)

        async def handler(context: ItemContext) -> None:
            self.runs.append((self.here.now(), name, context.item))
            await anyio.sleep(self.work)

        async def other(context: ItemContext) -> None:
            self.others.append((self.here.now(), name))

        async def main() -> None:
            async with app.running():
                up.set()
                await anyio.sleep_forever()

        app.add(handler, name="job", **{**JOB, **changes})
        app.add(other, name=f"other-{name}", cron="0/5 * * * * ?")
        with self.monkeypatch.context() as patched:
            patched.setattr(settings, "FEATURES", frozenset(features))
            self.processes[name] = self.here.faults.start(name, f"10.0.0.{len(self.apps) + 1}", main)
            self.apps[name] = app
            with anyio.fail_after(10):
                await up.wait()

    async def stored(self) -> dict[str, Any]:
        return json.loads((await self.here.observer.get(LAYOUT.config)).data)  # type: ignore[no-any-return]

    async def put(self, **keys: object) -> None:
        """Write keys into the configuration as somebody of another release would."""
        await self.here.write(Set(LAYOUT.config, json.dumps({**await self.stored(), **keys}).encode(), -1))

    async def ran(self, seconds: float) -> dict[str, set[int]]:
        """Let time pass; return which items each worker has run meanwhile."""
        since = self.here.now()
        await anyio.sleep(seconds)
        found: dict[str, set[int]] = {}
        for at, name, item in self.runs:
            if at >= since:
                found.setdefault(name, set()).add(item)
        return found

    async def status(self) -> JobStatus:
        return await operations.job(self.here.observer, "job", now=VirtualClock().now())

    def problem(self, name: str) -> str | None:
        return next(job.problem for job in self.apps[name].health.jobs if job.name == "job")


@pytest.fixture
def mixed(monkeypatch: pytest.MonkeyPatch) -> Callable[[SimulatedJobs], Mixed]:
    return lambda here: Mixed(here, monkeypatch)


MakeMixed = Callable[[SimulatedJobs], Mixed]
ALL = {0, 1, 2, 3}


def test_workers_that_lack_what_is_required_stand_aside_while_it_is(
    mixed: MakeMixed, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await them.start("old")
        await them.start("new", "x")
        assert (await them.ran(12)).keys() == {"old", "new"}
        await them.put(requires=["x"])
        await anyio.sleep(2)
        assert await them.ran(20) == {"new": ALL}
        status = await them.status()
        assert {one.ip: one.lacks for one in status.instances} == {"10.0.0.1": ("x",), "10.0.0.2": ()}
        assert status.leader == next(one.id for one in status.instances if one.ip == "10.0.0.2")
        assert "requires 'x'" in (them.problem("old") or "")
        assert them.problem("new") is None
        assert [text for text in caplog.messages if "the job requires 'x', which this release does not know" in text]
        since = here.now()
        await them.put(requires=[])
        await anyio.sleep(2)
        assert (await them.ran(12)).keys() == {"old", "new"}
        assert them.problem("old") is None
        assert {name for at, name in them.others if at > since - 10} == {"old", "new"}

    simulate(scene)


def test_nobody_runs_what_nobody_knows_and_operators_see_why(mixed: MakeMixed) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await them.start("old", sharding_total_count=2)
        await them.start("older", sharding_total_count=2)
        them.work = 7
        await anyio.sleep(5)
        await them.put(requires=["x", "y"])
        await anyio.sleep(12)  # what ran has ended in peace
        assert [item.record.outcome for item in (await them.status()).items if item.record] == ["completed"] * 2
        assert await them.ran(20) == {}
        status = await them.status()
        assert (status.state, status.leader) == ("nobody able", None)
        with pytest.raises(NotPossible, match=r"do not know all that the job requires \(x, y\)"):
            await operations.ask(here.observer, "job")
        warnings = (await operations.preview(here.observer, "job", {"description": "x"}, now=0)).warnings
        assert warnings == ("no instance knows all that the job requires (x, y): it takes effect when that changes",)
        await operations.configure(here.observer, "job", {"requires": ""})
        them.work = 0.1
        assert (await them.ran(12)).keys() == {"old", "older"}

    simulate(scene)


def test_keys_that_are_not_known_are_ignored_said_once_and_kept_by_whoever_writes(
    mixed: MakeMixed, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        await them.start("old")
        await them.put(corn="newer", cron="0/3 * * * * ?")
        assert await them.ran(13) == {"old": ALL}
        assert len({round(at) for at, _, _ in them.runs if here.now() - at < 13}) == 4  # by the new schedule
        assert sum("'corn' is not known here (did you mean cron?)" in text for text in caplog.messages) == 1
        status = await them.status()
        assert (status.fault, len(status.ignored)) == (None, 1)
        await operations.configure(here.observer, "job", {"description": "changed"})
        assert (await them.stored())["corn"] == "newer"
        text = await operations.export_jobs(here.observer, ["job"])
        await them.put(corn="newest", more=[1], requires=["x"])
        done = await operations.import_jobs(here.observer, text, overwrite=True)
        assert "'corn' is not known here" in done.summary
        stored = await them.stored()
        assert (stored["corn"], stored["more"], stored["requires"]) == ("newer", [1], ["x"])
        await them.start("new", "x", overwrite=True, description="overwritten")
        stored = await them.stored()
        assert (stored["description"], stored["cron"]) == ("overwritten", JOB["cron"])
        assert (stored["corn"], stored["more"], stored["requires"]) == ("newer", [1], ["x"])

    simulate(scene)


def test_an_instance_says_what_it_knows_and_keeps_what_it_does_not_when_it_says_that_it_leaves(
    mixed: MakeMixed,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = mixed(here)
        them.work = 4
        await them.start("old", "b", "a")
        (name,) = await here.names(LAYOUT.instances)
        fields = json_object((await here.observer.get(LAYOUT.instance(name))).data)
        assert fields["features"] == ["a", "b"]
        await here.write(Set(LAYOUT.instance(name), json.dumps({**fields, "newer": {"a": 1}}).encode(), -1))
        await here.until(6)
        await here.write(Create(LAYOUT.shutdown(name)))
        await anyio.sleep(1)
        after = json_object((await here.observer.get(LAYOUT.instance(name))).data)
        assert after == {**fields, "newer": {"a": 1}, "leaving": True, "upSince": after["upSince"]}

    simulate(scene)
