"""Cancels handlers, and names in the log those that go on all the same.

An anyio scope cancels a task again at every turn of the event loop until the task ends.  A handler that swallows
CancelledError would keep a processor busy for as long as it goes on.  So after some turns it is cancelled only once a
second.  A handler that shields its cleanup costs nothing, and is cancelled again only after that.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from inspect import isasyncgenfunction, unwrap
from math import inf
from types import CodeType, FrameType, TracebackType
from typing import Any, cast

from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.ground.plural import listed_items
from aioelasticjob.host.event_loop import CancelScope
from aioelasticjob.jobs.base import Handler
from aioelasticjob.jobs.context import Context
from aioelasticjob.jobs.inspection import is_async
from aioelasticjob.logging import logger

UNHEEDED_AFTER = 1.0
"""Seconds until a cancelled handler that goes on is named in the log, and between two cancellations from then on."""
MAX_REPEATED_CANCELS = 100
"""Turns of the event loop in which every wait of the handler is cancelled, also the waits of its cleanup."""
SHIELD_PAUSE = 0.01
"""Seconds between two looks at a handler that shields its cleanup."""
SHIELD_LOOKS = 10
"""Looks that must have found the handler shielded before it is named; fewer may mean that the loop was blocked."""

log = logger(__name__)


class HandlerScope:
    """A cancel scope that calls ``unheeded`` once if the code inside goes on although it was cancelled.

    The scope cancels by itself ``after`` so many seconds.  If ``unheeded`` is None, nothing is called, and no
    cancellation is held back.  While the code waits for a thread, none is held back either: it is not cancelled over
    and over then, and a shield would hide the cancellation from anyio.from_thread.check_cancelled() in the thread.
    """

    def __init__(self, unheeded: Callable[[], None] | None, after: float | None = None) -> None:
        self._unheeded = unheeded
        self._after = after
        self.cancel_called = False
        """Whether ``cancel`` was called, or the time was over."""
        self.reason: str | None = None
        """Why the code was cancelled; None if ``cancel`` was given no reason, or was not called."""
        self.notes: Sequence[str] = ()
        """The notes of the cancellation with which the code has ended."""
        self._deadline = inf
        """When the time is over, by the loop's clock."""
        self._asking = CancelScope()
        """Cancels the code."""
        self._held = CancelScope()
        """Is inside the other one, and shields the code from it while further cancellations are held back."""
        self._timer: asyncio.TimerHandle | None = None
        """Calls ``cancel`` when the time is over; then it looks whether the code goes on all the same."""
        self._next_turn: asyncio.Handle | None = None
        self._turns = MAX_REPEATED_CANCELS
        """Turns of the event loop in which the code is still cancelled again."""
        self._shielded = 0
        """How often the code was seen to shield itself."""
        self._warned = False
        """Whether ``unheeded`` was called."""
        self._over = False
        """Whether the code has ended."""

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the code inside the scope."""
        if self._over or self.cancel_called:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._unheeded is not None:
            self._timer = asyncio.get_running_loop().call_later(UNHEEDED_AFTER, self._look, self._unheeded)
        self.cancel_called = True
        self.reason = reason
        self._asking.cancel(reason)
        self._turn()

    def __enter__(self) -> HandlerScope:
        self._asking.__enter__()
        self._held.__enter__()
        if self._after is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.time() + self._after
            self._timer = loop.call_at(self._deadline, self.cancel)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._over = True
        if kind is asyncio.CancelledError:  # users' errors may be of classes that cannot be asked
            self.notes = getattr(error, "__notes__", ())
        for handle in (self._timer, self._next_turn):
            if handle is not None:
                handle.cancel()
        self._held.__exit__(kind, error, trace)
        return self._asking.__exit__(kind, error, trace)

    @property
    def has_caught(self) -> bool:
        """Whether the code was ended by the cancellation."""
        return self._asking.cancelled_caught

    @property
    def is_overdue(self) -> bool:
        """Whether the time is over, also if the code was cancelled for another reason before."""
        return asyncio.get_running_loop().time() >= self._deadline

    @property
    def _is_delivering(self) -> bool:
        """Whether the scope cancels the code at every turn; not while the code shields itself or waits for a thread.

        Turns in which it does not are not counted.  Otherwise this scope could shield the code before the code has seen
        that it was cancelled, and a task group in the code would take the CancelledError for its own and swallow it.
        """
        return cast(Any, self._asking)._cancel_handle is not None

    def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._is_delivering:
            self._shielded += 1
            self._next_turn = loop.call_later(SHIELD_PAUSE, self._turn)
        elif self._turns:
            self._turns -= 1
            self._next_turn = loop.call_soon(self._turn)
        elif self._unheeded is not None:
            self._held.shield = True  # hold further cancellations back

    def _look(self, unheeded: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(UNHEEDED_AFTER, self._look, unheeded)
        if self._turns and self._shielded < SHIELD_LOOKS:
            return  # the loop was blocked meanwhile, so the code could not end yet
        if not self._warned:
            self._warned = True
            unheeded()
        if not self._turns:
            self._held.shield = False  # let one cancellation through
            self._held.shield = True


def handler_scope(
    handler: Handler | None, context: Context, limited_log: LimitedLog, after: float | None = None
) -> HandlerScope:
    """Return a scope for a call in the current task, which cancels it ``after`` so many seconds.

    If the call goes on after it was cancelled, the log names the handler, unless ``handler`` is None.
    """
    task = asyncio.current_task()
    assert task is not None  # as always in a coroutine
    unheeded = None if handler is None else partial(warn_unheeded, handler, context, task, limited_log)
    return HandlerScope(unheeded, after)


def warn_unheeded(handler: Handler, context: Context, task: asyncio.Task[object], limited_log: LimitedLog) -> None:
    """Name a handler in the log that goes on although it was cancelled."""
    job = context.job_name
    items = listed_items(context.claimed)
    if limited_log.admits(log, job, "handlers go on after they were cancelled", each=MOST):
        name = f"{getattr(handler, '__module__', '?')}.{getattr(handler, '__qualname__', handler)}"
        goes_on = f"the handler {name} of {items} goes on {UNHEEDED_AFTER:g} s after it was cancelled"
        what = "a thread is interrupted only if it calls anyio.from_thread.check_cancelled()"
        if is_async(handler) or isasyncgenfunction(unwrap(handler)):
            what = f"let CancelledError pass.  It is at:\n{stack(task, getattr(handler, '__code__', None))}"
        log.warning("%s: %s: %s", job, goes_on, what, extra={"job": job, "items": context.claimed, "handler": name})


def stack(task: asyncio.Task[object], since: CodeType | None = None) -> str:
    """Return the stack of a waiting task; it begins at the frame of the code ``since``, if there is one."""
    frames: list[tuple[FrameType, int]] = []
    at: object = task.get_coro()
    while at is not None:
        frame = getattr(at, "cr_frame", None) or getattr(at, "gi_frame", None) or getattr(at, "ag_frame", None)
        if isinstance(frame, FrameType):
            frames.append((frame, frame.f_lineno))
        at = getattr(at, "cr_await", None) or getattr(at, "gi_yieldfrom", None) or getattr(at, "ag_await", None)
    first = 0
    for number, (frame, _) in enumerate(frames):
        if frame.f_code is since:
            first = number
            break
    return "".join(traceback.StackSummary.extract(frames[first:]).format()).rstrip()
