"""Guard: ends the processes that are bound to a session when it may end, although this process sleeps.

The guard is a process of its own (``guard_process.py``), started when it is first needed.  It reads two things:

* the page: 32 bytes of memory that both processes share.  It has the session, the time of the machine's boot clock at
  which the session may end, how many runs are bound to the session, and how many to sessions that are over.  To write
  the page takes no system call, so each answer of the registry may move the end forward.
* the orders: lines on a pipe, each written at once, so that they need no lock.

============================  =====================================================================================
``start MARK SESSION``        a program will be started, with the mark in its environment
``started MARK GROUP``        it runs, and leads this process group
``failed MARK``               it could not be started
``watch GROUP SESSION``       a process that runs already is bound to the session from now on
``forget GROUP``              the group has ended, or is not bound any more
``look``                      the page says that the session is over, which the guard would notice within a second
============================  =====================================================================================

The mark closes the gap between the start of a program and the order that names its group: this process may be stopped
or killed in between.
"""

from __future__ import annotations

import asyncio
import itertools
import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import resources
from math import inf
from threading import Lock

from anyio import to_thread

from aioelasticjob import clock
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.host.orphans import MARK, new_mark, orphans
from aioelasticjob.logging import logger

PAGE_SIZE = 32
SESSION, END, BOUND, OVER = range(4)
"""The places on the page, each of eight bytes."""
GUARD_PROGRAM = resources.files("aioelasticjob.host") / "guard_process.py"

_real_time: Callable[[], float] = clock.boot_time
"""The clock that the guard reads, also while a simulation replaces ours."""

log = logger(__name__)


class Unguarded(ElasticJobError):
    """The guard cannot be started, so no process may be started that it would have to end."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the guard, which ends children when their session is over, cannot be started: {why}")


class Page:
    """The memory that the guard reads.  To write it takes no system call."""

    def __init__(self) -> None:
        self.descriptor = _shared_memory()
        self._memory = mmap.mmap(self.descriptor, PAGE_SIZE)
        self._view = memoryview(self._memory)
        self._numbers = self._view.cast("q")
        self._times = self._view.cast("d")

    def write(self, session: int, left: float, bound: int, over: int) -> None:
        """Note in how many seconds the session may end, and how many runs are bound to it and to former sessions."""
        if self._numbers[SESSION] != session:
            self._times[END] = -inf  # the guard must not see the new session with the end of the old one
            self._numbers[SESSION] = session
        self._numbers[BOUND] = bound
        self._numbers[OVER] = over
        self._times[END] = _real_time() + left

    def close(self) -> None:
        """Give the memory back."""
        for view in (self._numbers, self._times, self._view):
            view.release()
        self._memory.close()
        os.close(self.descriptor)


class Guard:
    """Starts the guard when it is first needed, and again if it dies; tells it what is bound to which session.

    ``refresh`` is called before the guard starts, and has to write the page.  ``ends_worker`` says whether the guard
    ends this process, too, if runs go on that are bound to a session that is over.
    """

    def __init__(self, refresh: Callable[[Page], None], *, ends_worker: bool = False) -> None:
        self.page: Page | None = None
        """The page, as long as a guard is running."""
        self.ends_worker = ends_worker
        self._refresh = refresh
        self._process: subprocess.Popen[bytes] | None = None
        self._orders = -1
        self._life = -1
        """Is at its end when the guard is."""
        self._groups = dict[int, int]()
        self._starts = dict[str, int]()
        self._marks = itertools.count()
        self._lock = Lock()
        self._loop = asyncio.get_running_loop()

    async def start(self) -> None:
        """Start the guard, unless it runs.

        Raises:
            Unguarded: it cannot be started.
            InvalidSetting: it cannot end this process.
        """
        if self.ends_worker and os.getpid() == 1:
            expected = "needs a container with an init (docker run --init): nobody can kill its process 1 from inside"
            raise InvalidSetting("exit_at_lease_end", True, expected)
        if self._process is None:
            await to_thread.run_sync(self._start)
            self._follow()

    @asynccontextmanager
    async def starting(self, session: int) -> AsyncIterator[Start]:
        """Let a program that is started in the block end with the session; 0 stands for the life of this process.

        The program leads a process group of its own, and is given the environment variables of the ``Start``.

        Raises:
            Unguarded: nothing would end the program, so it must not be started.
        """
        await self.start()
        start = Start(self, new_mark(f"{id(self):x}-{next(self._marks)}"))
        self._starts[start.mark] = session
        orphans.begin(start.mark)
        self._order(f"start {start.mark} {session}")
        try:
            yield start
        finally:
            if start.group is None:
                del self._starts[start.mark]
                self._order(f"failed {start.mark}")
            else:
                self._forget(start.group)
            orphans.end(start.mark)
            orphans.collect()

    @asynccontextmanager
    async def watching(self, group: int, session: int) -> AsyncIterator[None]:
        """Let a process that runs already, and leads a process group of its own, end with the session.

        Raises:
            Unguarded: nothing would end the process.
        """
        await self.start()
        self._groups[group] = session
        self._order(f"watch {group} {session}")
        try:
            yield
        finally:
            self._forget(group)

    def started(self, mark: str, group: int) -> None:
        """Note the process group of a program that was started."""
        self._groups[group] = self._starts.pop(mark)
        orphans.started(mark, group)
        self._order(f"started {mark} {group}")

    def look(self) -> None:
        """Have the guard read the page now."""
        if self._process is not None:
            self._order("look")

    def close(self) -> None:
        """End the guard.  Nothing may be bound any more."""
        with self._lock:
            self._end_guard()

    def _forget(self, group: int) -> None:
        self._groups.pop(group, None)
        self._order(f"forget {group}")

    def _order(self, order: str) -> None:
        """Write an order; if the guard is gone, or does not read any more, another one takes its place."""
        try:
            os.write(self._orders, f"{order}\n".encode())
        except OSError:
            self._replace()

    def _follow(self) -> None:
        """Have another guard started when this one ends."""
        self._loop.add_reader(self._life, self._replace)

    def _replace(self) -> None:
        """Start another guard, which watches what the last one has watched.

        Nobody else would end the children in time, so they are ended if there can be no guard.
        """
        with self._lock:
            if self._process is None:
                return
            self._end_guard()
        text = "the guard, which ends children when their session is over, has died; another one takes its place"
        log.warning(text, extra={"reason": "the guard has died"})
        try:
            self._start()
        except Unguarded as error:
            log.error("%s; the children are ended now", error, exc_info=error, extra={"reason": str(error)})
            for group in self._groups:
                with suppress(OSError):
                    os.killpg(group, signal.SIGKILL)
            return
        self._follow()

    def _start(self) -> None:
        with self._lock:
            if self._process is not None:
                return
            page = Page()
            self._refresh(page)
            reads, self._orders = os.pipe()
            self._life, lives = os.pipe()
            os.set_blocking(self._orders, False)  # a guard that is stopped must not stop us, too
            given = (page.descriptor, reads, lives)
            arguments = [page.descriptor, reads, os.getpid(), int(self.ends_worker)]
            try:
                self._process = _run(GUARD_PROGRAM.read_text(), arguments, given)
            except OSError as error:
                os.close(self._orders)
                os.close(self._life)
                page.close()
                raise Unguarded(str(error)) from error
            finally:
                os.close(reads)
                os.close(lives)
            self.page = page
            orders = [f"start {mark} {session}\n" for mark, session in self._starts.items()]
            orders += [f"watch {group} {session}\n" for group, session in self._groups.items()]
            for order in orders:
                os.write(self._orders, order.encode())

    def _end_guard(self) -> None:
        process = self._process
        self._process = None
        if process is None:
            return
        process.kill()
        process.wait()
        self._loop.remove_reader(self._life)
        os.close(self._life)
        os.close(self._orders)
        assert self.page is not None
        self.page.close()
        self.page = None


@asynccontextmanager
async def until_this_process_ends() -> AsyncIterator[Start]:
    """Let a program that is started in the block, outside of any run, end with this process."""
    guard = Guard(lambda page: page.write(0, inf, 0, 0))
    try:
        async with guard.starting(0) as start:
            yield start
    finally:
        guard.close()


class Start:
    """A program that is being started under the guard's eyes."""

    def __init__(self, guard: Guard, mark: str) -> None:
        self.mark = mark
        self.group: int | None = None
        self._guard = guard

    @property
    def variables(self) -> Mapping[str, str]:
        """What the program's environment must have."""
        return {MARK: self.mark}

    def leads(self, group: int) -> None:
        """Note the process group that the program leads."""
        self.group = group
        self._guard.started(self.mark, group)


def _run(program: str, arguments: Sequence[object], descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    """Run a program of ours that needs nothing but Python, apart from the signals of our terminal."""
    if not sys.executable:
        raise OSError("no Python interpreter is known")
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", program, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=descriptors,
        start_new_session=True,
        cwd="/",
    )


def _shared_memory() -> int:
    """Return a descriptor of memory that processes can share."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("aioelasticjob-guard")
    else:
        descriptor, path = tempfile.mkstemp(prefix="aioelasticjob-guard-")
        os.unlink(path)
    os.ftruncate(descriptor, PAGE_SIZE)
    return descriptor
