"""An event loop whose time is simulated: it never sleeps, it jumps to the next timer.

Production code runs on it unmodified.  Its sockets are those of ``testing.network``; threads, file descriptors and
child processes do not exist on it, since nothing says when they would be done.  The same seed gives the same run
(across interpreters too, if ``PYTHONHASHSEED`` is fixed: sets of strings are ordered by it).
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import itertools
import logging
import os
import random
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar, TypeVarTuple
from unittest import mock

from anyio._backends._asyncio import CancelScope, _task_states

from aioelasticjob import clock
from aioelasticjob.testing.errors import Deadlock, Livelock, OutsideWorld, UnhandledErrors, refusing
from aioelasticjob.testing.network import Network
from aioelasticjob.testing.process import Process, current_process, describe
from aioelasticjob.testing.simulated_loop import SimulatedLoop
from aioelasticjob.testing.suspension import monotonic, wake

__all__ = ["START", "Deadlock", "Livelock", "OutsideWorld", "UnhandledErrors", "VirtualClock", "VirtualLoop", "run"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START = 1_767_225_600.0
"""The default beginning of the simulated wall clock: 2026-01-01T00:00:00Z."""

_MAX_IDLE_TURNS = 200_000
"""After so many turns of the loop without time passing, the simulation is taken for an endless loop."""


class VirtualLoop(SimulatedLoop):
    """Asyncio's own scheduler over simulated time and an in-memory network."""

    _ready: deque[asyncio.Handle]
    _asyncgens: weakref.WeakSet[AsyncGenerator[object, object]]

    def __init__(self, *, seed: int = 0, start: float = START) -> None:
        super().__init__()
        self.start = start
        self.random = random.Random(seed)
        self.unhandled: list[Exception] = []
        self.tasks = itertools.count()
        self._remains: list[asyncio.Task[Any]] = []
        self.thread = threading.current_thread()
        self._now = 0.0
        self._idle_turns = 0
        self._owners: dict[int, Process] = {}  # of asynchronous generators
        self._selector = self  # the scheduler asks its selector how long to wait
        self._clock_resolution = 1e-6  # a float can tell such moments apart for more than a century
        self.set_task_factory(_SimulatedTask.make)
        self.set_exception_handler(lambda _loop, context: self._note_unhandled(context))
        self.network = Network(self)

    def time(self) -> float:
        """Return the simulated seconds since the loop was made, less those that the asking process was suspended."""
        process = current_process()
        if process is None:
            return self._now
        return monotonic(process, self._now)

    def boot_time(self) -> float:
        """Return the simulated seconds since the loop was made, on the clock that no suspension of a machine stops."""
        return self._now

    def wall(self) -> float:
        """Return the wall time of the running process in seconds since the epoch."""
        wall = self.start + self._now
        process = current_process()
        if process is None:
            return wall
        return wall + process.skew

    def select(self, timeout: float | None) -> tuple[()]:
        """Let time pass until the next timer is due.

        Raises: Deadlock if there is none, Livelock if time has stood still for very long.
        """
        if timeout is None:
            tasks = sorted(asyncio.all_tasks(self), key=hash)
            raise Deadlock([describe(task) for task in tasks])
        if timeout > 0:
            self._now = max(self._now, self._scheduled[0].when())
            self._idle_turns = 0
            return ()
        turns = self._idle_turns + 1
        if turns > _MAX_IDLE_TURNS:
            raise Livelock(f"{turns} turns of the loop at second {self._now}; next is {self._ready[0]}")
        self._idle_turns = turns
        return ()

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run ``callback`` in the next turn, if its process lives and is not paused."""
        self._check_closed()
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` at ``when`` by the asking process's clock, if its process lives and is not paused then."""
        process = current_process()
        if process is not None:
            when += process.asleep
        return self.call_at_boot_time(when, callback, *args, context=context)

    def call_at_boot_time(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` at ``when`` by the clock that is never suspended."""
        self._check_closed()
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` after ``delay`` seconds, if its process lives and is not paused then."""
        return self.call_at_boot_time(self._now + delay, callback, *args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run ``callback`` in the next turn; called by another thread, refuse."""
        if threading.current_thread() is not self.thread:
            raise OutsideWorld("a call from another thread")
        return self.call_soon(callback, *args, context=context)

    async def create_connection(self, protocol_factory: Callable[[], Any], *args: Any, **options: Any) -> Any:
        """Connect over the in-memory network."""
        return await self.network.connect(protocol_factory, *args, **options)

    async def create_server(self, protocol_factory: Callable[[], Any], *args: Any, **options: Any) -> Any:
        """Listen on the in-memory network."""
        return await self.network.listen(protocol_factory, *args, **options)

    async def getaddrinfo(self, host: Any, port: Any, **_options: Any) -> Any:
        """Return the one address a name has in the simulated world."""
        return self.network.addresses(host, port)

    def resume(self, process: Process) -> None:
        """Let a paused process go on."""
        process.resume(self._ready)

    def count_turns_anew(self) -> None:
        """Count the turns without time passing from 0 again, since something new begins."""
        self._idle_turns = 0

    def retain_tasks(self, process: Process) -> None:
        """Keep references to the tasks of a process that is killed: collected tasks would run their code again."""
        for task in asyncio.all_tasks(self):
            if isinstance(task, _SimulatedTask) and task.process is process:
                self._remains.append(task)

    def unwind_killed(self) -> bool:
        """Unwind the tasks of killed processes and ignore their errors; return whether there were any."""
        for agen in list(self._asyncgens):
            if not self._owner_lives(agen):
                self._asyncgens.discard(agen)
        for task in sorted(asyncio.all_tasks(self), key=hash):
            if isinstance(task, _SimulatedTask) and task.process and not task.process.alive:
                task.unwind()
        remains = self._remains
        self._remains = []
        return bool(remains)

    def _owner_lives(self, agen: AsyncGenerator[object, object]) -> bool:
        process = self._owners.get(id(agen))
        return process is None or process.alive

    def _asyncgen_firstiter_hook(self, agen: AsyncGenerator[object, object]) -> None:
        super()._asyncgen_firstiter_hook(agen)  # type: ignore[misc]  # typeshed leaves the hooks out
        process = current_process()
        if process is None:
            self._owners.pop(id(agen), None)  # of an earlier one in its place
        else:
            self._owners[id(agen)] = process

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[object, object]) -> None:
        """Close a generator that was not closed, unless its process was killed."""
        if self._owner_lives(agen):
            super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]
        self._owners.pop(id(agen), None)  # by its place: weak references to it are dead already

    def _process_events(self, _events: tuple[()]) -> None:
        """Do nothing: there are no file descriptors, so there are no events of them."""

    def _check_closed(self) -> None:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")

    def _note_unhandled(self, context: dict[str, Any]) -> None:
        failure = context.get("exception")
        if not isinstance(failure, Exception):
            failure = RuntimeError(context["message"])
        self.unhandled.append(failure)


for _name in (
    "run_in_executor",
    "subprocess_exec",
    "subprocess_shell",
    "connect_read_pipe",
    "connect_write_pipe",
    "add_reader",
    "add_writer",
    "remove_reader",
    "remove_writer",
    "sendfile",
    "start_tls",
    "sock_recv",
    "sock_recv_into",
    "sock_sendall",
    "sock_connect",
    "sock_accept",
    "sock_sendfile",
    "create_datagram_endpoint",
    "create_unix_connection",
    "create_unix_server",
    "connect_accepted_socket",
):
    setattr(VirtualLoop, _name, refusing(f"loop.{_name}"))


class _Held:
    """A handle that runs only if the process it belongs to may run."""

    __slots__ = ()
    _context: contextvars.Context

    def _run(self) -> None:
        process = current_process(self._context)
        if process is None:
            super()._run()  # type: ignore[misc]
        elif process.admits(self):  # type: ignore[arg-type]  # mixed into handles only
            try:
                super()._run()  # type: ignore[misc]
            except SystemExit as error:  # it passes through a loop and ends the interpreter that runs it
                if process.exited is None:
                    raise
                process.exited(error)


class _Handle(_Held, asyncio.Handle):
    __slots__ = ()


class _Timer(_Held, asyncio.TimerHandle):
    __slots__ = ()
    _scheduled: bool


class _SimulatedTask(asyncio.Task[Any]):
    """A task that knows its process.  Its hash is its age, so that sets of tasks have the same order in each run."""

    def __init__(self, coro: Coroutine[Any, Any, Any], loop: VirtualLoop, **options: Any) -> None:
        self._age = next(loop.tasks)  # asked for while the base class registers the task
        self.process = current_process(options.get("context"))
        super().__init__(coro, loop=loop, **options)

    @classmethod
    def make(cls, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> _SimulatedTask:
        assert isinstance(loop, VirtualLoop)
        return cls(coro, loop, **options)

    def __hash__(self) -> int:
        return self._age

    def unwind(self) -> None:
        """Unwind a task whose process was killed: its ``finally`` blocks run, and whatever they do has no effect."""
        self._log_destroy_pending = False
        coroutine: Any = self.get_coro()
        context = self.process.context.copy() if self.process else contextvars.copy_context()
        for _ in range(100):  # once for each ``await`` that its unwinding meets
            try:
                context.run(coroutine.close)
            except BaseException:  # errors of killed processes are ignored
                continue
            return


class VirtualClock:
    """The wall clock of the process that asks, skew included; an ``aioelasticjob.clock.Clock``."""

    def now(self) -> float:
        """Return the simulated wall time in seconds since the epoch."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "VirtualClock only runs in a VirtualLoop"
        return loop.wall()


def run(main: Callable[[], Awaitable[T]], *, seed: int = 0, start: float = START) -> T:
    """Return what ``main()`` returns, run in a simulated world of its own.

    ``random`` and the functions of ``time`` follow the seed and the simulated time meanwhile, so code that reads them
    directly is simulated too.  Raises: what ``main`` raises; Deadlock, Livelock; UnhandledErrors when errors ended up
    in the loop's exception handler.
    """
    return run_on(VirtualLoop(seed=seed, start=start), main, seed)


def run_on(loop: VirtualLoop, main: Callable[[], Awaitable[T]], seed: int) -> T:
    """Do as ``run`` does, on a loop that may choose by itself what runs next, and close it."""

    async def body() -> T:
        return await main()

    with _simulated(loop, seed):
        try:
            result = loop.run_until_complete(body())
            unhandled = loop.unhandled.copy()  # errors of tasks that are cut off at the end are ignored
        finally:
            with mock.patch.object(logging.Logger, "isEnabledFor", return_value=False):  # for the same reason
                _shut_down(loop)
    if unhandled:
        raise UnhandledErrors("errors nobody handled", unhandled)
    return result


@contextmanager
def _simulated(loop: VirtualLoop, seed: int) -> Iterator[None]:
    """Replace the interpreter's sources of time and randomness by the loop's, and refuse threads."""
    start_thread = threading.Thread.start

    def refuse_thread(thread: threading.Thread) -> None:
        if threading.current_thread() is loop.thread:
            raise OutsideWorld(f"a thread ({thread.name})")
        start_thread(thread)

    state = random.getstate()
    entropy = random.Random(f"entropy {seed}").randbytes
    seeded = random.Random.seed

    def seed_from_entropy(dice: random.Random, number: Any = None, version: int = 2) -> None:
        seeded(dice, entropy(16) if number is None else number, version)

    random.seed(seed)
    with ExitStack() as patches:
        patches.callback(random.setstate, state)
        for target, name, replacement in (
            (time, "time", loop.wall),
            (time, "time_ns", lambda: int(loop.wall() * 1e9)),
            (time, "monotonic", loop.time),
            (clock, "boot_time", loop.boot_time),
            (time, "sleep", refusing("time.sleep")),
            (os, "urandom", entropy),  # for uuid
            (random, "_urandom", entropy),  # for secrets
            (random.Random, "seed", seed_from_entropy),
            (threading.Thread, "start", refuse_thread),
            (CancelScope, "__hash__", lambda _scope: 0),  # a set of scopes is then in the order they were added
        ):
            patches.enter_context(mock.patch.object(target, name, replacement))
        yield


def _shut_down(loop: VirtualLoop) -> None:
    """End all remaining tasks, those of killed processes first, and close the loop."""
    tasks = [task for task in sorted(asyncio.all_tasks(loop), key=hash) if isinstance(task, _SimulatedTask)]
    living = [task for task in tasks if not task.process or task.process.alive]
    with warnings.catch_warnings(), mock.patch.object(sys, "unraisablehook"):
        warnings.simplefilter("ignore")  # coroutines that a dead task makes while it unwinds are never awaited
        if loop.unwind_killed():
            del tasks[:]
            gc.collect()  # now, while nobody gets the warnings of their last frames
    for task in living:
        if task.process and task.process.paused:
            wake(loop, task.process)
            loop.resume(task.process)
        task.cancel()
    loop.count_turns_anew()
    try:
        with warnings.catch_warnings(), mock.patch.object(sys, "unraisablehook"), suppress(Deadlock, Livelock):
            warnings.simplefilter("ignore")  # nor is what a task was to do that is cancelled before its first step
            loop.run_until_complete(asyncio.wait(living) if living else asyncio.sleep(0))
            loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.network.dissolve()
        for task in living:
            task._log_destroy_pending = False
        for noted in [one for one in _task_states if one.get_loop() is loop]:
            del _task_states[noted]  # which keeps a task that was killed, and through it all of its world
        loop.close()
