"""The executors of plain functions: threads, processes that are killed when their run is cancelled, and others."""

from __future__ import annotations

import asyncio
import inspect
import logging
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, TypeAlias, TypeVar

from anyio import (
    CancelScope,
    CapacityLimiter,
    CapacityLimiterStatistics,
    WouldBlock,
    create_task_group,
    get_cancelled_exc_class,
    to_thread,
)
from anyio.lowlevel import checkpoint_if_cancelled

from aioelasticjob.engine.process_worker import FromProcess, Raised, Returned, Snapshot, serve
from aioelasticjob.errors import ElasticJobError, InvalidSetting, NotAnException, add_note
from aioelasticjob.ground.plural import listed_items
from aioelasticjob.host.forks import ending_forks
from aioelasticjob.jobs.context import Checkpoints, Context, run_lease, run_limited_log
from aioelasticjob.jobs.dependencies import Overrides
from aioelasticjob.jobs.executors import find, pickled
from aioelasticjob.jobs.inspection import name_of
from aioelasticjob.logging import handled, logger
from aioelasticjob.observers.tracing import Spans

log = logger(__name__)

DEFAULT_THREADS = 40
"""How many plain functions may run in threads at the same time, unless the application sets another number."""
NEVER_BEGAN = "it waited for a free thread or process, and its function never began"
"""The note of a cancellation that came before the function began; `threads` and `processes` limit how many run."""
LONG_WAIT = 10.0
"""Seconds that a call waits for a free thread or process before the log says so."""
EXIT_TIMEOUT = 1.0
"""Seconds that an idle process has to end by itself."""

T = TypeVar("T")
Function: TypeAlias = Callable[..., Any]


class ProcessDied(ElasticJobError):
    """The process that ran a function ended before the function did."""

    def __init__(self, name: str, code: int | None) -> None:
        why = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        super().__init__(f"the process that ran {name} ended {why}: it crashed, was killed, or ran out of memory")
        self.exit_code = code


@dataclass(frozen=True, slots=True)
class Executors:
    """The threads and processes of an application, and what else its handlers need."""

    threads: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(DEFAULT_THREADS))
    processes: Processes = field(default_factory=lambda: Processes(processors()))
    overrides: Overrides = field(default_factory=dict)
    tracer: Spans | None = None
    """Makes spans; None unless the application has asked for them."""
    own: OwnExecutors = field(default_factory=lambda: OwnExecutors())
    """The executors that packages add."""
    _unlimited: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(inf))
    """For calls in threads that have a place already."""

    @property
    def calls(self) -> Mapping[str, CapacityLimiterStatistics]:
        """The calls that run and that wait in threads and processes; executors of packages have places of their own."""
        return {"thread": self.threads.statistics(), "process": self.processes.places.statistics()}

    def is_busy(self, executor: str) -> bool:
        """Whether a call would wait for a free thread or process now."""
        calls = self.calls.get(executor)
        return calls is not None and calls.borrowed_tokens >= calls.total_tokens

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """End all processes, and the executors that packages add, when the block is left."""
        async with self.processes.open(), self.own.open():
            yield

    async def call(self, executor: str, function: Function, context: Context, *arguments: Any, **named: Any) -> Any:
        """Call a plain function in the executor that its job is set to, when that is free, and return its result.

        Raises: as ``call_now`` does.
        """
        async with self.place(executor, context):
            return await self.call_now(executor, function, context, *arguments, **named)

    @asynccontextmanager
    async def place(self, executor: str, context: Context) -> AsyncIterator[None]:
        """Wait for a free thread or process, and keep it while the block is open.

        An executor of a package has places of its own, and its calls wait there.
        """
        places = {"thread": self.threads, "process": self.processes.places}.get(executor)
        if places is None:
            yield
            return
        try:
            await checkpoint_if_cancelled()
            await _take(places, executor, context)
        except get_cancelled_exc_class() as error:
            add_note(error, NEVER_BEGAN)
            raise
        try:
            yield
        finally:
            places.release()

    async def call_now(self, executor: str, function: Function, context: Context, *arguments: Any, **named: Any) -> Any:
        """Call a plain function in an executor in which the caller has a place, and return its result.

        Raises:
            ProcessDied: its process ended before the function did.
            BrokenExecutor: an executor that a package adds has lost what runs its functions.
            InvalidSetting: the function or an argument cannot be pickled for a process, or there is no such executor.
        """
        if executor == "process":
            return await self.processes.call(function, _detached(context, executor), *arguments, **named)
        if executor != "thread":
            given = (_detached(context, executor), *arguments)
            found = await self.own.call(executor, context.job_name, function, *given, **named)
        else:
            begun = list[Function]()
            here = replace(context, checkpoints=_SavedByTheLoop(context.checkpoints))
            try:
                work = partial(_in_thread, begun, function, here, *arguments, **named)
                found = await to_thread.run_sync(work, limiter=self._unlimited)
            except get_cancelled_exc_class() as error:
                if begun:  # the thread called from_thread.check_cancelled(); the cancelled scope raises its own error
                    await checkpoint_if_cancelled()
                else:
                    add_note(error, NEVER_BEGAN)
                raise
        return await found if inspect.iscoroutine(found) else found  # of an async function behind a plain decorator


class Processes:
    """Processes that run plain functions.  They are started when needed, and kept.

    Whoever calls a function has one of the ``places`` meanwhile, of which there are ``most``.
    """

    def __init__(self, most: int) -> None:
        self.places = CapacityLimiter(most)
        self._idle = list[_Child]()
        self._threads = CapacityLimiter(inf)  # the places limit them

    async def call(self, function: Function, *arguments: Any, **named: Any) -> Any:
        """Call a function in a process, in a place that the caller has.

        If the call is cancelled, the process and its children are killed.
        """
        return await self._ask(function, pickled(function, *arguments, **named))

    async def prepare(self, function: Function) -> None:
        """Start a process that has imported the function's module, unless one is idle; the caller has a place."""
        if not (self._idle and self._idle[-1].is_alive):
            await self._ask(function, pickled(callable, function))

    async def _ask(self, function: Function, request: bytes) -> Any:
        child = await self._child()
        claimed = run_lease.get()
        try:
            async with nullcontext() if claimed is None else claimed.watching(child.group):
                answer = await to_thread.run_sync(child.ask, request, abandon_on_cancel=True, limiter=self._threads)
        except BaseException as error:
            with CancelScope(shield=True):
                code = await to_thread.run_sync(child.kill, limiter=self._threads)
            if isinstance(error, EOFError | OSError):
                raise ProcessDied(name_of(function), code) from None
            raise
        self._idle.append(child)
        if isinstance(answer, Raised):
            raise answer.error from FromProcess(answer.stack)
        return answer.value

    async def _child(self) -> _Child:
        """Return an idle process that is still alive, or a new one."""
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            await to_thread.run_sync(child.leave, limiter=self._threads)
        return await to_thread.run_sync(_Child, limiter=self._threads)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """End all processes when the block is left."""
        try:
            yield
        finally:
            idle = self._idle
            self._idle = []
            await _call_in_threads(child.leave for child in idle)


class _Child:
    """One process and the connection to it.  All methods block, so they are called in threads."""

    def __init__(self) -> None:
        if multiprocessing.current_process().daemon:
            why = "a daemonic process of multiprocessing may not start others: use executor = 'thread'"
            raise InvalidSetting("executor", "process", why)
        spawn = multiprocessing.get_context("spawn")  # a fork would copy held locks and the event loop
        self._connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(theirs, _levels()), name="aioelasticjob")
        self._process.start()
        theirs.close()

    @property
    def group(self) -> int:
        """The process group that it leads."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended, say because the machine has run out of memory."""
        return self._process.is_alive()

    def ask(self, request: bytes) -> Returned | Raised:
        """Send a request and return the answer.  Log records that the process sends meanwhile are logged here."""
        try:
            self._connection.send_bytes(request)
            while isinstance(message := self._connection.recv(), logging.LogRecord):
                log = logging.getLogger(message.name)  # maybe the program's own, which stays as it is
                if log.isEnabledFor(message.levelno):
                    handled(log.handle, message)
        except (EOFError, OSError):
            self._connection.close()  # here and not in kill(): a thread may not close what another thread reads
            raise
        return message  # type: ignore[no-any-return]  # process_worker sends nothing else

    def leave(self) -> None:
        """Let an idle process end by itself."""
        self._connection.close()
        self._process.join(EXIT_TIMEOUT)
        self.kill()

    def kill(self) -> int | None:
        """Kill the process and its children, wait until it has ended, and return its exit code."""
        assert self._process.pid is not None
        if self._process.exitcode is None:
            with suppress(OSError, AttributeError):  # without a process group of its own yet, it has no children
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
        self._process.join()
        code = self._process.exitcode
        self._process.close()
        return code


class OwnExecutors:
    """The executors that packages add: each job that names one has its own, as long as the application runs.

    It makes an executor when a job first calls a function in it, and shuts all of them down at the end.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Executor] = {}

    async def call(self, name: str, job: str, function: Function, *arguments: Any, **named: Any) -> Any:
        """Call a function in the executor that a job has under this name, and return its result.

        A call that is cancelled before it has begun is withdrawn.  Otherwise this waits for its end, as for a thread.

        Raises:
            InvalidSetting: there is no such executor in this process.
            BrokenExecutor: the executor has lost what runs its functions; the next call makes a new one.
        """
        executor = self._made.get((name, job))
        if executor is None:
            executor = self._made[name, job] = _new_executor(name, job)
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
            made = self._made
            self._made = {}
            await _call_in_threads(executor.shutdown for executor in made.values())


async def _call_in_threads(functions: Iterable[Callable[[], object]]) -> None:
    """Call blocking functions at the same time, each in a thread, and wait for all even if the caller is cancelled."""
    threads = CapacityLimiter(inf)
    with CancelScope(shield=True):
        async with create_task_group() as tasks:
            for function in functions:
                tasks.start_soon(partial(to_thread.run_sync, function, limiter=threads))


async def _take(places: CapacityLimiter, executor: str, context: Context) -> None:
    """Wait for a free thread or process; after a while, log that, because the item counts as running meanwhile."""
    with suppress(WouldBlock):
        return places.acquire_nowait()
    warning = asyncio.get_running_loop().call_later(LONG_WAIT, _warn_of_wait, places.total_tokens, executor, context)
    try:
        await places.acquire()
    finally:
        warning.cancel()


def _warn_of_wait(most: float, executor: str, context: Context) -> None:
    if (limited_log := run_limited_log.get()) is not None:
        items = listed_items(context.claimed)
        setting = "threads" if executor == "thread" else "processes"
        text = (
            f"a call for {items} has waited for {LONG_WAIT:g} s for a free {executor}, and goes on waiting: "
            f"calls of this job or of others keep all {most:g} busy (ElasticJob({setting}=…))"
        )
        limited_log.warning(log, context.job_name, f"calls wait for a free {executor}", text)


def _new_executor(name: str, job: str) -> Executor:
    executor: object = find(name)(job)
    if not isinstance(executor, Executor):
        found = type(executor).__name__
        raise InvalidSetting("executor", name, f"made a {found} for {job}; it must make a concurrent.futures.Executor")
    return executor


async def _result(future: Future[T]) -> T:
    """Wait for the end of a call."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    future.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
    try:
        await ended.wait()
    except get_cancelled_exc_class() as error:
        if future.cancel():
            add_note(error, NEVER_BEGAN)
            raise
        with CancelScope(shield=True):
            await ended.wait()
    return future.result()


def _in_thread(begun: list[Function], function: Function, *arguments: Any, **named: Any) -> Any:
    """Note that a function begins, and call it.

    Two errors become Exceptions: a GeneratorExit would close whatever waits for the function, and a KeyboardInterrupt,
    which no Ctrl-C raises in a thread, would end the process.
    """
    begun.append(function)
    try:
        with ending_forks("the function"):
            return function(*arguments, **named)
    except (GeneratorExit, KeyboardInterrupt) as error:
        raise NotAnException("the function", error, is_cancelled=False) from error


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _detached(context: Context, executor: str) -> Context:
    """Return a context without its session."""
    offsets = {item: context.checkpoints.get(item) for item in context.claimed}
    return replace(context, checkpoints=Snapshot(executor, offsets))


@dataclass(frozen=True, slots=True)
class _SavedByTheLoop:
    """The offsets of a run for a plain function in a thread, where a coroutine saves nothing: nobody awaits it."""

    saved: Checkpoints

    def get(self, item: int) -> str | None:
        """Return the offset last saved, None if there is none."""
        return self.saved.get(item)

    def save(self, item: int, value: str) -> Coroutine[Any, Any, None]:
        """Save an offset, as `from_thread.run` calls this in the event loop; raise InvalidSetting in the thread."""
        if asyncio._get_running_loop() is None:
            expected = "a plain function calls anyio.from_thread.run(context.save_offset, …); nothing was saved"
            raise InvalidSetting("save_offset", value, expected)
        return self.saved.save(item, value)


def _levels() -> Mapping[str, int]:
    """Return the level of every logger, so that a process does not send records that would be dropped here."""
    known = logging.root.manager.loggerDict
    set_to = dict[str, int]()
    for name, one in known.items():
        if isinstance(one, logging.Logger) and one.level:
            set_to[name] = one.level
    return {**set_to, "": logging.root.level}
