"""The program of the guard: it ends the processes that are bound to a session when that session may end.

It runs as a process of its own, so it keeps the deadline also while the worker's event loop is blocked, while a call
into C keeps the interpreter's lock, and while the worker is stopped.  It imports next to nothing, and sleeps while
nothing is bound.

Its arguments are the descriptor of the page, the descriptor of the orders, the worker's process id, and 1 if it ends
the worker, too.  ``guard.py`` describes the page and the orders.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # these imports would take memory
    from collections.abc import Iterator

PAGE_SIZE = 32
LOOK_EVERY = 1.0
"""Seconds between two looks at the clock while something is bound: the timer of a wait stands still while the machine
is suspended, and the clock does not."""
CANCELLED_WITHIN = 0.5
"""Seconds that runs have to end by cancellation if the registry itself has said that their session is over."""
SEARCHES = 3
"""How often the processes of a start are looked for: a process shows its own environment only after a moment."""
SEARCH_PAUSE = 0.02
"""Seconds between two of these searches."""

if sys.platform == "darwin":
    CLOCK = time.CLOCK_MONOTONIC
else:
    CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Guarded:
    """What the worker has registered: process groups, and starts whose process group is not known yet."""

    def __init__(self, page: mmap.mmap, worker: int, ends_worker: bool) -> None:
        self.page = memoryview(page)
        self.worker = worker
        self.ends_worker = ends_worker
        self.groups: dict[int, int] = {}  # process group -> session; 0 is no session
        self.starts: dict[bytes, int] = {}  # mark of a start -> session
        self.orders_may_come = True
        self.rest = b""  # the beginning of an order
        self.over_since: float | None = None  # since when runs of a session that is over go on

    def read_page(self) -> tuple[int, float, int, int]:
        """Return the session, the time at which it may end, and the runs bound to it and to sessions that are over."""
        while True:
            seen = bytes(self.page)
            if seen == bytes(self.page):  # else the worker is writing
                break
        session, _, bound, over = memoryview(seen).cast("q")
        _, end, _, _ = memoryview(seen).cast("d")
        return session, end, bound, over

    def read(self, orders: int) -> None:
        """Carry out all orders that have come."""
        while self.orders_may_come:
            try:
                data = os.read(orders, 65536)
            except BlockingIOError:
                return
            self.orders_may_come = data != b""  # else the worker has closed the pipe, or is gone
            *lines, self.rest = (self.rest + data).split(b"\n")
            for line in lines:
                self.obey(line)

    def obey(self, order: bytes) -> None:
        """Carry out one line of orders."""
        word, *words = order.split()
        if word == b"start":
            mark, session = words
            self.starts[mark] = int(session)
        elif word == b"started":
            mark, group = words
            self.groups[int(group)] = self.starts.pop(mark, 0)
        elif word == b"failed":
            self.starts.pop(words[0], None)
        elif word == b"watch":
            group, session = words
            self.groups[int(group)] = int(session)
        elif word == b"forget":
            self.groups.pop(int(words[0]), None)

    def end_what_is_over(self) -> float | None:
        """End what is bound to a session that may have ended; return in how many seconds to look again."""
        session, end, bound, over = self.read_page()
        left = end - time.clock_gettime(CLOCK)
        is_over = {session: left <= 0, 0: False}
        for group, its_session in list(self.groups.items()):
            if is_over.get(its_session, True):
                kill_group(group)
                del self.groups[group]
        marks = [mark for mark, its_session in self.starts.items() if is_over.get(its_session, True)]
        self.end_starts(marks)
        if self.ends_worker:
            self.end_worker_if_over(bound > 0 and left <= 0, over)
        waits = [LOOK_EVERY]
        if left > 0:
            waits.append(left)
        if self.over_since is not None:
            waits.append(CANCELLED_WITHIN)
        is_idle = not (self.groups or self.starts or self.ends_worker)
        return None if is_idle else min(waits)

    def end_worker_if_over(self, is_bound_beyond_end: bool, over: int) -> None:
        """End the worker if a run goes on that is bound to a session that is over."""
        now = time.clock_gettime(CLOCK)
        if not over:
            self.over_since = None
        elif self.over_since is None:
            self.over_since = now
        is_late = self.over_since is not None and now - self.over_since >= CANCELLED_WITHIN
        if not (is_bound_beyond_end or is_late):
            return
        text = "process %d is ended: its session is over, and work that is bound to it goes on (exit_at_lease_end)\n"
        os.write(2, (text % self.worker).encode())
        os.kill(self.worker, signal.SIGKILL)

    def end_starts(self, marks: list[bytes]) -> None:
        """End what was started and not registered yet: its processes have the mark in their environment."""
        if not marks:
            return
        for search in range(SEARCHES):
            if search:
                time.sleep(SEARCH_PAUSE)
            for process, environment in environments():
                if any(mark + b"\0" in environment for mark in marks):  # another mark may begin with it
                    kill_group(process)
        for mark in marks:
            del self.starts[mark]

    def end_all(self) -> None:
        """End everything, since the worker is gone."""
        for group in self.groups:
            kill_group(group)
        self.end_starts(list(self.starts))


def environments() -> Iterator[tuple[int, bytes]]:
    """Yield the processes whose environment we may read, where the system shows it, and that environment."""
    if not os.path.isdir("/proc/self"):
        return
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read()
        except OSError:  # it has ended, or belongs to somebody else
            continue
        yield int(name), environment


def kill_group(group: int) -> None:
    """Kill a process group, or the process that will be its leader."""
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:  # there is no such group: the process has ended, or does not lead it yet
        kill_process(group)


def kill_process(process: int) -> None:
    """Kill a process."""
    try:
        os.kill(process, signal.SIGKILL)
    except OSError:  # it has ended
        return


def main(page_descriptor: int, orders: int, worker: int, ends_worker: bool) -> None:
    """Guard the worker's children until the worker is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # the worker handles them, and the guard ends after the worker
    guarded = Guarded(mmap.mmap(page_descriptor, PAGE_SIZE), worker, ends_worker)
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    longest = None  # we may sleep until an order comes, or the worker ends
    try:
        poll.register(os.pidfd_open(worker), select.POLLIN)
    except (AttributeError, OSError):
        longest = LOOK_EVERY  # a fork of the worker may keep the pipe open beyond the worker's end
    os.set_blocking(orders, False)
    guarded.read(orders)
    while guarded.orders_may_come and os.getppid() == worker:
        wait = guarded.end_what_is_over() or longest
        poll.poll(None if wait is None else max(1, int(wait * 1000)))
        guarded.read(orders)
    guarded.read(orders)  # what the worker has written last
    guarded.end_all()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1")
