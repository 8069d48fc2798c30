"""Executors of plain functions, by name: threads and processes are built in, and packages add more.

Packages add them by entry points ``aioelasticjob.executors``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TypeAlias, cast

from aioelasticjob.errors import InvalidSetting, error_text
from aioelasticjob.user_code import UserCode

BUILT_IN = ("thread", "process")
"""The executors that every application has."""

MakeExecutor: TypeAlias = Callable[[str], Executor]
"""Is given the name of a job and returns the executor that runs its plain functions in this process."""


def names() -> tuple[str, ...]:
    """Return the names of all executors that this process knows."""
    return (*BUILT_IN, *sorted(_others()))


def check(name: str) -> None:
    """Check that an executor exists.

    Raises:
        InvalidSetting: there is none of that name, or its package cannot be used.
    """
    if name not in BUILT_IN:
        find(name)


@cache
def find(name: str) -> MakeExecutor:
    """Return the function that makes executors of that name, which a package has added.

    Raises:
        InvalidSetting: there is none, or its package cannot be used.
    """
    if name not in _others():
        near = get_close_matches(name, known := names(), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidSetting("executor", name, f"must be one of {', '.join(known)}{hint}")
    try:
        with UserCode("it"):
            found = _others()[name].load()
    except Exception as error:  # the package's own code runs here: whatever it raises becomes one clear line
        raise InvalidSetting("executor", name, f"cannot be loaded: {error_text(error)}") from error
    if not callable(found):
        raise InvalidSetting("executor", name, f"its entry point leads to a {type(found).__name__}, not to a function")
    return cast(MakeExecutor, found)


@cache
def _others() -> Mapping[str, EntryPoint]:
    """Return the executors that packages add; they are listed once."""
    found = {point.name: point for point in entry_points(group="aioelasticjob.executors")}
    return {name: point for name, point in found.items() if name not in BUILT_IN}
