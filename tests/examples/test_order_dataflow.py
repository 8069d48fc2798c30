"""Orders shipped by real processes, one of which is killed while it is at it: each order becomes exactly one parcel."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.embedded import embedded_server
from tests.support.processes import ROOT, TIMEOUT, ChildProcess, Workers, workers

pytestmark = pytest.mark.process
EXAMPLE = ROOT / "examples" / "order_dataflow"
ORDERS = 6_000


def until(holds: Callable[[], bool], *watched: ChildProcess) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not holds():
        for child in watched:
            assert child.exit_code is None, child.output
        assert time.monotonic() < deadline, "\n".join(child.output for child in watched)
        time.sleep(0.02)


class Shop:
    def __init__(self, directory: Path, registry: str) -> None:
        self.database = directory / "orders.db"
        self.environment = {
            "PYTHONPATH": os.pathsep.join([str(EXAMPLE), str(ROOT)]),
            "ORDERS_DATABASE": str(self.database),
            "ORDERS_SESSION_TIMEOUT": "2",
            "ORDERS_PACKING": "0.08",
            "AIOELASTICJOB_REGISTRY": f"zk://{registry}/orders",
        }

    def ask(self, question: str) -> int:
        with closing(sqlite3.connect(self.database, timeout=30)) as database:
            return int(database.execute(question).fetchone()[0])

    def parcels(self) -> int:
        return self.ask("SELECT count(*) FROM parcels")

    def worker(self, starter: Workers) -> ChildProcess:
        return starter.start("-m", "aioelasticjob", "run", "jobs:app", "--progress", environment=self.environment)


@pytest.mark.timeout(240)
def test_each_order_becomes_one_parcel_though_a_worker_is_killed(tmp_path: Path) -> None:
    with embedded_server() as registry, workers(tmp_path) as starter:
        shop = Shop(tmp_path, registry.address)
        taken = starter.start(str(EXAMPLE / "shop.py"), str(ORDERS), environment=shop.environment)
        assert taken.wait() == 0, taken.output
        check = starter.start(str(EXAMPLE / "check.py"), environment=shop.environment)
        assert check.wait() == 1
        first, second = shop.worker(starter), shop.worker(starter)
        until(lambda: shop.ask("SELECT count(DISTINCT instance) FROM parcels") == 2, first, second)
        assert shop.parcels() < ORDERS / 2  # killed while at work, not afterwards
        first.kill()
        third = shop.worker(starter)  # which may find all done: that depends on speed
        until(lambda: shop.parcels() == ORDERS, second, third)
        check = starter.start(str(EXAMPLE / "check.py"), environment=shop.environment)
        assert check.wait() == 0, check.output
        assert f"{ORDERS:,} orders, 0 without a parcel, 0 parcels without an order" in check.output
        _until_offsets_are_at_the_end(shop, starter)
        assert {child.terminate() for child in (second, third)} == {0}
        assert "not packed" not in second.output + third.output


def _until_offsets_are_at_the_end(shop: Shop, starter: Workers) -> None:
    """A new order is all that is fetched from now on: nobody begins anywhere else."""
    ends = {item: shop.ask(f"SELECT max(number) FROM orders WHERE customer % 4 = {item}") for item in range(4)}
    dump = [sys.executable, "-m", "aioelasticjob", "dump", "orders", "-r", shop.environment["AIOELASTICJOB_REGISTRY"]]

    def at_the_end() -> bool:
        child = ChildProcess(dump, shop.database.with_suffix(f".{time.monotonic_ns()}"))
        assert child.wait() == 0, child.output
        return all(f"offset/{item} | {end} |" in child.output for item, end in ends.items())

    until(at_the_end)
