"""A job as its author declares it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from functools import cache
from typing import Any, Concatenate, Protocol, TypeAlias

from pydantic import BaseModel

from aioelasticjob.config.job import JobConfig
from aioelasticjob.config.retry import Retry
from aioelasticjob.cron.zone import zone_named
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.jobs.context import Checkpoints, InstanceContext, ItemContext
from aioelasticjob.jobs.dependencies import RequestedValues, check_context, requested_by
from aioelasticjob.jobs.executors import pickled
from aioelasticjob.jobs.inspection import is_async, name_of
from aioelasticjob.jobs.listeners import Listener, checked
from aioelasticjob.model import Claim

ItemHandler: TypeAlias = (
    Callable[Concatenate[ItemContext, ...], Awaitable[object]] | Callable[Concatenate[ItemContext, ...], object]
)
InstanceHandler: TypeAlias = (
    Callable[Concatenate[InstanceContext, ...], Awaitable[object]] | Callable[Concatenate[InstanceContext, ...], object]
)
Handler: TypeAlias = Callable[..., Any]


class Engine(Protocol):
    """Runs all claimed items of one execution, for kinds of jobs that need more than one call for each context."""

    @property
    def handlers(self) -> tuple[Handler, ...]:
        """All functions that are given a context."""
        ...

    def check(self, executor: str) -> bool:
        """Check that all handlers have been declared, and return whether any of them is a plain function.

        Raises:
            InvalidSetting: a handler is missing, or the executor is ``process`` and a handler cannot be sent to one.
        """
        ...

    async def __call__(self, execution: Any) -> None:
        """Run an execution and note how each of its items ended."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """A job and the handler that does its work here."""

    config: JobConfig
    handler: Handler
    blocking: bool
    """Whether the handler is a plain function, to be run in a thread or a process."""
    listeners: tuple[Listener, ...] = ()
    """The listeners that are called around each run, in this order."""
    needs: RequestedValues | None = None
    """The values that the handler asks for besides its context; None if it asks for none."""
    engine: Engine | None = None
    """Runs a whole execution, for kinds of jobs that need more than one call for each context."""
    parameter: type[BaseModel] | None = None
    """The model of the job parameter, of a created job whose handler has one."""

    @classmethod
    def declare(cls, config: JobConfig, handler: Handler, listeners: Iterable[Listener] = ()) -> Job:
        """Return the job after a look at the handler's signature.

        Raises:
            InvalidSetting: the handler cannot be called with one context and what is provided, or not where it should.
        """
        if not callable(handler):
            raise InvalidSetting("handler", handler, "must be a function that takes one context")
        try:
            needs = requested_by(handler)
            provided = {} if needs is None else needs.provided
            inspect.signature(handler).bind(object(), **provided)
        except TypeError as mismatch:
            raise InvalidSetting("handler", name_of(handler), _what_to_write(config, handler, mismatch)) from None
        except InvalidSetting:
            raise
        except ValueError:  # built in C: it has no signature to look at
            needs = None
        if inspect.isasyncgenfunction(handler) or inspect.isgeneratorfunction(handler):
            raise InvalidSetting(
                "handler", name_of(handler), "is a generator: a job's handler returns; dataflow jobs yield"
            )
        check_per(config, "handler", handler)
        blocking = not is_async(handler)
        if config.executor == "process":
            check_sendable(handler, blocking)
        return cls(config, handler, blocking, checked(listeners), needs)

    def prepared(self) -> Job:
        """Return the job as it is run, after checks that need all its handlers and the modules that they come from.

        Raises:
            InvalidSetting: a handler is missing or cannot be sent to a process, or ``retry`` names no exception.
        """
        for retry in (self.config.retry, getattr(self.engine, "retry", None)):
            if isinstance(retry, Retry):
                retry.check_names()
        if self.engine is not None:
            return replace(self, blocking=self.engine.check(self.config.executor))
        if self.blocking and self.config.executor == "process":
            pickled(self.handler)
        return self

    def overwriting(self, default: bool) -> Job:
        """Return a job that replaces the registry's configuration when it joins, or not, as it says, or by default."""
        if self.config.overwrite is not None:
            return self
        return replace(self, config=self.config.model_copy(update={"overwrite": default}))

    def fitted(self, config: JobConfig) -> JobConfig:
        """Return the configuration in force, with the declared ``per`` or ``executor`` if the handlers need it.

        So a release whose handlers take another context can run beside the one before it, and the runs of handlers
        that cannot be pickled do not fail if somebody sets ``executor`` to ``process``.
        """
        kept = dict[str, str]()
        for setting, check in (("per", self._check_contexts), ("executor", self._check_executor)):
            declared = getattr(self.config, setting)
            if getattr(config, setting) != declared:
                try:
                    check(config)
                except InvalidSetting:
                    kept[setting] = declared
        return config.model_copy(update=kept) if kept else config

    def _check_contexts(self, config: JobConfig) -> None:
        handlers = (self.handler,) if self.engine is None else self.engine.handlers
        for handler in handlers:
            check_per(config, "handler", handler)

    def _check_executor(self, config: JobConfig) -> None:
        if self.engine is not None:
            self.engine.check(config.executor)
        elif config.executor == "process":
            check_sendable(self.handler, self.blocking)
            pickled(self.handler)


def _what_to_write(config: JobConfig, handler: Handler, mismatch: TypeError) -> str:
    """Return the advice for a handler that cannot be called with one context."""
    names = list(inspect.signature(handler).parameters)
    context = "ItemContext" if config.per == "item" else "InstanceContext"
    name = getattr(handler, "__name__", "")
    if names[:1] == ["self"]:
        return f"is a method without its object: write app.add(object.{name}) in place of the decorator"
    expected = "must take one context and nothing else that is not provided"
    if not names and name.isidentifier():
        return f"{expected}: write async def {name}(context: {context})"
    return f"{expected}, as (context: {context}): {mismatch}"


def check_per(config: JobConfig, role: str, handler: Handler) -> None:
    """Check that a handler is not annotated for another context than the one that ``per`` gives it.

    Raises:
        InvalidSetting: it is annotated for the other one.
    """
    if config.per == "item":
        check_context(role, handler, ItemContext, ', or declare the job with per="instance"')
    else:
        check_context(role, handler, InstanceContext, ', or declare the job with per="item"')


def check_sendable(handler: Handler, blocking: bool) -> None:
    """Check by its name that another process can import the handler: its module is still being imported here.

    Raises:
        InvalidSetting: it cannot, or the handler is async.
    """
    if not blocking:
        raise InvalidSetting(
            "executor", "process", f"{name_of(handler)} is async: only plain functions run in processes"
        )
    name = name_of(handler)
    if "<" in name and inspect.isfunction(handler):  # <lambda>, or <locals> of another function
        raise InvalidSetting("executor", "process", f"{name} cannot be pickled: define it at the top of its module")


def item_context(
    config: JobConfig, claim: Claim, item: int, checkpoints: Checkpoints, parameter: type[BaseModel] | None = None
) -> ItemContext:
    """Return the context of one claimed item; ``parameter`` is the model of the job parameter."""
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
        claim.items[item].zxid,
        zone=_zone(config.time_zone),
        model=parameter,
        upstream=claim.upstream,
    )


def instance_context(
    config: JobConfig, claim: Claim, checkpoints: Checkpoints, parameter: type[BaseModel] | None = None
) -> InstanceContext:
    """Return the context of all claimed items; ``parameter`` is the model of the job parameter."""
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
        zone=_zone(config.time_zone),
        model=parameter,
        upstream=claim.upstream,
    )


@cache
def _zone(name: str) -> tzinfo:
    """Return a job's time zone; without a schedule nobody has checked its name."""
    try:
        return zone_named(name)
    except InvalidSetting:
        return UTC
