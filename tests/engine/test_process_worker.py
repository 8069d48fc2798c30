"""Plain functions in a process of their own: what comes back from there, and when it ends."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from unittest import mock

import anyio
import anyio.from_thread
import pytest

from aioelasticjob import InvalidSetting, JobConfig
from aioelasticjob.engine.executors import Executors, ProcessDied
from aioelasticjob.engine.process_worker import Unsendable
from aioelasticjob.jobs.base import instance_context, item_context
from tests.engine import process_functions
from tests.engine.test_executors import Checkpoints, appears, claim, ends, lives, with_processes
from tests.engine.test_executors import _nobody_is_left as _nobody_is_left
from tests.support.processes import ROOT, Workers

FAILURES: tuple[tuple[str, type[BaseException], str], ...] = (
    ("error", ValueError, "bad record"),
    ("exit", SystemExit, "3"),
    ("awkward", Unsendable, "Awkward: 1 and 2"),
    ("interrupt", Unsendable, "raised what would end more than its run: KeyboardInterrupt\n"),
    ("panic", Unsendable, "Panic: index out of bounds"),
    ("spiteful", Unsendable, "Spiteful: .its text cannot be had"),
    ("spiteful result", Unsendable, "the result cannot be pickled: Panic: not me"),
    ("unsendable", Unsendable, "the result cannot be pickled"),
    ("vanish", ProcessDied, "ran fail ended with exit code 3"),
    ("killed", ProcessDied, "ran fail ended by signal 9"),
)


def test_what_a_function_fails_with_comes_back_and_the_next_one_runs() -> None:
    async def main(executors: Executors) -> None:
        for how, error, says in FAILURES:
            with pytest.raises(error, match=says) as caught:
                await executors.processes.call(process_functions.fail, how)
            if how == "error":
                assert "raise ValueError" in str(caught.value.__cause__)
        assert await executors.processes.call(process_functions.fail, "fine") == "fine"

    with_processes(main)


def test_a_prepared_process_has_imported_the_module_and_is_the_one_that_is_called() -> None:
    imported = f"{process_functions.__name__!r} in __import__('sys').modules"

    async def main(executors: Executors) -> None:
        call, prepare = executors.processes.call, executors.processes.prepare
        await prepare(process_functions.pid)
        (ready,) = executors.processes._idle
        assert await call(eval, imported)
        with mock.patch.object(executors.processes, "_ask") as asked:
            await prepare(process_functions.fail)
        assert not asked.called
        assert await call(process_functions.pid) == ready._process.pid
        ready._process.kill()
        ready._process.join()
        await prepare(process_functions.pid)
        assert all(idle.is_alive for idle in executors.processes._idle)

    with_processes(main)


def test_signals_for_the_whole_group_are_left_to_the_parent() -> None:
    async def main(executors: Executors) -> None:
        assert (
            await executors.processes.call(process_functions.withstand, signal.SIGINT, signal.SIGTERM) == "still here"
        )

    with_processes(main)


def test_what_a_function_logs_is_logged_here_as_the_loggers_are_set(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tests.plain")
    caplog.set_level(logging.DEBUG, "tests.chatty")
    with_processes(lambda executors: executors.processes.call(process_functions.speak))
    said, chatted = (one for one in caplog.records if one.name.startswith("tests."))
    assert (said.getMessage(), said.__dict__["files"], chatted.getMessage()) == ("said 2 times", 3, "wanted")
    assert "ValueError: bad record" in said.getMessage() + str(said.exc_text)
    assert "handle" not in vars(logging.getLogger("tests.plain"))  # it is the program's, so its own handle stays


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_what_a_fork_of_a_process_logs_is_shown_on_stderr_and_comes_into_no_answer(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.WARNING, "tests.plain")
    call = process_functions.fork_that_logs
    assert with_processes(lambda executors: executors.processes.call(call, "from the fork")) == 0
    assert "from the fork" in capfd.readouterr().err
    assert not [one for one in caplog.records if one.name == "tests.plain"]


def test_what_a_handler_raises_for_a_record_of_a_process_ends_neither_the_call_nor_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log, shown = logging.getLogger("tests.plain"), list[str]()

    def fail(record: logging.LogRecord) -> bool:
        shown.append(record.getMessage())
        raise ConnectionError("not delivered")

    log.addFilter(fail)
    try:
        with_processes(lambda executors: executors.processes.call(process_functions.speak))
    finally:
        log.removeFilter(fail)
    assert any("said 2 times" in text for text in shown)


def test_a_context_goes_along_with_what_can_be_read_of_it(caplog: pytest.LogCaptureFixture) -> None:
    context = item_context(JobConfig.build(job_name="job", sharding_total_count=3), claim(2), 2, Checkpoints())
    several = instance_context(JobConfig.build(job_name="job", sharding_total_count=3), claim(1, 2), Checkpoints())
    context.log.warning("looked at before: the logger is made")

    async def main(executors: Executors) -> None:
        assert await executors.call("process", process_functions.look, context) == {
            "fence": 17,
            "offset": "offset of 2",
            "task_id": context.task_id,
            "at": context.fire_time,
        }
        assert await executors.call("process", process_functions.offsets, several) == {
            1: "offset of 1",
            2: "offset of 2",
        }
        with pytest.raises(InvalidSetting, match="offsets are saved where the session is"):
            await executors.call("process", process_functions.save, context)

    with_processes(main)
    assert [one.__dict__["item"] for one in caplog.records if one.getMessage() == "looking"] == [2]


PARENT = """
import anyio, pathlib, sys
from aioelasticjob.engine.executors import Processes
from tests.engine import process_functions

if __name__ == "__main__":
    anyio.run(Processes(1).call, process_functions.hang, pathlib.Path(sys.argv[1]))
"""


@pytest.mark.process
def test_a_process_ends_with_its_parent_and_what_it_has_started_with_it(
    tmp_path: Path, worker_processes: Workers
) -> None:
    program = tmp_path / "parent.py"
    program.write_text(PARENT)
    parent = worker_processes.start(str(program), str(tmp_path / "pids"), environment={"PYTHONPATH": str(ROOT)})
    own, started = anyio.run(appears, tmp_path / "pids")
    assert lives(own)
    parent.kill()
    assert ends(own)
    assert ends(started)
