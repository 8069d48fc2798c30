"""Guests: jobs in a task of their own, whatever their host does with its tasks, signals and loop."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack

import anyio
import pytest

from aioelasticjob import ElasticJob, InvalidSetting
from aioelasticjob.errors import RegistryUnreachable
from aioelasticjob.integrations import guest, host
from aioelasticjob.testing import VirtualClock, run
from tests.support.loops import LoopKind, run_async


async def nothing(context: object) -> None: ...


def idle(address: str = "embedded://", **options: float) -> ElasticJob:
    jobs = ElasticJob(address, **options)  # type: ignore[arg-type]
    jobs.add(nothing, name="job")
    return jobs


def test_a_host_may_leave_in_another_task_than_it_entered_in() -> None:
    jobs = ElasticJob("embedded://", clock=VirtualClock())
    jobs.add(nothing, name="job")

    async def main() -> None:
        stack = AsyncExitStack()
        await asyncio.create_task(stack.enter_async_context(guest(jobs)))
        assert jobs.health.status == "up"
        await asyncio.create_task(stack.aclose())
        assert jobs.health.status == "down"

    run(main)


def test_it_takes_no_signals_and_changes_neither_loop_nor_policy(real_loop_kind: LoopKind) -> None:
    def state() -> tuple[object, ...]:
        loop = asyncio.get_running_loop()
        policy = asyncio.get_event_loop_policy() if sys.version_info < (3, 14) else None  # Python is giving them up
        handlers = [signal.getsignal(number) for number in signal.valid_signals() if number != signal.SIGCHLD]
        return loop, type(loop), policy, loop.get_exception_handler(), loop.get_task_factory(), handlers

    async def main() -> None:
        before = state()
        async with guest(idle()):
            assert state() == before
        assert state() == before

    run_async(real_loop_kind, main)


def test_what_keeps_the_jobs_from_starting_is_raised_before_the_block() -> None:
    async def main() -> None:
        with pytest.raises(RegistryUnreachable):
            async with guest(idle("zk://127.0.0.1:1/nobody", connection_timeout=0.5, base_sleep_time=0.1)):
                pytest.fail("it has started")
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_a_host_that_gives_up_while_they_start_does_not_wait_for_them() -> None:
    async def main() -> None:
        began = anyio.current_time()
        with anyio.move_on_after(2):
            async with guest(idle("zk://127.0.0.1:1/nobody", connection_timeout=100)):
                pytest.fail("it has started")
        assert anyio.current_time() - began < 50  # not as long as ``connection_timeout``
        assert len(asyncio.all_tasks()) == 1

    run(main)


def test_an_error_of_the_host_passes_through_as_it_is() -> None:
    async def main() -> None:
        jobs = ElasticJob("embedded://", clock=VirtualClock())
        async with guest(jobs):
            raise LookupError("the host's own")

    with pytest.raises(LookupError, match="the host's own"):
        run(main)


def test_without_a_host_its_provider_says_what_to_do() -> None:
    with pytest.raises(InvalidSetting, match="start them through an integration"):
        host()
