"""Drops connections whose request does not come: uvicorn itself waits for the rest of its head for ever."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_TIMEOUT: Final = 10.0
"""Seconds in which the head of a request must have come."""


class HttpProtocol(H11Protocol):
    """uvicorn's protocol with a time limit for the head of a request."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read what has come; wait for the rest of a head only so long."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request on this connection, of which a part may have come already."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._limit is None:
            self._limit = self.loop.call_later(HEAD_TIMEOUT, self._drop)

    def _stop(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _drop(self) -> None:
        self._limit = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
