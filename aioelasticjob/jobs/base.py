"""A job as its author declares it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Concatenate, Protocol, TypeAlias

from aioelasticjob.config import JobConfig
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.jobs.context import Checkpoints, InstanceContext, ItemContext
from aioelasticjob.jobs.dependencies import Needs, check_context, needs_of
from aioelasticjob.jobs.functions import is_async
from aioelasticjob.jobs.listeners import Listener
from aioelasticjob.model import Claim

ItemHandler: TypeAlias = (
    Callable[Concatenate[ItemContext, ...], Awaitable[object]] | Callable[Concatenate[ItemContext, ...], object]
)
InstanceHandler: TypeAlias = (
    Callable[Concatenate[InstanceContext, ...], Awaitable[object]] | Callable[Concatenate[InstanceContext, ...], object]
)
Handler: TypeAlias = Callable[..., Any]


class Engine(Protocol):
    """What runs a whole flight."""

    def check(self) -> bool:
        """See to it that all handlers have been declared, and return whether any of them is a plain function.

        Raises:
            InvalidSetting: one is missing, or cannot be sent where it is to run.
        """
        ...

    async def __call__(self, flight: Any) -> None:
        """Run a flight and note how each of its items ended."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """A job and the handler that does its work here."""

    config: JobConfig
    handler: Handler
    blocking: bool
    """Whether the handler is a plain function, to be run in a thread or a process."""
    listeners: tuple[Listener, ...] = ()
    """Called around each run, in this order."""
    needs: Needs | None = None
    """What the handler asks for besides its context."""
    engine: Engine | None = None
    """What runs a whole flight, for kinds whose run is more than one call per context."""

    @classmethod
    def declare(cls, config: JobConfig, handler: Handler, listeners: Iterable[Listener] = ()) -> Job:
        """Return the job after a look at the handler's signature.

        Raises:
            InvalidSetting: the handler cannot be called with one context and what is provided, or not where it should.
        """
        if not callable(handler):
            raise InvalidSetting("handler", handler, "must be a function that takes one context")
        try:
            needs = needs_of(handler)
            inspect.signature(handler).bind(object(), **({} if needs is None else needs.provided))
        except TypeError as mismatch:
            raise InvalidSetting(
                "handler", _name(handler), f"must take one context and nothing else that is not provided: {mismatch}"
            ) from None
        except InvalidSetting:
            raise
        except ValueError:  # built in C: it has no signature to look at
            needs = None
        if inspect.isasyncgenfunction(handler) or inspect.isgeneratorfunction(handler):
            raise InvalidSetting(
                "handler", _name(handler), "is a generator: a job's handler returns; dataflow jobs yield"
            )
        check_per(config, "handler", handler)
        blocking = not is_async(handler)
        if config.executor == "process":
            _check_sendable(handler, blocking)
        return cls(config, handler, blocking, tuple(listeners), needs)


def check_per(config: JobConfig, role: str, handler: Handler) -> None:
    """See to it that a handler is annotated for the context that ``per`` gives it, if for any.

    Raises:
        InvalidSetting: it is annotated for the other one.
    """
    if config.per == "item":
        check_context(role, handler, ItemContext, 'annotate ItemContext, or declare the job with per="instance"')
    else:
        check_context(role, handler, InstanceContext, 'annotate InstanceContext, or declare the job with per="item"')


def item_context(config: JobConfig, claim: Claim, item: int, checkpoints: Checkpoints) -> ItemContext:
    """Return the context of one claimed item."""
    return ItemContext(
        config.job_name,
        config.job_parameter if claim.fire.parameter is None else claim.fire.parameter,
        config.sharding_total_count,
        claim.instance,
        claim.fire,
        checkpoints,
        config.options,
        item,
        config.sharding_item_parameters.get(item),
        claim.fences.get(item, 0),
    )


def instance_context(config: JobConfig, claim: Claim, checkpoints: Checkpoints) -> InstanceContext:
    """Return the context of all claimed items."""
    given = config.sharding_item_parameters
    return InstanceContext(
        config.job_name,
        config.job_parameter if claim.fire.parameter is None else claim.fire.parameter,
        config.sharding_total_count,
        claim.instance,
        claim.fire,
        checkpoints,
        config.options,
        tuple(sorted(claim.items)),
        {item: given[item] for item in claim.items if item in given},
        claim.fences,
    )


def _check_sendable(handler: Handler, blocking: bool) -> None:
    """See to it that another process can import the handler; its module is not complete yet, so only its name tells."""
    if not blocking:
        raise InvalidSetting("executor", "process", f"{_name(handler)} is async: only plain functions run in processes")
    name = _name(handler)
    if "<" in name and inspect.isfunction(handler):  # <lambda>, or <locals> of another function
        raise InvalidSetting("executor", "process", f"{name} cannot be pickled: define it at the top of its module")


def _name(handler: Handler) -> str:
    return getattr(handler, "__qualname__", repr(handler))
