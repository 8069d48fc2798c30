"""The job as it will run, tested without waiting: the shop's jobs.py, simulated hosts, simulated days."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import anyio
import pytest
from jobs import Invoice, books, jobs, post

from aioelasticjob import FireSource, Outcome
from aioelasticjob.events import Began, Ended
from aioelasticjob.testing import VirtualCluster

MONDAY_MORNING = datetime(2026, 3, 30, 4, 50, tzinfo=UTC)  # in Berlin it is ten to seven: summer time began yesterday
EVERYBODY = sorted(f"{city} {number}" for city in ("Beijing", "Shanghai", "Guangzhou") for number in range(1, 11))

pytestmark = pytest.mark.virtual_time(start=MONDAY_MORNING)


class Shop:
    """Stands in for the database and the post: ten unpaid invoices in each city, and who was reminded."""

    def __init__(self) -> None:
        self.reminded: list[str] = []

    async def unpaid(self, city: str, after: int) -> list[Invoice]:
        return [Invoice(number, f"{city} {number}") for number in range(after + 1, 11)]

    async def remind(self, invoice: Invoice) -> None:
        await anyio.sleep(1)
        self.reminded.append(invoice.customer)


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop()
    stand_in: Callable[[], Shop] = lambda: shop  # noqa: E731
    monkeypatch.setitem(jobs.dependency_overrides, books, stand_in)
    monkeypatch.setitem(jobs.dependency_overrides, post, stand_in)
    return shop


async def test_everybody_is_reminded_on_monday_at_seven(virtual_cluster: VirtualCluster, shop: Shop) -> None:
    await virtual_cluster.start(jobs)
    ends = await virtual_cluster.next_fire()
    assert [end.outcome for end in ends] == [Outcome.COMPLETED] * 3
    monday_at_seven = datetime(2026, 3, 30, 5, 0, 10, tzinfo=UTC)
    assert abs((virtual_cluster.now - monday_at_seven).total_seconds()) < 1
    assert sorted(shop.reminded) == EVERYBODY


async def test_a_rescuer_goes_on_where_the_dead_had_come_to(virtual_cluster: VirtualCluster, shop: Shop) -> None:
    doomed, *_ = [await virtual_cluster.start(jobs) for _ in range(3)]
    await virtual_cluster.settled()
    await virtual_cluster.event(Began)
    await anyio.sleep(4.5)  # four of ten have been reminded in each city, and the fifth reminders are on their way
    doomed.kill()
    rescue = await virtual_cluster.event(Ended, source=FireSource.FAILOVER)
    assert rescue.outcome is Outcome.COMPLETED
    assert sorted(shop.reminded) == EVERYBODY
