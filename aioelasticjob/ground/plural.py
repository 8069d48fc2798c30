"""Numbers with their nouns, for the log and for people."""

from __future__ import annotations

from collections.abc import Iterable

MAX_NAMED = 10
"""How many items a line of the log names."""


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, which has an ``s`` unless it is one: ``1 job``, ``1,200 jobs``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed_items(items: Iterable[int]) -> str:
    """Return items by their numbers, the first of them if there are many: ``item 3``, ``items 0, 1, 2``."""
    found = sorted(items)
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return f"{'item' if len(found) == 1 else 'items'} {', '.join(map(str, found[:MAX_NAMED]))}{more}"
