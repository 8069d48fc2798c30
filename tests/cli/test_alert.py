"""`aioelasticjob alert`: error handlers of jobs that nobody runs are called, also after an outage of the registry."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from aioelasticjob import JobConfig
from aioelasticjob.cli.alert import Uncounted, report_absences
from aioelasticjob.core.layout import Layout
from aioelasticjob.error_handlers import Failure, Options, find
from aioelasticjob.errors import NobodyThere
from aioelasticjob.registry.addresses import Address
from aioelasticjob.registry.transaction import Create
from aioelasticjob.testing import VirtualClock
from tests.cli.conftest import Command
from tests.error_handlers.failures import delivered_by
from tests.support.simulated_jobs import REGISTRY, SimulatedJobs, simulate


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Failure]]:
    """The alerts that were sent."""
    found: list[Failure] = []

    async def note(failure: Failure, options: Options) -> None:
        found.append(failure)

    delivered_by(monkeypatch, pager=note)
    yield found
    find.cache_clear()


async def declare(here: SimulatedJobs, name: str, **settings: Any) -> None:
    config = JobConfig.build(job_name=name, cron="0/10 * * * * ?", error_handler="pager", **settings)
    await here.write(Create(f"/{name}"), Create(Layout(name).config, config.to_json()))


def test_jobs_that_say_so_are_alerts_and_others_are_not(sent: list[Failure]) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await declare(here, "alone", alert_on="nobody-there")
        await declare(here, "silent")
        app = here.app(cron="0/10 * * * * ?", error_handler="pager", alert_on=("nobody-there", "failed"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(report_absences, Address.parse(here.address), 30.0, VirtualClock(), anyio.Event())
            async with app.running():
                await anyio.sleep(100)
                assert [one.job for one in sent] == ["alone"]
            await anyio.sleep(20)
            assert len(sent) == 1
            await anyio.sleep(20)
            assert [one.job for one in sent] == ["alone", "job"]
            assert isinstance(sent[1].error, NobodyThere)
            assert {(one.namespace, one.run_id) for one in sent} == {("office", "")}
            await anyio.sleep(300)
            assert len(sent) == 2
            tasks.cancel_scope.cancel()

    simulate(scene)


def test_an_absence_soon_after_the_last_alert_is_reported_when_the_limit_allows_unless_it_is_over_by_then(
    sent: list[Failure],
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?", error_handler="pager", alert_on="nobody-there")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(report_absences, Address.parse(here.address), 30.0, VirtualClock(), anyio.Event())
            async with app.running():
                await anyio.sleep(10)
            await anyio.sleep(40)
            assert len(sent) == 1
            async with app.running():  # the second absence is held back, and over before it may be reported
                await anyio.sleep(60)
            await anyio.sleep(60)
            async with app.running():
                await anyio.sleep(600)
            assert len(sent) == 1
            await anyio.sleep(40)
            assert len(sent) == 2
            async with app.running():
                await anyio.sleep(60)
            await anyio.sleep(500)
            assert len(sent) == 2
            await anyio.sleep(100)
            assert len(sent) == 3  # the fourth absence still lasts
            await anyio.sleep(3600)
            assert len(sent) == 3
            tasks.cancel_scope.cancel()

    simulate(scene)


def test_an_alert_that_could_not_be_delivered_is_sent_again_until_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried, sent, works = list[str](), list[str](), anyio.Event()

    async def page(failure: Failure, options: Options) -> None:
        tried.append(failure.job)
        if not works.is_set():
            raise OSError("the line is dead")
        sent.append(failure.job)

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?", error_handler="pager", alert_on="nobody-there")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(report_absences, Address.parse(here.address), 30.0, VirtualClock(), anyio.Event())
            for _ in range(2):
                async with app.running():
                    await anyio.sleep(60)
                await anyio.sleep(200)
            assert (len(tried), sent) == (4, [])  # each of the two absences twice
            works.set()
            await anyio.sleep(3600)
            assert sent == ["job"]
            tasks.cancel_scope.cancel()

    delivered_by(monkeypatch, pager=page)
    try:
        simulate(scene)
    finally:
        find.cache_clear()
    assert "the error handler pager failed, so it is called again in 1 minute: OSError: the line is dead" in caplog.text


def test_no_names_of_jobs_are_kept_with_counts_that_nobody_reads() -> None:
    counts = Uncounted()
    counts["gone"].alerts["delivered"] += 1
    assert not counts


def test_an_outage_of_the_registry_is_no_absence_and_ends_nothing(
    sent: list[Failure], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aioelasticjob.cli.alert")

    async def scene(here: SimulatedJobs) -> None:
        here.faults.drop("10.0.7.7", REGISTRY)
        await declare(here, "alone", alert_on="nobody-there")

        async def watch() -> None:
            await report_absences(Address.parse(here.address), 30.0, VirtualClock(), anyio.Event())

        watcher = here.faults.start("watcher", "10.0.7.7", watch)
        await anyio.sleep(100)
        assert sent == []
        assert any("cannot follow the registry" in text and "RegistryUnreachable" in text for text in caplog.messages)
        here.faults.heal()
        await anyio.sleep(60)
        assert not any("it is tried for" in text for text in caplog.messages)  # that would be a line for each attempt
        lines = [line for line in caplog.messages if "follow" in line]
        assert [line.partition(",")[0] for line in lines] == [
            *["cannot follow the registry"] * 2,
            "1 more line was left out: whether the registry answers; the newest: cannot follow the registry",
            *["cannot follow the registry"] * 2,
            "1 more line was left out: whether the registry answers; the newest: following 1 job",
        ]
        await anyio.sleep(100)
        assert [one.job for one in sent] == ["alone"]
        watcher.terminate()

    simulate(scene)


@pytest.mark.parametrize(("seconds", "ends"), [(3.0, ["alone"]), (30.0, [])])
def test_the_alerts_that_wait_are_delivered_or_logged_when_the_command_is_stopped(
    seconds: float, ends: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended, begun, stop = list[str](), anyio.Event(), anyio.Event()

    async def page(failure: Failure, options: Options) -> None:
        begun.set()
        await anyio.sleep(seconds)
        ended.append(failure.job)

    async def scene(here: SimulatedJobs) -> None:
        await declare(here, "alone", alert_on="nobody-there")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(report_absences, Address.parse(here.address), 30.0, VirtualClock(), stop)
            await begun.wait()
            stop.set()

    delivered_by(monkeypatch, pager=page)
    try:
        simulate(scene)
    finally:
        find.cache_clear()
    assert ended == ends
    assert any("are only in the log" in text for text in caplog.messages) is not bool(ends)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_without_an_error(number: int, registry_address: str) -> None:
    command = [sys.executable, "-m", "aioelasticjob", "alert", "--registry", registry_address]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "following" in line:
                break
        process.send_signal(number)
        assert process.wait(60) == 0


def test_a_private_registry_has_nobody_to_follow(command: Command) -> None:
    result = command("alert", "--registry", "embedded://")
    assert result.exit_code == 2
    assert "a private registry exists only inside its own process" in result.stderr
