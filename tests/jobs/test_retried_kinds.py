"""Runs of every kind that are tried again: threads, processes, scripts, requests, and kinds that a package adds."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, InvalidSetting, ItemContext, JobConfig, Outcome, Retry
from aioelasticjob.engine.early_end import FailedAttempt
from aioelasticjob.engine.execution import Execution, execute
from aioelasticjob.engine.executors import Executors, Processes
from aioelasticjob.jobs import kinds, script
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.kinds import Kind, Options
from aioelasticjob.jobs.script import ScriptFailed, ScriptStillRuns
from aioelasticjob.model import Claim, Fire, FireSource, Record, VersionedRecord
from aioelasticjob.settings import WrongSettings
from tests.engine import process_functions
from tests.engine.test_executors import Checkpoints
from tests.jobs.test_http import serving
from tests.support.loops import LoopKind, run_async
from tests.support.processes import TIMEOUT
from tests.support.retry_waits import PlainWaits

AT_ONCE = Retry(3, backoff=0)


class Retried:
    """One run of one item on a real loop, its failed attempts, and what the error handler is called with."""

    def __init__(self, config: JobConfig, handler: Callable[..., object]) -> None:
        self.attempts: list[FailedAttempt] = []
        self.reported: list[tuple[int, Exception]] = []
        claim = Claim(Fire(0, FireSource.SCHEDULE), "me", 1, {0: VersionedRecord(Record(), 0, 1)}, {})
        given = Job.declare(config, handler), config, claim, Checkpoints()
        self._execution = Execution(*given, Executors(processes=Processes(1)), self._report, PlainWaits())
        self._execution.report_attempt = lambda _, failed: self.attempts.append(failed)

    @classmethod
    def of_kind(cls, kind: str, **settings: Any) -> Retried:
        return cls(kinds.declared(kind, "job", settings), kinds.handler(kinds.find(kind)))

    async def run(self) -> Outcome:
        with anyio.fail_after(TIMEOUT):
            async with self._execution.executors.processes.open():
                await execute(self._execution)
        return self._execution.outcomes[0]

    def _report(self, context: Any, error: Exception) -> None:
        self.reported.append((context.attempt, error))


def test_no_attempt_begins_before_the_thread_of_the_last_one_has_ended(real_loop_kind: LoopKind) -> None:
    events: list[tuple[str, int]] = []
    begun, finish = threading.Event(), threading.Event()

    def handler(context: ItemContext) -> None:
        events.append(("begin", context.attempt))
        begun.set()
        if len(events) == 1:
            finish.wait(TIMEOUT)
        events.append(("end", context.attempt))

    async def main() -> Outcome:
        often = Retry(1000, backoff=0)  # on a busy machine the limit may be over before a thread begins
        retried = Retried(JobConfig.build(job_name="job", attempt_timeout=0.01, retry=often), handler)
        outcomes: list[Outcome] = []
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                outcomes.append(await retried.run())

            tasks.start_soon(run)
            await anyio.to_thread.run_sync(begun.wait, TIMEOUT)
            await anyio.sleep(0.05)  # well past the limit of a thread that nothing can interrupt
            assert len(events) == 1
            finish.set()
        assert {type(one.error) for one in retried.attempts} == {TimeoutError}
        return outcomes[0]

    run_async(real_loop_kind, main)
    first = events[0][1]
    assert events[:2] == [("begin", first), ("end", first)]
    assert events[2][0] == "begin"
    assert events[2][1] > first


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="asks /proc which processes live")
def test_the_process_of_an_attempt_is_killed_before_the_next_one_begins(tmp_path: Path) -> None:
    noted = tmp_path / "attempts"

    def config(limit: float) -> JobConfig:
        settings = {"executor": "process", "retry": Retry(10, backoff=0), "job_parameter": str(noted)}
        return JobConfig.build(job_name="job", attempt_timeout=limit, **settings)

    async def main() -> None:
        retried = Retried(config(2), process_functions.hang_once)

        def allow_more_time(execution: Execution, failed: FailedAttempt) -> None:
            """Give each attempt twice the time of the one before: a busy machine may need long to start a process."""
            retried.attempts.append(failed)
            execution.config = config(2 ** (failed.context.attempt + 1))

        retried._execution.report_attempt = allow_more_time
        assert await retried.run() is Outcome.COMPLETED
        assert {type(one.error) for one in retried.attempts} == {TimeoutError}
        assert retried.reported == []

    run_async("asyncio", main)
    pids, company = zip(*(line.split() for line in noted.read_text().splitlines()), strict=True)
    assert len(set(pids)) == len(pids) >= 2
    assert set(company) == {"alone"}


def test_a_script_is_started_again_after_its_group_has_ended(real_loop_kind: LoopKind, tmp_path: Path) -> None:
    noted = tmp_path / "attempts"
    text = f'echo "$AIOELASTICJOB_ATTEMPT" >> {noted}; sleep 60 & [ "$AIOELASTICJOB_ATTEMPT" = 3 ] || exit 75'

    async def main() -> None:
        retried = Retried.of_kind("script", command=text, shell=True, retry=AT_ONCE)
        assert await retried.run() is Outcome.COMPLETED
        codes = [one.error.exit_code for one in retried.attempts if isinstance(one.error, ScriptFailed)]
        assert codes == [75, 75]

    run_async(real_loop_kind, main)
    assert noted.read_text().split() == ["1", "2", "3"]


def test_a_script_that_cannot_be_killed_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = script._start, list[asyncio.subprocess.Process]()

    async def never(*_: object) -> bool:
        return False

    async def note(*given: Any) -> asyncio.subprocess.Process:
        started.append(await start(*given))
        return started[-1]

    monkeypatch.setattr(script, "gone", never)
    monkeypatch.setattr(script, "_start", note)

    async def main() -> None:
        for settings in ({"command": "false"}, {"command": "sleep 60", "attempt_timeout": 0.2}):
            retried = Retried.of_kind("script", pass_context=False, retry=AT_ONCE, **settings)
            assert await retried.run() is Outcome.FAILED
            ((attempt, error),) = retried.reported
            assert (attempt, type(error)) == (1, ScriptStillRuns)
            assert "could not be killed" in str(error)
        assert len(started) == 2
        for process in started:  # which could be killed after all
            await process.wait()

    run_async("asyncio", main)


def test_a_request_is_made_again(real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with serving() as server:
            retried = Retried.of_kind("http", url=f"{server.url}/run?status=503", retry=Retry(2, 0))
            assert await retried.run() is Outcome.FAILED
            assert [headers["shardingcontext"].count('"attempt": 2') for _, _, headers, _ in server.asked] == [0, 1]
            assert [attempt for attempt, _ in retried.reported] == [2]
            again = Retried.of_kind("http", url=f"{server.url}/hang", retry=Retry(2, 0), attempt_timeout=0.2)
            assert await again.run() is Outcome.TIMED_OUT
            assert [attempt for attempt, _ in again.reported] == [2]

    run_async(real_loop_kind, main)


def test_a_kind_of_a_package_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing(Options):
        pass

    seen: list[int] = []

    def run(context: ItemContext, options: Nothing) -> None:
        seen.append(context.attempt)
        time.sleep(0)
        if context.attempt < 3:
            raise OSError("not yet")

    point = SimpleNamespace(name="flaky", load=lambda: Kind(Nothing, run))
    monkeypatch.setattr(kinds, "entry_points", lambda group: [point])
    kinds.find.cache_clear()

    async def main() -> None:
        assert await Retried.of_kind("flaky", retry=AT_ONCE).run() is Outcome.COMPLETED

    run_async("asyncio", main)
    kinds.find.cache_clear()
    assert seen == [1, 2, 3]


YAML = """
registry: embedded://
defaults:
  retry: {attempts: 2}
jobs:
  backup:
    kind: script
    command: ["true"]
    retry:
      attempts: 5
      backoff: 2s
      on: ["aioelasticjob.jobs.script:ScriptFailed", TimeoutError]
      longest: 1m
    attemptTimeout: 30s
    items_at_once: 3
"""
TOML = """
registry = "embedded://"
defaults.retry.attempts = 2
[jobs.backup]
kind = "script"
command = ["true"]
attempt_timeout = "30s"
itemsAtOnce = 3
[jobs.backup.retry]
attempts = 5
backoff = 2
on = ["aioelasticjob.jobs.script:ScriptFailed", "TimeoutError"]
longest = "60s"
"""


@pytest.mark.parametrize(("text", "name"), [(YAML, "jobs.yaml"), (TOML, "jobs.toml")])
def test_files_declare_it_for_jobs_of_files_and_of_code(
    text: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_text(text)
    monkeypatch.setenv("AIOELASTICJOB_JOBS__REPORT__RETRY", '{"attempts": 4, "on": "OSError"}')
    app = ElasticJob.from_settings(tmp_path / name)

    @app.job()
    async def other(context: ItemContext) -> None: ...

    @app.job(retry=Retry(9))
    async def report(context: ItemContext) -> None: ...

    @app.job(retry=Retry(7))
    async def own(context: ItemContext) -> None: ...

    found = {job.job_name: job for job in app.jobs}
    assert found["backup"].retry == Retry(5, 2, on=(ScriptFailed, TimeoutError), longest=60)
    assert (found["backup"].attempt_timeout, found["backup"].items_at_once) == (30, 3)
    assert [found[job].retry for job in ("other", "report", "own")] == [Retry(2), Retry(4, on=OSError), Retry(7)]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("{attemps: 5}", "jobs.yaml:6: jobs.backup.retry.attemps = 5: there is no such setting"),
        ("{on: Busy}", "jobs.yaml:6: jobs.backup.retry.on = 'Busy': must name an exception of Python's"),
        ("{on: 'nowhere:Busy'}", "jobs.yaml:6: jobs.backup.retry.on = 'nowhere:Busy': there is no module"),
    ],
)
def test_a_mistake_in_a_file_is_shown_with_its_line(wrong: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(f"registry: embedded://\njobs:\n  backup:\n    kind: script\n    command: ls\n    retry: {wrong}\n")
    with pytest.raises(WrongSettings) as refused:
        ElasticJob.from_settings(file)
    assert says in str(refused.value)


def test_a_number_in_place_of_a_retry_is_refused_in_code() -> None:
    app: Any = ElasticJob("embedded://")
    with pytest.raises(InvalidSetting, match="retry = 3: must be a Retry, or a mapping"):
        app.job(retry=3)(anyio.sleep)
