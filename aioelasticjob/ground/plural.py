"""Numbers with their nouns, for the log and for people."""

from __future__ import annotations

from collections.abc import Iterable

MAX_NAMED = 10
"""How many items a line of the log names."""


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, which has an ``s`` unless it is one: ``1 job``, ``1,200 jobs``."""
    if number != 1:
        noun += "s"
    return f"{number:,} {noun}"


def listed_items(items: Iterable[int]) -> str:
    """Return items by their numbers, the first of them if there are many: ``item 3``, ``items 0, 1, 2``."""
    found = sorted(items)
    noun = "item" if len(found) == 1 else "items"
    named = ", ".join(str(item) for item in found[:MAX_NAMED])
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return f"{noun} {named}{more}"
