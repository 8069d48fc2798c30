"""The event loop that jobs need: asyncio's own or uvloop, and not trio."""

from __future__ import annotations

import asyncio

from anyio._backends._asyncio import CancelScope  # anyio.CancelScope looks up at each call which library runs the task

from aioelasticjob.errors import InvalidSetting

__all__ = ["CancelScope", "require_asyncio"]


def require_asyncio() -> None:
    """Return if the caller is a task of asyncio; trio's tasks are none, even where trio is a guest on asyncio's loop.

    Raises:
        InvalidSetting: the caller is run by trio or by another library.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop of asyncio runs in this thread
        task = None
    if task is None:
        raise InvalidSetting(
            "event loop",
            "not asyncio",
            "jobs run on asyncio or uvloop, not on trio: begin with asyncio.run(main()), or"
            " anyio.run(main, backend='asyncio'); a program on trio runs them in a process of their own",
        )
