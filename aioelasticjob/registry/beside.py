"""Work that runs beside a block, and ends with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import anyio

from aioelasticjob.host.user_code import UserCode


@asynccontextmanager
async def beside(work: Callable[[], Coroutine[object, object, None]]) -> AsyncIterator[None]:
    """Run ``work`` while the block runs.  An error of either ends both and is raised as it is, not in a group."""
    failures: list[Exception] = []

    async def watched() -> None:
        try:
            await work()
        except Exception as error:
            failures.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched)
        block = UserCode("the block")
        try:
            yield
        except Exception as error:
            failures.append(error)
            await block.tidy()  # before CPython 3.13 a failed asyncio.TaskGroup leaves a request to cancel us
        tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
