"""Calls of users' code: whatever such a call raises is the result of that call, and ends nothing else.

Not everything that Python code can raise is an ``Exception``: a panic of a Rust extension, gevent's Timeout,
SystemExit, or a CancelledError that was not sent by us.  ``except Exception`` does not catch them, so each of them
would end the process, and with failover on, one rescuing instance after the other.  The class in this module turns
them into Exceptions.  Three pass: our own cancellation, KeyboardInterrupt, and the GeneratorExit with which Python
closes a task's coroutine.
"""

from __future__ import annotations

import asyncio
import os
from asyncio import CancelledError, Task
from types import TracebackType
from typing import Any, cast

from anyio import CancelScope
from anyio._backends._asyncio import _task_states  # the only way to learn which scopes a task is in

from aioelasticjob.errors import NotAnException, leaf_errors
from aioelasticjob.host.forks import end_if_forked


class UserCode:
    """Wraps one call of users' code, or several in a row: ``async with UserCode("the handler"): await call()``.

    An Exception is raised as it is.  A cancellation that is ours, KeyboardInterrupt, and a GeneratorExit that closes
    our coroutine pass.  Anything else is raised as a ``NotAnException``.  We cancel only through anyio's scopes, so a
    cancellation is ours if a scope around this block has been cancelled.  If the call turns our cancellation into an
    Exception, as drivers of databases do, the cancellation is raised in its place.  What the call has left behind in
    our task is removed: cancel scopes that it has entered and not left, and its own requests to cancel the task.
    ``with`` does the same where nothing can be awaited.  The block must not contain a ``yield``.

    A process that the call has forked ends here, with the code of its SystemExit: what it did to the event loop and the
    connections would happen to its parent as well.
    """

    __slots__ = ("_pid", "_requests", "_scope", "_task", "_what")

    def __init__(self, what: str, task: Task[Any] | None = None) -> None:
        self._what = what
        self._pid = os.getpid()
        task = task or present_task()
        self._task = task
        self._requests = 0
        self._scope: CancelScope | None = None
        if task is not None:
            self._requests = task.cancelling()
            self._scope = _scope_of(task)

    @property
    def is_touched(self) -> bool:
        """Whether the call has left something behind in our task."""
        task = self._task
        return task is not None and (task.cancelling() > self._requests or _scope_of(task) is not self._scope)

    async def failure(self, error: BaseException) -> Exception:
        """Remove what the call has left behind; return its error as an Exception, or raise what may pass."""
        await self.tidy(error)
        return self.as_exception(error)

    async def tidy(self, error: BaseException | None = None) -> None:
        """Remove what the call, which may have ended with an error, has left behind in our task."""
        if self._pid != os.getpid():
            end_if_forked(self._pid, self._what, error)
        if self.is_touched and self._is_tidied():
            try:
                await asyncio.sleep(0)  # before CPython 3.13 a request that was taken back still arrives
            except CancelledError:
                if self.is_cancelled:
                    raise

    def __enter__(self) -> UserCode:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_if_forked(self._pid, self._what, error)
        if self.is_touched:
            self._is_tidied()
        if error is not None and (judged := self.as_exception(error)) is not error:
            raise judged from error

    async def __aenter__(self) -> UserCode:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.tidy(error)
        if error is not None and (judged := self.as_exception(error)) is not error:
            raise judged from error

    def as_exception(self, error: BaseException) -> Exception:
        """Return the error of the call as an Exception, or raise what may pass.  Nothing is removed."""
        end_if_forked(self._pid, self._what, error)
        if isinstance(error, Exception):
            if self.is_cancelled:
                cancellation = cancellation_behind(error)
                if cancellation is not None:
                    raise cancellation
            return error
        for one in leaf_errors(error):
            if isinstance(one, KeyboardInterrupt):
                raise one
        if isinstance(error, GeneratorExit) and present_task() is not self._task:  # somebody closes our coroutine
            raise error
        if self.is_cancelled and all(isinstance(one, CancelledError) for one in leaf_errors(error)):
            raise next(leaf_errors(error))  # not the group around it: scopes and tasks expect the CancelledError itself
        failure = NotAnException(self._what, error, is_cancelled=isinstance(error, CancelledError))
        failure.__cause__ = error
        return failure

    @property
    def is_cancelled(self) -> bool:
        """Whether a scope around us was cancelled; shields are ignored, since ``HandlerScope`` delays with one."""
        scope: Any = self._scope
        while scope is not None and not scope.cancel_called:
            scope = scope._parent_scope
        return scope is not None

    def _is_tidied(self) -> bool:
        """Leave scopes and withdraw cancel requests that are not ours; return False if there was no such request."""
        task = self._task
        assert task is not None  # else nothing is touched
        for left in self._left_behind(task):
            left.cancel()
            left.__exit__(None, None, None)
        if self.is_cancelled or task.cancelling() <= self._requests:
            return False
        while task.cancelling() > self._requests:
            task.uncancel()
        return True

    def _left_behind(self, task: Task[Any]) -> list[CancelScope]:
        """Return the scopes that are open within ours, the innermost first; none if the call has left our own scope."""
        found = list[CancelScope]()
        scope = cast(Any, _scope_of(task))
        while scope is not None and scope is not self._scope:
            found.append(scope)
            scope = scope._parent_scope
        return found if scope is self._scope else []


def cancellation_behind(error: BaseException) -> CancelledError | None:
    """Return the cancellation that an error, or each error of a group, was made of; None if there is none."""
    found = [_cancellation_behind(one) for one in leaf_errors(error)]
    if None in found:
        return None
    return found[0]


def _cancellation_behind(error: BaseException) -> CancelledError | None:
    behind = error.__cause__ or error.__context__
    seen = set[int]()
    while behind is not None and not isinstance(behind, CancelledError) and id(behind) not in seen:
        seen.add(id(behind))  # users' code may have made a chain without end
        behind = behind.__cause__ or behind.__context__
    return behind if isinstance(behind, CancelledError) else None


def present_task() -> Task[Any] | None:
    """Return the present task; None if no loop runs here, or it calls something that is no task."""
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return None


def _scope_of(task: Task[Any]) -> CancelScope | None:
    state = _task_states.get(task)
    if state is None:
        return None
    return state.cancel_scope
