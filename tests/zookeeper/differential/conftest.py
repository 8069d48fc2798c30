"""One pair of servers for each module of scenarios."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .scenario import Servers
from .servers import available, embedded, real


@pytest.fixture(scope="module")
def tick_time() -> int:
    """Milliseconds; a module whose scenarios wait for an expiry overrides it."""
    return 2000


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, tick_time: int) -> Iterator[Servers]:
    if not available():
        pytest.skip("Debian's zookeeper is not installed")
    with real(tmp_path_factory.mktemp("zookeeper"), tick_time) as theirs, embedded(tick_time) as ours:
        yield Servers(real=theirs, ours=ours)
