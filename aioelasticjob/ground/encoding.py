"""What the registry's nodes can hold: JSON objects, unless somebody has edited them, and text that UTF-8 can encode."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from aioelasticjob.ground.nesting import all_inside, read_json


def json_object(data: bytes) -> Mapping[str, object]:
    """Return the JSON object in a node's data; empty if the data is not one."""
    try:
        fields = read_json(data)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def number(value: object) -> float | None:
    """Return a JSON value as a float; None if it is no number, or one that no float can hold."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        if not isfinite(value):
            return None
        return float(value)
    except OverflowError:
        return None


def encodable_text(text: str) -> str:
    """Return a text with a ``?`` in place of each character that UTF-8 cannot encode: a name that is only shown."""
    return text.encode("utf-8", "replace").decode()


def unencodable_text(value: object) -> str | None:
    """Return the first text in a value that UTF-8 cannot encode, such as half a surrogate pair; None without one."""
    for part in all_inside(value):
        if not isinstance(part, str) or part.isascii():
            continue
        encodable = part.encode("utf-8", "ignore").decode()
        if encodable != part:
            return part
    return None
