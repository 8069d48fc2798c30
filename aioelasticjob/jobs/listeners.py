"""What is called around a run: on every instance, or once in the whole cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.jobs.context import InstanceContext

Around: TypeAlias = Callable[[InstanceContext], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListener:
    """Called on every instance: before its items start, after they have ended.

    If ``before`` fails, the run fails without its handlers having been called; if ``after`` fails, it is logged.
    """

    before: Around | None = None
    after: Around | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceListener:
    """Called once in the cluster: before the first item of a moment starts, after its last one has ended.

    Every instance waits until all items of the moment have been claimed and ``before`` is through: up to
    ``started_timeout`` seconds, then its run fails.

    Raises:
        InvalidSetting: a timeout that is not positive.
    """

    before: Around | None = None
    after: Around | None = None
    started_timeout: float = 60

    def __post_init__(self) -> None:
        if not 0 < self.started_timeout < float("inf"):
            raise InvalidSetting("started_timeout", self.started_timeout, "must be a positive number of seconds")


Listener: TypeAlias = JobListener | OnceListener
