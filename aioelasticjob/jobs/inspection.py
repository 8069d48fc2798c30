"""What a function is that a user gives us: whether it is async, and its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable


def is_async(handler: Callable[..., object]) -> bool:
    """Whether a call of the handler returns something to await."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def name_of(function: object) -> str:
    """Return the name of a function for people."""
    return getattr(function, "__qualname__", None) or repr(function)
