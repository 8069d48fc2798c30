"""The stream that the tabs of a browser share: who may send on it, and when pages and it end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import anyio
import pytest

from aioelasticjob.console import stream as stream_module
from aioelasticjob.console.live_pages import LivePageLimits
from tests.console.client import Browser, Stream
from tests.console.conftest import Play, Scene

LIVE = "/r/billing/live"
SHARED = "/shared/live"


def _id(stream: Stream) -> str:
    return stream.headers["shared-stream"]


async def _join(browser: Browser, shared: Stream, page: str) -> int:
    return (await browser.get(LIVE, ("shared-stream", f"{_id(shared)} {page}"))).status


def test_pages_send_their_events_on_it_and_each_leaves_by_itself(play: Play) -> None:
    async def act(scene: Scene) -> None:
        ada, state = await scene.operator(), scene.console.state
        token = (await ada.get("/account")).token
        async with ada.listening(SHARED) as shared:
            for page in ("1", "2"):
                assert await _join(ada, shared, page) == 202
                event = await shared.event(f'data: ["{page}",', "hx-partial")
                key, text = json.loads(event.removeprefix("data: "))
                assert (key, text.startswith("id: ")) == (page, True)
                assert '<div id="switch">' in text
            assert len(state.live_pages) == 2
            assert [len(one) for one in state.shared_streams] == [2]
            left = await ada.post("/shared/leave", {"csrf": token, "stream": _id(shared), "page": "1"})
            assert left.status == 204
            with anyio.fail_after(90):
                while len(state.live_pages) > 1:
                    await anyio.lowlevel.checkpoint()
            for unknown in ({"stream": "x", "page": "2"}, {"stream": _id(shared), "page": "x"}):
                assert (await ada.post("/shared/leave", {"csrf": token, **unknown})).status == 204
            assert len(state.live_pages) == 1
        with anyio.fail_after(90):
            while len(state.live_pages):
                await anyio.lowlevel.checkpoint()
        assert list(state.shared_streams) == []

    play(act)


def test_nobody_else_may_send_or_leave_there(play: Play) -> None:
    async def act(scene: Scene) -> None:
        ada, vera = await scene.operator(), await scene.viewer()
        async with ada.listening(SHARED) as shared:
            header = ("shared-stream", f"{_id(shared)} 1")
            for browser, path in ((vera, LIVE), (ada, LIVE)):
                own = header if browser is vera else ("shared-stream", "unknown 1")
                async with browser.listening(path, own) as stream:  # it is answered there, as without that header
                    assert stream.status == 200
                    await stream.event("hx-partial")
            assert await _join(ada, shared, "1") == 202
            token = (await vera.get("/account")).token
            await vera.post("/shared/leave", {"csrf": token, "stream": _id(shared), "page": "1"})
            assert [len(one) for one in scene.console.state.shared_streams] == [1]
            assert (await ada.post("/shared/leave", {"stream": _id(shared), "page": "1"})).status == 403
        guest = Browser(scene.console)
        assert (await guest.get(SHARED)).status == 401

    play(act)


def test_pages_and_streams_are_limited_one_by_one(play: Play) -> None:
    async def act(scene: Scene) -> None:
        ada = await scene.operator()
        async with ada.listening(SHARED) as shared:
            assert [await _join(ada, shared, page) for page in ("1", "2", "3")] == [202, 202, 503]
            assert [len(one) for one in scene.console.state.shared_streams] == [2]
            async with ada.listening(SHARED):
                refused = await ada.get(SHARED)
                assert (refused.status, "retry-after" in refused.headers) == (503, True)

    play(act, live_pages=LivePageLimits(total=10, kept_for_operators=1, per_session=2))


def test_an_event_of_a_page_that_ends_says_so_and_a_stream_without_pages_ends(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioelasticjob.console.shared_streams.CHECK_INTERVAL", 0.01)
    monkeypatch.setattr("aioelasticjob.console.shared_streams.MAX_IDLE", 0.05)

    async def brief(request: object, feed: object) -> AsyncIterator[bytes]:
        yield b"data: only\n\n"

    async def act(scene: Scene) -> None:
        ada = await scene.operator()
        async with ada.listening(SHARED) as idle:
            await idle.end()
        monkeypatch.setattr("aioelasticjob.console.shared_streams.MAX_IDLE", 90)
        async with ada.listening(SHARED) as shared:
            with monkeypatch.context() as changed:
                changed.setattr(stream_module, "_events", brief)
                assert await _join(ada, shared, "7") == 202
            await shared.event('data: ["7", "data: only')
            await shared.event('data: ["7", null]')
            assert await _join(ada, shared, "8") == 202
            scene.console.state.closing = True  # pages end, and it with them
            await shared.end()

    play(act)
