"""Numbers with their nouns, for the log and for people."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, which has an ``s`` unless it is one: ``1 job``, ``1,200 jobs``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
