"""Handlers that created jobs name: a function, what surrounds its runs, and the model of its jobs' parameter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel

from aioelasticjob.config.job import JobConfig, is_handler_name
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.jobs.base import Handler, Job
from aioelasticjob.jobs.listeners import Listener, checked
from aioelasticjob.jobs.parameters import read_parameter, schema_of


@dataclass(frozen=True, slots=True)
class NamedHandler:
    """A handler of this process that created jobs may name."""

    name: str
    function: Handler
    parameter: type[BaseModel] | None
    """The model of the job parameter; None if jobs may have any text."""
    schema: dict[str, Any] | None
    """The model's JSON schema."""
    listeners: tuple[Listener, ...]
    _jobs: dict[tuple[str, str], Job] = field(default_factory=dict, compare=False)
    """A job for each pair of ``per`` and ``executor``: the function's signature is read once for each."""

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
        _see_callable(name, function)
        return cls(name, function, parameter, schema_of(parameter), checked(listeners))

    def job(self, config: JobConfig) -> Job:
        """Return a created job as this process runs it.

        Raises:
            InvalidSetting: the model refuses the parameter, or the function cannot be run as the configuration says.
        """
        read_parameter(self.parameter, config.job_parameter)
        key = (config.per, config.executor)
        found = self._jobs.get(key)
        if found is None:
            declared = Job.declare(config, self.function, self.listeners)
            found = self._jobs[key] = replace(declared, parameter=self.parameter)
        return replace(found, config=config).prepared()


def _see_callable(name: str, function: Handler) -> None:
    """Check that a function can be a handler, for single items or for all items of an instance."""
    try:
        Job.declare(JobConfig(job_name=name), function)
    except InvalidSetting as mistake:
        try:
            Job.declare(JobConfig(job_name=name, per="instance"), function)
        except InvalidSetting:
            raise mistake from None
