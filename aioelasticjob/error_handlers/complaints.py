"""Failures on their way to whoever is to be told."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace

from anyio import fail_after

from aioelasticjob.clock import Clock
from aioelasticjob.error_handlers.failure import Escalated, Failure, Options, log, logged
from aioelasticjob.error_handlers.known import find

BACKLOG = 1000
"""Failures that may wait to be told; beyond that the oldest are dropped and counted."""
PATIENCE = 30.0
"""Seconds that telling one failure may take."""


class Complaints:
    """Failures on their way to whoever is to be told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[tuple[str, Options, Failure]] = deque()
        self._news, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self.dropped = 0
        """Failures nobody was told of because too many waited."""

    def put(self, handler: str, options: Options, failure: Failure) -> None:
        """Take a failure; never waits."""
        if len(self._waiting) >= BACKLOG:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append((handler, options, failure))
        self._idle.clear()
        self._news.set()

    async def told(self) -> None:
        """Wait until everybody has been told of everything."""
        await self._idle.wait()

    async def tell(self) -> None:
        """Tell one failure after the other, for ever.

        Raises:
            BaseException: the error of a failure that the handler ``raise`` lets out.
        """
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._waiting:
                    await self._tell(*self._waiting.popleft())
                self._idle.set()
        finally:
            self._idle.set()  # whoever waits for the rest waits in vain

    async def _tell(self, name: str, options: Options, failure: Failure) -> None:
        try:
            with fail_after(PATIENCE):
                await find(name)(replace(failure, told_at=self._clock.now()), options)
        except Escalated:
            raise failure.error from None
        except Exception as error:
            log.error("error handler %s failed: %s", name, error, extra={"job": failure.job})
            logged(failure)
