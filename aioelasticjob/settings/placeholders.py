"""``${NAME}`` and ``${NAME:default}`` in settings, taken from the environment; ``$${`` stands for ``${`` itself.

pydantic-settings has no placeholders, and ``string.Template`` no defaults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from aioelasticjob.settings.files import Keys

_PLACEHOLDER = re.compile(
    r"\$\$\{|\$\{(?P<name>[A-Za-z_][\w.-]*)(?::(?P<default>(?:[^{}]|\$\{[^{}]*\}|\{[^{}]*\})*))?\}|\$\{"
)


class Unresolved(ValueError):
    """A placeholder cannot be replaced."""


def resolve(text: str, environment: Mapping[str, str]) -> str:
    """Return the text with its placeholders replaced; a default may have placeholders of its own.

    Raises:
        Unresolved: a variable without a default is not set, or the text is no valid placeholder.
    """

    def replaced(found: re.Match[str]) -> str:
        name = found["name"]
        default = found["default"]
        if found[0] == "$${":
            return "${"
        if name is None:
            raise Unresolved("a placeholder is ${NAME} or ${NAME:default}; write $${ for a ${ that is none")
        if name in environment:
            return environment[name]
        if default is None:
            raise Unresolved(f"the environment variable {name} is not set: set it, or write ${{{name}:default}}")
        return resolve(default, environment)

    return _PLACEHOLDER.sub(replaced, text)


def resolved(value: object, keys: Keys, environment: Mapping[str, str], wrong: list[tuple[Keys, str, str]]) -> object:
    """Return a value with the placeholders in all its texts replaced; errors are added to ``wrong``."""
    match value:
        case str():
            try:
                return resolve(value, environment)
            except Unresolved as error:
                wrong.append((keys, value, str(error)))
                return value
        case dict():
            return {key: resolved(one, (*keys, key), environment, wrong) for key, one in value.items()}
        case list():
            return [resolved(one, (*keys, str(n)), environment, wrong) for n, one in enumerate(value)]
        case _:
            return value
