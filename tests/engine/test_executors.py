"""Plain functions in processes and threads: sized, and cancelled as far as the platform lets them be."""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
import anyio.from_thread
import pytest

from aioelasticjob import Depends, ElasticJob, InstanceContext, InvalidSetting, ItemContext, JobConfig
from aioelasticjob.engine.execution import Execution, execute
from aioelasticjob.engine.executors import NEVER_BEGAN, Executors, Processes, processors
from aioelasticjob.errors import NotAnException
from aioelasticjob.jobs.base import Job, instance_context, item_context
from aioelasticjob.model import Claim, Fire, FireSource, Outcome, Record, VersionedRecord
from tests.engine import process_functions
from tests.support.clocks import skip_time
from tests.support.embedded import EmbeddedServer
from tests.support.loops import LoopKind, run_async
from tests.support.processes import TIMEOUT
from tests.support.retry_waits import PlainWaits

T = TypeVar("T")
REQUEST: ContextVar[str] = ContextVar("REQUEST")


class Checkpoints:
    def get(self, item: int) -> str | None:
        return f"offset of {item}"

    async def save(self, item: int, value: str) -> None:
        raise NotImplementedError


def claim(*items: int) -> Claim:
    seen = dict.fromkeys(items, VersionedRecord(Record(), 0, 17))
    return Claim(Fire(1_000, FireSource.SCHEDULE), "me", 1, seen, {})


def context_of(item: int) -> ItemContext:
    return item_context(JobConfig.build(job_name="job"), claim(item), item, Checkpoints())


def contexts_of(*items: int) -> InstanceContext:
    return instance_context(JobConfig.build(job_name="job"), claim(*items), Checkpoints())


@pytest.fixture(autouse=True)
def _nobody_is_left() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


def with_processes(main: Callable[[Executors], Awaitable[T]], most: int = 1, kind: LoopKind = "asyncio") -> T:
    async def body() -> T:
        executors = Executors(processes=Processes(most))
        async with executors.processes.open():
            return await main(executors)

    return run_async(kind, body)


async def appears(path: Path) -> list[int]:
    """Return the numbers in a file as soon as they are there."""
    with anyio.fail_after(TIMEOUT):
        while not (path.exists() and path.read_text()):
            await anyio.sleep(0.01)
    return [int(word) for word in path.read_text().split()]


def lives(pid: int) -> bool:
    """Whether a process is there and has not ended; one that nobody has buried yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second one if it ends between opening and reading
        return False


def ends(pid: int) -> bool:
    deadline = time.monotonic() + TIMEOUT
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not lives(pid)


# Processes


def test_functions_run_side_by_side_in_processes_that_are_kept(real_loop_kind: LoopKind, tmp_path: Path) -> None:
    async def main(executors: Executors) -> None:
        pids = set[int]()

        async def come() -> None:
            pids.add(await executors.processes.call(process_functions.meet, tmp_path, 2))

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(come)
        assert len(pids | {os.getpid()}) == 3
        assert await executors.processes.call(process_functions.pid) in pids

    with_processes(main, 2, real_loop_kind)


def test_an_idle_process_that_was_killed_is_not_asked() -> None:
    async def main(executors: Executors) -> None:
        pid = await executors.processes.call(process_functions.pid)
        (child,) = executors.processes._idle
        os.kill(pid, signal.SIGKILL)
        await anyio.to_thread.run_sync(child._process.join)
        assert await executors.processes.call(process_functions.pid) not in (pid, os.getpid())

    with_processes(main)


def test_an_async_function_behind_a_plain_one_is_awaited() -> None:
    async def work(context: ItemContext) -> str:
        await anyio.sleep(0)
        return context.job_name

    async def main() -> None:
        context = item_context(JobConfig.build(job_name="job", cron="* * * * * ?"), claim(0), 0, Checkpoints())
        assert await Executors().call("thread", lambda context: work(context), context) == "job"

    anyio.run(main)


@pytest.mark.parametrize("raised", [GeneratorExit, KeyboardInterrupt])
def test_what_a_thread_raises_that_would_end_more_is_an_error_of_its_call(raised: type[BaseException]) -> None:
    def close(context: ItemContext) -> None:
        raise raised

    async def main() -> None:
        context = item_context(JobConfig.build(job_name="job", cron="* * * * * ?"), claim(0), 0, Checkpoints())
        with pytest.raises(NotAnException, match=f"the function raised {raised.__name__}"):
            await Executors().call("thread", close, context)

    anyio.run(main)


@pytest.mark.process
@pytest.mark.parametrize("executor", ["thread", "process"])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_that_comes_out_of_a_plain_function_ends_there(executor: str) -> None:
    assert with_processes(lambda executors: executors.call(executor, process_functions.fork, context_of(0))) == 1


def test_no_more_run_than_there_are_places(tmp_path: Path) -> None:
    async def main(executors: Executors) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(executors.call, "process", process_functions.alone, context_of(0), tmp_path)

    with_processes(main)


def test_a_call_that_is_cancelled_before_a_process_is_free_says_so() -> None:
    async def main(executors: Executors) -> None:
        executors.processes.places.acquire_on_behalf_of_nowait("somebody else")
        with anyio.move_on_after(0.01), pytest.raises(asyncio.CancelledError) as found:
            await executors.call("process", process_functions.pid, context_of(0))
        assert found.value.__notes__ == [NEVER_BEGAN]

    with_processes(main)


def test_a_call_that_is_cancelled_before_it_begins_kills_no_process() -> None:
    async def main(executors: Executors) -> None:
        idle = await executors.call("process", process_functions.pid, context_of(0))
        with anyio.CancelScope() as scope:
            scope.cancel()
            await executors.call("process", process_functions.pid, context_of(0))
        assert await executors.call("process", process_functions.pid, context_of(0)) == idle

    with_processes(main)


def test_a_process_is_killed_with_what_it_has_started_when_its_call_is_cancelled(
    real_loop_kind: LoopKind, tmp_path: Path
) -> None:
    async def main(executors: Executors) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(executors.processes.call, process_functions.hang, tmp_path / "pids")
            own, program = await appears(tmp_path / "pids")
            assert lives(own)
            assert lives(program)
            tasks.cancel_scope.cancel()
        assert not lives(own)
        assert ends(program)
        assert await executors.processes.call(process_functions.pid) != own

    with_processes(main, 1, real_loop_kind)


def test_what_cannot_be_sent_is_refused_before_anything_is_started() -> None:
    async def main(executors: Executors) -> None:
        with pytest.raises(InvalidSetting, match=r"executor = 'process': .*<lambda> or what it is given cannot be"):
            await executors.processes.call(lambda: None)
        with pytest.raises(InvalidSetting, match="pid or what it is given cannot be pickled"):
            await executors.processes.call(process_functions.pid, threading.Lock())

    with_processes(main)


def test_a_daemonic_process_says_that_it_may_not_start_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    with pytest.raises(InvalidSetting, match=r"a daemonic process.*: use executor = 'thread'"):
        with_processes(lambda executors: executors.processes.call(process_functions.pid))


# As a job


def execution_of(executors: Executors, handler: Callable[..., object], **settings: Any) -> Execution:
    config = JobConfig.build(job_name="job", **settings)
    return Execution(
        Job.declare(config, handler), config, claim(0), Checkpoints(), executors, lambda *_: None, PlainWaits()
    )


def test_a_run_in_a_process_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "pids"

    async def main(executors: Executors) -> None:
        execution = execution_of(
            executors, process_functions.hang_at, executor="process", timeout=600, job_parameter=str(path)
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execute, execution)
            own, started = await appears(path)
            skip_time(600)
        assert execution.outcomes == {0: Outcome.TIMED_OUT}
        assert not lives(own)
        assert ends(started)

    with_processes(main)


def test_a_thread_that_looks_gives_way_when_its_time_is_up(real_loop_kind: LoopKind) -> None:
    def handler(context: object) -> None:
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            anyio.from_thread.check_cancelled()
            time.sleep(0.01)

    async def main(executors: Executors) -> None:
        execution = execution_of(executors, handler, timeout=0.05)
        await execute(execution)
        assert execution.outcomes == {0: Outcome.TIMED_OUT}
        with anyio.move_on_after(0.05) as cut:
            await execute(execution := execution_of(executors, handler))
        assert cut.cancelled_caught
        assert execution.outcomes == {}

    with_processes(main, 1, real_loop_kind)


def test_context_variables_go_along_into_threads() -> None:
    async def main(executors: Executors) -> None:
        REQUEST.set("seen")
        assert await executors.call("thread", lambda context: REQUEST.get("missing"), context_of(0)) == "seen"

    with_processes(main)


def test_a_thread_saves_offsets_through_the_loop() -> None:
    saved: dict[int, str] = {}

    class Saved(Checkpoints):
        async def save(self, item: int, value: str) -> None:
            saved[item] = value

    def handler(context: ItemContext) -> None:
        anyio.from_thread.run(context.save_offset, "42")

    async def main(executors: Executors) -> None:
        config = JobConfig.build(job_name="job")
        await execute(
            Execution(Job.declare(config, handler), config, claim(0), Saved(), executors, lambda *_: None, PlainWaits())
        )

    with_processes(main)
    assert saved == {0: "42"}


def test_a_plain_function_that_saves_an_offset_as_if_it_were_async_fails() -> None:
    def of_item(context: ItemContext) -> None:
        context.save_offset("42")  # type: ignore[unused-coroutine]

    def of_instance(context: InstanceContext) -> None:
        context.save_offset(0, "42")  # type: ignore[unused-coroutine]

    async def main(executors: Executors) -> None:
        expected = r"save_offset = '42': a plain function calls anyio\.from_thread\.run\(context\.save_offset"
        for handler, context in ((of_item, context_of(0)), (of_instance, contexts_of(0))):
            with pytest.raises(InvalidSetting, match=expected):
                await executors.call("thread", handler, context)

    with_processes(main)


def name() -> str:
    return "provided"


def write(context: Any, name: Annotated[str, Depends(name)]) -> None:
    process_functions.write(context, name)


def test_an_application_runs_its_handler_in_processes_and_leaves_none(embedded: EmbeddedServer, tmp_path: Path) -> None:
    app = ElasticJob(f"zk://{embedded.address}/blocking", processes=1)
    provided = functools.partial(process_functions.write, name="given")
    app.add(provided, name="job", cron="* * * * * ?", executor="process", job_parameter=str(tmp_path / "written"))

    async def main() -> list[str]:
        with app.events() as events, anyio.fail_after(TIMEOUT):
            async with app.running():
                async for event in events:
                    if getattr(event, "outcome", None) is Outcome.COMPLETED:
                        break
        return (tmp_path / "written").read_text().splitlines()

    item, pid, given = anyio.run(main)[0].split()
    assert (item, given) == ("0", "given")
    assert int(pid) != os.getpid()


def test_what_is_provided_goes_along_into_a_process(tmp_path: Path) -> None:
    async def main(executors: Executors) -> None:
        job = JobConfig.build(job_name="job", executor="process", job_parameter=str(tmp_path / "written"))
        execution = Execution(
            Job.declare(job, write), job, claim(0), Checkpoints(), executors, lambda *_: None, PlainWaits()
        )
        await execute(execution)
        assert execution.outcomes == {0: Outcome.COMPLETED}

    with_processes(main)
    assert (tmp_path / "written").read_text().endswith(" provided\n")


# Refused before it runs


async def asynchronous(context: object) -> None: ...


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (asynchronous, "asynchronous is async: only plain functions"),
        (lambda context: None, "<lambda> cannot be pickled: define it at the top"),
    ],
)
def test_a_handler_that_cannot_run_in_a_process_is_refused_when_it_is_declared(handler: Any, says: str) -> None:
    with pytest.raises(InvalidSetting, match=says):
        ElasticJob("zk://127.0.0.1:1/nobody").add(handler, name="job", executor="process")


def test_what_only_shows_when_its_module_is_complete_is_refused_at_the_start(embedded: EmbeddedServer) -> None:
    app = ElasticJob(f"zk://{embedded.address}/blocking")
    app.add(functools.partial(lambda more, context: None, 1), name="job", executor="process")

    async def main() -> None:
        async with app.running():
            pass

    with pytest.raises(InvalidSetting, match="cannot be pickled"):
        anyio.run(main)


@pytest.mark.parametrize("setting", ["threads", "processes"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "many"])
def test_a_size_is_a_whole_number_above_zero(setting: str, value: Any) -> None:
    with pytest.raises(InvalidSetting, match=f"{setting} = {value!r}: must be a whole number, 1 or more"):
        ElasticJob("embedded://", **{setting: value})


def test_there_are_as_many_processes_as_processors_unless_said_otherwise() -> None:
    assert 1 <= processors() <= (os.cpu_count() or 1)
    assert sys.platform != "linux" or processors() == len(os.sched_getaffinity(0))
