"""Calls the handlers of a dataflow: in the loop, a thread or a process, with retries and time limits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.jobs.base import Handler
from aioelasticjob.jobs.context import Context
from aioelasticjob.jobs.dataflow import Dataflow
from aioelasticjob.jobs.dependencies import provided
from aioelasticjob.jobs.inspection import is_async
from aioelasticjob.running.batches import Call
from aioelasticjob.running.cancellation import HandlerScope, handler_scope
from aioelasticjob.running.execution import Execution

Batches: TypeAlias = AsyncGenerator[Sequence[object], None]
Given: TypeAlias = dict[str, Any]
"""The values that providers have made for one handler, by the names of its arguments."""


class HandlerCalls:
    """The handlers of a dataflow, as one execution calls them."""

    def __init__(self, flow: Dataflow[Any], execution: Execution) -> None:
        self._flow, self._execution, self._config = flow, execution, execution.config
        self._process, self._dead = flow.handlers
        declared = flow.config.batch_size  # the code says whether process takes lists, operators say of which length
        self.step = declared and (self._config.batch_size or declared)
        """The number of records that ``process`` takes as a list; None if it takes them one by one."""

    def provided(self, context: Context) -> AbstractAsyncContextManager[tuple[Given, ...]]:
        """Return a context manager with the handlers' other arguments: one value of each provider for a whole run."""
        if not any(self._flow.needs):
            return nullcontext(({}, {}, {}))
        return provided(context, self._execution.executors.overrides, *self._flow.needs)

    async def batches(self, context: Context, given: Given) -> Batches:
        """Yield the batches of ``fetch``: all batches of a generator; one of a function, or more if streaming."""
        if self._flow.generates:
            async with _closing(self._flow.fetch(context, **given)) as generator:
                async for found in generator:
                    yield _checked(found)
            return
        fetch = self._awaitable(self._flow.sendable, given)
        yield _checked(await fetch(context))
        while self._config.streaming:
            yield _checked(await fetch(context))

    def cut(self, context: Context) -> HandlerScope:
        """Return a scope that can cancel the call of ``fetch`` in the current task, and that names it if it goes on."""
        fetch, is_awaited = self._flow.fetch, self._flow.generates or is_async(self._flow.fetch)
        return handler_scope(fetch if is_awaited else None, context, self._execution.limited_log)

    def process(self, given: Given) -> Call:
        """Return ``process`` with its retries; ``record_timeout`` limits each attempt."""
        call = once = self._awaitable(self._process, given)
        limit, awaited = self._config.record_timeout, self._process if is_async(self._process) else None

        async def within(context: Context, record: Any) -> object:
            with handler_scope(awaited, context, self._execution.limited_log, limit):
                return await once(context, record)
            raise TimeoutError

        if limit is not None:
            call = within
        retry = self._config.retry or self._flow.retry  # a file's or an operator's, or else that of the code
        return call if retry is None else retry.wraps(call)

    def dead(self, given: Given) -> Call | None:
        """Return the handler for records whose last attempt has failed, or None if there is none."""
        return self._dead and self._awaitable(self._dead, given)

    def _awaitable(self, handler: Handler, given: Given) -> Call:
        """Return the handler if it is async, else a function that runs it in a thread or a process."""
        if not is_async(handler):
            return partial(self._execution.executors.call, self._config.executor, handler, **given)
        return partial(handler, **given) if given else handler


@asynccontextmanager
async def _closing(generator: AsyncGenerator[object, None]) -> AsyncIterator[AsyncGenerator[object, None]]:
    """Close a generator at the end.

    If the generator is inside a task group, the group wraps GeneratorExit in an exception group; it is unwrapped here.
    """
    try:
        yield generator
    finally:
        try:
            await generator.aclose()
        except BaseExceptionGroup as group:
            _, others = group.split(GeneratorExit)
            if others is not None:
                raise others from None


def _checked(found: object) -> Sequence[object]:
    """Return the records that ``fetch`` returned, as a list or an empty tuple.

    Raises:
        InvalidSetting: the value is not a batch.
    """
    if found is None or (isinstance(found, tuple) and not found):
        return ()
    if isinstance(found, tuple | str | bytes | bytearray) or not isinstance(found, Sequence):
        raise InvalidSetting("fetch", found, "must hand out lists of records, or None when there are none left")
    return found if type(found) is list else list(found)  # methods of a user's own class could raise later
