"""Fixtures of all tests: loops, servers, proxies and processes.  What they are made of is in ``tests.support``."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import settings

from tests.support import real_zookeeper as zookeeper
from tests.support.loops import LOOP_KINDS, LoopKind
from tests.support.processes import Workers, workers

if TYPE_CHECKING:
    from tests.support.embedded import EmbeddedServer

settings.register_profile("house", deadline=None)  # time is judged in benchmarks only
settings.load_profile("house")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell has started the tests in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that tests start inherit this

REQUIRE_ALL = os.environ.get("AIOELASTICJOB_REQUIRE_ALL") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if zookeeper.installed():
        return
    for item in items:
        if item.get_closest_marker("zookeeper"):
            item.add_marker(pytest.mark.skip("Debian's zookeeper is not installed"))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the tests themselves, which live until the end.

    They are some 400,000 objects.  Each simulated world that ends is collected by itself, and would look at them all.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"AIOELASTICJOB_REQUIRE_ALL=1, but skipped: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if REQUIRE_ALL and report.skipped:
        report.outcome, report.longrepr = "failed", f"AIOELASTICJOB_REQUIRE_ALL=1, but skipped: {report.longrepr}"
    return report


@pytest.fixture(scope="session", autouse=True)
def no_outward_address() -> Iterator[None]:
    """All servers of the tests are on loopback, so their ids look the same on each machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aioelasticjob.registry.own_address.outward_address", lambda: None)
        yield


@pytest.fixture(autouse=True)
def log_as_it_was() -> Iterator[None]:
    """Commands that run in this process set up the log, which would change what later tests find in it."""
    root, ours = logging.getLogger(), logging.getLogger("aioelasticjob")
    levels, handlers, propagate = (root.level, ours.level), ours.handlers[:], ours.propagate
    yield
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    ours.handlers[:], ours.propagate = handlers, propagate
    for handler in [one for one in root.handlers if type(one) is logging.StreamHandler]:  # pytest has its own kinds
        root.removeHandler(handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests marked with ``anyio`` run on asyncio: trio is installed only so that a test sees it refused."""
    return "asyncio"


@pytest.fixture(params=LOOP_KINDS)
def loop_kind(request: pytest.FixtureRequest) -> LoopKind:
    """Every kind of loop in turn; pass it to ``tests.support.loops.run_async``."""
    kind: LoopKind = request.param
    return kind


@pytest.fixture(params=[kind for kind in LOOP_KINDS if kind != "virtual"])
def real_loop_kind(request: pytest.FixtureRequest) -> LoopKind:
    """The kinds of loop with real sockets and real time."""
    kind: LoopKind = request.param
    return kind


@pytest.fixture(scope="session")
def real_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zookeeper.RealServer]:
    """Debian's ZooKeeper, alone, shared by the tests of a session: each takes a namespace of its own."""
    with zookeeper.standalone(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def shared_ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zookeeper.Ensemble]:
    """Three of Debian's ZooKeeper; ask for ``real_ensemble``, which repairs it between tests."""
    with zookeeper.ensemble(tmp_path_factory.mktemp("ensemble")) as members:
        yield members


@pytest.fixture
def real_ensemble(shared_ensemble: zookeeper.Ensemble) -> zookeeper.Ensemble:
    """Three of Debian's ZooKeeper, all serving; the test may kill and pause them."""
    shared_ensemble.repair()
    return shared_ensemble


@pytest.fixture
def embedded() -> Iterator[EmbeddedServer]:
    """The embedded server on a real port, with an empty tree."""
    from tests.support.embedded import embedded_server  # here, so that the kit's own tests run without the server

    with embedded_server() as server:
        yield server


@pytest.fixture(params=["embedded", pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
def registry_server(request: pytest.FixtureRequest) -> str:
    """``host:port`` of each kind of server in turn."""
    server = request.getfixturevalue({"embedded": "embedded", "zookeeper": "real_zookeeper"}[request.param])
    address: str = server.address
    return address


@pytest.fixture
def registry_address(registry_server: str) -> str:
    """``zk://host:port/namespace`` of each kind of server in turn, the namespace fresh."""
    return f"zk://{registry_server}/test-{uuid4().hex}"


@pytest.fixture
def worker_processes(tmp_path: Path) -> Iterator[Workers]:
    """Starts worker processes; what is left of them is killed."""
    with workers(tmp_path) as starter:
        yield starter
