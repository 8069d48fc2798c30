"""A job with many items: how much work its start is, and how many items a job may have."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, InvalidSetting
from aioelasticjob.config import MAX_ITEMS
from aioelasticjob.registry.mirror import Follower
from tests.support.loops import run_async

ITEMS = 3_000


async def nothing(context: object) -> None: ...


def test_an_assignment_in_many_transactions_is_read_a_few_times_and_not_anew_with_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[int]()
    read = Follower._read

    async def noted(self: Follower, tree: Any, paths: Any) -> Any:
        asked.append(len(paths))
        return await read(self, tree, paths)

    monkeypatch.setattr(Follower, "_read", noted)

    async def main() -> None:  # on a real connection, where the next transaction comes before the last one was read
        app = ElasticJob("embedded://")
        app.add(nothing, name="job", sharding_total_count=ITEMS)
        async with app.running():
            while not any(len(job.holds) == ITEMS for job in app.health.jobs):
                await anyio.sleep(0.05)

    run_async("asyncio", main)
    assert sum(asked) <= 4 * ITEMS  # an item has two nodes


