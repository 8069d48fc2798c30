"""Declaring jobs, in code or from settings.  It needs neither a registry nor a running event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from aioelasticjob import error_handlers
from aioelasticjob.config.job import JobConfig
from aioelasticjob.config.types import DURATION, parts_of
from aioelasticjob.core.strategies import find
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.jobs import executors, kinds
from aioelasticjob.jobs.base import Handler, InstanceHandler, ItemHandler, Job, check_per
from aioelasticjob.jobs.listeners import Listener, checked

if TYPE_CHECKING:
    from aioelasticjob.jobs.dataflow import Dataflow, DeclareDataflow, RetryStrategy
    from aioelasticjob.jobs.settings import DataflowSettings, JobSettings, RequestSettings, ScriptSettings
    from aioelasticjob.settings import Settings

F = TypeVar("F", bound=ItemHandler | InstanceHandler)
_NOT_GIVEN = {
    "job_name": "give it as name",
    "job_type": "follows from how the job is declared",
    "options": "give each by its own name; only kinds such as script and http have them",
}
"""Settings of a job that are not given as keyword settings, with what to do instead."""


class Declarations:
    """Jobs by their names, each declared in one of several ways."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._from_outside: Settings | None = None

    @property
    def jobs(self) -> tuple[JobConfig, ...]:
        """The configurations of the jobs declared here."""
        return tuple(job.config for job in self._jobs.values())

    def job(
        self, name: str | None = None, *, listeners: Iterable[Listener] = (), **settings: Unpack[JobSettings]
    ) -> Callable[[F], F]:
        """Declare the decorated function as a job; it stays callable.  The job's name is the function's unless given.

        Raises:
            InvalidSetting: names the setting, its value and what would be right.
        """
        if callable(name):
            raise InvalidSetting("name", name, "write @app.job() with parentheses")

        def declare(handler: F) -> F:
            self.add(handler, name=name, listeners=listeners, **settings)
            return handler

        return declare

    def add(
        self,
        handler: ItemHandler | InstanceHandler,
        *,
        name: str | None = None,
        listeners: Iterable[Listener] = (),
        **settings: Unpack[JobSettings],
    ) -> JobConfig:
        """Declare a job without a decorator and return its configuration.

        Raises:
            InvalidSetting: names the setting, its value and what would be right.
        """
        if not callable(handler):
            raise InvalidSetting("handler", handler, "must be a function that takes one context")
        given = _own_name(handler) if name is None else name
        _check_names_and_types(settings)
        config = JobConfig.build(job_name=given, **settings)
        return self._enlist(Job.declare(config, handler, listeners))

    def dataflow(
        self,
        name: str | None = None,
        *,
        retry: RetryStrategy | None = None,
        listeners: Iterable[Listener] = (),
        **settings: Unpack[DataflowSettings],
    ) -> DeclareDataflow:
        """Declare the decorated fetch as a dataflow job; the returned object's ``process`` decorates the next function.

        A fetch is a coroutine function that returns a list of records, or an async generator that yields such lists;
        an empty list or None ends the run.

        Raises:
            InvalidSetting: names the setting, its value and what would be right.
        """
        from aioelasticjob.engine.dataflow import DataflowEngine
        from aioelasticjob.jobs.dataflow import Dataflow

        if callable(name):
            raise InvalidSetting("name", name, "write @app.dataflow() with parentheses")
        _check_names_and_types(settings)

        def declare(fetch: Handler) -> Dataflow[Any]:
            given = _own_name(fetch) if name is None else name
            flow: Dataflow[Any] = Dataflow(
                JobConfig.build(job_name=given, job_type="DATAFLOW", **settings), fetch, retry
            )
            self._enlist(Job(flow.config, fetch, False, checked(listeners), engine=DataflowEngine(flow)))
            return flow

        return declare

    def script(self, name: str, *, command: str | Sequence[str], **settings: Unpack[ScriptSettings]) -> JobConfig:
        """Declare a job that runs a command line; ``settings`` are those of `Script` and of every job.

        Raises:
            InvalidSetting: names the setting, its value and what would be right; also if there is no such script.
        """
        return self.kind("script", name, command=command, **settings)

    def http(self, name: str, *, url: str, **settings: Unpack[RequestSettings]) -> JobConfig:
        """Declare a job that makes a request; ``settings`` are those of `Request` and of every job.

        Raises:
            InvalidSetting: names the setting, its value and what would be right; also if aiohttp is missing.
        """
        return self.kind("http", name, url=url, **settings)

    def kind(self, kind: str, name: str, *, listeners: Iterable[Listener] = (), **settings: Any) -> JobConfig:
        """Declare a job of a kind that needs no handler: ``script``, ``http``, or one that a package adds.

        Raises:
            InvalidSetting: names the setting, its value and what would be right.
        """
        _check_names_and_types(settings)
        config = kinds.declared(kind, name, settings)
        return self._enlist(Job.declare(config, kinds.handler(kinds.find(kind)), listeners))

    def _enlist(self, job: Job) -> JobConfig:
        """Add a job to the declared ones, however it was declared."""
        if self._from_outside is not None:
            job = replace(job, config=self._from_outside.applied(job))
            check_per(job.config, "handler", job.handler)
        self._check(job.config)
        self._jobs[job.config.job_name] = job
        return job.config

    def _check(self, config: JobConfig) -> None:
        """Check that a job can be added.

        Raises:
            InvalidSetting: it cannot, for instance because its name is taken.
        """
        find(config.sharding_strategy)
        executors.check(config.executor)
        error_handlers.check(config.error_handler, config.error_handler_options)
        if config.job_name in self._jobs:
            raise InvalidSetting("name", config.job_name, "is declared twice in this application")

    def _adopt(self, settings: Settings) -> None:
        self._from_outside = settings
        for name, job in self._jobs.items():
            self._jobs[name] = replace(job, config=settings.applied(job))
            check_per(self._jobs[name].config, "handler", job.handler)
        for name, kind in settings.jobs.items():
            if kind is not None and name not in self._jobs:
                self._enlist(Job.declare(settings.declared(name), kinds.handler(kinds.find(kind))))


def _own_name(handler: object) -> str:
    name = getattr(handler, "__name__", "<lambda>")
    if name == "<lambda>":  # or a partial, or an object
        raise InvalidSetting("name", None, "the handler has no name of its own: write name=…")
    return name


def _check_names_and_types(settings: Mapping[str, object]) -> None:
    for setting, expected in _NOT_GIVEN.items():
        if setting in settings:
            raise InvalidSetting(setting, settings[setting], expected)
    for setting, value in settings.items():
        # only files, the environment and command lines have to write numbers and flags as text
        if isinstance(value, str) and setting in JobConfig.model_fields:
            parts = parts_of(JobConfig.model_fields[setting])
            if DURATION not in parts and str not in parts and any(kind in parts for kind in (int, float, bool)):
                wanted = "True or False" if bool in parts else "a number"
                raise InvalidSetting(setting, value, f"must be {wanted}, not text")
