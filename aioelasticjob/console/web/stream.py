"""Live pages: what has changed since the last event goes out as server-sent events, at a bounded rate.

An event carries the present content of a piece of the page, not a difference.  A browser that reconnects names the last
version it saw (``Last-Event-ID``) and gets what has changed since.  A slow one skips versions and never falls behind.
The pages of one session take turns, because a browser opens only six connections to a host.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2s
from operator import is_not
from typing import Final, Protocol

import anyio
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from aioelasticjob.clock import Clock
from aioelasticjob.console.connections.live_pages import Reader, TooManyLivePages, Turn
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.web.request import PageRequest, find_session
from aioelasticjob.ground.latest import Latest
from aioelasticjob.registry.session import beside

MIN_INTERVAL: Final = 0.1
"""Seconds between two events of a page at least: people see no more changes than that."""
INTERVAL_PER_PAGE: Final = 0.002
"""The same for each page that is open, so that many of them leave the console time for pages and actions."""
BYTES_PER_SECOND: Final = 40_000
"""Bytes a page is sent per second in the long run."""
BURST_BYTES: Final = 120_000
"""Bytes a page may be sent at once after it was quiet."""
SESSION_CHECK_INTERVAL: Final = 5.0
"""Seconds after which a stream checks that its session has not ended."""
ALIVE_INTERVAL: Final = 2.0
"""Seconds between two signs of life of a stream: a page that gets none for seven seconds says so."""
ALIVE: Final = b"event: alive\ndata:\n\n"
"""A sign of life."""
REFRESH_INTERVAL: Final = 1.0
"""Seconds after which pieces are looked at again though nothing has changed: what was held back goes out then."""
EVENT_BYTES: Final = 20_000
"""Bytes of one event, about: what is more waits for the next, so that no page is sent all at once."""
RETRY_AFTER: Final = 5
"""Seconds after which a page that was refused may ask again."""
BETWEEN_TURNS: Final = 3
"""Seconds after which a page whose turn is over comes back."""
RECONNECT_DELAY: Final = 1
"""Seconds after which a page comes back whose stream has broken off."""


def row_id(name: str) -> str:
    """Return an element's id for a job, whatever is in its name."""
    return f"j{blake2s(name.encode(), digest_size=6).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a page as it is now: the id of the element that it replaces, and its HTML."""

    target: str
    html: str


class Feed(Protocol):
    """The changes of one open page: it knows what the browser has been sent."""

    async def changes(self, snapshot: RegistrySnapshot) -> Sequence[Piece]:
        """Return the pieces that have changed."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether changes have been held back for the next event."""
        ...

    @property
    def position(self) -> str:
        """The version that the browser names when it reconnects."""
        ...


@dataclass(frozen=True, slots=True)
class PieceGroup:
    """A piece that consists of many others, such as a table of its rows."""

    target: str
    parts: Sequence[Piece]
    whole: Callable[[Sequence[Piece]], str]
    """Returns the HTML of the group from its parts."""
    shape: object = None
    """What the page must have as well, besides the same parts, if parts are to be sent singly."""


class Sent:
    """What a page was sent last, by element."""

    def __init__(self) -> None:
        self._sent: dict[str, int] = {}
        self._shapes: dict[str, object] = {}
        self.has_more = False
        """Whether parts of groups have been held back, so that no event grows too large."""

    def changed_parts(self, group: PieceGroup, size: int = 0) -> Sequence[Piece]:
        """Return the parts that differ, or the whole group if it has other parts than the page; they count as sent.

        ``size`` is the number of bytes that the event has already.
        """
        if self._shapes.get(group.target) != _shape(group):
            self.assume(group)
            return [Piece(group.target, group.whole(group.parts))]
        found = list[Piece]()
        for part in group.parts:
            if size > EVENT_BYTES:
                self.has_more = True
                break
            if self.differs(part):
                found.append(part)
                size += len(part.html)
        return found

    def assume(self, group: PieceGroup) -> None:
        """Take a group for sent as it is: the page has it already."""
        self._shapes[group.target] = _shape(group)
        for part in group.parts:
            self.differs(part)

    def differs(self, piece: Piece) -> bool:
        """Whether the piece reads differently from the last one sent there; it counts as sent then."""
        digest = hash(piece.html)
        if self._sent.get(piece.target) == digest:
            return False
        self._sent[piece.target] = digest
        return True


def _shape(group: PieceGroup) -> object:
    return tuple(part.target for part in group.parts), group.shape


class PieceFeed:
    """The part that feeds share which compare each piece with the last one sent."""

    def __init__(self) -> None:
        self._sent = Sent()

    @property
    def has_more(self) -> bool:
        """Whether parts of groups have been held back for the next event."""
        return self._sent.has_more

    @property
    def position(self) -> str:
        """Empty: a browser that reconnects gets every piece."""
        return ""


class Pieces(PieceFeed):
    """A feed of a few pieces, each sent when it reads differently from what was sent."""

    def __init__(self, render: Callable[[RegistrySnapshot], Awaitable[Sequence[Piece]]]) -> None:
        super().__init__()
        self._render = render

    async def changes(self, snapshot: RegistrySnapshot) -> Sequence[Piece]:
        """Return the pieces that have changed."""
        return [piece for piece in await self._render(snapshot) if self._sent.differs(piece)]


@dataclass
class ByteBudget:
    """The bytes that a page may be sent: the budget grows steadily, up to a burst."""

    clock: Clock
    filled: float = BURST_BYTES
    at: float = 0.0

    def spend(self, size: int) -> float:
        """Take ``size`` bytes and return the seconds to wait until the budget is positive again."""
        now = self.clock.now()
        self.filled = min(BURST_BYTES, self.filled + (now - self.at) * BYTES_PER_SECOND) - size
        self.at = now
        return max(0.0, -self.filled / BYTES_PER_SECOND)


class LiveResponse(StreamingResponse):
    """Streams events while the page counts as open; refuses to if too many are."""

    def __init__(self, request: PageRequest, feed: Feed) -> None:
        headers = {"X-Accel-Buffering": "no"}  # nginx would wait for more
        self._turn = Turn()
        super().__init__(_events(request, feed, self._turn), media_type="text/event-stream", headers=headers)
        viewer = request.viewer
        session = viewer.session.id if viewer.session else ""
        self._pages = request.state.live_pages
        self._reader = Reader(session, viewer.address, viewer.operates_somewhere)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the page is closed or its turn is over."""
        try:
            with self._pages.opened(self._reader, self._turn), self._turn.response:
                await super().__call__(scope, receive, send)
        except TooManyLivePages as error:
            headers = {"Retry-After": str(RETRY_AFTER)}
            refusal = Response(f"503: {error}\n", 503, media_type="text/plain", headers=headers)
            await refusal(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        """Send events as they come, and signs of life beside them, also while a registry or database is waited for."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with beside(partial(_send_signs_of_life, send)):
            async for event in self.body_iterator:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_signs_of_life(send: Send) -> None:
    """Send signs of life until cancelled."""
    while True:
        await anyio.sleep(ALIVE_INTERVAL)
        await send({"type": "http.response.body", "body": ALIVE, "more_body": True})


def stream(request: PageRequest, feed: Feed) -> Response:
    """Answer with the live pieces of a page."""
    return LiveResponse(request, feed)


async def _events(request: PageRequest, feed: Feed, turn: Turn) -> AsyncIterator[bytes]:
    state = request.state
    budget = ByteBudget(state.clock, at=state.clock.now())
    checked = state.clock.now()
    yield _retry("alive", RECONNECT_DELAY)
    while not state.closing:
        await state.live_pages.queue()
        snapshots = _snapshots_of(request)
        snapshot = snapshots.value
        changes = await feed.changes(snapshot)
        body = "".join(map(_partial, changes))
        if body:
            event = _event(body, feed.position)
            yield event
            between = max(MIN_INTERVAL, INTERVAL_PER_PAGE * len(state.live_pages))
            until_affordable = budget.spend(len(event))
            with turn.pause(max(between, until_affordable)):
                await anyio.sleep_forever()
        if not feed.has_more:
            if turn.is_over:
                yield _retry("turn", BETWEEN_TURNS)
                return
            with turn.pause(REFRESH_INTERVAL):
                await snapshots.until(partial(is_not, snapshot))
        now = state.clock.now()
        if now >= checked + SESSION_CHECK_INTERVAL:
            checked = now
            session = await find_session(state, request.http, request.viewer.agent)
            if session is None or session != request.viewer.session:  # of another role, the page shows other things
                yield b"event: over\ndata: signed out\n\n"
                return


def _snapshots_of(request: PageRequest) -> Latest[RegistrySnapshot]:
    """Return what a page follows: its registry, or on a page about none the first one, or nothing."""
    watched = next(iter(request.registries_shown), None)
    if watched is None:
        return Latest(RegistrySnapshot())
    return watched.snapshot


def _partial(piece: Piece) -> str:
    return f'<hx-partial hx-target="#{piece.target}" hx-swap="outerMorph">{piece.html}</hx-partial>'


def _retry(name: str, seconds: int) -> bytes:
    """Return an event that says when to come back after the stream has ended; without data htmx would ignore it."""
    return f"event: {name}\nretry: {1000 * seconds}\ndata:\n\n".encode()


def _event(html: str, place: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in html.splitlines() if line.strip())
    return f"id: {place}\n{lines}\n".encode()
