"""How deeply values are nested, such as parameters, settings and what somebody has written into a node.

Much of Python walks a value by recursion, as far as its stack reaches: how deep that is depends on the caller and on
the release of Python.  So a value that is nested too deeply is refused where it comes in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MAX_DEPTH = 100
"""How many levels a value may have."""
TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"


class TooDeep(ValueError):
    """A value is nested too deeply."""

    def __init__(self) -> None:
        super().__init__(TOO_DEEP)


def read_json(text: str | bytes) -> Any:
    """Return the value that JSON spells.

    Raises:
        TooDeep: the value is nested too deeply.
        ValueError: the text is no JSON.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise TooDeep from None
    if _openings(text) > MAX_DEPTH and is_too_deep(value):  # most values have fewer lists and objects than that
        raise TooDeep
    return value


def is_too_deep(value: object) -> bool:
    """Whether a value is nested too deeply, or contains itself."""
    level = _containers([value])
    for _ in range(MAX_DEPTH):
        if not level:
            return False
        level = _containers(part for one in level for part in inside(one))
    return bool(level)


def inside(value: object) -> Iterable[object]:
    """Return the values directly inside a mapping, its keys first, or in a list or tuple; no others have any."""
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    if isinstance(value, list | tuple):
        return value
    return ()


def all_inside(value: object) -> Iterator[object]:
    """Yield a value and all values inside it, at any depth, in the order in which they are written.

    The value must not contain itself.
    """
    waiting = [value]
    while waiting:
        found = waiting.pop()
        yield found
        waiting.extend(reversed([*inside(found)]))


def _containers(values: Iterable[object]) -> list[object]:
    """Return the values that have others inside, each object once: a few lines of YAML can name one a billion times."""
    found = dict[int, object]()
    for one in values:
        if isinstance(one, Mapping | list | tuple):
            found[id(one)] = one
    return list(found.values())


def _openings(text: str | bytes) -> int:
    if isinstance(text, str):
        return text.count("{") + text.count("[")
    return text.count(b"{") + text.count(b"[")
