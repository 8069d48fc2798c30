"""The lock of a data directory, which the kernel releases with its last holder; it holds the server's address."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK, LOG = "server.lock", "server.log"


class LockHeld(Exception):
    """Another process holds the lock; ``address`` is where it listens, empty while it does not."""

    def __init__(self, directory: Path, address: str) -> None:
        super().__init__(f"{directory} is in use by another server: stop it or choose another --data-dir")
        self.address = address


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
            raise LockHeld(directory, os.pread(lock, 4096, 0).decode(errors="replace").partition(" ")[0]) from None
        if create:
            os.ftruncate(lock, 0)  # where the last holder listened
        yield lock
    finally:
        os.close(lock)


def announce(lock: int, address: str) -> None:
    """Write into the lock where its holder listens."""
    os.pwrite(lock, f"{address} {os.getpid()}\n".encode(), 0)
