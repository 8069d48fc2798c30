"""What a process of our own does with signals."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import anyio
import pytest
from anyio.abc import TaskStatus

from aioelasticjob.host.process import GC_THRESHOLD, await_signals, collect_garbage_seldom, forced_exit
from aioelasticjob.host.signals import stopping_signals
from aioelasticjob.testing import run
from tests.support.loops import LoopKind, run_async


def timer() -> Mock:
    """Return a timer without a thread, which would be real."""
    force = Mock()
    force.is_alive.side_effect = lambda: force.start.called
    return force


def fork_that_is_ended(number: int) -> int:
    """Return how a fork of this process ends that is sent a signal: minus the signal, or the code of its exit."""
    child = os.fork()
    if not child:
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            os._exit(3)
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture(autouse=True)
def _signals_are_put_back() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in stopping_signals()}
    yield
    for number, handler in before.items():  # a simulated receiver of signals does not
        signal.signal(number, handler)


@pytest.mark.process
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP), (signal.SIGINT, 3)]
)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_signal_for_a_fork_ends_it_and_does_not_stop_its_parent(
    real_loop_kind: LoopKind, number: int, code: int
) -> None:
    async def main() -> list[int]:
        asked, arrived, everything = anyio.Event(), anyio.Event(), anyio.CancelScope()
        arrived.set()

        async def stopping(*, task_status: TaskStatus[Any]) -> None:
            with forced_exit(str) as force:
                await await_signals(arrived, asked, everything, force, task_status=task_status)

        async with anyio.create_task_group() as tasks:
            await tasks.start(stopping)
            codes = [fork_that_is_ended(number), await anyio.to_thread.run_sync(fork_that_is_ended, number)]
            await anyio.wait_all_tasks_blocked()
            assert not asked.is_set()
            os.kill(os.getpid(), signal.SIGTERM)
            with anyio.fail_after(60):
                await asked.wait()
            tasks.cancel_scope.cancel()
        return codes

    assert run_async(real_loop_kind, main) == [code] * 2


@pytest.mark.parametrize(
    ("seconds", "late", "stops"),
    [
        ([0.0, 0.003], 0.0, False),
        ([0.0, 0.003, 0.4], 0.0, False),
        ([0.0, 0.4], 3.0, False),  # the loop reads the repetition late: it was blocked meanwhile
        ([0.0, 0.6], 0.0, True),
        ([0, 0.003, 0.6], 0.0, True),
    ],
)
def test_a_signal_that_repeats_the_first_one_at_once_is_no_second_one(
    seconds: list[float], late: float, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def receiver(*numbers: int) -> Iterator[AsyncIterator[int]]:
        yield arriving()

    async def arriving() -> AsyncIterator[int]:
        begin = anyio.current_time()
        for number, second in enumerate(seconds):
            await anyio.sleep(begin + second - anyio.current_time())
            signal.raise_signal(signal.SIGTERM)
            await anyio.sleep(late if number else 0.0)
            yield signal.SIGTERM

    async def main() -> None:
        asked, arrived, everything = anyio.Event(), anyio.Event(), anyio.CancelScope()
        arrived.set()
        force = timer()
        await await_signals(arrived, asked, everything, force, task_status=anyio.TASK_STATUS_IGNORED)
        assert (asked.is_set(), everything.cancel_called, force.start.called) == (True, stops, stops)

    monkeypatch.setattr("aioelasticjob.host.process.open_signal_receiver", receiver)
    monkeypatch.setattr("aioelasticjob.host.process.monotonic", anyio.current_time)
    run(main)


def test_a_second_signal_ends_the_process_by_force_also_while_a_handler_blocks_the_loop(
    real_loop_kind: LoopKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> bool:
        asked, arrived, everything = anyio.Event(), anyio.Event(), anyio.CancelScope()
        arrived.set()
        force = timer()
        monkeypatch.setattr("aioelasticjob.host.process.REPEATED_WITHIN", 0.0)
        async with anyio.create_task_group() as tasks:
            await tasks.start(await_signals, arrived, asked, everything, force)
            os.kill(os.getpid(), signal.SIGTERM)
            assert not force.start.called
            os.kill(os.getpid(), signal.SIGTERM)
            assert (force.start.call_count, asked.is_set()) == (1, False)  # the loop has not run meanwhile
        assert (force.start.call_count, asked.is_set()) == (1, True)
        return everything.cancel_called

    assert run_async(real_loop_kind, main)
    # as the loop leaves them, also if the tests were started in the background, where SIGINT is ignored
    assert {signal.getsignal(number) for number in stopping_signals()} == {signal.SIG_DFL, signal.default_int_handler}


def test_a_signal_does_not_interrupt_a_call_into_c(real_loop_kind: LoopKind) -> None:
    read, write = os.pipe()
    libc, this, found = ctypes.CDLL(None), threading.get_ident(), ctypes.create_string_buffer(1)

    def disturb() -> None:
        for _ in range(20):  # the first ones may come before the call has begun
            signal.pthread_kill(this, signal.SIGTERM)
            time.sleep(0.005)
        os.write(write, b"1")

    async def main() -> int:
        asked, arrived, everything = anyio.Event(), anyio.Event(), anyio.CancelScope()
        arrived.set()
        async with anyio.create_task_group() as tasks:
            await tasks.start(await_signals, arrived, asked, everything, timer())
            thread = threading.Thread(target=disturb)
            thread.start()
            result = int(libc.read(read, found, 1))
            thread.join()
            await asked.wait()
            tasks.cancel_scope.cancel()
        return result

    assert run_async(real_loop_kind, main) == 1, "-1 is an error: EINTR"
    os.close(read)
    os.close(write)


def test_a_signal_that_is_repeated_while_jobs_start_does_not_end_the_process_during_its_cleanup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = list[float]()

    @contextmanager
    def receiver(*numbers: int) -> Iterator[AsyncIterator[int]]:
        yield arriving()
        heard.append(-1.0)

    async def arriving() -> AsyncIterator[int]:
        for second in (0.0, 0.02, 10.0):
            await anyio.sleep(second)
            heard.append(second)
            yield signal.SIGTERM

    async def main() -> float:
        with anyio.CancelScope() as everything:
            begun = anyio.current_time()
            force = timer()
            await await_signals(anyio.Event(), anyio.Event(), everything, force, task_status=anyio.TASK_STATUS_IGNORED)
        assert everything.cancel_called
        return anyio.current_time() - begun

    monkeypatch.setattr("aioelasticjob.host.process.open_signal_receiver", receiver)
    assert run(main) == pytest.approx(0.5)
    assert heard == [0.0, 0.02, -1.0]


@pytest.mark.parametrize(("before", "after"), [(700, GC_THRESHOLD), (0, 0), (2 * GC_THRESHOLD, 2 * GC_THRESHOLD)])
def test_collections_become_rarer_unless_they_are_rarer_already_or_switched_off(before: int, after: int) -> None:
    usual = gc.get_threshold()
    try:
        gc.set_threshold(before, *usual[1:])
        collect_garbage_seldom()
        assert gc.get_threshold() == (after, *usual[1:])
    finally:
        gc.set_threshold(*usual)


STOPPING_ITSELF = """
import os, signal, subprocess
from aioelasticjob import ElasticJob

app = ElasticJob("embedded://")

@app.job(cron="* * * * * ?")
async def stop(context):
    os.kill(os.getpid(), signal.SIGTERM)

app.run()
assert subprocess.call(["sh", "-c", "echo it writes"]) == 0
print(*(os.path.samefile(f"/dev/fd/{number}", os.devnull) for number in range(3)), file=open("seen", "w"))
"""


@pytest.mark.process
@pytest.mark.parametrize(("closed", "seen"), [(">&-", "True True False"), ("<&- >&- 2>&-", "True True True")])
def test_a_process_runs_though_its_standard_streams_are_closed(tmp_path: Path, closed: str, seen: str) -> None:
    command = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, STOPPING_ITSELF]
    ended = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60)
    assert (ended.returncode, (tmp_path / "seen").read_text().strip()) == (0, seen), ended.stderr.decode()
