"""A job with many items: how much work its start is, and how many items a job may have."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, InvalidSetting
from aioelasticjob.config.job import MAX_ITEMS
from aioelasticjob.engine.item_reader import ITEMS_PER_READ, ItemReader
from aioelasticjob.registry.mirror import Follower
from aioelasticjob.testing import run
from tests.engine.test_claims import ClaimedJob
from tests.support.loops import run_async

ITEMS = 3_000


async def nothing(context: object) -> None: ...


def test_an_assignment_in_many_transactions_is_read_a_few_times_and_not_anew_with_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[int]()
    read = Follower._read

    async def noted(self: Follower, tree: Any, paths: Any, **size: bool) -> Any:
        asked.append(len(paths))
        return await read(self, tree, paths, **size)

    monkeypatch.setattr(Follower, "_read", noted)

    async def main() -> None:  # on a real connection, where the next transaction comes before the last one was read
        app = ElasticJob("embedded://")
        app.add(nothing, name="job", sharding_total_count=ITEMS)
        async with app.running():
            while not any(len(job.holds) == ITEMS for job in app.health.jobs):
                await anyio.sleep(0.05)

    run_async("asyncio", main)
    assert sum(asked) <= 4 * ITEMS  # an item has two nodes


def test_records_of_many_items_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = ClaimedJob()
    parts = list[int]()
    read = claimed.member.session.get_many

    async def noted(paths: Any) -> Any:
        parts.append(len(paths))
        return await read(paths)

    monkeypatch.setattr(claimed.member.session, "get_many", noted)
    reader = ItemReader(claimed.member)
    run(lambda: reader.read(range(2 * ITEMS_PER_READ + 1)), seed=0)
    assert parts == [2 * ITEMS_PER_READ, 2 * ITEMS_PER_READ, 2]  # an item's record and its lock


def test_a_job_has_no_more_items_than_its_processes_can_follow() -> None:
    ElasticJob("embedded://").add(nothing, name="job", sharding_total_count=MAX_ITEMS)
    with pytest.raises(InvalidSetting) as refused:
        ElasticJob("embedded://").add(nothing, name="job", sharding_total_count=MAX_ITEMS + 1)
    assert (refused.value.setting, refused.value.value) == ("sharding_total_count", MAX_ITEMS + 1)
    assert "less than or equal to 10000" in str(refused.value)
