"""The lock of a data directory, which the kernel releases with its last holder; it holds the server's address."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LOCK = "server.lock"
LOG = "server.log"


@dataclass(frozen=True, slots=True)
class Holder:
    """A server of this package that listens, as it has announced itself in the lock of its data directory."""

    directory: Path
    address: str
    pid: int
    linger: float | None = None
    """How many seconds after its last client it ends; None if it runs until it is stopped."""

    @classmethod
    def parse(cls, directory: Path, written: str) -> Holder | None:
        """Return the server that has written this into the lock; None if no server has, or it does not listen yet."""
        try:
            address, pid, *linger = written.split()
            return cls(directory, address, int(pid), float(linger[0]) if linger else None)
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"an embedded server (process {self.pid}) that serves {self.directory}"

    @property
    def advice(self) -> str:
        """When it ends, and what to do about it, except to choose another port or directory."""
        if self.linger is None:
            return f"it runs until it is stopped: stop it (kill {self.pid})"
        end = f"it ends by itself {self.linger:g} s after its last client has left"
        return f"{end}: wait, or stop its clients and then it (kill {self.pid})"


class LockHeld(Exception):
    """Another process holds the lock; ``address`` is where it listens, empty while it does not."""

    def __init__(self, directory: Path, written: str) -> None:
        holder = Holder.parse(directory, written)
        self.address = "" if holder is None else holder.address
        if holder is None:
            super().__init__(f"{directory} is in use by another server: stop it or choose another data directory")
        else:
            by = f"the server at {holder.address} (process {holder.pid})"
            super().__init__(f"{directory} is in use by {by}; {holder.advice}, or choose another data directory")


@contextmanager
def locked(directory: Path, *, create: bool = True) -> Iterator[int]:
    """Hold the lock and yield its descriptor; a child that inherits it holds the lock, too, and goes on doing so.

    Raises: LockHeld; OSError if the directory cannot be used.
    """
    try:
        import fcntl
    except ImportError as error:
        raise OSError("this system has no flock: start `aioelasticjob zookeeper` yourself and use zk://") from error
    flags = os.O_RDWR
    if create:
        flags |= os.O_CREAT
    lock = os.open(directory / LOCK, flags, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            written = os.pread(lock, 4096, 0)
            raise LockHeld(directory, written.decode(errors="replace")) from None
        if create:
            os.ftruncate(lock, 0)  # where the last holder listened
        yield lock
    finally:
        os.close(lock)


def announce(lock: int, address: str, linger: float | None = None) -> None:
    """Write into the lock where its holder listens, and how many seconds after its last client it ends, if it does."""
    ends = "" if linger is None else f" {linger:g}"
    os.pwrite(lock, f"{address} {os.getpid()}{ends}\n".encode(), 0)
