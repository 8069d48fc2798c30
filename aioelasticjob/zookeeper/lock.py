"""The lock of a data directory, which the kernel releases with its last holder; it holds the server's address."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK, LOG = "server.lock", "server.log"


class LockHeld(Exception):
    """Another process holds the lock; ``address`` is where it listens, empty while it does not."""

    def __init__(self, directory: Path, written: str) -> None:
        self.address, pid, linger, *_ = *written.split(), "", "", ""
        holder = f"the server at {self.address} (process {pid})" if pid else "another server"
        ends = f", which ends by itself {linger} s after its last client has left" if linger else ""
        what = "wait, stop it," if linger else "stop it"
        super().__init__(f"{directory} is in use by {holder}{ends}: {what} or choose another --data-dir")


@contextmanager
def locked(directory: Path, *, create: bool = True) -> Iterator[int]:
    """Hold the lock and yield its descriptor; a child that inherits it holds the lock, too, and goes on doing so.

    Raises: LockHeld; OSError if the directory cannot be used.
    """
    try:
        import fcntl
    except ImportError as error:
        raise OSError("this system has no flock: start `aioelasticjob zookeeper` yourself and use zk://") from error
    lock = os.open(directory / LOCK, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockHeld(directory, os.pread(lock, 4096, 0).decode(errors="replace")) from None
        if create:
            os.ftruncate(lock, 0)  # where the last holder listened
        yield lock
    finally:
        os.close(lock)


def announce(lock: int, address: str, linger: float | None = None) -> None:
    """Write into the lock where its holder listens, and how many seconds after its last client it ends, if it does."""
    ends = "" if linger is None else f" {linger:g}"
    os.pwrite(lock, f"{address} {os.getpid()}{ends}\n".encode(), 0)
