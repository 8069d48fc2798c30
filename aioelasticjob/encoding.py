"""What the registry's nodes can hold: JSON objects, unless somebody has edited them, and text that UTF-8 can encode."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite


def json_object(data: bytes) -> Mapping[str, object]:
    """Return the JSON object in a node's data; empty if the data is not one."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def number(value: object) -> float | None:
    """Return a JSON value as a float; None if it is no number, or one that no float can hold."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value) if isfinite(value) else None
    except OverflowError:
        return None


def encodable_text(text: str) -> str:
    """Return a text with a ``?`` in place of each character that UTF-8 cannot encode: a name that is only shown."""
    return text.encode("utf-8", "replace").decode()


def unencodable_text(value: object) -> str | None:
    """Return the first text in a value that UTF-8 cannot encode, such as half a surrogate pair; None without one."""
    if isinstance(value, str):
        return None if value.isascii() or value.encode("utf-8", "ignore").decode() == value else value
    inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((odd for part in inside if (odd := unencodable_text(part)) is not None), None)
