"""`aioelasticjob alert`: people are notified of faults, also across outages, restarts and deliveries that fail."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from aioelasticjob import InvalidSetting, JobConfig
from aioelasticjob.cli import alert
from aioelasticjob.cli.alert import AlertOptions, read_target, tell_of_faults, usual_state
from aioelasticjob.core.layout import ALERTS, Layout
from aioelasticjob.core.processes import Author, ProcessProblems, UnwrittenEvents, renewal
from aioelasticjob.error_handlers import Failure, Options, find
from aioelasticjob.errors import FaultAlert
from aioelasticjob.operations.alerts.nodes import AlertFile, alerts
from aioelasticjob.operations.alerts.plan import Target
from aioelasticjob.operations.alerts.state import CLAIM_SECONDS, AlertState
from aioelasticjob.registry.addresses import Address, open_registry
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.testing import VirtualClock
from tests.cli.conftest import Command
from tests.error_handlers.failures import delivered_by
from tests.support.simulated_jobs import REGISTRY, SimulatedJobs, simulate

AFTER = 30.0
PAGER = Target("pager")


class Pager:
    """An error handler that notes what it is given, and when; it may be broken for a while."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self.times: list[float] = []
        self.tries = 0
        self.is_broken = False
        self.takes = 0.0

    async def __call__(self, failure: Failure, options: Options) -> None:
        self.tries += 1
        await anyio.sleep(self.takes)
        if self.is_broken:
            raise OSError("the line is dead")
        self.failures.append(failure)
        self.times.append(VirtualClock().now())

    @property
    def said(self) -> list[tuple[str, str, str]]:
        return [(part.status, part.kind, part.job) for failure in self.failures for part in failure.alerts]

    @property
    def statuses(self) -> list[str]:
        return [status for status, _, _ in self.said]


@pytest.fixture
def pager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pager]:
    found = Pager()
    delivered_by(monkeypatch, pager=found)
    yield found
    find.cache_clear()


async def declare(here: SimulatedJobs, name: str, **settings: Any) -> None:
    settings = {"cron": "0/10 * * * * ?", "error_handler": "pager", **settings}
    config = JobConfig.build(job_name=name, **settings)
    await here.write(Create(f"/{name}"), Create(Layout(name).config, config.to_json()))


def start(tasks: TaskGroup, here: SimulatedJobs, stop: anyio.Event | None = None, **options: Any) -> None:
    """Start one command beside the scene."""
    given = AlertOptions(**{"after": AFTER, **options})
    tasks.start_soon(tell_of_faults, Address.parse(here.address), given, VirtualClock(), stop or anyio.Event())


def test_jobs_that_say_so_are_told_of_and_others_are_not(pager: Pager) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await declare(here, "alone", alert_on="nobody-there")
        await declare(here, "silent")
        app = here.app(cron="0/10 * * * * ?", error_handler="pager", alert_on=("nobody-there", "failed"))
        async with anyio.create_task_group() as tasks:
            start(tasks, here, console_url="https://jobs.example.org/r/office")
            async with app.running():
                await anyio.sleep(100)
                assert pager.said == [("firing", "nobody-there", "alone")]
            await anyio.sleep(20)
            assert len(pager.said) == 1
            await anyio.sleep(20)
            assert pager.said[1:] == [("firing", "nobody-there", "job")]
            async with app.running():
                await anyio.sleep(20)
                assert pager.said[2:] == [("resolved", "nobody-there", "job")]
            tasks.cancel_scope.cancel()

    simulate(scene)
    first = pager.failures[0]
    assert isinstance(first.error, FaultAlert)
    assert (first.namespace, first.run_id, first.what) == ("office", "", "nobody-there")
    assert first.alerts[0].link == "https://jobs.example.org/r/office/job/alone"
    assert "console https://jobs.example.org/r/office/job/alone" in first.text
    assert first.subject.startswith(
        "alone: nobody-there began: no instance is up: its runs are missed, the next one at"
    )
    assert pager.failures[2].subject.startswith("job: nobody-there is over: nobody was there to run it, from 20")


def test_of_two_outages_soon_after_each_other_both_are_told_and_that_they_are_over(pager: Pager) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?", error_handler="pager", alert_on="nobody-there")
        async with anyio.create_task_group() as tasks:
            start(tasks, here)
            for _ in range(2):
                async with app.running():
                    await anyio.sleep(60)
                await anyio.sleep(120)
            async with app.running():
                await anyio.sleep(60)
            tasks.cancel_scope.cancel()

    simulate(scene)
    assert pager.statuses == ["firing", "resolved"] * 2


def test_what_lasts_is_told_again_and_what_comes_and_goes_is_summed_up(pager: Pager) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?", error_handler="pager", alert_on="nobody-there")
        async with anyio.create_task_group() as tasks:
            start(tasks, here, repeat=3600.0)
            for _ in range(4):
                async with app.running():
                    await anyio.sleep(20)
                await anyio.sleep(60)
            assert pager.statuses == ["firing", "resolved"] * 2  # the limit holds the others back
            await anyio.sleep(600)
            assert pager.statuses[4:] == ["firing"]
            assert "It also fired at these times, which no message has reported yet: " in pager.failures[4].note
            await anyio.sleep(3600)
            assert pager.statuses[5:] == ["firing"]
            assert "nobody-there goes on: " in pager.failures[5].subject
            tasks.cancel_scope.cancel()

    simulate(scene)


def test_a_delivery_that_fails_is_tried_again_until_it_succeeds(pager: Pager, caplog: pytest.LogCaptureFixture) -> None:
    pager.is_broken = True

    async def scene(here: SimulatedJobs) -> None:
        await declare(here, "alone", alert_on="nobody-there")
        async with anyio.create_task_group() as tasks:
            start(tasks, here)
            await anyio.sleep(140)
            assert pager.tries == 4
            (state,) = await alerts(here.observer)
            assert (state.tries, state.trouble, state.notified) == (4, "OSError: the line is dead", None)
            pager.is_broken = False
            await anyio.sleep(120)
            assert pager.statuses == ["firing"]
            tasks.cancel_scope.cancel()

    simulate(scene)
    assert "the error handler pager could not deliver 1 alert, so it is called again: OSError" in caplog.text
    assert pager.failures[0].note.startswith("4 attempts to deliver this failed")


def test_an_outage_that_ends_before_anybody_could_be_told_is_told_when_the_line_works(pager: Pager) -> None:
    pager.is_broken = True

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?", error_handler="pager", alert_on="nobody-there")
        async with anyio.create_task_group() as tasks:
            start(tasks, here)
            async with app.running():
                await anyio.sleep(60)
            await anyio.sleep(120)
            async with app.running():
                pager.is_broken = False
                await anyio.sleep(200)
            tasks.cancel_scope.cancel()

    simulate(scene)
    assert pager.statuses == ["resolved"]
    assert "Nobody was notified when it began." in pager.failures[0].note


def test_of_several_commands_one_sends_each_message_and_one_that_is_started_again_continues(pager: Pager) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await declare(here, "first", alert_on="nobody-there")
        await declare(here, "second", alert_on="nobody-there")
        app = here.app(cron="0/10 * * * * ?", error_handler="pager", alert_on="nobody-there")
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                start(tasks, here)
            start(tasks, here, stop)
            await anyio.sleep(60)
            assert sorted(pager.said) == [("firing", "nobody-there", name) for name in ("first", "second")]
            async with app.running():
                await anyio.sleep(30)
            stop.set()
            start(tasks, here)
            await anyio.sleep(60)
            async with app.running():
                await anyio.sleep(60)
            assert [(status, job) for status, _, job in pager.said[2:]] == [("firing", "job"), ("resolved", "job")]
            tasks.cancel_scope.cancel()

    simulate(scene)


def test_the_message_of_a_command_that_dies_while_it_sends_is_sent_by_another_one(pager: Pager) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await declare(here, "alone", alert_on="nobody-there")
        pager.takes = 20

        async def first() -> None:
            options = AlertOptions(after=AFTER)
            await tell_of_faults(Address.parse(here.address), options, VirtualClock(), anyio.Event())

        dying = here.faults.start("dying", "10.0.7.7", first)
        async with anyio.create_task_group() as tasks:
            await anyio.sleep(AFTER + 10)
            assert pager.tries == 1
            dying.kill()
            start(tasks, here)
            await anyio.sleep(CLAIM_SECONDS + 30)
            assert pager.statuses == ["firing"]
            tasks.cancel_scope.cancel()

    simulate(scene)


def test_that_the_registry_is_away_is_told_by_the_command_itself(pager: Pager, tmp_path: Path) -> None:
    file = tmp_path / "state"

    async def scene(here: SimulatedJobs) -> None:
        await declare(here, "alone", alert_on="nobody-there")

        async def command() -> None:
            given = AlertOptions(after=AFTER, to=PAGER, state=AlertFile(file))
            await tell_of_faults(Address.parse(here.address), given, VirtualClock(), anyio.Event())

        process = here.faults.start("watcher", "10.0.7.7", command)
        await anyio.sleep(60)
        assert pager.said == [("firing", "nobody-there", "alone")]
        here.faults.drop("10.0.7.7", REGISTRY)
        await anyio.sleep(90)
        assert pager.said[1:] == [("firing", "registry-away", "")]
        process.kill()
        again = here.faults.start("watcher again", "10.0.7.7", command)
        await anyio.sleep(90)
        assert len(pager.said) == 2  # its state file says that this was reported
        here.faults.heal()
        await anyio.sleep(60)
        assert pager.said[2:] == [("resolved", "registry-away", "")]
        assert json.loads(file.read_text())["kind"] == "registry-away"
        again.kill()

    simulate(scene)
    assert "the registry zk://10.0.9.9:2181/office cannot be reached" in pager.failures[1].subject


def test_that_the_registry_does_not_answer_is_told_within_a_minute(pager: Pager) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def command() -> None:
            await tell_of_faults(Address.parse(here.address), AlertOptions(to=PAGER), VirtualClock(), anyio.Event())

        process = here.faults.start("watcher", "10.0.7.7", command)
        await anyio.sleep(20)
        here.faults.drop("10.0.7.7", REGISTRY)
        await anyio.sleep(20)
        assert pager.said == []  # it may be back at once
        await anyio.sleep(38)
        assert pager.said == [("firing", "registry-away", "")]
        process.kill()

    simulate(scene)


def test_where_no_file_can_be_written_the_state_is_kept_in_memory_and_a_file_that_was_named_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "taken"))
    address = Address.parse("zk://127.0.0.1/billing")
    assert usual_state(address).states == {}
    assert "a new start of this command will not know that the registry is away" in caplog.text
    with pytest.raises(InvalidSetting, match="cannot be read and written"):
        AlertFile(tmp_path / "taken" / "state")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    usual_state(address)
    assert len(list((tmp_path / "aioelasticjob").glob("alert-*.json"))) == 1


def test_a_disk_that_is_full_does_not_end_the_command(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "there" / "state"
    store = AlertFile(file)
    shutil.rmtree(file.parent)
    file.parent.write_text("in the way")
    away = AlertState("registry-away", "", 1.0, "no answer")
    assert asyncio.run(store.write({away.key: away}))
    assert store.states == {away.key: away}
    assert f"{file} cannot be written" in caplog.text


def test_a_short_outage_of_the_registry_is_no_fault_and_ends_none(pager: Pager) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await declare(here, "alone", alert_on="nobody-there")

        async def command() -> None:
            given = AlertOptions(after=AFTER, to=PAGER)
            await tell_of_faults(Address.parse(here.address), given, VirtualClock(), anyio.Event())

        process = here.faults.start("watcher", "10.0.7.7", command)
        await anyio.sleep(60)
        here.faults.drop("10.0.7.7", REGISTRY)
        await anyio.sleep(20)
        here.faults.heal()
        await anyio.sleep(200)
        assert pager.said == [("firing", "nobody-there", "alone")]
        process.kill()

    simulate(scene)


def test_a_job_that_is_late_is_told_and_a_run_that_ends_at_last_ends_it(pager: Pager) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0 0 * * * ?", error_handler="pager", alert_on="late", must_end_within="5m", work=600.0)
        async with anyio.create_task_group() as tasks:
            start(tasks, here)
            async with app.running():
                await anyio.sleep(3600 - here.now() % 3600 + 299)
                assert pager.said == []
                await anyio.sleep(20)
                assert pager.said == [("firing", "late", "job")]
                await anyio.sleep(330)
                assert pager.said[1:] == [("resolved", "late", "job")]
            tasks.cancel_scope.cancel()

    simulate(scene)


def test_a_job_that_fails_again_and_again_is_told_once_and_when_it_is_well_again(pager: Pager) -> None:
    fails = True

    async def work(context: object) -> None:
        if fails:
            raise ValueError("no paper")

    async def scene(here: SimulatedJobs) -> None:
        nonlocal fails
        app = here.app(work, cron="0 * * * * ?", error_handler="pager", alert_on="failing")
        async with anyio.create_task_group() as tasks:
            start(tasks, here)
            async with app.running():
                await anyio.sleep(600)
                assert pager.said == [("firing", "failing", "job")]
                assert "the last 3 runs of item 0 failed: ValueError: no paper" in pager.failures[0].subject
                fails = False
                await anyio.sleep(900)
                assert pager.said[1:] == [("resolved", "failing", "job")]
            tasks.cancel_scope.cancel()

    simulate(scene)


def test_a_configuration_that_nobody_can_read_is_told_to_the_one_for_the_registry(pager: Pager) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await declare(here, "broken")
        await here.write(Set(Layout("broken").config, b'{"jobName": "broken", "cron": "x"}', -1))
        async with anyio.create_task_group() as tasks:
            start(tasks, here, to=PAGER)
            await anyio.sleep(60)
            tasks.cancel_scope.cancel()

    simulate(scene)
    assert pager.said == [("firing", "config-unusable", "broken")]


def test_what_a_process_says_that_it_cannot_do_is_told_to_the_one_for_the_registry_and_that_it_can_again(
    pager: Pager,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        author = Author("10.0.0.1", "alpha", 7, 5)
        full = UnwrittenEvents(here.now() + here.start, "database or disk is full", 40)
        async with anyio.create_task_group() as tasks:
            start(tasks, here, to=PAGER)
            await here.write(*renewal(author, None, None, ProcessProblems(event_store=full, clock_differs=300.0)))
            await anyio.sleep(20)
            assert sorted(pager.said) == [("firing", "clock-differs", ""), ("firing", "store-not-written", "")]
            await here.write(Delete(author.path))
            await anyio.sleep(20)
            assert sorted(pager.said[2:]) == [("resolved", "clock-differs", ""), ("resolved", "store-not-written", "")]
            tasks.cancel_scope.cancel()

    simulate(scene)
    assert min(failure.subject for failure in pager.failures if "store-not" in failure.subject).startswith(
        "store-not-written began: process 7 on alpha cannot write to the event store, so the history lacks runs:"
        " database or disk is full; since 20"
    )


def test_many_jobs_that_nobody_runs_are_told_in_twenty_messages_at_most(pager: Pager) -> None:
    async def scene(here: SimulatedJobs) -> None:
        for number in range(60):
            await declare(here, f"job-{number}", alert_on="nobody-there")
        async with anyio.create_task_group() as tasks:
            start(tasks, here)
            await anyio.sleep(60)
            tasks.cancel_scope.cancel()

    simulate(scene)
    assert len(pager.failures) == 20
    assert {job for _, _, job in pager.said} == {f"job-{number}" for number in range(60)}
    summary = max(pager.failures, key=lambda failure: len(failure.alerts))
    assert summary.subject.startswith("41 alerts (41 firing): nobody-there job-")
    assert summary.text.count("firing: ") == 41


def test_the_heartbeat_is_called_each_minute_while_the_command_works(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()

    async def call(url: str) -> None:
        calls.append(url)

    monkeypatch.setattr(alert, "call", call)

    async def scene(here: SimulatedJobs) -> None:
        async with anyio.create_task_group() as tasks:
            start(tasks, here, heartbeat="http://watch/er")
            await anyio.sleep(301)
            tasks.cancel_scope.cancel()

    simulate(scene)
    assert calls == ["http://watch/er"] * 6


def test_a_node_of_an_alert_that_was_made_by_hand_keeps_nobody_from_being_told(pager: Pager) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await declare(here, "alone", alert_on="nobody-there")
        await here.write(Create(ALERTS), Create(f"{ALERTS}/nobody-there:alone", b"hello"))
        async with anyio.create_task_group() as tasks:
            start(tasks, here)
            await anyio.sleep(60)
            tasks.cancel_scope.cancel()

    simulate(scene)
    assert pager.statuses == ["firing"]


@pytest.mark.parametrize(("seconds", "arrives"), [(3.0, True), (30.0, False)])
def test_messages_on_their_way_may_arrive_when_the_command_is_stopped(
    seconds: float, arrives: bool, pager: Pager
) -> None:
    pager.takes = seconds

    async def scene(here: SimulatedJobs) -> None:
        await declare(here, "alone", alert_on="nobody-there")
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            start(tasks, here, stop)
            await anyio.sleep(AFTER + 2)
            stop.set()
        (state,) = await alerts(here.observer)
        assert (state.notified is not None) is arrives

    simulate(scene)
    assert bool(pager.failures) is arrives


def test_an_outage_from_the_start_is_in_the_log_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aioelasticjob.cli.alert")

    async def scene(here: SimulatedJobs) -> None:
        here.faults.drop("10.0.7.7", REGISTRY)

        async def watch() -> None:
            await tell_of_faults(Address.parse(here.address), AlertOptions(), VirtualClock(), anyio.Event())

        watcher = here.faults.start("watcher", "10.0.7.7", watch)
        await anyio.sleep(100)
        here.faults.heal()
        await anyio.sleep(60)
        watcher.terminate()

    simulate(scene)
    lines = [line for line in caplog.messages if "follow" in line]
    assert [line.partition(",")[0] for line in lines] == [
        *["cannot follow the registry"] * 2,
        "1 more line was left out: whether the registry answers; the newest: cannot follow the registry",
        *["cannot follow the registry"] * 2,
        "1 more line was left out: whether the registry answers; the newest: following 0 jobs",
    ]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("webhook", "url"),
        ("webhook nothing", "write each option as NAME=VALUE"),
        ("pigeon to=roof", "error_handler = 'pigeon'"),
        ("", "write a handler and its options"),
        ("webhook 'url=http://x", "write a handler and its options"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(InvalidSetting, match=wrong):
        read_target(text)


def test_a_target_is_a_handler_and_its_options() -> None:
    target = read_target("webhook url=http://127.0.0.1/x 'header.X-Who=me and you'")
    assert target == Target("webhook", (("header.X-Who", "me and you"), ("url", "http://127.0.0.1/x")))


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


async def declare_in(session: Session, **settings: Any) -> None:
    config = JobConfig.build(job_name="report", cron="@daily", **settings)
    operations = [Create("/report"), Create(Layout("report").config, config.to_json())]
    await session.commit(operations, incarnation=session.incarnation)


@pytest.mark.parametrize(
    ("settings", "exit_code", "said"),
    [
        ({"error_handler": "pager", "alert_on": "late"}, 0, "report: pager has delivered a message; alert_on = late"),
        ({"error_handler": "broken"}, 1, "report: broken could not deliver a message: OSError: no"),
        ({"error_handler": "log"}, 1, "report: its error handler is log, which sends nothing: set error_handler"),
    ],
)
def test_the_error_handler_of_a_job_is_tried(
    settings: dict[str, Any],
    exit_code: int,
    said: str,
    registry_address: str,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = list[str]()

    async def take(failure: Failure, options: Options) -> None:
        texts.append(failure.text)

    async def fail(failure: Failure, options: Options) -> None:
        raise OSError("no")

    async def prepare() -> None:
        async with open_registry(registry_address) as session:
            await declare_in(session, **settings)

    delivered_by(monkeypatch, pager=take, broken=fail)
    asyncio.run(prepare())
    try:
        result = command("alert", "--registry", registry_address, "--test", "report")
    finally:
        find.cache_clear()
    assert (result.exit_code, result.stdout.strip()) == (exit_code, said)
    assert len(texts) == (0 if exit_code else 1)
    assert all("this is a test of the error handler; nothing is wrong" in text for text in texts)


def test_a_private_registry_has_nobody_to_follow(command: Command) -> None:
    result = command("alert", "--registry", "embedded://")
    assert result.exit_code == 2
    assert "a private registry exists only inside its own process" in result.stderr
