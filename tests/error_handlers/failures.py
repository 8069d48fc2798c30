"""What the tests of error handlers have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from aioelasticjob.error_handlers import Failure, Options, find, lookup


def failure(text: str = "no luck", *, job: str = "billing", reported_at: float = 0.0) -> Failure:
    try:
        raise ValueError(text)
    except ValueError as error:
        return Failure(job, "me", (3,), "task-7", "2026-01-01T00:00:00+00:00", error, reported_at)


def delivered_by(patch: pytest.MonkeyPatch, **handlers: Callable[[Failure, Options], Awaitable[None]]) -> None:
    """Have handlers by their names; the fixture ``handlers`` forgets them."""
    find.cache_clear()
    patch.setattr(lookup, "_BUILT_IN", {**lookup._BUILT_IN, **handlers})
