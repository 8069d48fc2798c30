"""Counts the live pages that are open, and limits them: over all, of one session, from one address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aioelasticjob.errors import ElasticJobError, InvalidSetting


@dataclass(frozen=True, slots=True)
class LivePageLimits:
    """How many live pages may be open at a time."""

    total: int = 1000
    kept_for_operators: int = 100
    """Of the total, those that only operators may open, so that viewers cannot keep operators out."""
    per_session: int = 20
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


class LivePages:
    """The live pages of one console that are open."""

    def __init__(self, limits: LivePageLimits) -> None:
        self._limits = limits
        self._open = 0
        self._by_session: Counter[str] = Counter()
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return how many are open."""
        return self._open

    @contextmanager
    def opened(self, reader: Reader) -> Iterator[None]:
        """Count a page while the block runs.

        Raises:
            TooManyLivePages: it would be one too many.
        """
        self._check(reader)
        counts = [(self._by_session, reader.session)]
        if not reader.is_operator:
            counts.append((self._by_address, reader.address))
        self._open += 1
        for counter, key in counts:
            counter[key] += 1
        try:
            yield
        finally:
            self._open -= 1
            for counter, key in counts:
                counter[key] -= 1
                if not counter[key]:
                    del counter[key]

    def _check(self, reader: Reader) -> None:
        limits = self._limits
        total = limits.total if reader.is_operator else limits.total - limits.kept_for_operators
        for count, limit, where in (
            (self._by_session[reader.session], limits.per_session, "of this session"),
            (0 if reader.is_operator else self._by_address[reader.address], limits.per_address, "from this address"),
            (self._open, total, "over all"),
        ):
            if count >= limit:
                raise TooManyLivePages(f"{limit} live pages are open {where}, which is the limit")
