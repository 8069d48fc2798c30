"""The executors that packages add: each job that names one has its own, as long as the application runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import Any, TypeVar

from anyio import CancelScope, CapacityLimiter, create_task_group, get_cancelled_exc_class, to_thread

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.jobs.executors import find

T = TypeVar("T")


class OwnExecutors:
    """Makes an executor when a job first calls a function in it, and shuts all of them down at the end."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Executor] = {}
        self._threads = CapacityLimiter(inf)

    async def call(self, name: str, job: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function in the executor that a job has under this name, and return its result.

        A call that is cancelled before it has begun is withdrawn.  Otherwise this waits for its end, as for a thread.

        Raises:
            InvalidSetting: there is no such executor in this process.
            BrokenExecutor: the executor has lost what runs its functions; the next call makes a new one.
        """
        executor = self._made.get((name, job))
        if executor is None:
            executor = self._made[name, job] = _made(name, job)
        try:
            return await _result(executor.submit(partial(function, *arguments, **named)))
        except BrokenExecutor:
            if self._made.get((name, job)) is executor:
                del self._made[name, job]
            raise

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Shut all executors down when the block is left, and wait until their functions have ended."""
        try:
            yield
        finally:
            made, self._made = self._made, {}
            await call_in_threads([executor.shutdown for executor in made.values()], self._threads)


async def call_in_threads(functions: Iterable[Callable[[], object]], threads: CapacityLimiter) -> None:
    """Call blocking functions at the same time, each in a thread, and wait for all even if the caller is cancelled."""
    with CancelScope(shield=True):
        async with create_task_group() as tasks:
            for function in functions:
                tasks.start_soon(partial(to_thread.run_sync, function, limiter=threads))


def _made(name: str, job: str) -> Executor:
    executor: object = find(name)(job)
    if not isinstance(executor, Executor):
        found = type(executor).__name__
        raise InvalidSetting("executor", name, f"made a {found} for {job}; it must make a concurrent.futures.Executor")
    return executor


async def _result(future: Future[T]) -> T:
    """Wait for the end of a call."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    future.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
    try:
        await ended.wait()
    except get_cancelled_exc_class():
        if future.cancel():
            raise
        with CancelScope(shield=True):
            await ended.wait()
    return future.result()
