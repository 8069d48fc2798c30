"""A thousand failures are one line: errors are grouped by kind and place."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from aioelasticjob.console.watching.store_watch import StoreWatch
from aioelasticjob.model import Outcome
from aioelasticjob.observers.failures import stack
from aioelasticjob.observers.missed import Count
from aioelasticjob.observers.sql import open_store
from aioelasticjob.operations.error_groups import ErrorGroup, Failure, grouped, kind_of, place_of
from tests.observers.sample_events import NOON, Clock, batch, beginning, end, raised

LIBRARY = 'File "/srv/venv/lib/python3.12/site-packages/httpx/_client.py", line 1, in send'
OWN = 'File "/srv/shop/orders.py", line 7, in fetch_orders'


@pytest.mark.parametrize(
    ("failure", "outcome", "kind"),
    [
        ("ConnectionError: reset by peer", "failed", "ConnectionError"),
        ("httpx.ConnectTimeout", "failed", "ConnectTimeout"),
        ("ExceptionGroup: two (2 sub-exceptions)", "failed", "ExceptionGroup"),
        ("exit code 3", "failed", "failed"),
        (None, "timed out", "timed out"),
    ],
)
def test_the_kind_is_the_name_of_the_exception_else_the_outcome(failure: str | None, outcome: str, kind: str) -> None:
    assert kind_of(failure, outcome) == kind


def test_the_place_is_the_last_function_of_the_application_in_the_error_itself() -> None:
    begin = "Traceback (most recent call last)"
    assert place_of(f"{begin}:\n  {OWN}\n  {LIBRARY}\nx.Y: z") == "shop/orders.py, fetch_orders"
    caused = f"{begin}:\n  {OWN}\nKeyError: 1\n\nThe above …:\n\n{begin}:\n  {OWN.replace('fetch', 'store')}\nX: y"
    assert place_of(caused) == "shop/orders.py, store_orders"
    assert place_of(f"{begin}:\n  {LIBRARY}\nx.Y: z") == "httpx/_client.py, send"
    assert place_of(r'File "C:\shop\orders.py", line 7, in main.<locals>.run') == "shop/orders.py, main.<locals>.run"
    assert place_of("exit code 3") == place_of("") == ""
    assert place_of(stack(raised())).endswith("sample_events.py, raised")


def test_failures_of_one_kind_and_place_are_one_group_and_it_is_remembered_when_it_was_first_seen() -> None:
    def failure(number: int, kind: str, job: str = "report") -> Failure:
        return Failure(f"r{number}", job, number % 2, float(number), kind, "a.py, f")

    found = grouped([failure(4, "A"), failure(3, "B"), failure(2, "A"), failure(1, "A", "other")], {})
    first, second = found["report"]
    assert first == ErrorGroup("A", "a.py, f", 2.0, "r4", ((0, 4.0), (0, 2.0)))
    assert (first.name, first.count, second.kind, second.count) == ("A · a.py, f", Count(2), "B", Count(1))
    assert found["other"][0].count == Count(1)
    later = grouped([failure(6, "A")], found)
    assert (later["report"][0].first, later["report"][0].count) == (2.0, Count(1))


def test_the_errors_of_the_last_day_are_read_from_the_event_store_and_changes_are_reported(tmp_path: Path) -> None:
    async def main() -> None:
        changed: list[str] = []
        async with open_store(f"sqlite:///{tmp_path / 'events.db'}", clock=Clock()) as store:
            watch = StoreWatch(store, Clock(), "billing", changed.extend)
            await watch.ask()
            assert (watch.snapshot.errors, changed) == ({}, [])
            day = int(timedelta(days=1).total_seconds() * 1000)
            for slot in (NOON, NOON + 1000, NOON - day):
                failed = end(slot, 0, Outcome.FAILED, failure=raised(f"no luck at {slot}"))
                await store.write(batch(*beginning(slot), failed))
            await store.write(batch(*beginning(NOON, 1), end(NOON, 1, Outcome.TIMED_OUT)))
            await store.write(batch(*beginning(NOON, 2), end(NOON, 2)))
            await watch.ask()
            error, timeout = sorted(watch.snapshot.errors["report"], key=lambda one: one.kind)
            assert (error.kind, error.count, error.first) == ("ValueError", Count(2), pytest.approx(NOON / 1000, abs=1))
            assert error.place.endswith("sample_events.py, raised")
            assert (timeout.name, timeout.count) == ("timed out", Count(1))
            assert changed == ["report"]
            await watch.ask()
            assert changed == ["report"]  # nothing has changed

    anyio.run(main)


def test_groups_of_only_the_newest_failures_say_at_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioelasticjob.console.watching.store_watch.MAX_FAILURES", 3)

    async def main() -> None:
        async with open_store(f"sqlite:///{tmp_path / 'events.db'}", clock=Clock()) as store:
            watch = StoreWatch(store, Clock(), "billing")
            for failures, count in ((2, Count(2)), (5, Count(3, is_least=True))):
                for item in range(failures):
                    failed = end(NOON, item, Outcome.FAILED, failure=raised("no luck"))
                    await store.write(batch(*beginning(NOON, item), failed))
                await watch.ask()
                assert [one.count for one in watch.snapshot.errors["report"]] == [count]
                assert sum(watch.snapshot.failures.values()) == failures  # which the database counts

    anyio.run(main)


def test_a_run_that_somebody_has_stopped_is_counted_as_a_failure_nowhere(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_store(f"sqlite:///{tmp_path / 'events.db'}", clock=Clock()) as store:
            watch = StoreWatch(store, Clock(), "billing")
            await store.write(batch(*beginning(NOON), end(NOON, 0, Outcome.STOPPED)))
            await watch.ask()
            assert (watch.snapshot.failures, watch.snapshot.errors) == ({}, {})

    anyio.run(main)
