"""Listeners: functions that are called before and after a run, on every instance or once in the whole cluster."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.jobs.context import InstanceContext
from aioelasticjob.jobs.dependencies import check_context
from aioelasticjob.jobs.inspection import is_async, name_of

ListenerFunction: TypeAlias = Callable[[InstanceContext], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListener:
    """Called on every instance: before its items start, after they have ended.

    Several listeners are called in their order before the items, and in the reverse order after them.  If a ``before``
    fails, the items fail without a call of their handlers, and ``after`` is called only of the listeners before that
    one.  The job's error handler is given the failures of listeners.

    Raises:
        InvalidSetting: a listener is no ``async def`` that takes one context.
    """

    before: ListenerFunction | None = None
    after: ListenerFunction | None = None

    def __post_init__(self) -> None:
        _check(before=self.before, after=self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceListener:
    """Called once in the cluster: before the first item of a run starts, after its last one has ended.

    The first instance that begins a run calls ``before``, which may take ``started_timeout`` seconds; the others wait
    until it has returned.  If it fails, the run's items fail on every instance, and ``after`` is not called.  If the
    instance that calls it dies, the next one calls it again.

    Raises:
        InvalidSetting: the timeout is not positive, or a listener is no ``async def`` that takes one context.
    """

    before: ListenerFunction | None = None
    after: ListenerFunction | None = None
    started_timeout: float = 60

    def __post_init__(self) -> None:
        _check(before=self.before, after=self.after)
        if not 0 < self.started_timeout < float("inf"):
            raise InvalidSetting("started_timeout", self.started_timeout, "must be a positive number of seconds")


def checked(listeners: object) -> tuple[Listener, ...]:
    """Return the listeners of a job.

    Raises:
        InvalidSetting: they are not a list of listeners, or a subclass has methods that would never be called.
    """
    found = tuple(listeners) if isinstance(listeners, Iterable) else None
    if found is None or not all(isinstance(one, JobListener | OnceListener) for one in found):
        raise InvalidSetting("listeners", listeners, "a list of JobListener and OnceListener")
    for one in found:
        for part in ("before", "after"):
            is_hidden = callable(getattr(type(one), part, None))  # a method, which the field hides
            if is_hidden and getattr(one, part) is None:
                kind = "OnceListener" if isinstance(one, OnceListener) else "JobListener"
                raise InvalidSetting("listeners", one, f"write {kind}({part}=…): a method named {part} is never called")
    return found


def _check(**listeners: ListenerFunction | None) -> None:
    for name, listener in listeners.items():
        if listener is None:
            continue
        shown = name_of(listener)
        if not is_async(listener):
            raise InvalidSetting(name, shown, "must be an async def: listeners are awaited")
        try:
            inspect.signature(listener).bind(object())
        except TypeError as mismatch:
            raise InvalidSetting(name, shown, f"must take one context: {mismatch}") from None
        check_context(name, listener, InstanceContext, ", since listeners are called around all items of a run")


Listener: TypeAlias = JobListener | OnceListener
