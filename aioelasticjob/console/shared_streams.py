"""Streams that the tabs of a browser share: a browser opens no more than six connections to a host.

The script of the pages opens one stream, and lets each live page send its events there.  To the console every page is
as live as with a stream of its own: it is asked for by itself, counted by itself, and ends by itself.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from secrets import token_urlsafe
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from aioelasticjob.console.live_pages import LivePageLimits, LivePages, Reader

CHECK_INTERVAL: Final = 1.0
"""Seconds between two looks whether a stream on which nothing is sent is still needed."""
MAX_IDLE: Final = 15.0
"""Seconds that a stream without pages stays open: somebody who follows a link comes back on it."""

Message: TypeAlias = tuple[str, str | None]
"""The key of a page, and an event for it; None when its events have ended."""
Send: TypeAlias = MemoryObjectSendStream[Message]
Receive: TypeAlias = MemoryObjectReceiveStream[Message]


class SharedStream:
    """A connection of a browser, on which events of several of its pages are sent."""

    def __init__(self, session: str, tasks: TaskGroup, send: Send, receive: Receive) -> None:
        self.id = token_urlsafe(16)
        self.session = session
        self._tasks, self._send, self._receive = tasks, send, receive
        self._pages: dict[str, anyio.CancelScope] = {}

    def __len__(self) -> int:
        """Return how many pages send their events on it."""
        return len(self._pages)

    async def carry(self, page: str, events: AsyncIterator[bytes], open_pages: LivePages, reader: Reader) -> None:
        """Begin to send the events of a page, which goes on until they end or ``leave`` is called.

        Raises:
            TooManyLivePages: it would be one too many.
        """
        await self._tasks.start(self._carry, page, events, open_pages, reader)

    def leave(self, page: str) -> None:
        """Send no more events of a page."""
        if page in self._pages:
            self._pages[page].cancel()

    async def body(self, is_closing: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Yield what is sent, until the browser has no page on it any more."""
        yield b":\n\n"
        deadline = anyio.current_time() + MAX_IDLE
        while self._pages or not (is_closing() or anyio.current_time() > deadline):
            with anyio.move_on_after(CHECK_INTERVAL) as waited:
                news = await self._receive.receive()
            if not waited.cancelled_caught:
                yield f"data: {json.dumps(news, ensure_ascii=False)}\n\n".encode()
            if self._pages:
                deadline = anyio.current_time() + MAX_IDLE

    async def _carry(
        self,
        page: str,
        events: AsyncIterator[bytes],
        open_pages: LivePages,
        reader: Reader,
        *,
        task_status: TaskStatus[None],
    ) -> None:
        with open_pages.opened(reader), anyio.CancelScope() as self._pages[page]:
            task_status.started()
            try:
                async for event in events:
                    await self._send.send((page, event.decode()))
                await self._send.send((page, None))  # it has ended
            finally:
                self._pages.pop(page, None)


class SharedStreams:
    """The shared streams of one console."""

    def __init__(self, limits: LivePageLimits) -> None:
        self._open: dict[str, SharedStream] = {}
        self._counted = LivePages(limits)

    def __iter__(self) -> Iterator[SharedStream]:
        """Yield those that are open."""
        return iter(self._open.values())

    def find(self, id: str, session: str) -> SharedStream | None:
        """Return a stream of this session."""
        found = self._open.get(id)
        return found if found is not None and found.session == session else None

    @asynccontextmanager
    async def opened(self, reader: Reader) -> AsyncIterator[SharedStream]:
        """Yield a new stream, which pages may use while the block runs.

        Raises:
            TooManyLivePages: as many are open as live pages may be.
        """
        send, receive = anyio.create_memory_object_stream[Message]()
        with send, receive, self._counted.opened(reader):
            async with anyio.create_task_group() as tasks:
                stream = SharedStream(reader.session, tasks, send, receive)
                self._open[stream.id] = stream
                try:
                    yield stream
                finally:
                    del self._open[stream.id]
                    tasks.cancel_scope.cancel()
