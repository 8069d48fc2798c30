"""The windows of a browser take turns: each sees every change within seconds, and none is refused.  In virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from aioelasticjob import testing
from aioelasticjob.console.connections.live_pages import END_TIMEOUT, LivePageLimits, LivePages
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.web.stream import BETWEEN_TURNS, INTERVAL_PER_PAGE, Piece, Pieces, stream
from aioelasticjob.ground.latest import Latest

BROWSER_CONNECTIONS = 6
"""What a browser opens to a host."""
TURN_ENDS = "event: turn\nretry: 3000\ndata:\n\n"


class LoopClock:
    """The loop's time as the time of day."""

    def now(self) -> float:
        return anyio.current_time()


@dataclass
class Place:
    """A console without pages: streams alone."""

    pages: LivePages = field(default_factory=lambda: LivePages(LivePageLimits()))
    snapshot: Latest[RegistrySnapshot] = field(default_factory=lambda: Latest(RegistrySnapshot()))
    signed_in: dict[str, Any] = field(default_factory=dict)
    text: str = "first"
    """What the pages show."""

    @property
    def state(self) -> Any:
        return SimpleNamespace(clock=LoopClock(), closing=False, live_pages=self.pages)

    def change(self, text: str) -> None:
        self.text = text
        self.snapshot.set(RegistrySnapshot())

    def request(self, session: str) -> Any:
        found = self.signed_in.setdefault(session, SimpleNamespace(id=session))
        viewer = SimpleNamespace(session=found, address="10.0.0.1", operates_somewhere=False, agent="tests/1")
        return SimpleNamespace(state=self.state, viewer=viewer, registries_shown=[self], http=session)

    async def render(self, _: RegistrySnapshot) -> Sequence[Piece]:
        return [Piece("all", f"<p>{self.text}</p>")]


@dataclass
class Window:
    """A visible page of a browser, whose script opens its stream again when it has ended."""

    place: Place
    connections: anyio.Semaphore
    session: str = "ada"
    seen: dict[str, float] = field(default_factory=dict)
    """When it showed something for the first time."""
    statuses: list[int] = field(default_factory=list)
    _text: str = ""

    async def stay_open(self) -> None:
        while True:
            async with self.connections:
                self._text = ""
                await self.read(self.place.request(self.session))
            assert self._text.endswith(TURN_ENDS)
            await anyio.sleep(BETWEEN_TURNS)

    async def read(self, request: Any, feed: Any = None) -> None:
        response = stream(request, feed or Pieces(self.place.render))
        await response({"type": "http", "asgi": {"spec_version": "2.4"}}, anyio.sleep_forever, self.take)

    async def take(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.statuses.append(message["status"])
            return
        self._text += message["body"].decode()
        for number in range(10):
            if f"<p>change {number}</p>" in self._text:
                self.seen.setdefault(f"change {number}", anyio.current_time())


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    found = Place()

    async def session_of(state: Any, http: str, agent: str) -> Any:
        return found.signed_in.get(http)

    monkeypatch.setattr("aioelasticjob.console.web.stream.find_session", session_of)
    return found


@pytest.mark.parametrize("count", [4, 5, 12, 30])
def test_each_window_sees_each_change_within_seconds_and_connections_stay_free(place: Place, count: int) -> None:
    late, free = list[float](), list[int]()

    async def main() -> None:
        connections = anyio.Semaphore(BROWSER_CONNECTIONS)
        windows = [Window(place, connections) for _ in range(count)]
        async with anyio.create_task_group() as tasks:
            for window in windows:
                tasks.start_soon(window.stay_open)
            for number in range(5):
                await anyio.sleep(7.3)
                free.append(connections.value)
                changed = anyio.current_time()
                place.change(f"change {number}")
                await anyio.sleep(7.3)
                late.extend(window.seen[f"change {number}"] - changed for window in windows)
            tasks.cancel_scope.cancel()
        assert {status for window in windows for status in window.statuses} == {200}

    testing.run(main)
    assert len(late) == 5 * count
    assert max(late) <= (0 if count <= 4 else BETWEEN_TURNS)
    assert min(free) >= 2


def test_windows_of_another_session_keep_their_streams(place: Place) -> None:
    async def main() -> list[int]:
        async with anyio.create_task_group() as tasks:
            other = [Window(place, anyio.Semaphore(6), "vera") for _ in range(3)]
            for window in (*other, *(Window(place, anyio.Semaphore(6)) for _ in range(12))):
                tasks.start_soon(window.stay_open)
            await anyio.sleep(30)
            tasks.cancel_scope.cancel()
        return [len(window.statuses) for window in other]

    assert testing.run(main) == [1, 1, 1]


def _one_stream(place: Place, act: Callable[[Window], Awaitable[None]], feed: Any = None) -> str:
    """Return what a stream has sent until it ended."""

    async def main() -> str:
        window = Window(place, anyio.Semaphore(6))

        async def read() -> None:
            await window.read(place.request("ada"), feed)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.sleep(1)
            await act(window)
            await anyio.sleep_forever()
        return window._text

    return testing.run(main)


async def _end_turns(window: Window) -> None:
    for turn in window.place.pages._open:
        turn.end()


def test_a_stream_says_in_its_turn_that_its_session_has_ended(place: Place) -> None:
    async def sign_out(window: Window) -> None:
        del place.signed_in["ada"]

    assert _one_stream(place, sign_out).endswith("event: over\ndata: signed out\n\n")


def test_a_window_that_reads_nothing_any_more_gives_its_place_back(place: Place) -> None:
    async def main() -> float:
        async def stop(message: Any) -> None:
            await anyio.sleep_forever()

        window, response = Window(place, anyio.Semaphore(6)), stream(place.request("ada"), Pieces(place.render))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(response, {"type": "http", "asgi": {"spec_version": "2.4"}}, anyio.sleep_forever, stop)
            await anyio.sleep(1)
            await _end_turns(window)
            began = anyio.current_time()
        assert not place.pages
        return anyio.current_time() - began

    assert testing.run(main) == END_TIMEOUT


def test_many_open_pages_are_sent_changes_less_often(place: Place) -> None:
    place.pages = LivePages(LivePageLimits(per_session=1000, per_address=1000))
    count, seconds = 500, 10

    async def main() -> int:
        windows = [Window(place, anyio.Semaphore(count)) for _ in range(count)]
        async with anyio.create_task_group() as tasks:
            for window in windows:
                tasks.start_soon(window.stay_open)
            for number in range(10 * seconds):
                place.change(f"text {number}")
                await anyio.sleep(0.1)
            tasks.cancel_scope.cancel()
        return max(window._text.count("<p>") for window in windows)

    assert testing.run(main) <= seconds / (INTERVAL_PER_PAGE * count) + 2


class ManyPieces:
    """A feed that holds pieces back, as one does with a thousand rows."""

    position = ""

    def __init__(self, count: int) -> None:
        self.left = list(range(count))

    @property
    def has_more(self) -> bool:
        return bool(self.left)

    async def changes(self, snapshot: RegistrySnapshot) -> Sequence[Piece]:
        return [Piece("all", f"<p>{self.left.pop(0)}</p>" + " " * 20_000)] if self.left else []


def test_a_window_gets_all_that_has_changed_before_its_turn_ends(place: Place) -> None:
    sent = _one_stream(place, _end_turns, ManyPieces(100))
    assert [number for number in range(100) if f"<p>{number}</p>" not in sent] == []
    assert sent.endswith(TURN_ENDS)
