"""A dataflow in real processes at a real ZooKeeper: two are killed while they are at it, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.end_to_end.dataflow_worker import FETCHED, ITEMS, SCHEMA, opened
from tests.support.processes import TIMEOUT, ChildProcess, Workers
from tests.support.real_zookeeper import RealServer

pytestmark = [pytest.mark.process, pytest.mark.zookeeper]


def ask(file: Path, question: str) -> list[tuple[object, ...]]:
    with opened(file) as database:
        return database.execute(question).fetchall()


def until(holds: Callable[[], bool], *watched: ChildProcess) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not holds():
        for child in watched:
            assert child.exit_code is None, child.output
        assert time.monotonic() < deadline, "\n".join(child.output for child in watched)
        time.sleep(0.02)


def test_two_kills_lose_no_record_and_repeat_two_batches_of_an_item_at_most(
    real_zookeeper: RealServer, worker_processes: Workers, tmp_path: Path
) -> None:
    address, file = f"zk://{real_zookeeper.address}/test-{uuid4().hex}", tmp_path / "effects"
    with opened(file) as database:
        database.executescript(SCHEMA)

    def start() -> ChildProcess:
        return worker_processes.start("-m", "tests.end_to_end.dataflow_worker", address, str(file))

    def at_work(child: ChildProcess) -> bool:
        """Whether it is the one that has just done something."""
        last = ask(file, "SELECT instance FROM attempts ORDER BY rowid DESC LIMIT 1")
        return any(f"@-@{child.pid}-" in str(instance) for (instance,) in last)

    def effects() -> int:
        ((number,),) = ask(file, "SELECT count(*) FROM effects")
        return int(str(number))

    first, second = start(), start()
    until(lambda: at_work(first), first, second)
    until(lambda: at_work(second), first, second)
    first.kill()
    third = start()
    until(lambda: at_work(third), second, third)
    second.kill()
    with opened(file) as database:  # only now: the work must not be over before the last process has begun
        ((largest,),) = database.execute("SELECT max(record) FROM attempts")
        records = (
            largest + 4 * FETCHED
        )  # more than have been handed out, so that the last process has work on each item
        database.execute("INSERT INTO ends VALUES (?)", (records,))
    until(lambda: effects() == ITEMS * records, third)
    assert third.terminate() == 0, third.output

    attempts = ask(file, "SELECT item, record FROM attempts")
    repeated = len(attempts) - len(set(attempts))
    assert repeated <= 2 * ITEMS * 2 * FETCHED
    assert ask(file, "SELECT count(*) FROM attempts WHERE NOT newest") == [(0,)]  # who was killed came not back
    assert ask(file, "SELECT count(*) > 0 FROM attempts WHERE source = 'FAILOVER'") == [(1,)]
    back = "SELECT fence < lag(fence) OVER (PARTITION BY item ORDER BY rowid) AS back FROM attempts"
    assert ask(file, f"SELECT count(*) FROM ({back}) WHERE back") == [(0,)]  # one runner of an item at a time
