"""Finds the signs in a command line that only a shell acts upon, such as a pipe."""

from __future__ import annotations

import re

_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
"""Text that a shell takes as it is."""
_SIGN = re.compile(r"^[0-9]?[|&;<>]+[0-9]?|[|&;<>]+$")
"""Signs at the beginning or the end of a word, with which a shell connects commands or redirects their output."""


def shell_sign(command: str) -> str | None:
    """Return the first such sign; None without one.  A sign in the midst of a word, as in an address, is none."""
    unquoted = _QUOTED.sub("_", command)
    for word in unquoted.split():
        sign = _SIGN.search(word)
        if sign is not None:
            return sign[0]
    return None


def command_words(given: object) -> object:
    """Return a command as text, or as a list of texts.

    Raises:
        ValueError: it is neither text nor a list of texts and numbers.
    """
    if isinstance(given, str):
        return given
    words = given if isinstance(given, list | tuple) else [given]
    for word in words:
        if isinstance(word, bool) or not isinstance(word, str | int | float):
            raise ValueError("must be a string, or a list of strings and numbers")
    return [str(word) for word in words]
