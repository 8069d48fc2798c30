"""The event loops a test can run on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar, get_args

from aioelasticjob import testing

T = TypeVar("T")
LoopKind = Literal["asyncio", "uvloop", "virtual"]
LOOP_KINDS: tuple[LoopKind, ...] = get_args(LoopKind)


def run_async(kind: LoopKind, main: Callable[[], Coroutine[Any, Any, T]], *, seed: int = 0) -> T:
    """Return what ``main()`` returns, run on a new loop of the given kind."""
    if kind == "virtual":
        return testing.run(main, seed=seed)
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if kind == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main())
