"""Runs jobs inside another application: they handle no signals, choose no event loop, and never end their host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from typing import Any

from aioelasticjob.app import ElasticJob
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.host.event_loop import require_asyncio
from aioelasticjob.logging import logger

_HOST: ContextVar[tuple[Any, Any]] = ContextVar("aioelasticjob_host")
"""The application around the jobs, and the value of its own lifespan.  All tasks of the jobs inherit this variable."""

log = logger(__name__)


@asynccontextmanager
async def guest(jobs: ElasticJob, host: object = None, state: object = None) -> AsyncIterator[None]:
    """Run the jobs while the block is open; at its end, finish running items and leave.

    The jobs run in a task of their own: a framework may leave the block in another task than entered it, and an error
    that ends the jobs must not cancel the application, nor what it does after the block.  So it is logged, and shown by
    ``health``.

    Raises:
        RegistryUnreachable, AuthenticationFailed, InvalidSetting: as ``ElasticJob.running()``, before the block.
    """
    require_asyncio()
    ready = asyncio.Event()
    leave = asyncio.Event()

    async def stay() -> None:
        try:
            async with jobs.running():
                ready.set()
                await leave.wait()
        except Exception:
            if not ready.is_set():
                raise
            names = [job.job_name for job in jobs.jobs]
            text = "the jobs have ended because of an error (the application around them goes on): %s"
            log.critical(text, ", ".join(names[:20]), exc_info=True, extra={"jobs": names})
        finally:
            ready.set()

    context = copy_context()
    context.run(_HOST.set, (host, state))
    task = asyncio.get_running_loop().create_task(stay(), name="aioelasticjob", context=context)
    try:
        await ready.wait()
        if not task.done():
            yield
    finally:
        if ready.is_set():
            leave.set()
        else:  # cancelled while the jobs were joining
            task.cancel()
        await task


def host() -> Any:
    """Provide the web application that the jobs run inside: ``Annotated[FastAPI, Depends(host)]``."""
    return _around()[0]


def lifespan_state() -> Any:
    """Provide what the web application's own lifespan has yielded."""
    return _around()[1]


def _around() -> tuple[Any, Any]:
    try:
        return _HOST.get()
    except LookupError:
        raise InvalidSetting(
            "host",
            None,
            "no application is around these jobs: start them through an integration, or override host",
        ) from None
