"""One pair of servers for each module of scenarios."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .scenario import Servers
from .servers import Pace, available, embedded, is_newer, real


@pytest.fixture(scope="module")
def pace() -> Pace:
    """A module whose scenarios wait for an end that comes by itself overrides it."""
    return Pace()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, pace: Pace) -> Iterator[Servers]:
    if not available():
        pytest.skip("Debian's zookeeper is not installed")
    with real(tmp_path_factory.mktemp("zookeeper"), pace) as theirs, embedded(pace) as ours:
        yield Servers(real=theirs, ours=ours, newer=is_newer(theirs))
