"""Of what kind a function is that users give us."""

from __future__ import annotations

import inspect
from collections.abc import Callable


def is_async(handler: Callable[..., object]) -> bool:
    """Whether calling it gives something to await."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004
