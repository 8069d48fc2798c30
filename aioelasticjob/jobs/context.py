"""Contexts: what a handler is told about its run."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from typing import Any, Protocol, TypeAlias

from pydantic import BaseModel

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.ground.nesting import read_json
from aioelasticjob.host.guard import Start
from aioelasticjob.jobs.parameters import read_parameter
from aioelasticjob.logging import logger
from aioelasticjob.model import Fire, FireSource

log = logger("aioelasticjob.job")


class Checkpoints(Protocol):
    """The offsets of the items of one run."""

    def get(self, item: int) -> str | None:
        """Return the offset last saved, None if there is none."""
        ...

    def save(self, item: int, value: str) -> Coroutine[Any, Any, None]:
        """Save an offset, unless the run was cut off."""
        ...


class RunLease(Protocol):
    """For how long no other instance can claim the items of the present run."""

    @property
    def left(self) -> float:
        """Seconds until the session may end if the registry answers no more; at 0 or less it may have ended."""
        ...

    @property
    def margin(self) -> float:
        """Seconds before the possible end of the session at which a run is cancelled."""
        ...

    def starting(self) -> AbstractAsyncContextManager[Start]:
        """Let a program that is started in the block be ended when the session may end."""
        ...

    def watching(self, group: int) -> AbstractAsyncContextManager[None]:
        """Let a process group be ended when the session may end."""
        ...


run_lease: ContextVar[RunLease | None] = ContextVar("aioelasticjob.run_lease", default=None)
"""The lease of the run that the present task belongs to; None outside of runs."""
run_limited_log: ContextVar[LimitedLog | None] = ContextVar("aioelasticjob.ground.limited_log", default=None)
"""Limits the lines that this package writes about the run that the present task belongs to; None outside of runs."""
run_job: ContextVar[str | None] = ContextVar("aioelasticjob.run_job", default=None)
"""The name of the job whose run the present task belongs to; None outside of runs."""


@dataclass(frozen=True)
class Context(ABC):
    """What every handler is told about its run."""

    job_name: str
    job_parameter: str
    sharding_total_count: int
    instance: str
    fire: Fire = field(repr=False)
    checkpoints: Checkpoints = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    """The settings that only this kind of job has, as JSON values."""
    zone: tzinfo = field(default=UTC, repr=False, kw_only=True)
    """The job's time zone."""
    attempt: int = field(default=1, kw_only=True)
    """Which attempt of the run this is, counted from 1; a rescue begins at 1 again."""
    model: type[BaseModel] | None = field(default=None, repr=False, kw_only=True)
    """The model of the job parameter, of a created job whose handler has one."""
    upstream: Mapping[str, Mapping[int, str]] = field(default_factory=dict, repr=False, kw_only=True)
    """How each item of each job that this one follows has ended this moment, such as ``completed`` or ``failed``.

    The outcome is empty if the moment was not the item's.  The mapping is empty if the job follows none, or if somebody
    has asked for this run.
    """

    @property
    @abstractmethod
    def task_id(self) -> str:
        """The name of this run, unique."""

    @property
    @abstractmethod
    def claimed(self) -> tuple[int, ...]:
        """The items of this run."""

    @property
    def run_id(self) -> str:
        """The name of this run of the job: the same for all its items and instances, and for their rescues."""
        return run_id(self.job_name, self.fire)

    @property
    def source(self) -> FireSource:
        """Why this run happens."""
        return self.fire.source

    @cached_property
    def parameters(self) -> Any:
        """The job parameter as a value of the handler's model; None if the handler has no model.

        Raises:
            InvalidSetting: the model refuses the parameter, which somebody has given who triggered this run.
        """
        return read_parameter(self.model, self.job_parameter)

    @cached_property
    def request(self) -> Mapping[str, Any] | None:
        """What somebody has asked for who has triggered this run with a JSON object as its parameter; else None."""
        try:
            value = read_json(self.fire.parameter or "null")
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    @property
    def fire_time(self) -> datetime:
        """The moment that the run is for, in the job's time zone: when it was scheduled or asked for."""
        return self.fire.at.astimezone(self.zone)


@dataclass(frozen=True)
class ItemContext(Context):
    """The context of one sharding item."""

    item: int
    parameter: str | None
    fence: int
    """Grows with every claim of the item.  A store that keeps the largest one can refuse what a cut-off run writes."""

    @property
    def monitor_execution(self) -> bool:
        """Whether this run is claimed and settled in the registry, as the job's setting of this name says."""
        return self.fence > 0

    @property
    def task_id(self) -> str:
        """The name of this run of this item, unique."""
        return _task_id(self, str(self.item), self.fence)

    @property
    def claimed(self) -> tuple[int, ...]:
        """This item alone."""
        return (self.item,)

    @property
    def offset(self) -> str | None:
        """The item's checkpoint, None before the first."""
        return self.checkpoints.get(self.item)

    def save_offset(self, value: str) -> Coroutine[Any, Any, None]:
        """Save the item's checkpoint: where the next run begins, also after a crash.

        A plain function in a thread calls ``anyio.from_thread.run(context.save_offset, value)``.

        Raises:
            Fenced: this run is over, and another may be under way; nothing was saved.
            InvalidSetting: the value is no text, or too large; or a plain function has called this in its thread.
        """
        return self.checkpoints.save(self.item, value)

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger bound to this run."""
        return _RunLog(log, _about(self, item=self.item))


@dataclass(frozen=True)
class InstanceContext(Context):
    """The context of all items that this instance took for one fire."""

    items: tuple[int, ...]
    item_parameters: Mapping[int, str]
    fences: Mapping[int, int]

    @property
    def fence(self) -> int:
        """The largest of the items' fences."""
        return max(self.fences.values(), default=0)

    @property
    def monitor_execution(self) -> bool:
        """Whether this run is claimed and settled in the registry, as the job's setting of this name says."""
        return self.fence > 0

    @property
    def claimed(self) -> tuple[int, ...]:
        """All items of this run."""
        return self.items

    @property
    def offsets(self) -> Mapping[int, str | None]:
        """The items' checkpoints."""
        return {item: self.checkpoints.get(item) for item in self.items}

    def save_offset(self, item: int, value: str) -> Coroutine[Any, Any, None]:
        """Save the checkpoint of one of the items.

        A plain function in a thread calls ``anyio.from_thread.run(context.save_offset, item, value)``.

        Raises:
            Fenced: this run is over, and another may be under way; nothing was saved.
            InvalidSetting: the item is not one of these, or the value no text or too large; or a plain function has
                called this in its thread.
        """
        if isinstance(item, bool) or item not in self.items:
            raise InvalidSetting("item", item, f"must be one of this run's: {self.items}")
        return self.checkpoints.save(item, value)

    @property
    def task_id(self) -> str:
        """The name of this run, unique."""
        return _task_id(self, ",".join(map(str, self.items)), self.fence)

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger bound to this run."""
        return _RunLog(log, _about(self, items=self.items))


AnyContext: TypeAlias = ItemContext | InstanceContext


def described(context: AnyContext) -> str:
    """Return a context as JSON in ASCII, for other programs; with Elastic-Job's names where it has one."""
    fields: dict[str, object] = {
        "jobName": context.job_name,
        "runId": context.run_id,
        "taskId": context.task_id,
        "instance": context.instance,
        "shardingTotalCount": context.sharding_total_count,
        "jobParameter": context.job_parameter,
        "fireTime": context.fire_time.isoformat(),
        "source": context.source.value,
        "attempt": context.attempt,
    }
    match context:
        case ItemContext():
            fields |= {"shardingItem": context.item, "shardingParameter": context.parameter}
            fields |= {"fence": context.fence, "offset": context.offset}
        case InstanceContext():
            fields |= {"shardingItems": context.items, "shardingItemParameters": dict(context.item_parameters)}
            fields |= {"fence": context.fence, "fences": dict(context.fences), "offsets": dict(context.offsets)}
    return json.dumps(fields)


class _RunLog(logging.LoggerAdapter[logging.Logger]):
    """Adds the run's fields and keeps those that the caller gives."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


def _about(context: Context, **which: object) -> dict[str, object]:
    """Return the fields that each line of a run's log has."""
    again = {"attempt": context.attempt} if context.attempt > 1 else {}
    return {"job": context.job_name, **which, "run_id": context.run_id, "task_id": context.task_id, **again}


def run_id(job: str, fire: Fire) -> str:
    """Return the name of a run of a job."""
    return f"{job}@{fire.run}"


def task_id(job: str, items: str, instance: str, run: str, number: int) -> str:
    """Return the name of the run of some items, from the name of the job's run.

    The number is the fence of the claim, or, without a claim, the moment: so a rescue has another name.
    """
    return f"{job}@-@{items}@-@READY@-@{instance}@-@{run}.{number:x}"


def _task_id(context: Context, items: str, fence: int) -> str:
    return task_id(context.job_name, items, context.instance, context.fire.run, fence or context.fire.slot)
