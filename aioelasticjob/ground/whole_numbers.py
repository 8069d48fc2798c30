"""Whole numbers in texts from outside: addresses of pages, headers, settings, what somebody has written into a node."""

from __future__ import annotations


def whole_number(text: str, digits: int = 15) -> int | None:
    """Return the whole number, 0 or more, that a text consists of; None if it is none, or has more than ``digits``.

    ``str.isdecimal`` alone would also let digits of other scripts pass, and ``int`` raises a ValueError for thousands
    of digits.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else None
