"""Which live pages are open: those of one session take turns; over all and from one address there is a limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from aioelasticjob.errors import ElasticJobError, InvalidSetting

END_TIMEOUT: Final = 10.0
"""Seconds in which a stream has to end when its turn is over: its browser may read nothing any more."""


@dataclass(frozen=True, slots=True)
class LivePageLimits:
    """How many live pages may be open at a time."""

    total: int = 1000
    kept_for_operators: int = 100
    """Of the total, those that only operators may open, so that viewers cannot keep operators out."""
    per_session: int = 4
    """Of one session; if more are open, they take turns.  A browser opens six connections to a host, so that two are
    left for pages and actions."""
    per_address: int = 300
    """From one network address; operators are not counted, so that nobody beside them can keep them out."""

    def __post_init__(self) -> None:
        for name in ("total", "per_session", "per_address"):
            if not getattr(self, name) > 0:
                raise InvalidSetting(name, getattr(self, name), "a number above 0")
        if not 0 <= self.kept_for_operators < self.total:
            raise InvalidSetting("kept_for_operators", self.kept_for_operators, f"from 0 to {self.total - 1}")


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody who opens a live page."""

    session: str
    address: str
    is_operator: bool


class TooManyLivePages(ElasticJobError):
    """This page cannot be live as well."""


class Turn:
    """The time during which a page has a stream.  It ends when another page of the same session needs the place."""

    def __init__(self) -> None:
        self.is_over = False
        self.response = anyio.CancelScope()
        """The scope in which the stream is sent."""
        self._pause = anyio.CancelScope()

    def pause(self, seconds: float) -> anyio.CancelScope:
        """Return a scope for waiting so long; the end of the turn ends the wait."""
        self._pause = anyio.CancelScope(deadline=anyio.current_time() + seconds)
        if self.is_over:
            self._pause.cancel()
        return self._pause

    def end(self) -> None:
        """Make the stream send what it still has to send, and end."""
        self.is_over = True
        self._pause.cancel()
        self.response.deadline = anyio.current_time() + END_TIMEOUT


class LivePages:
    """The live pages of one console that are open."""

    def __init__(self, limits: LivePageLimits) -> None:
        self._limits = limits
        self._open: dict[Turn, Reader] = {}
        """The oldest first; also those that are about to end."""
        self._queue = anyio.Lock()

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    @contextmanager
    def opened(self, reader: Reader, turn: Turn) -> Iterator[None]:
        """Count a page while the block runs; the oldest one of a session that has as many as it may have must end.

        Raises:
            TooManyLivePages: it would be one too many.
        """
        own = [one for one, who in self._open.items() if who.session == reader.session and not one.is_over]
        replaced = own[0] if len(own) >= self._limits.per_session else None
        others = [who for one, who in self._open.items() if one is not replaced]
        self._check(reader, others)
        if replaced is not None:
            replaced.end()
        self._open[turn] = reader
        try:
            yield
        finally:
            del self._open[turn]

    async def queue(self) -> None:
        """Wait for the pages before this one, so that requests are answered between two of many that are rendered."""
        async with self._queue:
            await checkpoint()

    def _check(self, reader: Reader, others: list[Reader]) -> None:
        limits = self._limits
        total = limits.total
        if not reader.is_operator:
            total -= limits.kept_for_operators
            nearby = [one for one in others if one.address == reader.address and not one.is_operator]
            if len(nearby) >= limits.per_address:
                raise _too_many(limits.per_address, "from this address")
        if len(others) >= total:
            raise _too_many(total, "over all")


def _too_many(limit: int, where: str) -> TooManyLivePages:
    return TooManyLivePages(f"{limit} live pages are open {where}, which is the limit")
