"""How many live pages may be open, whose place is kept, and who must end when another page of a session opens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

import anyio
import pytest

from aioelasticjob import testing
from aioelasticjob.console.connections.live_pages import (
    END_TIMEOUT,
    LivePageLimits,
    LivePages,
    Reader,
    TooManyLivePages,
    Turn,
)
from aioelasticjob.errors import InvalidSetting

LIMITS = LivePageLimits(total=6, kept_for_operators=2, per_session=2, per_address=3)


def viewer(session: str, address: str = "10.0.0.1") -> Reader:
    return Reader(session, address, is_operator=False)


def operator(session: str, address: str = "10.0.0.1") -> Reader:
    return Reader(session, address, is_operator=True)


def opening(act: Callable[[LivePages, Callable[[Reader], Turn]], None], limits: LivePageLimits = LIMITS) -> None:
    """Let ``act`` open pages, which stay open until it ends."""

    async def main() -> None:
        pages = LivePages(limits)
        with ExitStack() as stack:

            def open_one(reader: Reader) -> Turn:
                turn = Turn()
                stack.enter_context(pages.opened(reader, turn))
                return turn

            act(pages, open_one)
        assert len(pages) == 0

    asyncio.run(main())


def test_an_address_has_only_so_many() -> None:
    def act(pages: LivePages, open_one: Callable[[Reader], Turn]) -> None:
        for session in ("a", "a", "b"):
            open_one(viewer(session))
        with pytest.raises(TooManyLivePages, match="3 live pages are open from this address"):
            open_one(viewer("c"))
        open_one(operator("d"))
        assert len(pages) == 4

    opening(act)


def test_viewers_leave_places_for_operators() -> None:
    def act(pages: LivePages, open_one: Callable[[Reader], Turn]) -> None:
        for number in range(4):
            open_one(viewer(f"v{number}", f"10.0.0.{number}"))
        with pytest.raises(TooManyLivePages, match="4 live pages are open over all"):
            open_one(viewer("v", "10.0.0.9"))
        for number in range(2):
            open_one(operator(f"o{number}"))
        with pytest.raises(TooManyLivePages, match="6 live pages are open over all"):
            open_one(operator("o"))

    opening(act)


def test_the_oldest_page_of_a_session_must_end_when_it_opens_one_too_many_and_nobody_elses() -> None:
    def act(pages: LivePages, open_one: Callable[[Reader], Turn]) -> None:
        other, *own = (open_one(operator(session)) for session in ("b", "a", "a"))
        assert not any(turn.is_over for turn in (other, *own))
        own += [open_one(operator("a")), open_one(operator("a"))]
        assert [turn.is_over for turn in own] == [True, True, False, False]
        assert not other.is_over

    opening(act)


def test_a_page_that_replaces_one_of_its_session_needs_no_place_more() -> None:
    def act(pages: LivePages, open_one: Callable[[Reader], Turn]) -> None:
        first, *_ = (open_one(viewer(session)) for session in ("a", "a", "b"))  # all that this address may have
        open_one(viewer("a"))
        assert first.is_over
        with pytest.raises(TooManyLivePages, match="3 live pages are open from this address"):
            open_one(viewer("a"))  # the first one has not ended

    opening(act)


def test_a_stream_whose_turn_is_over_is_ended_after_some_seconds_if_nobody_reads_it() -> None:
    async def main() -> float:
        turn = Turn()
        with turn.response:
            turn.end()
            await anyio.sleep_forever()
        return anyio.current_time()

    async def timed() -> float:
        began = anyio.current_time()
        return await main() - began

    assert testing.run(timed) == END_TIMEOUT


def test_the_end_of_a_turn_ends_its_pause_and_those_that_follow() -> None:
    async def main() -> list[float]:
        turn, began, ends = Turn(), anyio.current_time(), list[float]()

        async def end() -> None:
            await anyio.sleep(3)
            turn.end()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end)
            for _ in range(4):
                with turn.pause(2):
                    await anyio.sleep_forever()
                ends.append(anyio.current_time() - began)
        return ends

    assert testing.run(main) == [2, 3, 3, 3]


def test_between_two_pages_that_are_rendered_others_have_their_way() -> None:
    order = list[str]()

    async def page(pages: LivePages) -> None:
        await pages.queue()
        order.append("page")

    async def request() -> None:
        while order.count("page") < 5:
            await anyio.lowlevel.checkpoint()
            order.append("request")

    async def main() -> None:
        pages = LivePages(LIMITS)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(page, pages)
            tasks.start_soon(request)

    asyncio.run(main())
    assert "page page" not in " ".join(order)


@pytest.mark.parametrize("wrong", [{"total": 0}, {"per_session": -1}, {"per_address": 0}, {"kept_for_operators": 1000}])
def test_limits_that_make_no_sense_are_named(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidSetting) as caught:
        LivePageLimits(**wrong)
    assert caught.value.setting in wrong
