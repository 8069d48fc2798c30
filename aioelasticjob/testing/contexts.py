"""Contexts for handlers that a test calls alone, without a run, a registry or simulated time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, Unpack

from pydantic import BaseModel

from aioelasticjob.engine.offsets import encoded
from aioelasticjob.ground.times import moment
from aioelasticjob.jobs.context import InstanceContext, ItemContext
from aioelasticjob.model import Fire, FireSource
from aioelasticjob.operations.asking import milliseconds
from aioelasticjob.operations.instances import parameter_text
from aioelasticjob.testing.loop import START

FIRST_MOMENT = moment(START)
"""The fire time of a context, unless the test gives another one."""


class RunFields(TypedDict, total=False):
    """What contexts of both kinds say about their run; each field has a default."""

    job_name: str
    job_parameter: str
    sharding_total_count: int
    """One more than the largest item unless given."""
    fire_time: datetime
    """2026-01-01 00:00 UTC unless given; its time zone is that of the job."""
    source: FireSource
    """``TRIGGER`` with a request and ``SCHEDULE`` without one, unless given."""
    request: Mapping[str, object]
    """Its JSON is the ``job_parameter``, as in a real run."""
    attempt: int
    instance: str
    model: type[BaseModel]
    """The model of the job parameter, for the handler of created jobs."""


def item_context(
    *,
    item: int = 0,
    parameter: str | None = None,
    offset: str | None = None,
    fence: int = 1,
    **run: Unpack[RunFields],
) -> ItemContext:
    """Return the context of one item; ``save_offset`` keeps the offset in it, so the test reads ``context.offset``.

    ``run`` may give ``job_name``, ``job_parameter``, ``sharding_total_count``, ``fire_time``, ``source``, ``request``,
    ``attempt``, ``instance`` and ``model``.

    Raises: InvalidSetting when the fire time has no time zone, or JSON cannot spell the request; TypeError for others.
    """
    offsets = {} if offset is None else {item: offset}
    return ItemContext(**_of_run(item + 1, offsets, run), item=item, parameter=parameter, fence=fence)


def instance_context(
    *,
    items: Iterable[int] = (0,),
    item_parameters: Mapping[int, str] | None = None,
    offsets: Mapping[int, str] | None = None,
    fence: int = 1,
    **run: Unpack[RunFields],
) -> InstanceContext:
    """Return the context of all items of an instance, for a job with ``per="instance"``; else as ``item_context``.

    Each item has the same fence.

    Raises: InvalidSetting when the fire time has no time zone, or JSON cannot spell the request; TypeError for others.
    """
    taken = tuple(sorted(items))
    largest = max(taken, default=0)
    fields = _of_run(largest + 1, dict(offsets or {}), run)
    fences = dict.fromkeys(taken, fence)
    return InstanceContext(**fields, items=taken, item_parameters=dict(item_parameters or {}), fences=fences)


def _of_run(least_total: int, offsets: dict[int, str], given: RunFields) -> dict[str, Any]:
    """Return the arguments that both kinds of contexts take."""
    known = RunFields.__annotations__.keys()
    unknown = given.keys() - known
    if unknown:
        raise TypeError(f"a context has no field {', '.join(sorted(unknown))}: known are {', '.join(sorted(known))}")
    fire_time = given.get("fire_time", FIRST_MOMENT)
    asked = parameter_text(given.get("request"))
    if asked is None:
        usual_source = FireSource.SCHEDULE
        parameter = given.get("job_parameter", "")
    else:
        usual_source = FireSource.TRIGGER
        parameter = asked
    source = given.get("source", usual_source)
    return {
        "job_name": given.get("job_name", "job"),
        "job_parameter": parameter,
        "sharding_total_count": given.get("sharding_total_count", least_total),
        "instance": given.get("instance", "10.0.1.1@-@1-00000000"),
        "fire": Fire(milliseconds("fire_time", fire_time), source, asked),
        "checkpoints": _SavedOffsets(offsets),
        "options": {},
        "zone": fire_time.tzinfo,
        "attempt": given.get("attempt", 1),
        "model": given.get("model"),
    }


@dataclass(frozen=True, slots=True)
class _SavedOffsets:
    """The offsets of a context without a registry."""

    known: dict[int, str]

    def get(self, item: int) -> str | None:
        return self.known.get(item)

    async def save(self, item: int, value: str) -> None:
        encoded(value)  # refuses what a registry could not store
        self.known[item] = value
