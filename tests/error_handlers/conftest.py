from __future__ import annotations

from collections.abc import Iterator

import pytest

from aioelasticjob.error_handlers import find


@pytest.fixture(autouse=True)
def _known_again() -> Iterator[None]:
    """Forget the handlers that a test has made."""
    yield
    find.cache_clear()
