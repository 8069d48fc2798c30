"""Whether a function that a user gives us is async."""

from __future__ import annotations

import inspect
from collections.abc import Callable


def is_async(handler: Callable[..., object]) -> bool:
    """Whether a call of the handler returns something to await."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004
