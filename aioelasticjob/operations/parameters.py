"""Whether the parameter of a created job satisfies the model of a process that has the job's handler.

A process publishes its model as a JSON schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.handlers import HandlerProcess, processes_with
from aioelasticjob.core.layout import HandlerPaths
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.nesting import read_json
from aioelasticjob.registry.tree import Tree

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator


class PublishedSchemas:
    """The schemas that processes have published, by handler.  ``tree`` has the nodes of the processes."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._validators: dict[str, list[Draft202012Validator]] = {}
        """The different schemas of each handler; none if a process takes any text, or if no process has the handler."""

    def see_accepted(self, config: JobConfig) -> None:
        """Check that a process with the job's handler takes the job's parameter, if any process has the handler.

        Raises:
            InvalidSetting: none does.
        """
        if config.handler is None:
            return
        validators = self._validators.get(config.handler)
        if validators is None:
            processes = processes_with(self._tree, HandlerPaths(config.handler))
            validators = self._validators[config.handler] = _validators(processes)
        if not validators:
            return
        text = config.job_parameter
        try:
            value = read_json(text or "{}")
        except ValueError:
            expected = f"must be JSON, as the handler {config.handler} takes it"
            raise InvalidSetting("job_parameter", text, expected) from None
        mistakes = [_mistake(one, value) for one in validators]
        if all(mistakes):
            said = " or: ".join(dict.fromkeys(filter(None, mistakes)))
            raise InvalidSetting(
                "job_parameter", text, f"no process with the handler {config.handler} takes it: {said}"
            )


def _validators(processes: tuple[HandlerProcess, ...]) -> list[Draft202012Validator]:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from referencing import Registry

    found: list[Draft202012Validator] = []
    schemas = [one.schema for one in processes]
    for schema in schemas:
        if schema is None:
            return []
        if any(one.schema == schema for one in found):
            continue
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError:  # somebody has written it by hand
            continue
        found.append(Draft202012Validator(schema, registry=Registry()))  # one that fetches nothing from elsewhere
    return found


def _mistake(validator: Draft202012Validator, value: Any) -> str | None:
    """Return what is wrong with a parameter by one schema; None if it satisfies the schema."""
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        error = best_match(validator.iter_errors(value))
    except Unresolvable:  # somebody has written the schema by hand
        return "its schema cannot be used"
    if error is None:
        return None
    place = ".".join(str(part) for part in error.absolute_path)
    return f"{place}: {error.message}" if place else str(error.message)
