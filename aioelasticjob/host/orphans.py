"""Orphans: as process 1 of a container, this process has to wait for processes that others have started.

When a process ends, Linux gives its children to process 1.  One that has ended stays as a zombie, and keeps its process
id, until process 1 waits for it.  Whoever has started a process needs its exit status, so none may be taken from
``subprocess``, asyncio, multiprocessing or users' code: ``waitpid(-1)`` would do that.  A process is waited for by its
id, and only if another process has certainly started it:

* Its session is neither ours nor its own.  What this process starts is in our session, or leads a session of its own.
* It leads a session of its own, its environment has the mark of a script's start, and it is not that script: the script
  or a child of it has called ``setsid``.  A zombie has no environment, so this is noted while the process lives.

Orphans in our own session, which users' code has left, look as its children do, and stay.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import create_task_group, sleep

MARK = "AIOELASTICJOB_STARTED_AS"
"""The environment variable that holds the mark of a start."""
LOOK_EVERY = 5.0
"""Seconds between two looks for orphans that have ended."""
_OF_THIS_PROGRAM = secrets.token_hex(4)
"""A part of each mark: a process may have inherited the mark of another worker, which was process 1, too."""


@dataclass(frozen=True, slots=True)
class _Child:
    """What ``/proc`` says about a child of this process."""

    pid: int
    session: int
    begun: int
    """When it began.  Together with the process id, it is unique."""
    is_zombie: bool

    @property
    def leads_session(self) -> bool:
        return self.session == self.pid


class Orphans:
    """Waits for orphans, and knows which processes are scripts that this process has started itself."""

    def __init__(self) -> None:
        self._scripts = dict[str, int | None]()
        """The script of each start that is under way or runs; None until its process id is known."""
        self._daemons = dict[int, int]()
        """When each process began that a script has started, and that leads a session of its own."""

    def begin(self, mark: str) -> None:
        """Note that a script is about to be started with this mark in its environment."""
        self._scripts[mark] = None

    def started(self, mark: str, script: int) -> None:
        """Note the process id of a script that was started: this process waits for it elsewhere."""
        self._scripts[mark] = script

    def end(self, mark: str) -> None:
        """Note that the script has ended or was not started, unless somebody still has to wait for it."""
        script = self._scripts[mark]
        if script is None or not _is_our_child(script):
            del self._scripts[mark]

    def collect(self) -> None:
        """Wait for all orphans that have ended, if this is process 1."""
        if not _is_process_1():
            return
        ours = os.getsid(0)
        living = dict[int, int]()
        for child in _children():
            if child.session == ours or (child.leads_session and not self._is_daemon(child)):
                continue
            if child.is_zombie:
                with suppress(ChildProcessError):  # users' code waits for any process
                    os.waitpid(child.pid, os.WNOHANG)
            elif child.leads_session:
                living[child.pid] = child.begun
        self._daemons = living

    def _is_daemon(self, child: _Child) -> bool:
        """Whether a script has started the process, and not we."""
        if self._daemons.get(child.pid) == child.begun:
            return True
        mark = _mark(child.pid)
        if not mark.startswith(_our_marks()):
            return False
        if mark not in self._scripts:  # that script has ended, and was waited for
            return True
        script = self._scripts[mark]
        return script is not None and script != child.pid


orphans = Orphans()
"""The orphans of this process."""


@asynccontextmanager
async def collecting_orphans() -> AsyncIterator[None]:
    """Wait for orphans that end while the block is open, if this is process 1."""
    if not _is_process_1():
        yield
        return
    async with create_task_group() as tasks:
        tasks.start_soon(_collect)
        yield
        tasks.cancel_scope.cancel()
    orphans.collect()


def new_mark(number: str) -> str:
    """Return the mark of a start, which no other start on this machine has; the number is unique in this process."""
    return f"{_our_marks()}{number}"


async def _collect() -> None:
    while True:
        orphans.collect()
        await sleep(LOOK_EVERY)


def _our_marks() -> str:
    """Return how the marks of this process begin; those of a fork begin otherwise."""
    return f"{os.getpid()}-{_OF_THIS_PROGRAM}-"


def _is_process_1() -> bool:
    """Whether this is process 1, and ``/proc`` shows its container: the numbers of another one mean other processes."""
    if os.getpid() != 1:
        return False
    try:
        return os.readlink("/proc/self") == "1"
    except OSError:
        return False


def _is_our_child(pid: int) -> bool:
    """Whether somebody in this process still has to wait for this child.  No status is taken."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children() -> Iterator[_Child]:
    """Yield the children of process 1.  Orphans become children of its first thread."""
    try:
        names = Path("/proc/1/task/1/children").read_text().split()
    except OSError:  # the kernel was built without it
        names = [path.name for path in Path("/proc").glob("[0-9]*")]
    for name in names:
        try:
            stat = Path(f"/proc/{name}/stat").read_bytes()
        except OSError:  # somebody has waited for it
            continue
        _, _, after_name = stat.rpartition(b")")
        fields = after_name.split()  # from the third one on
        state, parent, _, session, *_ = fields
        if int(parent) == 1:
            yield _Child(pid=int(name), session=int(session), begun=int(fields[19]), is_zombie=state == b"Z")


def _mark(pid: int) -> str:
    """Return the mark in a process's environment, "" if it has none or cannot be read."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    begin = f"{MARK}=".encode()
    for one in variables:
        if one.startswith(begin):
            return one.removeprefix(begin).decode(errors="replace")
    return ""
