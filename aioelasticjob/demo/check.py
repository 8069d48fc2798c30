"""Checks the index: it must have every file of the directory once, with the file's hash, and no other files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from aioelasticjob.demo.database import open_index
from aioelasticjob.demo.files import Facts, examine, walk
from aioelasticjob.ground.plural import counted

MAX_PATHS_NAMED = 3
"""At most so many paths of each kind of fault are named."""


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """The result of comparing the database with the directory; paths are relative and sorted."""

    files: int
    bytes: int
    missing: tuple[str, ...] = ()
    """Below the directory and not in the database."""
    extra: tuple[str, ...] = ()
    """In the database and not below the directory."""
    wrong: tuple[str, ...] = ()
    """With another size or hash, or readable for one of the two only."""
    twice: tuple[str, ...] = ()
    """In the database more than once."""
    unreadable: tuple[str, ...] = ()
    """Known, but their content could be read neither by the job nor now: no fault of the index."""

    @property
    def faults(self) -> tuple[str, ...]:
        """Every path with something wrong about it."""
        return (*self.missing, *self.extra, *self.wrong, *self.twice)

    @property
    def right(self) -> bool:
        """Whether the index is as it should be."""
        return not self.faults

    def lines(self) -> Iterator[str]:
        """Return the result as lines of text, the most important one first."""
        if self.right:
            files = counted(self.files, "file")
            yield f"the index is right: {files}, {_amount(self.bytes)}, checked against the directory"
            yield "each file exactly once, every hash right, nothing missing, nothing extra"
        else:
            yield f"the index is wrong about {len(self.faults):,} of {counted(self.files, 'file')}"
            for kind in ("missing", "extra", "wrong", "twice"):
                yield from _named(kind, getattr(self, kind))
        yield from _named("unreadable", self.unreadable)


def check(directory: str, database: str, excluded: Collection[str] = ()) -> IndexCheck:
    """Read every file below ``directory`` again and compare it with the database.

    Raises:
        ForeignData: the database is not one of ours.
        OSError: the directory cannot be listed.
    """
    with open_index(database) as index:
        times = Counter(index.paths())
        known = index.files()
    there = set[str]()
    missing = []
    wrong = []
    unreadable = []
    volume = 0
    for path in walk(directory, excluded):
        facts = examine(os.path.join(directory, path), parse=False)
        if facts is None:
            continue
        there.add(path)
        volume += facts.size
        row = known.get(path)
        if row is None:
            missing.append(path)
        elif not _agree(row, facts):
            wrong.append(path)
        elif facts.problem is not None:
            unreadable.append(path)
    return IndexCheck(
        files=len(there),
        bytes=volume,
        missing=tuple(sorted(missing)),
        extra=tuple(sorted(times.keys() - there)),
        wrong=tuple(sorted(wrong)),
        twice=tuple(sorted(path for path, rows in times.items() if rows > 1)),
        unreadable=tuple(sorted(unreadable)),
    )


def _agree(row: Facts, facts: Facts) -> bool:
    if row.problem is not None or facts.problem is not None:
        return row.problem is not None and facts.problem is not None
    return (row.size, row.sha256) == (facts.size, facts.sha256)


def _named(kind: str, paths: tuple[str, ...]) -> Iterator[str]:
    if not paths:
        return
    named = [path.encode(errors="replace").decode() for path in paths[:MAX_PATHS_NAMED]]
    if len(paths) > MAX_PATHS_NAMED:
        named.append("…")
    yield f"{kind}: {len(paths):,}: {', '.join(named)}"


def _amount(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:,.0f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"
