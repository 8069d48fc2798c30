"""Asking by command: said in a sentence or as JSON, followed on request, refused in one line."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import Result

from aioelasticjob import ElasticJob, ItemContext, operations
from aioelasticjob.cli import requests
from aioelasticjob.cli.operator_name import operator_name
from aioelasticjob.cli.terminal import print_warning
from aioelasticjob.registry.addresses import open_registry
from aioelasticjob.registry.session import Session
from tests.cli.conftest import Command
from tests.support.embedded import EmbeddedServer
from tests.support.processes import TIMEOUT

Ask = Callable[..., Result]


@contextmanager
def working(address: str) -> Iterator[None]:
    """Run a job of three items, in a thread, that fails if it is told to."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def handler(context: ItemContext) -> None:
        if context.job_parameter == "fail":
            raise ValueError("as told")
        if context.job_parameter == "sleep":
            await asyncio.sleep(3600)

    async def main() -> None:
        stop = asyncio.Event()
        app = ElasticJob(address)
        app.add(handler, name="report", cron="0 0 2 * * ?", time_zone="Asia/Shanghai", sharding_total_count=3)
        async with app.running():
            started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    loop, stop = started.result(timeout=TIMEOUT)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=TIMEOUT)


@pytest.fixture
def ask(embedded: EmbeddedServer, command: Command) -> Iterator[Ask]:
    """Type a command while a job runs."""
    address = f"zk://{embedded.address}/shop"
    with working(address):
        yield lambda *words: command(*words, "-r", address)


def said(result: Result) -> str:
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout.strip()


def test_a_run_is_asked_for_and_followed_to_its_end(ask: Ask) -> None:
    done = said(ask("trigger", "report", "--items", "2, 0", "--id", "one", "--wait"))
    assert "asked to run items 0, 2, as the request one" in done
    assert done.splitlines()[-1] == "done: 2 completed"
    failed = ask("trigger", "report", "--parameter", "fail", "--wait", "--json")
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["outcomes"] == {"failed": 3}
    assert set(json.loads(failed.stdout)["errors"]) == {"0", "1", "2"}
    failed = ask("trigger", "report", "--parameter", "fail", "--items", "1", "--wait")
    assert failed.stdout.splitlines()[-2:] == ["done: 1 failed", "item 1: ValueError: as told"]
    assert ": ValueError: as told" in said(ask("job", "report"))
    again = said(ask("trigger", "report", "--items", "0,2", "--id", "one"))
    assert again == "report: asked already: items 0, 2, as the request one (done: 2 completed)"


def test_a_parameter_that_looks_like_json_and_is_none_is_passed_on_with_a_warning(ask: Ask) -> None:
    for given, is_broken in (('{"a": 1', True), ('[{"a": 1}', True), ('{"a": 1}', False), ("[draft] a", False)):
        done = ask("trigger", "report", "--parameter", given, "--at", "2090-01-01")
        assert done.exit_code == 0
        assert done.stderr.startswith("warning: the parameter looks like JSON and is none") == is_broken, given
    parameters = [one["parameter"] for one in json.loads(said(ask("requests", "report", "--json")))]
    assert '{"a": 1' in parameters


def test_times_without_a_zone_are_in_the_jobs_time_zone(ask: Ask) -> None:
    given = ("--at", "2090-11-20T02:00", "--expires", "2090-11-20T03:00", "--json")
    asked = json.loads(said(ask("trigger", "report", *given)))
    (seen,) = (one for one in json.loads(said(ask("requests", "report", "--json"))) if one["id"] == asked["request"])
    assert seen["at"] == "2090-11-20T02:00:00+08:00"
    assert seen["expires"] == "2090-11-20T03:00:00+08:00"


def test_a_second_request_of_the_same_id_says_what_holds(ask: Ask) -> None:
    at = "2090-11-20T02:00:00+08:00"
    first = said(ask("trigger", "report", "--at", at, "--items", "2", "--id", "night"))
    assert f"asked to run item 2 at {at}" in first
    same = said(ask("trigger", "report", "--at", "2090-11-19T18:00Z", "--items", "2", "--id", "night"))
    assert f"asked already: item 2 at {at}, as the request night (planned: nothing yet)" in same
    for words, what in (
        (("--at", "2090-11-20T03:00+08:00", "--items", "2"), "the time differs"),
        (("--at", at), "the items differ"),
        (("--at", at, "--items", "2", "--parameter", "x"), "the parameter differs"),
        (("--at", at, "--items", "2", "--expires", "1h"), "the time at which it expires differs"),
        (("--items", "2"), "the time differs"),
    ):
        other = ask("trigger", "report", "--id", "night", *words)
        assert other.exit_code == 1
        assert f"asked already: item 2 at {at}" in other.stderr
        assert f"; {what}; choose another id" in other.stderr
    span = ("--from", "2026-01-01", "--to", "2026-01-04", "--id")
    kind = ask("backfill", "report", *span, "night")
    assert (kind.exit_code, "; the kind differs; the items differ; the time differs; " in kind.stderr) == (1, True)
    said(ask("backfill", "report", *span, "days", "--wait"))
    other = ask("backfill", "report", "--from", "2026-01-02", "--to", "2026-01-04", "--id", "days")
    assert "asked already: all its items for the moments from 2026-01-01T00:00:00+08:00 to" in other.stderr
    assert "the moments differ" in other.stderr
    later = said(ask("trigger", "report", "--in", "1h", "--id", "soon", "--expires", "5m"))
    assert "asked to run all its items at 2" in later
    assert "asked already" in said(ask("trigger", "report", "--in", "1h", "--id", "soon", "--expires", "5m"))


def test_who_waits_is_warned_while_the_job_is_paused(
    ask: Ask, embedded: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resume() -> None:
        async with open_registry(f"zk://{embedded.address}/shop") as session:
            await operations.resume(session, "report")

    resuming = threading.Thread(target=lambda: asyncio.run(resume()))

    def warn(message: str) -> None:
        print_warning(message)
        resuming.start()

    monkeypatch.setattr(requests, "print_warning", warn)
    said(ask("pause", "report"))
    done = ask("trigger", "report", "--in", "0s", "--expires", "60s", "--wait")
    resuming.join(timeout=TIMEOUT)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "done: 3 completed")
    assert done.stderr == "warning: report: is paused: resume it first; the request waits until then\n"


def test_who_stops_waiting_is_told_that_the_request_goes_on(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)  # as Ctrl-C does
        await asyncio.Event().wait()

    monkeypatch.setattr(operations, "ended", interrupted)
    done = ask("trigger", "report", "--in", "1h", "--id", "later", "--wait")
    assert done.exit_code == 130
    assert "the request later goes on, unless you cancel it: aioelasticjob requests cancel later" in done.stderr


def test_a_script_that_asks_finds_the_id_of_its_request(ask: Ask) -> None:
    asked = json.loads(said(ask("trigger", "report", "--in", "1h", "--json")))
    assert asked["request"] in said(ask("requests", "report"))
    assert "request" not in json.loads(said(ask("pause", "report", "--json")))


def test_a_run_that_was_never_made_is_no_success(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = operations.ended

    async def lowering(session: Session, job: str, id: str, **options: Any) -> operations.RequestStatus:
        await operations.configure(session, job, {"sharding_total_count": 2})
        return await ended(session, job, id, **options)

    monkeypatch.setattr(operations, "ended", lowering)
    done = ask("trigger", "report", "--items", "2", "--in", "1h", "--wait")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (1, "done: nothing was run")


def test_an_expired_request_says_so(ask: Ask) -> None:
    said(ask("pause", "report"))
    expired = ask("trigger", "report", "--in", "0.05s", "--expires", "0.05s", "--id", "late", "--wait")
    assert (expired.exit_code, expired.stdout.splitlines()[-1]) == (1, "expired: nothing was run")
    listed = said(ask("requests", "report"))
    assert "expired" in listed
    assert "nothing was run" in listed


def test_requests_are_listed_paused_and_cancelled(ask: Ask) -> None:
    assert "nothing was asked" in said(ask("requests", "report"))
    said(ask("trigger", "report", "--in", "2h", "--expires", "1h", "--id", "later", "--parameter", '{"a": 1}'))
    (request,) = json.loads(said(ask("requests", "report", "--json")))
    assert (request["state"], request["parameter"], request["items"]) == ("planned", '{"a": 1}', None)
    assert request["expires"] > request["at"] > request["asked"]
    assert {request[name][-6:] for name in ("expires", "at", "asked")} == {"+08:00"}
    assert "+08:00" in said(ask("requests", "report"))
    assert "later" in said(ask("requests", "report"))
    assert "is paused" in said(ask("requests", "pause", "later"))
    assert "goes on" in said(ask("requests", "resume", "later", "--job", "report"))
    assert "is cancelled" in said(ask("requests", "cancel", "later"))
    assert "cancelled" in said(ask("requests", "list", "report"))


def test_without_a_name_the_requests_of_all_jobs_are_listed(ask: Ask) -> None:
    assert "nothing was asked of any job" in said(ask("requests"))
    said(ask("trigger", "report", "--in", "2h", "--id", "later"))
    head, _, row = [line for line in said(ask("requests")).splitlines() if line.strip()]
    assert (head.split()[:2], row.split()[:2]) == (["Job", "Id"], ["report", "later"])
    (request,) = json.loads(said(ask("requests", "--json")))
    assert (request["job"], request["id"]) == ("report", "later")


def test_it_is_listed_when_a_request_expires_that_can_still_begin(ask: Ask) -> None:
    said(ask("trigger", "report", "--in", "2h", "--id", "later"))
    assert "Expires" not in said(ask("requests", "report"))
    said(ask("trigger", "report", "--at", "2090-01-01T06:00", "--expires", "30m", "--id", "early"))
    listed = re.sub(" {3,}", "  ", said(ask("requests", "report")))
    assert "2090-01-01T06:00:00+08:00  2090-01-01T06:30:00+08:00  all" in listed
    said(ask("requests", "cancel", "early"))
    assert "06:30" not in said(ask("requests", "report"))


def test_of_a_backfill_the_first_and_the_last_moment_are_listed_and_how_many_there_are(ask: Ask) -> None:
    said(ask("pause", "report"))
    said(ask("trigger", "report", "--in", "2h", "--id", "later"))
    assert "Up to" not in said(ask("requests", "report"))
    said(ask("backfill", "report", "--from", "2026-01-01", "--to", "2026-01-04", "--id", "days"))
    said(ask("rerun", "report", "--fire-time", "2026-01-02T02:00", "--id", "day"))
    said(ask("backfill", "report", "--from", "2020-01-01", "--to", "2026-01-01", "--id", "years", "--yes"))
    listed = re.sub(" {3,}", "  ", said(ask("requests", "report")))
    assert "2020-01-01T02:00:00+08:00  2025-12-31T02:00:00+08:00 (at least 1,000 moments)" in listed
    assert "2026-01-01T02:00:00+08:00  2026-01-03T02:00:00+08:00 (3 moments)  all" in listed
    assert re.search("day +backfill +waiting +2026-01-02T02:00:00.08:00 +all", listed)


def test_days_are_run_again_in_the_jobs_zone(ask: Ask) -> None:
    span = ("--from", "2026-01-01", "--to", "2026-01-04")
    planned = said(ask("backfill", "report", *span, "--items", "1", "--dry-run"))
    assert planned == ("report: would run 3 moments (2026-01-01T02:00:00+08:00 to 2026-01-03T02:00:00+08:00) of 1 item")
    done = said(ask("backfill", "report", *span, "--items-at-once", "2", "--wait"))
    assert done.splitlines()[-1] == "done: 9 completed"
    again = said(ask("rerun", "report", "--fire-time", "2026-01-02T02:00", "--items", "0", "--wait"))
    assert again.splitlines()[-1] == "done: 1 completed"


def test_very_many_moments_are_asked_about(ask: Ask) -> None:
    said(ask("set", "report", "cron=* * * * * ?"))
    span = ("--from", "2026-01-01T00:00", "--to", "2026-01-02T00:00")
    planned = said(ask("backfill", "report", *span, "--dry-run"))
    assert "would run at least 10,000 moments" in planned
    refused = ask("backfill", "report", *span)
    assert (refused.exit_code, "Run at least 10,000 moments (" in refused.stderr) == (1, True), refused.output
    assert "nothing was asked" in said(ask("requests", "report"))
    said(ask("pause", "report"))
    assert "asked to run at least 10,000 moments" in said(ask("backfill", "report", *span, "--yes", "--id", "day"))
    said(ask("requests", "cancel", "day"))


def test_a_date_whose_midnight_is_skipped_begins_when_the_clock_has_been_put_forward(ask: Ask) -> None:
    said(ask("set", "report", "timeZone=Asia/Beirut"))
    planned = said(ask("backfill", "report", "--from", "2025-03-30", "--to", "2025-04-01", "--dry-run"))
    assert "2 moments (2025-03-30T02:00:00+03:00 to 2025-03-31T02:00:00+03:00)" in planned


def test_a_run_is_cancelled_if_there_is_one(ask: Ask) -> None:
    idle = ask("cancel", "report")
    assert (idle.exit_code, "nothing runs now" in idle.stderr) == (1, True)
    said(ask("trigger", "report", "--parameter", "sleep", "--id", "long"))
    cancelled = _until(lambda: ask("cancel", "report", "--item", "1"), "asked to stop the run of item 1")
    assert cancelled.exit_code == 0
    assert "asked to stop" in said(ask("cancel", "report"))
    _until(lambda: ask("requests", "report"), "3 stopped")


def _until(command: Callable[[], Result], text: str) -> Result:
    """Type a command until it says something: the instance has to answer first."""
    for _ in range(1000):
        if text in (result := command()).stdout:
            return result
    raise AssertionError(f"{text!r} was not said: {result.output}")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("rerun", "report", "--fire-time", "2026-01-02T03:00"), "must be a moment of the schedule; near it are"),
        (("backfill", "report", "--from", "monday", "--to", "2026-01-02"), "write a date or a time"),
        (("backfill", "report", "--from", "2026-01-02", "--to", "2026-01-02"), "must be later than the start"),
        (("backfill", "report", "--from", "2026-01-02", "--to", "2990-01-02"), "must not be later than now"),
        (
            ("backfill", "report", "--from", "1986-05-04T02:30", "--to", "1986-05-05"),
            "does not exist in Asia/Shanghai: the clock is put forward from 1986-05-04T02:00:00 to 1986-05-04T03:00:00",
        ),
        (("rerun", "report", "--fire-time", "1986-05-04T02:30"), "does not exist in Asia/Shanghai"),
        (("trigger", "report", "--items", "x"), "write the numbers of items"),
        (("trigger", "report", "--items", "7"), "has the items 0 to 2"),
        (("trigger", "report", "--in", "soon"), "in = 'soon': must be a number of seconds, text such as"),
        (("trigger", "report", "--in", "99999d"), "in = '99999d': must be a number of seconds, text such as"),
        (("trigger", "report", "--in", "1h", "--at", "2090-01-01T00:00Z"), "in = '1h': give either a time (at)"),
        (("trigger", "report", "--at", "0001-01-01T00:00Z"), "at = '0001-01-01T00:00Z': must be after 1970"),
        (("trigger", "report", "--at", "2020-01-01T00:00Z"), "at = '2020-01-01T00:00Z': has passed: give a later time"),
        (("trigger", "report", "--expires", "0s"), "expires = '0s': must be later than the time when it is due"),
        (("rerun", "report", "--fire-time", "2100-01-02T02:00"), "fire_time = '2100-01-02T02:00': must not"),
        (("rerun", "report", "--fire-time", "0001-01-01T00:00+14:00"), "fire_time = '0001-01-01T00:00+14:00': must be"),
        (("backfill", "report", "--from", "2026-01-02", "--to", "2026-01-01"), "to = '2026-01-01': must be later"),
        (("backfill", "report", "--from", "2026-01-02", "--to", "2026-01-02T01:00"), "from = '2026-01-02': the"),
        (("trigger", "report", "--at", "tomorrow"), "at = 'tomorrow': write a date or a time"),
        (("trigger", "report", "--at", "1986-05-04T02:30"), "does not exist in Asia/Shanghai"),
        (("trigger", "report", "--expires", "x"), "or a duration such as 90s"),
        (("trigger", "report", "--instance", "x", "--in", "1h"), "no such instance"),
        (("requests", "cancel", "nosuch"), "no job has it"),
        (("requests", "nosuch"), "there is no such job"),
        (("requests", "pausing"), "there is no such job"),
    ],
)
def test_mistakes_are_one_line(ask: Ask, words: tuple[str, ...], why: str) -> None:
    result = ask(*words)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert why in result.stderr


@pytest.mark.parametrize("given", ["soon", "-5m", "99999d"])
def test_a_delay_is_not_asked_for_in_words_of_python(ask: Ask, given: str) -> None:
    assert "timedelta" not in ask("trigger", "report", f"--in={given}").stderr


def test_the_worker_logs_who_has_given_a_command(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "aioelasticjob.engine.operator_log")
    for words, done in (
        (("pause", "report"), "paused the job"),
        (("resume", "report"), "resumed the job"),
        (("set", "report", "timeout=5"), "changed the setting timeout from None to 5.0"),
        (("trigger", "report", "--in", "1d", "--id", "later"), "asked for runs: the request later"),
        (("requests", "cancel", "later"), "cancelled the request later"),
    ):
        said(ask(*words))
        expected = f"report: {operator_name()} has {done}"
        for _ in range(1000):
            if expected in caplog.messages:
                break
            ask("job", "report")  # the worker needs a moment
        assert expected in caplog.messages


@pytest.mark.parametrize("asking", ["trigger", "backfill", "rerun"])
def test_the_help_says_what_wait_does_not_return_from(command: Command, asking: str) -> None:
    assert "those of endless streams never do" in " ".join(re.sub("[│|]", "", command(asking, "--help").stdout).split())
