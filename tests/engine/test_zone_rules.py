"""Processes whose databases of time zones differ say so once, with both versions."""

from __future__ import annotations

import json
from contextvars import ContextVar

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext, operations
from aioelasticjob.core import zone_rules
from aioelasticjob.operations import JobStatus
from aioelasticjob.registry.transaction import Set
from aioelasticjob.testing import VirtualClock
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

RELEASE: ContextVar[str] = ContextVar("RELEASE", default="2026a")
"""The release of the database of zones on the host of the present process."""


@pytest.fixture(autouse=True)
def hosts_have_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers are in this process, so their databases are imitated: 2020a has other rules than the later ones."""
    digest = zone_rules.rules_digest

    def digest_here(name: str, year: int) -> str:
        return (found := digest(name, year)) and f"{found}{'-old' * (RELEASE.get() == '2020a')}"

    monkeypatch.setattr(zone_rules, "rules_digest", digest_here)
    monkeypatch.setattr(zone_rules, "database_of", lambda name: f"tzdata {RELEASE.get()} of its host")


async def start(here: SimulatedJobs, number: int, release: str) -> None:
    up, app = anyio.Event(), ElasticJob(here.address, clock=VirtualClock())

    async def handler(context: ItemContext) -> None:
        pass

    async def main() -> None:
        RELEASE.set(release)
        async with app.running():
            up.set()
            await anyio.sleep_forever()

    app.add(handler, name="job", cron="0/5 * * * * ?", time_zone="Europe/Berlin", reconcile_interval=10)
    here.faults.start(f"worker {number}", f"10.0.0.{number}", main)
    with anyio.fail_after(10):
        await up.wait()


async def status(here: SimulatedJobs) -> JobStatus:
    return await operations.job(here.observer, "job", now=VirtualClock().now())


@pytest.mark.parametrize("releases", [("2020a", "2026a"), ("2026a", "2020a", "2026b")])
def test_other_rules_are_said_once_with_both_versions(
    releases: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        for number, release in enumerate(releases, 1):
            await start(here, number, release)
        await anyio.sleep(40)
        said = [text for text in caplog.messages if "the rules of Europe/Berlin" in text]
        assert len(said) == 1
        assert all(release in said[0] for release in releases[:2])
        found = (await status(here)).zone_databases
        assert len(found) == 2
        assert any("2020a" in one for one in found)
        stored = json.loads((await here.observer.get(LAYOUT.config)).data)
        await here.write(Set(LAYOUT.config, json.dumps({**stored, "timeZone": "UTC"}).encode(), -1))
        await anyio.sleep(25)  # two ticks
        assert (await status(here)).zone_databases == ()

    simulate(scene)


def test_the_same_rules_from_different_releases_are_no_difference(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start(here, 1, "2026a")
        await start(here, 2, "2026b")
        await anyio.sleep(40)
        assert not [text for text in caplog.messages if "the rules of" in text]
        job = await status(here)
        assert job.zone_databases == ()
        assert [one.zone_rules.database for one in job.instances if one.zone_rules] == [
            "tzdata 2026a of its host",
            "tzdata 2026b of its host",
        ]

    simulate(scene)
