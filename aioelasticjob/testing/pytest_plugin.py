"""Fixtures for tests of jobs: a cluster in simulated time, a registry on a real port.  Loaded when they are used.

An ``async def`` test that asks for ``virtual_cluster``, or is marked ``virtual_time(start=…, seed=…)``, runs in
simulated time, whatever other plugins for asynchronous tests are there.
"""

from __future__ import annotations

import inspect
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from aioelasticjob.testing.virtual_cluster import VirtualCluster

MARKER = "virtual_time"
CLUSTER = "virtual_cluster"
_HELP = f"{MARKER}(start=2026-01-01T00:00:00Z, seed=0): run the async test in simulated time that begins at `start`"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", _HELP)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Replace a simulated test by a plain function, so that no other plugin treats it as a coroutine function."""
    marker = pyfuncitem.get_closest_marker(MARKER)
    if marker is None and CLUSTER not in pyfuncitem.fixturenames:
        return (yield)
    given: Any = pyfuncitem.obj
    test = _coroutine_function(given)
    if test is None:
        pytest.fail(f"{pyfuncitem.name} is to run in simulated time: make it `async def`", pytrace=False)
    from aioelasticjob.testing.virtual_cluster import simulated

    pyfuncitem.obj = simulated(test, **_options(pyfuncitem, marker))
    try:
        return (yield)
    finally:
        pyfuncitem.obj = given


@pytest.fixture
def virtual_cluster() -> VirtualCluster:
    """A registry, and as many instances of your application as you start, in simulated time."""
    from aioelasticjob.testing.virtual_cluster import VirtualCluster

    return VirtualCluster()


@pytest.fixture
def embedded_registry(_embedded_server: str) -> str:
    """The address of a namespace of this test alone, at a registry on a real port: ``zk://127.0.0.1:…/test-…``."""
    from uuid import uuid4

    return f"zk://{_embedded_server}/test-{uuid4().hex}"


@pytest.fixture(scope="session")
def _embedded_server() -> Iterator[str]:
    from aioelasticjob.testing.embedded import embedded_server

    with embedded_server() as address:
        yield address


def _coroutine_function(test: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the coroutine function that a test is, or that another plugin has wrapped."""
    for each in (test, inspect.unwrap(test)):
        if inspect.iscoroutinefunction(each):
            return each
    return None


def _options(test: pytest.Function, marker: pytest.Mark | None) -> dict[str, Any]:
    """Return what the marker says.

    Raises: pytest's Failed when it says what it cannot mean.
    """
    if marker is None:
        return {}
    options = dict(marker.kwargs)
    unknown = [name for name in options if name not in ("start", "seed")]
    for wrong in (*marker.args, *unknown):
        pytest.fail(f"{MARKER} of {test.name} takes start=… and seed=…, not {wrong!r}", pytrace=False)
    start = options.get("start", 0)
    seed = options.get("seed", 0)
    if isinstance(start, bool) or not isinstance(start, (datetime, float, int)):
        expected = "is neither a datetime with a time zone nor seconds since the epoch"
        pytest.fail(f"{MARKER} of {test.name}: start={start!r} {expected}", pytrace=False)
    if not isinstance(seed, int):
        pytest.fail(f"{MARKER} of {test.name}: seed={seed!r} is no whole number", pytrace=False)
    if getattr(start, "utcoffset", lambda: 0)() is None:
        pytest.fail(f"{MARKER} of {test.name}: start={start} has no time zone", pytrace=False)
    return options
