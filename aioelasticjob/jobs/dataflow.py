"""A dataflow job as its author declares it: fetch, process, and ``dead``, which takes records that failed for good."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from aioelasticjob.config.job import JobConfig
from aioelasticjob.config.retry import Call, Retry
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.ground.plural import counted
from aioelasticjob.jobs.base import Handler, check_per
from aioelasticjob.jobs.dependencies import RequestedValues, requested_by
from aioelasticjob.jobs.inspection import is_async, name_of

Record = TypeVar("Record")
C = TypeVar("C")
E = TypeVar("E")
P = ParamSpec("P")
R = TypeVar("R")


class RecordFailed(ElasticJobError):
    """The error that ``dead`` is given when process returned False."""

    def __init__(self) -> None:
        super().__init__("process returned False")


class TooManyFailures(ElasticJobError):
    """More records have failed than ``max_failures`` allows, so no more were fetched."""

    def __init__(self, failed: int, allowed: int) -> None:
        super().__init__(f"{counted(failed, 'record')} failed, max_failures = {allowed}: nothing more was fetched")
        self.failed = failed
        self.allowed = allowed


class RetryStrategy(Protocol):
    """How ``process`` is retried: a ``Retry``, or one of tenacity's ``AsyncRetrying``."""

    def wraps(self, call: Any) -> Call:
        """Return ``call`` with its further attempts."""
        ...


class DeclareDataflow(Protocol):
    """The decorator that ``@app.dataflow(…)`` returns: the type of the records follows from what the fetch gives."""

    @overload
    def __call__(self, fetch: Callable[Concatenate[C, P], AsyncIterator[Sequence[Record]]]) -> Dataflow[Record]: ...

    @overload
    def __call__(self, fetch: Callable[Concatenate[C, P], Awaitable[Sequence[Record] | None]]) -> Dataflow[Record]: ...

    @overload
    def __call__(self, fetch: Callable[Concatenate[C, P], Sequence[Record] | None]) -> Dataflow[Record]: ...


class Dataflow(Generic[Record]):
    """The object that ``@app.dataflow`` returns: it takes ``process`` and ``dead``; calling it calls the fetch."""

    def __init__(self, config: JobConfig, fetch: Handler, retry: RetryStrategy | None = None) -> None:
        needs = _bind("fetch", fetch, "context")
        if inspect.isgeneratorfunction(fetch):
            raise InvalidSetting("fetch", name_of(fetch), "is a plain generator: write async def, and yield batches")
        check_per(config, "fetch", fetch)
        if retry is not None and not _is_async_retry(retry):
            raise InvalidSetting("retry", retry, "must be a Retry, or one of tenacity's AsyncRetrying")
        self.config = config
        self.fetch = fetch
        self.retry = retry
        self.generates = inspect.isasyncgenfunction(inspect.unwrap(fetch))
        """Whether the fetch is an async generator, each of whose yields is a batch."""
        self.needs: list[RequestedValues | None] = [needs, None, None]
        """The values that fetch, process and dead ask for besides their arguments."""
        self._process: Handler | None = None
        self._dead: Handler | None = None
        update_wrapper(self, fetch, updated=())

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the fetch."""
        return self.fetch(*given, **named)

    def __repr__(self) -> str:
        return f"<dataflow {self.config.job_name}>"

    def __reduce__(self) -> str:
        """Pickle as functions do, by name."""
        name: str = getattr(self, "__qualname__")  # noqa: B009  # the fetch's, not the class's
        return name

    @property
    def sendable(self) -> Handler:
        """What is sent to a process: the fetch, or this object, which a decorated plain fetch's name now means."""
        if not is_async(self.fetch):
            try:
                pickle.dumps(self.fetch)
            except Exception:  # other reasons why it cannot be sent are reported when this object is sent
                return self
        return self.fetch

    @overload
    def process(self, handler: Callable[Concatenate[C, Record, P], R]) -> Callable[Concatenate[C, Record, P], R]: ...

    @overload
    def process(
        self, handler: Callable[Concatenate[C, list[Record], P], R]
    ) -> Callable[Concatenate[C, list[Record], P], R]: ...

    def process(self, handler: Handler) -> Handler:
        """Declare what is called with the context and each record, or with lists of records if ``batch_size`` is set.

        A record for which it returns False or raises has failed; the other records go on.

        Raises:
            InvalidSetting: it cannot be called so, or there is one already.
        """
        self._once("process", handler, self._process)
        self.needs[1] = _bind("process", handler, "context", self._takes)
        check_per(self.config, "process", handler)
        self._process = handler
        return handler

    @overload
    def dead(self, handler: Callable[Concatenate[C, Record, E, P], R]) -> Callable[Concatenate[C, Record, E, P], R]: ...

    @overload
    def dead(
        self, handler: Callable[Concatenate[C, list[Record], E, P], R]
    ) -> Callable[Concatenate[C, list[Record], E, P], R]: ...

    def dead(self, handler: Handler) -> Handler:
        """Declare what is called with the context, the record (or the list) that failed for good, and the error.

        Raises:
            InvalidSetting: it cannot be called so, or there is one already.
        """
        self._once("dead", handler, self._dead)
        self.needs[2] = _bind("dead", handler, "context", self._takes, "error")
        check_per(self.config, "dead", handler)
        self._dead = handler
        return handler

    @property
    def handlers(self) -> tuple[Handler, Handler | None]:
        """Process, and dead if there is one.

        Raises:
            InvalidSetting: there is no process.
        """
        if self._process is None:
            name = getattr(self.fetch, "__name__", "fetch")
            raise InvalidSetting("process", None, f"is missing in {self!r}: decorate a function with @{name}.process")
        return self._process, self._dead

    @property
    def _takes(self) -> str:
        return "record" if self.config.batch_size is None else "records"

    def _once(self, role: str, handler: Handler, present: Handler | None) -> None:
        if present is not None:
            known = name_of(present)
            raise InvalidSetting(role, name_of(handler), f"{self!r} has one already: {known}")


def _bind(role: str, handler: object, *takes: str) -> RequestedValues | None:
    """Return the values that a handler asks for besides these arguments; refuse one that cannot be called with them."""
    wanted = f"must be a function that takes {', '.join(takes)}, and what is provided"
    if not callable(handler):
        raise InvalidSetting(role, handler, wanted)
    if role != "fetch" and (inspect.isasyncgenfunction(handler) or inspect.isgeneratorfunction(handler)):
        raise InvalidSetting(role, name_of(handler), "is a generator: only fetch yields")
    needs = requested_by(handler, given=len(takes))
    provided = {} if needs is None else needs.provided
    try:
        inspect.signature(handler).bind(*takes, **provided)
    except TypeError as mismatch:
        arguments = ", ".join(("context: ItemContext", *takes[1:]))
        raise InvalidSetting(role, name_of(handler), f"{wanted}, as ({arguments}): {mismatch}") from None
    except ValueError:  # built in C: it has no signature to look at
        pass
    return needs


def _is_async_retry(retry: object) -> bool:
    """Whether this is a retry strategy that awaits the function it calls; tenacity's plain ``Retrying`` does not."""
    if isinstance(retry, Retry):
        return True
    call = getattr(retry, "__call__", None)  # noqa: B004  # the method itself is looked at
    return callable(getattr(retry, "wraps", None)) and inspect.iscoroutinefunction(call)
