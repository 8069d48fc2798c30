"""Reads the values of YAML as they are written: no text becomes another one because it looks like a number.

YAML 1.1 takes ``010`` for 8, ``12:30:45`` for 45045, ``no`` for False and ``1.10`` for 1.1.  Here a value without
quotes is a number only if its digits say exactly that number, and a truth value only as ``true`` or ``false``.
Everything else is text, which settings that are numbers or truth values read by themselves, as they read variables of
the environment.  So a setting that is text gets what was written, whether it has been read as text or as a number.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

import yaml

Resolvers: TypeAlias = dict[str | None, list[tuple[str, "re.Pattern[str]"]]]
_BOOL: Final = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT: Final = re.compile(r"(?:0|-?[1-9][0-9]{0,17})\Z")
_FLOAT: Final = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+\Z")
_KEPT: Final = ("null", "merge")
_TAG: Final = "tag:yaml.org,2002:"


def _resolvers() -> Resolvers:
    """Return which plain values are something else than text, by their first characters."""
    found: Resolvers = {}
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items():
        found[first] = [(tag, pattern) for tag, pattern in pairs if tag.removeprefix(_TAG) in _KEPT]
    for first in "tTfF":
        found.setdefault(first, []).append((f"{_TAG}bool", _BOOL))
    for first in "-0123456789":
        numbers = found.setdefault(first, [])
        numbers.append((f"{_TAG}int", _INT))
        numbers.append((f"{_TAG}float", _FLOAT))
    return found


def float_as_written(text: str) -> object:
    """Return a float, or its text if the float would be written in another way, such as ``1.10``."""
    number = float(text)
    return number if str(number) == text else text


def reading_as_written(loader: type[yaml.SafeLoader]) -> type[yaml.SafeLoader]:
    """Return a loader like the given one that reads values as they are written."""

    class Loader(loader):  # type: ignore[misc, valid-type]
        yaml_implicit_resolvers = _resolvers()

    Loader.add_constructor(f"{_TAG}float", lambda _, node: float_as_written(node.value))
    return Loader


def as_text(value: object) -> object:
    """Return a number as text, also inside a list or a mapping, as it was written; other values as they are."""
    match value:
        case bool():
            return value
        case int() | float():
            return str(value)
        case list():
            return [as_text(one) for one in value]
        case dict():
            return {key: as_text(one) for key, one in value.items()}
        case _:
            return value
