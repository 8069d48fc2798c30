"""Failures on their way: no target waits for another, and nothing gets lost without a word."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import anyio
import pytest

from aioelasticjob import ItemContext, JobConfig
from aioelasticjob.config.types import Alert
from aioelasticjob.error_handlers import ErrorDispatcher, Failure, Options, dispatcher, escalate
from aioelasticjob.error_handlers.alert_limit import INTERVAL
from aioelasticjob.error_handlers.failure import announce_failure, log_failure
from aioelasticjob.errors import LONGEST_STACK
from aioelasticjob.events import Counts
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.jobs.context import task_id
from aioelasticjob.jobs.http import RequestFailed
from aioelasticjob.jobs.script import ScriptFailed
from aioelasticjob.registry.transaction import Set
from aioelasticjob.testing import VirtualClock, run
from tests.error_handlers.failures import delivered_by, failure
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate


class RecordedDispatcher:
    """An error dispatcher in a virtual loop, and which failures were handled, and when."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        delivered_by(patch, hanging=self.hang, quick=self.take, broken=self.fail)
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)
        self.handled: list[tuple[float, str]] = []

    async def hang(self, failed: Failure, options: Options) -> None:
        await anyio.sleep_forever()

    async def take(self, failed: Failure, options: Options) -> None:
        await anyio.sleep(1)
        self.handled.append((round(anyio.current_time() - self.start), str(failed.error)))

    async def fail(self, failed: Failure, options: Options) -> None:
        raise OSError("line is dead")

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ErrorDispatcher]:
        self.start, mine = anyio.current_time(), ErrorDispatcher(VirtualClock(), self.counts, LimitedLog())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.deliver)
            yield mine
            tasks.cancel_scope.cancel()

    def alerts(self, job: str = "billing") -> dict[str, int]:
        return dict(self.counts[job].alerts)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> RecordedDispatcher:
    return RecordedDispatcher(monkeypatch)


def failed(text: str, job: str = "billing") -> str:
    """Return the line of the log for a failure."""
    return f"{job}: item 3 failed on me in the run of 2026-01-01T00:00:00+00:00: ValueError: {text}"


def stacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged with a stack: the message and the error."""
    return [f"{one.getMessage()}: {one.exc_info[1]}" for one in caplog.records if one.exc_info]


def test_what_is_for_the_log_is_there_at_once_and_what_is_to_be_ignored_is_not(
    recorded: RecordedDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with recorded.open() as mine:
            mine.put("ignore", {}, failure("unheard"))
            mine.put("log", {}, failure("heard"))
            assert stacks(caplog) == [f"{failed('heard')}: heard"]
            await mine.wait_until_delivered()

    run(main)
    assert len(caplog.records) == 1
    assert not recorded.alerts()


@pytest.mark.parametrize(
    "explaining", [ScriptFailed("the script ended with exit code 3", 3), RequestFailed("500", 500)]
)
def test_an_error_whose_text_says_all_is_logged_without_a_stack(
    explaining: Exception, recorded: RecordedDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with recorded.open() as mine:
            mine.put("log", {}, replace(failure(), error=explaining))

    run(main)
    name = type(explaining).__name__
    assert [one.getMessage() for one in caplog.records] == [
        failed(f"{explaining} (docs: errors/{name})").replace("ValueError", name)
    ]
    assert "Traceback" not in caplog.text


def test_the_line_of_a_very_long_error_has_its_beginning_and_the_stack_has_its_beginning_and_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = ValueError("x" * 1_000_000 + " the end")
    announce_failure(replace(failure(), error=error), "email")
    log_failure(replace(failure(), error=error))
    lines = [record.getMessage().splitlines()[0] for record in caplog.records]
    assert len(lines) == 2
    for line in lines:
        assert line.count("x") < 2_100
        assert "… (1,000,020 characters)" in line
    assert len(caplog.text) < 2 * LONGEST_STACK
    assert "characters left out) …" in caplog.text
    assert "the end" in caplog.text


def test_a_target_that_hangs_holds_up_no_other(recorded: RecordedDispatcher, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with recorded.open() as mine:
            for n in range(3):
                mine.put("hanging", {}, failure(f"hung {n}"))
                mine.put("quick", {"to": "a"}, failure(f"a{n}"))
                mine.put("quick", {"to": "b"}, failure(f"b{n}"))
            assert [one.getMessage() for one in caplog.records][:2] == [
                f"{failed('hung 0')}; the error handler hanging is called",
                f"{failed('a0')}; the error handler quick is called",
            ]
            await anyio.sleep(89)
            assert [one.split(": ")[-1] for one in stacks(caplog)] == ["hung 0", "hung 1"]
            await mine.wait_until_delivered()
            assert anyio.current_time() - recorded.start == pytest.approx(90)

    run(main)
    assert sorted(recorded.handled) == [(1, "a0"), (1, "b0"), (2, "a1"), (2, "b1"), (3, "a2"), (3, "b2")]
    assert "error handler hanging failed, so the failure is only in the log: was not done within 30 s" in caplog.text
    assert recorded.alerts() == {"failed": 3, "delivered": 6}


def test_jobs_take_turns_at_one_target(recorded: RecordedDispatcher) -> None:
    async def main() -> None:
        async with recorded.open() as mine:
            for n in range(3):
                mine.put("quick", {}, failure(f"a{n}", job="a"))
            mine.put("quick", {}, failure("b0", job="b"))
            await mine.wait_until_delivered()

    run(main)
    assert recorded.handled == [(1, "a0"), (2, "b0"), (3, "a1"), (4, "a2")]


def test_only_so_many_targets_are_called_at_once_and_those_that_hang_give_way(
    recorded: RecordedDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "MAX_TARGETS_AT_ONCE", 1)

    async def main() -> None:
        async with recorded.open() as mine:
            for _ in range(3):
                mine.put("hanging", {}, failure())
            await anyio.sleep(0.5)
            mine.put("quick", {}, failure("quick"))
            await mine.wait_until_delivered()

    run(main)
    assert recorded.handled == [(31, "quick")]


def test_of_too_many_the_oldest_of_the_most_is_dropped_and_logged(
    recorded: RecordedDispatcher, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "MAX_WAITING_FAILURES", 3)

    async def main() -> None:
        async with recorded.open() as mine:
            mine.put("quick", {}, failure("b", job="b"))
            for n in range(5):
                mine.put("quick", {}, failure(f"a{n}", job="a"))
            await mine.wait_until_delivered()

    run(main)
    assert [text for _, text in recorded.handled] == ["b", "a3", "a4"]
    assert (recorded.alerts("a"), recorded.alerts("b")) == ({"dropped": 3, "delivered": 2}, {"delivered": 1})
    assert stacks(caplog)[0] == (
        f"{failed('a0', 'a')}; the failure was not delivered: 3 failures wait already, and this is the oldest of the "
        "longest queue (1 dropped so far): a0"
    )
    assert [one.dropped for one in caplog.records if one.exc_info] == [1, 2, 3]  # type: ignore[attr-defined]


def test_a_lane_whose_failures_have_been_dropped_while_it_waited_ends(
    recorded: RecordedDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "MAX_WAITING_FAILURES", 1)
    monkeypatch.setattr(dispatcher, "MAX_TARGETS_AT_ONCE", 1)

    async def main() -> None:
        async with recorded.open() as mine:
            mine.put("hanging", {}, failure())
            await anyio.sleep(1)
            mine.put("quick", {"to": "a"}, failure("a"))
            await anyio.sleep(1)
            mine.put("quick", {"to": "b"}, failure("b"))
            await mine.wait_until_delivered()

    run(main)
    assert [text for _, text in recorded.handled] == ["b"]


def test_what_is_left_at_the_end_is_logged_with_its_number(
    recorded: RecordedDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with recorded.open() as mine:
            for n in range(3):
                mine.put("hanging", {}, failure(f"hung {n}"))
            await anyio.sleep(1)
        await mine.wait_until_delivered()
        mine.put("quick", {}, failure("late"))
        assert mine._queues == {}

    run(main)
    unheard = "the failure was not delivered: the application"
    assert stacks(caplog) == [
        *(f"{failed(f'hung {n}')}; {unheard} ended before hanging was done: hung {n}" for n in range(3)),
        f"{failed('late')}; {unheard} has ended, quick is not called any more: late",
    ]
    assert (
        "the application ended before error handlers had delivered all failures: 3 are only in the log" in caplog.text
    )
    assert recorded.alerts() == {"dropped": 4}


def test_a_handler_that_fails_itself_leaves_both_errors_in_the_log(
    recorded: RecordedDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with recorded.open() as mine:
            mine.put("broken", {}, failure())
            mine.put("no-such", {}, failure())
            await mine.wait_until_delivered()

    run(main)
    assert (
        "billing: the error handler broken failed, so the failure is only in the log: OSError: line is dead"
        in caplog.text
    )
    assert (
        "the error handler no-such failed, so the failure is only in the log: error_handler = 'no-such': must be one of"
        in caplog.text
    )
    assert stacks(caplog) == [f"{failed('no luck')}: no luck"] * 2
    assert recorded.alerts() == {"failed": 2}


def test_a_handler_that_awaits_what_was_cancelled_fails_like_any_other(
    recorded: RecordedDispatcher, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(failed: Failure, options: Options) -> None:
        raise asyncio.CancelledError

    delivered_by(monkeypatch, cancelled=cancelled)

    async def main() -> None:
        async with recorded.open() as mine:
            for _ in range(2):
                mine.put("cancelled", {}, failure())
            await mine.wait_until_delivered()

    run(main)
    assert (
        caplog.text.count(
            "error handler cancelled failed, so the failure is only in the log: it was cancelled from within, not by us"
        )
        == 2
    )


def test_raise_waits_for_nobody(recorded: RecordedDispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    async def delegating(failed: Failure, options: Options) -> None:
        await escalate(failed, options)

    delivered_by(monkeypatch, delegating=delegating)

    async def main(handler: str) -> float:
        start, mine = anyio.current_time(), ErrorDispatcher(VirtualClock(), recorded.counts, LimitedLog())
        mine.put("hanging", {}, failure())
        mine.put(handler, {}, failure("enough"))
        mine.put(handler, {}, failure("more than enough"))
        with pytest.raises(ValueError, match=r"^enough$"):
            await mine.deliver()
        return anyio.current_time() - start

    for handler in ("raise", "delegating"):
        assert run(lambda handler=handler: main(handler)) == 0  # type: ignore[misc]


def test_failures_of_one_job_are_in_the_log_while_anothers_target_hangs(
    recorded: RecordedDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None:
            raise ValueError(context.job_name)

        app = here.app(handler, cron="* * * * * ?", error_handler="hanging")
        app.add(handler, name="other", cron="0/5 * * * * ?")
        async with app.running():
            await here.until(21)
            assert [one.endswith("ValueError: other: other") for one in stacks(caplog)] == [True] * 4
        assert stacks(caplog)[-1].endswith("the application ended before hanging was done: job")
        assert app.counts["job"].alerts["dropped"] == 20

    with caplog.at_level(logging.WARNING):
        simulate(scene)


def test_the_handler_is_changed_while_the_job_runs_and_a_slow_one_delays_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handled: list[str] = []

    async def slow(failed: Failure, options: Options) -> None:
        await anyio.sleep(20)
        handled.append(f"{failed.items} {options['to']}")

    delivered_by(monkeypatch, mine=slow)

    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None:
            here.runs.append((here.now(), 0, "", 0))
            raise ValueError("no luck")

        app = here.app(handler, cron="0/10 * * * * ?", error_handler="ignore")
        async with app.running():
            await here.until(15)
            chosen = app.jobs[0].changed(error_handler="mine", error_handler_options={"to": "ops"})
            await here.write(Set(LAYOUT.config, chosen.to_json(), -1))
            await here.until(65)

    here = simulate(scene)
    assert [round(at) for at, *_ in here.runs] == [10, 20, 30, 40, 50, 60]
    assert handled == ["(0,) ops"] * 2


def test_raise_ends_the_application_with_the_error_and_the_log_names_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None:
            raise ZeroDivisionError("enough")

        app = here.app(handler, cron="0/10 * * * * ?", error_handler="raise")
        with pytest.raises(ZeroDivisionError, match="enough") as raised:
            async with app.running():
                await here.until(60)
        assert round(here.now()) == 10
        assert app.ended_by is raised.value

    simulate(scene)
    (line,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
    about = r"job: item 0 failed on \S+ in the run of 2026-01-01T00:00:10\+00:00: ZeroDivisionError: enough"
    assert re.fullmatch(rf"{about}; the application ends \(error handler raise\)", line.getMessage())
    assert line.exc_info


def test_an_error_of_the_callers_own_block_is_not_hidden_by_one_of_a_job() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None:
            raise ZeroDivisionError("enough")

        async def fail_when_cancelled() -> None:
            try:
                await here.until(60)
            finally:
                raise KeyError("the caller's own")

        with pytest.raises(KeyError, match="the caller's own") as caught:
            async with here.app(handler, cron="0/10 * * * * ?", error_handler="raise").running():
                await fail_when_cancelled()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

    simulate(scene)


def test_a_job_is_heard_of_for_what_its_alert_on_names(
    recorded: RecordedDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, object] = {"job_name": "billing", "error_handler": "quick"}
    hears = JobConfig.build(**settings, alert_on=("missed",))
    silent = JobConfig.build(**settings)

    async def main() -> None:
        async with recorded.open() as mine:
            for config in (silent, hears):
                mine.report(config, replace(failure("failed"), what="failed"))
                mine.report(config, replace(failure("given up"), what="given-up"))
                mine.report(config, replace(failure("missed"), what="missed"))
            await mine.wait_until_delivered()

    run(main)
    assert [text for _, text in recorded.handled] == ["failed", "given up", "missed"]
    assert stacks(caplog) == [f"{failed('failed')}: failed", f"{failed('given up')}: given up"]


def test_the_handler_log_does_not_repeat_missed_moments(
    recorded: RecordedDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    config = JobConfig.build(job_name="billing", alert_on="missed,given-up")

    async def main() -> None:
        async with recorded.open() as mine:
            mine.report(config, replace(failure("missed"), what="missed"))
            mine.report(config, replace(failure("given up"), what="given-up"))

    run(main)
    assert [one.levelname for one in caplog.records] == ["ERROR"]


def test_alerts_that_are_too_many_are_counted_and_the_log_is_not_filled(
    recorded: RecordedDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    config = JobConfig.build(job_name="billing", error_handler="quick", alert_on="missed")

    async def main() -> None:
        async with recorded.open() as mine:
            for _ in range(1000):
                mine.report(config, replace(failure("missed"), what="missed"))
            await mine.wait_until_delivered()

    run(main)
    assert recorded.alerts() == {"delivered": 1, "dropped": 999}
    assert caplog.records == [], "the instance that reports missed moments has logged them already"


@pytest.mark.parametrize("what", ["missed", "given-up"])
def test_the_newest_alert_that_was_held_back_is_sent_when_the_limit_allows(
    what: Alert, recorded: RecordedDispatcher
) -> None:
    config = JobConfig.build(job_name="billing", error_handler="quick", alert_on=what)

    async def main() -> None:
        async with recorded.open() as mine:
            for n in range(4):
                mine.report(config, replace(failure(f"no. {n}"), what=what))
                await anyio.sleep(10)
            await anyio.sleep(2 * INTERVAL)

    run(main)
    assert recorded.handled == [(1, "no. 0"), (INTERVAL + 1, "no. 3")]
    assert recorded.alerts() == {"delivered": 2, "dropped": 2}


@pytest.mark.parametrize("what", ["missed", "given-up"])
def test_an_alert_that_failed_is_sent_again_less_and_less_often_and_does_not_count_as_sent(
    what: Alert, recorded: RecordedDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[float, str]] = []

    async def seldom(failed: Failure, options: Options) -> None:
        tried.append((round(anyio.current_time() - recorded.start), str(failed.error)))
        if len(tried) < 6:
            raise OSError("line is dead")

    delivered_by(monkeypatch, seldom=seldom)
    config = JobConfig.build(job_name="billing", error_handler="seldom", alert_on=what)

    async def main() -> None:
        async with recorded.open() as mine:
            mine.report(config, replace(failure("first"), what=what))
            await anyio.sleep(2000)
            mine.report(config, replace(failure("newer"), what=what))
            await anyio.sleep(10_000)

    run(main)
    assert tried == [
        *[(0, "first"), (60, "first"), (180, "first"), (420, "first"), (900, "first"), (1500, "first")],
        (2100, "newer"),
    ]
    assert recorded.alerts() == {"failed": 5, "delivered": 2}


def test_a_newer_alert_takes_the_place_of_one_that_failed(recorded: RecordedDispatcher) -> None:
    config = JobConfig.build(job_name="billing", error_handler="broken", alert_on="missed")

    async def main() -> None:
        async with recorded.open() as mine:
            for _ in range(3):
                mine.report(config, replace(failure("missed"), what="missed"))
                await anyio.sleep(1)
            assert recorded.alerts() == {"failed": 1, "dropped": 2}
            await anyio.sleep(60)
            assert recorded.alerts() == {"failed": 2, "dropped": 2}

    run(main)


def test_a_handler_of_logging_that_raises_does_not_end_what_logs_a_failure() -> None:
    seen: list[str] = []

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())
            raise OSError("the disk is full")

    logger, broken = logging.getLogger("aioelasticjob.error_handlers"), Broken()
    logger.addHandler(broken)
    try:
        log_failure(failure())
        announce_failure(failure(), "webhook")
    finally:
        logger.removeHandler(broken)
    assert len(seen) == 2


class Unprintable(Exception):
    @property
    def __cause__(self) -> BaseException | None:  # type: ignore[override]
        raise RuntimeError("this error cannot be asked")


def test_an_error_that_cannot_be_printed_is_logged_with_the_text_of_its_stack(caplog: pytest.LogCaptureFixture) -> None:
    log_failure(replace(failure(), error=Unprintable("no luck")))
    (record,) = caplog.records
    assert record.exc_info is None
    assert "Unprintable" in record.getMessage().partition("\n")[2]


def test_a_message_of_a_worker_has_the_console_s_page_of_the_run_or_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[Failure] = []

    async def take(failed: Failure, options: Options) -> None:
        handled.append(failed)

    delivered_by(monkeypatch, quick=take)
    config = JobConfig.build(job_name="billing", error_handler="quick", alert_on="failed,missed")
    ran = task_id("billing", "0", "me", "20260101T120000Z", 7)

    async def main(console_url: str) -> None:
        handled.clear()
        mine = ErrorDispatcher(VirtualClock(), defaultdict(Counts), LimitedLog(), "office", console_url)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.deliver)
            mine.report(config, replace(failure(), task_id=ran))
            mine.report(config, replace(failure(), task_id="", what="missed"))
            await mine.wait_until_delivered()
            tasks.cancel_scope.cancel()

    run(partial(main, "https://jobs.example.org/r/office"))
    assert [one.link for one in handled] == [
        "https://jobs.example.org/r/office/history?job=billing&run=billing%4020260101T120000Z",
        "https://jobs.example.org/r/office/job/billing",
    ]
    assert f"\nconsole {handled[0].link}\n" in handled[0].text
    run(partial(main, ""))
    assert [one.link for one in handled] == ["", ""]


def test_a_message_has_the_links_of_the_job_with_the_ids_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[Failure] = []

    async def take(failed: Failure, options: Options) -> None:
        handled.append(failed)

    delivered_by(monkeypatch, quick=take)
    links = {"runbook": "https://wiki.example.org/{job}", "trace": "https://traces.example.org/{task_id}"}
    config = JobConfig.build(job_name="billing", error_handler="quick", links=links, alert_on="failed,missed")

    async def main() -> None:
        mine = ErrorDispatcher(VirtualClock(), defaultdict(Counts), LimitedLog())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.deliver)
            mine.report(config, replace(failure(), task_id="t1"))
            mine.report(config, replace(failure(), task_id="", what="missed"))
            await mine.wait_until_delivered()
            tasks.cancel_scope.cancel()

    run(main)
    assert [dict(one.links) for one in handled] == [
        {"runbook": "https://wiki.example.org/billing", "trace": "https://traces.example.org/t1"},
        {"runbook": "https://wiki.example.org/billing"},
    ]
    assert "runbook https://wiki.example.org/billing\ntrace https://traces.example.org/t1" in handled[0].text
