"""The door to users' code: whatever a call of it raises is how that call ended, and ends nothing else.

Some of what Python raises is no ``Exception``: a panic of a Rust extension, gevent's Timeout, SystemExit, a
CancelledError that nobody here has sent.  Past an ``except Exception`` each of them would end the process, and where
failover is on, one rescuer after the other.  Past this door there are only Exceptions.  Three things pass as they are:
our own cancellation, KeyboardInterrupt and GeneratorExit.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, Task
from types import TracebackType
from typing import Any

from anyio import CancelScope
from anyio._backends._asyncio import _task_states  # the only way to learn which scopes a task is in

from aioelasticjob.errors import NotAnException, leaves


class Door:
    """Stands around one call of users' code, or several in a row: ``async with Door("the handler"): await call()``.

    What comes out is an Exception as it was raised, a ``NotAnException`` in the place of anything else, or what is
    meant for us.  We cancel through anyio's scopes alone, so a cancellation is ours if a scope around the door has been
    cancelled.  What the call leaves behind in our task is tidied up: cancel scopes that it has not left, and requests
    to cancel the task that it has made itself.  Where nothing can be awaited, ``with`` does the same.
    """

    __slots__ = ("_requests", "_scope", "_task", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._task = task = _present_task()
        self._requests = 0 if task is None else task.cancelling()
        self._scope = None if task is None else _scope_of(task)

    @property
    def is_touched(self) -> bool:
        """Whether the call has left something behind in our task."""
        task = self._task
        return task is not None and (task.cancelling() > self._requests or _scope_of(task) is not self._scope)

    async def failure(self, error: BaseException) -> Exception:
        """Return how the call ended that raised an error; raise it if it is meant for us."""
        await self.tidy()
        return self.judged(error)

    async def tidy(self) -> None:
        """Remove what the call has left behind in our task."""
        if self.is_touched and self._is_tidied():
            try:
                await asyncio.sleep(0)  # before CPython 3.13 a request that was taken back still arrives
            except CancelledError:
                if self._is_cancelled():
                    raise

    def __enter__(self) -> Door:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_touched:
            self._is_tidied()
        if error is not None and (judged := self.judged(error)) is not error:
            raise judged from error

    async def __aenter__(self) -> Door:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.tidy()
        if error is not None and (judged := self.judged(error)) is not error:
            raise judged from error

    def judged(self, error: BaseException) -> Exception:
        """Return how the call ended that raised an error, without tidying up; raise it if it is meant for us."""
        if isinstance(error, Exception):
            return error
        for one in leaves(error):
            if isinstance(one, KeyboardInterrupt):
                raise one
        if isinstance(error, GeneratorExit):  # in a group it was sent to a generator of theirs
            raise error
        if self._is_cancelled() and all(isinstance(one, CancelledError) for one in leaves(error)):
            raise next(leaves(error))  # of a group, too: scopes and tasks look for the error itself
        failure = NotAnException(self._what, error)
        failure.__cause__ = error
        return failure

    def _is_cancelled(self) -> bool:
        """Whether a scope around us was cancelled; shields do not count, since a Cut holds back behind one."""
        scope: Any = self._scope
        while scope is not None and not scope.cancel_called:
            scope = scope._parent_scope
        return scope is not None

    def _is_tidied(self) -> bool:
        """Leave scopes and take back requests that are not ours; False if there was no such request."""
        task = self._task
        assert task is not None  # else nothing is touched
        while (left := _scope_of(task)) is not None and left is not self._scope:
            left.cancel()
            left.__exit__(None, None, None)
        if self._is_cancelled() or task.cancelling() <= self._requests:
            return False
        while task.cancelling() > self._requests:
            task.uncancel()
        return True


def _present_task() -> Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return None


def _scope_of(task: Task[Any]) -> CancelScope | None:
    state = _task_states.get(task)
    return None if state is None else state.cancel_scope
