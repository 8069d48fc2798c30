"""The guard, with real processes: what is bound to a session does not outlive it, whoever sleeps."""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path

import anyio
import pytest

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.host import guard_process
from aioelasticjob.host.guard import Guard, Page, Unguarded, until_this_process_ends
from aioelasticjob.host.orphans import MARK
from tests.support.processes import TIMEOUT, Workers

pytestmark = pytest.mark.process

SESSION = 4711
PAGE_OF_A_LIVING_SESSION = (SESSION, inf, 0, 0)


def lives_on(page: Page) -> None:
    page.write(*PAGE_OF_A_LIVING_SESSION)


@asynccontextmanager
async def guarding(refresh: Callable[[Page], None] = lives_on) -> AsyncIterator[Guard]:
    guard = Guard(refresh)
    try:
        yield guard
    finally:
        guard.close()


def sleeper(variables: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a process that leads its group and never ends by itself."""
    return subprocess.Popen(["sleep", "1000"], start_new_session=True, env={**os.environ, **(variables or {})})


def killed(child: subprocess.Popen[bytes]) -> bool:
    """Wait until a child has ended, without a turn of the event loop; say whether it was killed."""
    return child.wait(TIMEOUT) == -signal.SIGKILL


def process_of(guard: Guard) -> int:
    """Return the process id of the guard."""
    assert guard._process is not None
    return guard._process.pid


def test_a_program_is_killed_when_its_session_may_end_although_the_loop_is_blocked() -> None:
    async def main() -> None:
        async with guarding() as guard, guard.starting(SESSION) as start:
            child = sleeper(start.variables)
            start.leads(child.pid)
            assert guard.page is not None
            guard.page.write(SESSION, 0.2, 0, 0)
            assert killed(child), "the loop waits in here, and sends no order"

    anyio.run(main)


def test_a_process_that_ran_before_is_killed_with_the_session_of_its_run() -> None:
    async def main() -> None:
        async with guarding() as guard:
            child = sleeper()
            async with guard.watching(child.pid, SESSION):
                assert guard.page is not None
                guard.page.write(SESSION, -1, 0, 0)
                assert killed(child)

    anyio.run(main)


def test_a_program_that_was_stopped_is_killed_as_well() -> None:
    async def main() -> None:
        async with guarding() as guard, guard.starting(SESSION) as start:
            child = sleeper(start.variables)
            child.send_signal(signal.SIGSTOP)
            start.leads(child.pid)
            assert guard.page is not None
            guard.page.write(SESSION, -1, 0, 0)
            assert killed(child)

    anyio.run(main)


def test_what_is_bound_to_a_former_session_is_killed() -> None:
    async def main() -> None:
        async with guarding() as guard, guard.starting(SESSION) as start:
            child = sleeper(start.variables)
            start.leads(child.pid)
            assert guard.page is not None
            guard.page.write(SESSION + 1, inf, 0, 0)
            guard.look()
            assert killed(child)

    anyio.run(main)


def test_a_session_that_is_renewed_keeps_its_programs_and_a_program_without_session_is_kept() -> None:
    async def main() -> None:
        async with (
            guarding() as guard,
            guard.starting(SESSION) as bound,
            guard.starting(0) as free,
            guard.starting(SESSION + 1) as over,
        ):
            kept, unbound, ended = (sleeper(start.variables) for start in (bound, free, over))
            bound.leads(kept.pid)
            free.leads(unbound.pid)
            over.leads(ended.pid)
            assert guard.page is not None
            guard.page.write(SESSION, 1000, 0, 0)
            assert killed(ended), "its session is not the present one"
            assert kept.poll() is unbound.poll() is None
            for child in (kept, unbound):
                child.kill()
                child.wait()

    anyio.run(main)


def test_a_program_whose_start_was_not_reported_yet_is_killed_too() -> None:
    """As if this process were stopped between the start of the program and the order that names it."""

    async def main() -> None:
        async with guarding() as guard, guard.starting(SESSION) as start:
            child = sleeper(start.variables)
            assert guard.page is not None
            guard.page.write(SESSION, -1, 0, 0)
            assert killed(child)

    anyio.run(main)


def test_no_program_is_killed_for_another_start_whose_mark_is_the_beginning_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, eleventh = b"1-ab-1", b"1-ab-10"
    environments = {number: f"HOME=/\0{MARK}={mark.decode()}\0" for number, mark in ((21, first), (22, eleventh))}
    killed = list[int]()
    monkeypatch.setattr(guard_process, "environments", lambda: [(n, text.encode()) for n, text in environments.items()])
    monkeypatch.setattr(guard_process, "kill_group", killed.append)
    with mmap.mmap(-1, guard_process.PAGE_SIZE) as memory:
        guarded = guard_process.Guarded(memory, 1, False)
        guarded.starts = {first: SESSION, eleventh: SESSION + 1}
        guarded.end_starts([first])
        guarded.page.release()
    assert set(killed) == {21}


def test_what_has_ended_is_forgotten() -> None:
    async def main() -> None:
        async with guarding() as guard:
            child = sleeper()
            async with guard.watching(child.pid, SESSION):
                pass
            other = sleeper()
            async with guard.watching(other.pid, SESSION):
                assert guard.page is not None
                guard.page.write(SESSION, -1, 0, 0)
                assert killed(other)
            assert child.poll() is None
            child.kill()
            child.wait()

    anyio.run(main)


def test_there_is_a_guard_only_from_the_first_start_to_the_end() -> None:
    async def main() -> None:
        async with guarding() as guard:
            assert guard._process is None
            async with guard.starting(SESSION):
                process = process_of(guard)
            async with guard.starting(SESSION):
                assert process_of(guard) == process, "it is kept for the next program"
        assert has_ended(process)

    anyio.run(main)


def test_a_guard_that_dies_is_replaced_and_its_successor_knows_everything(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with guarding() as guard, guard.starting(SESSION) as known, guard.starting(SESSION) as unknown:
            first, second = sleeper(known.variables), sleeper(unknown.variables)
            known.leads(first.pid)
            before = process_of(guard)
            os.kill(before, signal.SIGKILL)
            with anyio.fail_after(TIMEOUT):
                while "another one takes its place" not in caplog.text:
                    await asyncio.sleep(0)
            assert process_of(guard) != before
            assert guard.page is not None
            guard.page.write(SESSION, -1, 0, 0)
            assert killed(first)
            assert killed(second)

    anyio.run(main)


def test_a_guard_that_reads_no_orders_any_more_is_replaced() -> None:
    async def main() -> None:
        async with guarding() as guard, guard.starting(SESSION) as start:
            child = sleeper(start.variables)
            start.leads(child.pid)
            before = process_of(guard)
            os.kill(before, signal.SIGSTOP)
            while guard._process is not None and guard._process.pid == before:
                guard.look()  # until the pipe is full
            assert guard.page is not None
            guard.page.write(SESSION, -1, 0, 0)
            assert killed(child)

    anyio.run(main)


def test_without_a_guard_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with guarding() as guard:
            monkeypatch.setattr(sys, "executable", "/nowhere/python")
            with pytest.raises(Unguarded, match=r"cannot be started.*nowhere"):
                async with guard.starting(SESSION):
                    pytest.fail("the program would not be guarded")

    anyio.run(main)


def test_if_a_guard_cannot_be_replaced_the_programs_are_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with guarding() as guard, guard.starting(SESSION) as start:
            child = sleeper(start.variables)
            start.leads(child.pid)
            monkeypatch.setattr(sys, "executable", "/nowhere/python")
            os.kill(process_of(guard), signal.SIGKILL)
            with anyio.fail_after(TIMEOUT):
                while "the children are ended now" not in caplog.text:
                    await asyncio.sleep(0)
            assert killed(child)

    anyio.run(main)


def test_outside_of_runs_a_program_has_a_guard_of_its_own() -> None:
    async def main() -> None:
        async with until_this_process_ends() as start:
            child = sleeper(start.variables)
            start.leads(child.pid)
            process = process_of(start._guard)
            assert not has_ended(process)
            child.kill()
            child.wait()
        assert has_ended(process)

    anyio.run(main)


OWNER = """
import asyncio, os, signal, subprocess, sys
from math import inf
from aioelasticjob.host import guard_process
from aioelasticjob.host.guard import Guard

async def main():
    guard = Guard(lambda page: page.write(1, inf, *BOUND), ends_worker=ENDS)
    async with guard.starting(1) as known, guard.starting(1) as unknown:
        AT_THE_START
        for start in (known, unknown):
            child = subprocess.Popen(["sleep", "1000"], start_new_session=True, env={**os.environ, **start.variables})
            print(child.pid, flush=True)
            if start is known:
                start.leads(child.pid)
        print("ready", flush=True)
        AT_THE_END
        await asyncio.sleep(1000)

asyncio.run(main())
"""


def owner(
    workers: Workers,
    at_the_end: str = "",
    *,
    at_the_start: str = "",
    ends: bool = False,
    bound: tuple[int, int] = (0, 0),
) -> tuple[int, ...]:
    """Start a process with a guard and two programs, of which it has reported one; return the programs."""
    program = OWNER.replace("AT_THE_START", at_the_start).replace("AT_THE_END", at_the_end)
    program = program.replace("ENDS", str(ends)).replace("BOUND", str(bound))
    worker = workers.start("-c", program)
    worker.wait_for_output("ready")
    return tuple(int(line) for line in worker.output.splitlines() if line.isdigit())


def has_ended(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return True
    return state in b"ZX"


async def all_ended(processes: tuple[int, ...]) -> None:
    with anyio.fail_after(TIMEOUT):
        while not all(map(has_ended, processes)):
            await anyio.sleep(0.01)  # the system tells nobody but a parent


def test_programs_are_killed_when_their_worker_is(worker_processes: Workers) -> None:
    programs = owner(worker_processes)
    worker_processes.children[0].kill()
    anyio.run(all_ended, programs)


def test_programs_are_killed_although_the_guard_has_yet_to_begin(worker_processes: Workers) -> None:
    """The worker is killed while its guard starts, so the guard finds all orders at once, and nobody to guard for."""
    stop = "os.kill(guard._process.pid, signal.SIGSTOP); print(guard._process.pid, flush=True)"
    guard, *programs = owner(worker_processes, at_the_start=stop)
    worker_processes.children[0].kill()
    os.kill(guard, signal.SIGCONT)
    anyio.run(all_ended, tuple(programs))


@pytest.mark.parametrize("bound", [(1, 0), (0, 1)], ids=["when the session may end", "when the session was ended"])
def test_a_worker_that_blocks_its_loop_is_killed_if_it_wants_that(
    worker_processes: Workers, bound: tuple[int, int]
) -> None:
    left = -1 if bound[0] else inf
    blocked = f"guard.page.write(1, {float(left)!r}, *BOUND); import time; time.sleep(1000)"
    programs = owner(worker_processes, blocked.replace("inf", "float('inf')"), ends=True, bound=bound)
    worker = worker_processes.children[0]
    assert worker.wait() == -signal.SIGKILL
    assert "work that is bound to it goes on (exit_at_lease_end)" in worker.output
    anyio.run(all_ended, programs)


def test_a_worker_without_bound_runs_is_left_alone(worker_processes: Workers) -> None:
    programs = owner(worker_processes, "guard.page.write(1, -1.0, 0, 0)", ends=True)
    anyio.run(all_ended, programs)
    assert worker_processes.children[0].exit_code is None


def test_process_1_cannot_be_killed_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        guard = Guard(lives_on, ends_worker=True)
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with pytest.raises(InvalidSetting, match="docker run --init"):
            await guard.start()

    anyio.run(main)
