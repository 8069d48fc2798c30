"""Executors of plain functions, by name: threads and processes are built in, and packages add more.

Packages add them by entry points ``aioelasticjob.executors``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeAlias, cast

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.host.plugins import load
from aioelasticjob.jobs.inspection import name_of

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
    found = load("executor", name, _others().get(name), names())
    if not callable(found):
        raise InvalidSetting("executor", name, f"its entry point leads to a {type(found).__name__}, not to a function")
    return cast(MakeExecutor, found)


def pickled(function: Callable[..., Any], *arguments: Any, **named: Any) -> bytes:
    """Return a function call as the bytes that are sent to a process.

    Raises:
        InvalidSetting: the function or an argument cannot be sent.
    """
    try:
        return pickle.dumps((function, arguments, named))
    except Exception as error:
        raise InvalidSetting(
            "executor", "process", f"{name_of(function)} or what it is given cannot be pickled: {error}"
        ) from None


@cache
def _others() -> Mapping[str, EntryPoint]:
    """Return the executors that packages add; they are listed once."""
    found = {point.name: point for point in entry_points(group="aioelasticjob.executors")}
    return {name: point for name, point in found.items() if name not in BUILT_IN}
