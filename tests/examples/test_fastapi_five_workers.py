"""The first demonstration as its README tells it: uvicorn with five workers, one FastAPI application, and a kill."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import urlopen

import pytest

from tests.docs.pages import blocks
from tests.support.ports import reserved_ports
from tests.support.processes import ROOT, TIMEOUT, Workers

T = TypeVar("T")
EXAMPLE = ROOT / "examples" / "fastapi_five_workers"
WORKERS = 5


def until(look: Callable[[], T | None], what: str) -> T:
    """Return what ``look`` finds once it finds anything."""
    deadline = time.monotonic() + TIMEOUT
    while (found := look()) is None:
        assert time.monotonic() < deadline, f"not in {TIMEOUT} s: {what}"
        time.sleep(0.05)
    return found


class Shop:
    """The example, as its visitors see it."""

    def __init__(self, port: int, database: Path) -> None:
        self._port, self._database = port, database

    def ask(self, path: str) -> Any:
        """Ask whichever worker takes the connection; None if none does."""
        try:
            with urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=90) as answer:
                return json.load(answer)
        except OSError:
            return None

    def held(self, without: int = 0) -> dict[int, int] | None:
        """Ask until five workers have answered: who holds which till, if each holds one."""
        found: dict[int, Any] = {}
        for _ in range(60):
            if (health := self.ask("/health")) is not None:
                found[health["pid"]] = health["jobs"][0]["holds"]
            if len(found) == WORKERS:
                break
        tills = {till: pid for pid, holds in found.items() for till in holds}
        return (
            tills if len(found) == len(tills) == len(set(tills.values())) == WORKERS and without not in found else None
        )

    def counted(self) -> list[tuple[str, int, int, str]]:
        """Return moment, till, pid and source of everything counted, in order."""
        with closing(sqlite3.connect(self._database, timeout=30)) as database:
            return database.execute("SELECT moment, till, pid, source FROM counted ORDER BY rowid").fetchall()

    def counts_after(self, moment: str, enough: Callable[[list[tuple[str, int, int, str]]], bool]) -> Any:
        later = [row for row in self.counted() if row[0] > moment]
        return later if enough(later) else None


def children(pid: int) -> list[int]:
    """Return who was started by a process: uvicorn's workers outlive it when it is killed."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_tutorial_shows_the_example() -> None:
    (program,) = blocks("docs/tutorial/fastapi.md", "python")
    assert program.text == (EXAMPLE / "shop.py").read_text()


@pytest.mark.process
@pytest.mark.timeout(240)
def test_five_workers_count_each_till_once_and_a_killed_ones_till_moves(
    tmp_path: Path, worker_processes: Workers
) -> None:
    with reserved_ports(2) as (port, registry_port), ExitStack() as stack:
        environment = {
            "PYTHONPATH": str(ROOT),
            "SHOP_REGISTRY": f"embedded://127.0.0.1:{registry_port}/shop?data_dir={tmp_path / 'registry'}&linger=1",
            "SHOP_DATABASE": str(tmp_path / "shop.db"),
        }
        uvicorn = worker_processes.start(
            *("-m", "uvicorn", "--workers", str(WORKERS), "--port", str(port), "--app-dir", str(EXAMPLE), "shop:app"),
            environment=environment,
        )
        stack.callback(lambda: kill_all(children(uvicorn.pid)))
        shop = Shop(port, tmp_path / "shop.db")

        held = until(shop.held, "five workers with a till each")
        assert sorted(held) == [0, 1, 2, 3, 4]
        settled = until(lambda: max((row[0] for row in shop.counted()), default=None), "anything counted")
        rows = until(lambda: shop.counts_after(settled, lambda rows: len(rows) > 3 * WORKERS), "three moments counted")
        whole = {moment for moment, times in Counter(row[0] for row in rows).items() if times >= WORKERS}
        assert len(whole) >= 2
        for moment in whole:
            assert {row[1]: row[2] for row in rows if row[0] == moment} == held
        assert shop.ask("/tills")["twice"] == 0

        dead, till = held[2], 2
        os.kill(dead, signal.SIGKILL)
        after = shop.counted()[-1][0]

        def by_others(rows: list[tuple[str, int, int, str]]) -> bool:
            return any(row[1] == till and row[2] != dead for row in rows)

        until(lambda: shop.counts_after(after, by_others), "the dead worker's till counted by another")
        held = until(lambda: shop.held(without=dead), "five workers again, with a till each")
        # a till whose count was cut off between its two writes is counted again, and says so
        times = Counter((moment, till) for moment, till, _, source in shop.counted() if source != "FAILOVER")
        assert set(times.values()) == {1}

        assert uvicorn.terminate(TIMEOUT) == 0
        assert uvicorn.output.count("Application shutdown complete") == WORKERS
        assert "Traceback" not in uvicorn.output
        until(lambda: None if listens(registry_port) else True, "the registry ends when nobody needs it")
