"""The files below a directory: their list, the item that each belongs to, and facts about their content."""

from __future__ import annotations

import ast
import errno
import hashlib
import os
import stat
import threading
import warnings
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

MAX_PARSED_BYTES = 1024 * 1024
"""A Python source is parsed only up to so many bytes: no other thread can run while the parser works."""
CHUNK = 1024 * 1024
MAX_READS = 3
"""Readings of a file that changes while it is read."""

_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_PARSER = threading.Lock()


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about one file."""

    size: int
    changed: int
    """When its content or its rights last changed: its ctime, in nanoseconds."""
    lines: int | None = None
    """Lines of text; None for a file that holds a NUL, which is none."""
    functions: int | None = None
    """The number of functions that it defines; None for a file that is no valid Python source."""
    sha256: str | None = None
    problem: str | None = None
    """Why it could not be read; None when it could."""


def walk(directory: str, excluded: Collection[str] = ()) -> Iterator[str]:
    """Yield every regular file below ``directory`` relative to it, without directories called as in ``excluded``.

    A link is not followed and is no file of its own, so nothing is met twice.  What cannot be listed is left out.

    Raises:
        OSError: ``directory`` itself cannot be listed.
    """
    with os.scandir(directory):
        pass
    prefix = len(os.path.join(directory, ""))
    waiting = [directory]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:  # removed, or made unreadable, since its parent was listed
            continue
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in excluded:
                    waiting.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                yield entry.path[prefix:]


def share(path: str, shares: int) -> int:
    """Return the item that a path belongs to; it is the same in every process, on every machine."""
    return zlib.crc32(os.fsencode(path)) % shares


def stamp(path: str) -> tuple[int, int] | None:
    """Return size and ctime of a regular file, None if there is none: alike as long as the file is."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_size, found.st_ctime_ns


def examine(path: str, *, parse: bool = True) -> Facts | None:
    """Read a file and return what can be said of it; None if it is gone, or no regular file any more."""
    for _ in range(MAX_READS):
        try:
            before, facts = _read(path, parse)
        except OSError as error:
            if error.errno in _GONE:
                return None
            return _unread(path, error.strerror or type(error).__name__)
        if facts is None or stamp(path) == before:
            return facts
    return _unread(path, "it changes while it is read")


def _unread(path: str, problem: str) -> Facts | None:
    """Return what can be said of a file whose content could not be read; None if it is gone."""
    seen = stamp(path)
    if seen is None:
        return None
    size, changed = seen
    return Facts(size, changed, problem=problem)


def _read(path: str, parse: bool) -> tuple[tuple[int, int], Facts | None]:
    # if the file has become a pipe, opening it must not block
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(path, flags), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        seen = (status.st_size, status.st_ctime_ns)
        if not stat.S_ISREG(status.st_mode):
            return seen, None
        is_python = parse and path.endswith((".py", ".pyi")) and status.st_size <= MAX_PARSED_BYTES
        digest = hashlib.sha256()
        lines = 0
        is_text = True
        last = b"\n"
        source = bytearray()
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            lines += chunk.count(b"\n")
            if b"\0" in chunk:
                is_text = False
            last = chunk[-1:]
            if is_python:
                source += chunk
    if last != b"\n":  # the last line lacks its end
        lines += 1
    return seen, Facts(
        size=status.st_size,
        changed=status.st_ctime_ns,
        lines=lines if is_text else None,
        functions=_functions(bytes(source)) if is_python else None,
        sha256=digest.hexdigest(),
    )


def _functions(source: bytes) -> int | None:
    """Count the functions a source defines; None if it is no valid Python."""
    try:
        # The parser holds the interpreter anyway, so the lock costs nothing; the filters belong to the whole process.
        with _PARSER, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        return sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
