"""Handlers that created jobs name: a function, what surrounds its runs, and the model of its jobs' parameter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pydantic import BaseModel

from aioelasticjob.config.job import JobConfig, is_handler_name
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.jobs import kinds
from aioelasticjob.jobs.base import Handler, Job
from aioelasticjob.jobs.listeners import Listener, checked
from aioelasticjob.jobs.parameters import read_parameter, schema_of


class CreatedJobHandler(Protocol):
    """What created jobs may name: a function of this process, or a kind of job that it allows."""

    @property
    def name(self) -> str:
        """The handler's name."""
        ...

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON schema of the job parameter; None if jobs may have any text."""
        ...

    @property
    def options(self) -> dict[str, Any] | None:
        """The JSON schema of the options; None if jobs have none."""
        ...

    def job(self, config: JobConfig) -> Job:
        """Return a created job as this process runs it.

        Raises:
            InvalidSetting: this process cannot run it as it is configured.
        """
        ...


@dataclass(frozen=True, slots=True)
class NamedHandler:
    """A function of this process that created jobs may name."""

    name: str
    function: Handler
    parameter: type[BaseModel] | None
    """The model of the job parameter; None if jobs may have any text."""
    schema: dict[str, Any] | None
    """The model's JSON schema."""
    listeners: tuple[Listener, ...]
    _jobs: dict[tuple[str, str], Job] = field(default_factory=dict, compare=False)
    """A job for each pair of ``per`` and ``executor``: the function's signature is read once for each."""

    options: None = None

    @classmethod
    def declare(
        cls, name: str, function: Handler, parameter: type[BaseModel] | None, listeners: Iterable[Listener] = ()
    ) -> NamedHandler:
        """Return the handler after a look at its function and its model.

        Raises:
            InvalidSetting: the name is none, the function is no handler, or the parameter is no pydantic model.
        """
        if not isinstance(name, str) or not is_handler_name(name):
            raise InvalidSetting("name", name, "must be 1 to 200 letters, digits, '_', '-' or '.'")
        if name in kinds.names():
            raise InvalidSetting("name", name, "is the name of a kind of job: choose another name")
        _see_callable(name, function)
        return cls(name, function, parameter, schema_of(parameter), checked(listeners))

    def job(self, config: JobConfig) -> Job:
        """Return a created job as this process runs it.

        Raises:
            InvalidSetting: the model refuses the parameter, or the function cannot be run as the configuration says.
        """
        see_kind(config, "SIMPLE")
        read_parameter(self.parameter, config.job_parameter)
        key = (config.per, config.executor)
        found = self._jobs.get(key)
        if found is None:
            declared = Job.declare(config, self.function, self.listeners)
            found = self._jobs[key] = replace(declared, parameter=self.parameter)
        return replace(found, config=config).prepared()


@dataclass(frozen=True, slots=True)
class AllowedKind:
    """A kind of job, such as ``script``, of which this process runs created jobs."""

    name: str
    kind: kinds.Kind[Any]
    schema: None = None

    @classmethod
    def find(cls, name: str) -> AllowedKind:
        """Return the kind of this name.

        Raises:
            InvalidSetting: there is none, or its package cannot be used.
        """
        return cls(name.lower(), kinds.find(name))

    @property
    def options(self) -> dict[str, Any]:
        """The JSON schema of the options."""
        return schema_of(self.kind.options) or {}

    def job(self, config: JobConfig) -> Job:
        """Return a created job as this process runs it.

        Raises:
            InvalidSetting: the options are wrong, or this host cannot run it, say because its script is missing.
        """
        see_kind(config, self.name.upper())
        self.kind.check(self.kind.parse(config.options))
        return Job.declare(config, kinds.handler(self.kind)).prepared()


def see_kind(config: JobConfig, kind: str) -> None:
    """Check that a created job is of the kind that its handler runs.

    Raises:
        InvalidSetting: it is not.
    """
    if config.job_type != kind:
        expected = f"the handler {config.handler} runs {kind} jobs"
        raise InvalidSetting("job_type", config.job_type, expected)


def _see_callable(name: str, function: Handler) -> None:
    """Check that a function can be a handler, for single items or for all items of an instance."""
    try:
        Job.declare(JobConfig(job_name=name), function)
    except InvalidSetting as mistake:
        try:
            Job.declare(JobConfig(job_name=name, per="instance"), function)
        except InvalidSetting:
            raise mistake from None
