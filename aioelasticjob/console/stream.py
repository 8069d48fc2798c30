"""Live pages: what has changed since the browser last heard goes out as server-sent events, at a bounded rate.

Level-triggered like everything here: an event carries what a piece of the page is *now*.  A browser that was away names
the last version it saw (``Last-Event-ID``) and gets what has changed since; one that is slow skips, and never lags.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_not
from typing import Final, Protocol

import anyio
from starlette.responses import Response, StreamingResponse

from aioelasticjob.clock import Clock
from aioelasticjob.console.live import Picture, Watched
from aioelasticjob.console.visit import SESSION, Visit

GAP: Final = 0.1
"""Seconds between two events of a page at least: an eye does not follow more."""
RATE: Final = 40_000
"""Bytes a page is sent per second in the long run."""
BURST: Final = 120_000
"""Bytes a page may be sent at once after it was quiet."""
BEAT: Final = 5.0
"""Seconds after which a silent stream says that it lives, and looks whether its session does."""
LOOK: Final = 1.0
"""Seconds after which pieces are looked at again though nothing has changed: what was held back goes out then."""
CHUNK: Final = 20_000
"""Bytes of one event, about: what is more waits for the next, so that no page is sent all at once."""
MOST: Final = 500
"""Streams that may be open at a time, over all pages."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a page as it is now: the id of the element that it replaces, and its HTML."""

    target: str
    html: str


class Feed(Protocol):
    """What one open page has been told so far."""

    async def news(self, picture: Picture) -> Sequence[Piece]:
        """Return the pieces that have changed."""
        ...

    @property
    def more(self) -> bool:
        """Whether there is news that has been held back."""
        ...

    @property
    def place(self) -> str:
        """What the browser is to name when it comes back."""
        ...


class Sent:
    """What a page was sent last, by element."""

    def __init__(self) -> None:
        self._sent: dict[str, int] = {}

    def differs(self, piece: Piece) -> bool:
        """Whether the piece reads differently from the last one sent there; it counts as sent then."""
        digest = hash(piece.html)
        if self._sent.get(piece.target) == digest:
            return False
        self._sent[piece.target] = digest
        return True


class Pieces:
    """A feed of a few pieces, each sent when it reads differently from what was sent."""

    def __init__(self, render: Callable[[Picture], Awaitable[Sequence[Piece]]]) -> None:
        self._render, self._sent = render, Sent()

    async def news(self, picture: Picture) -> Sequence[Piece]:
        """Return the pieces that have changed."""
        return [piece for piece in await self._render(picture) if self._sent.differs(piece)]

    @property
    def more(self) -> bool:
        """Nothing is held back: it is little."""
        return False

    @property
    def place(self) -> str:
        """Nothing to remember: whoever comes back is told everything."""
        return ""


@dataclass
class Purse:
    """Bytes that may be sent: filled steadily, up to a burst."""

    clock: Clock
    filled: float = BURST
    at: float = 0.0

    def pay(self, size: int) -> float:
        """Take ``size`` bytes out and return the seconds until there is something in it again."""
        now = self.clock.now()
        self.filled = min(BURST, self.filled + (now - self.at) * RATE) - size
        self.at = now
        return max(0.0, -self.filled / RATE)


def stream(visit: Visit, feed: Feed) -> Response:
    """Answer with the live pieces of a page of the visit's registry."""
    assert visit.registry is not None
    if len(visit.console.streams) >= MOST:
        return Response("503: too many live pages are open\n", 503, media_type="text/plain")
    events, headers = _events(visit, visit.registry, feed), {"X-Accel-Buffering": "no"}  # nginx would wait for more
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def _events(visit: Visit, registry: Watched, feed: Feed) -> AsyncIterator[bytes]:
    streams, me, purse = visit.console.streams, object(), Purse(visit.console.clock, at=visit.console.clock.now())
    streams.add(me)
    try:
        yield b"retry: 1000\n\n"
        checked = visit.console.clock.now()
        while not visit.console.leaving:
            picture = registry.picture.value
            if body := "".join(map(_partial, await feed.news(picture))):
                told = _event(body, feed.place)
                yield told
                await anyio.sleep(max(GAP, purse.pay(len(told))))
            if not feed.more:
                with anyio.move_on_after(min(LOOK, BEAT)):
                    await registry.picture.until(partial(is_not, picture))
            if (now := visit.console.clock.now()) >= checked + BEAT:
                checked = now
                if await visit.console.sessions.find(visit.request.cookies.get(SESSION), visit.agent) is None:
                    yield b"event: over\ndata: signed out\n\n"
                    return
                yield b":\n\n"
    finally:
        streams.discard(me)


def _partial(piece: Piece) -> str:
    return f'<hx-partial hx-target="#{piece.target}" hx-swap="outerMorph">{piece.html}</hx-partial>'


def _event(html: str, place: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in html.splitlines() if line.strip())
    return f"id: {place}\n{lines}\n".encode()
