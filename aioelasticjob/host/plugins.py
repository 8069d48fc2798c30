"""Loads what packages add under a name by an entry point: error handlers, executors, kinds of jobs and strategies."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import EntryPoint

from aioelasticjob.errors import InvalidSetting, error_text
from aioelasticjob.host.user_code import UserCode


def load(setting: str, name: str, point: EntryPoint | None, known: Sequence[str]) -> object:
    """Return what an entry point leads to; ``point`` is None if there is none of this name.

    Raises:
        InvalidSetting: there is none, which the error says with the ``known`` names, or its package cannot be used.
    """
    if point is None:
        near = get_close_matches(name.lower(), known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidSetting(setting, name, f"must be one of {', '.join(known)}{hint}")
    try:
        with UserCode("it"):
            return point.load()
    except Exception as error:  # the package's own code runs here: whatever it raises becomes one clear line
        raise InvalidSetting(setting, name, f"cannot be loaded: {error_text(error)}") from error
