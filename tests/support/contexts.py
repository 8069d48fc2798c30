"""Contexts as a run would give them, for tests of what runs."""

from __future__ import annotations

from aioelasticjob import FireSource, InstanceContext, ItemContext
from aioelasticjob.model import Fire

MOMENT = Fire(1_763_632_800_000, FireSource.SCHEDULE)  # 2025-11-20 10:00 UTC


class SavedOffsets:
    """Offsets that are there already."""

    def get(self, item: int) -> str | None:
        return f"offset {item}"

    async def save(self, item: int, value: str) -> None:
        raise NotImplementedError


def of_item(parameter: str | None = "Beijing") -> ItemContext:
    return ItemContext("backup", "nightly", 6, "10.0.0.5@-@4711-ab", MOMENT, SavedOffsets(), {}, 4, parameter, 17)


def of_instance(count: int = 2) -> InstanceContext:
    items = tuple(range(count))
    parameters = {item: f"city {item}" for item in items}
    fences = {item: 17 + item for item in items}
    return InstanceContext(
        "backup", "", count, "10.0.0.5@-@4711-ab", MOMENT, SavedOffsets(), {}, items, parameters, fences
    )
