"""A process of the simulated world: several of them share one event loop, and each can be stopped or killed alone.

Everything the loop runs carries the context it was scheduled in, and the context names the process.  So a process is
stopped as a kernel stops it, from outside: its callbacks and timers come due and are held back; killed, they are
dropped, and not even a ``finally`` of its code runs any more.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

Main = Callable[[], Coroutine[object, object, object]]


class ProcessKilled(Exception):
    """The process that was waited for has been killed."""


class Process:
    """A simulated process: code with its own address and clock, which can be paused or killed alone."""

    def __init__(self, name: str, address: str, *, skew: float = 0.0) -> None:
        self.name = name
        self.address = address
        self.skew = skew
        """Seconds by which this process's wall clock is ahead of the true one."""
        self.alive = True
        self.paused = False
        self.asleep = 0.0
        """Seconds that its machine was suspended: its monotonic clock is behind the true one by so many."""
        self.suspended_at: float | None = None
        self.timers: list[asyncio.TimerHandle] = []
        """Its timers that are not due yet, while its machine is suspended."""
        self.exited: Callable[[SystemExit], None] | None = None
        """Called when its code ends the interpreter; None to let that end the whole simulation."""
        self._held: deque[asyncio.Handle] = deque()
        self._main: asyncio.Task[object] | None = None
        self._ended = asyncio.get_running_loop().create_future()
        self.context = contextvars.copy_context()
        self.context.run(_current.set, self)

    def __repr__(self) -> str:
        if not self.alive:
            state = "killed"
        elif self.paused:
            state = "paused"
        else:
            state = "running"
        return f"<Process {self.name} at {self.address}, {state}>"

    def start(self, main: Main) -> Process:
        """Run ``main()`` as the code of this process and return the process."""
        loop = asyncio.get_running_loop()

        def create_task() -> asyncio.Task[object]:
            return loop.create_task(main(), name=self.name, context=self.context.copy())

        self._main = self.context.run(create_task)
        self._main.add_done_callback(self._finish, context=contextvars.Context())
        return self

    async def wait(self) -> object:
        """Return what the process's main function returned.

        Raises: what that function raised; ``ProcessKilled`` if the process was killed first.
        """
        return await asyncio.shield(self._ended)

    @property
    def ended(self) -> bool:
        """Whether the main function has returned or failed, or the process was killed."""
        return self._ended.done()

    def terminate(self) -> None:
        """Cancel the main function, as a handler of SIGTERM would."""
        if self._main is not None and self.alive:
            self.context.copy().run(self._main.cancel)

    def pause(self) -> None:
        """Stop the process in its tracks, as SIGSTOP does; what comes due is held until ``resume``."""
        self.paused = True

    def resume(self, ready: deque[asyncio.Handle]) -> None:
        """Let it go on: everything held back becomes ``ready``, oldest first and before what is ready already."""
        self.paused = False
        ready.extendleft(reversed(self._held))
        self._held.clear()

    def kill(self) -> None:
        """End the process between two of its steps; no code of it runs again."""
        self.alive = False
        self.suspended_at = None
        self._held.clear()
        self.timers.clear()
        if not self._ended.done():
            self._ended.set_exception(ProcessKilled(self.name))
            # the error is marked as retrieved: nothing has to wait for a process that was killed on purpose
            self._ended.exception()

    def admits(self, handle: asyncio.Handle) -> bool:
        """Say whether ``handle`` may run now; keep it for later if the process is only paused."""
        if self.alive and self.paused:
            self._held.append(handle)
        return self.alive and not self.paused

    def _finish(self, main: asyncio.Task[object]) -> None:
        if self._ended.done():
            return
        if main.cancelled():
            self._ended.set_result(None)
        elif failure := main.exception():
            self._ended.set_exception(failure)
        else:
            self._ended.set_result(main.result())


_current: ContextVar[Process | None] = ContextVar("aioelasticjob.testing.process", default=None)


def current_process(context: contextvars.Context | None = None) -> Process | None:
    """Return the process whose code is running, or ``context``'s; ``None`` is the world outside of all processes."""
    if context is None:
        return _current.get()
    return context.get(_current)


def describe(task: asyncio.Task[Any]) -> str:
    """Name a task and the places it waits at, innermost first."""
    places: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = _first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            places.append(f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})")
        awaited = _first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
    name = task.get_name()
    process = getattr(task, "process", None)
    if process is not None:
        name += f" of {process}"
    return f"  {name} at " + " <- ".join(reversed(places))


def _first(thing: Any, *names: str) -> Any:
    """Return the first of some attributes that is there: coroutines and generators have the same under other names."""
    for name in names:
        found = getattr(thing, name, None)
        if found is not None:
            return found
    return None
