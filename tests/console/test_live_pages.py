"""How many live pages may be open, and whose place is kept."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from aioelasticjob.console.live_pages import LivePageLimits, LivePages, Reader, TooManyLivePages
from aioelasticjob.errors import InvalidSetting

LIMITS = LivePageLimits(total=6, kept_for_operators=2, per_session=2, per_address=3)


def viewer(session: str, address: str = "10.0.0.1") -> Reader:
    return Reader(session, address, is_operator=False)


def operator(session: str, address: str = "10.0.0.1") -> Reader:
    return Reader(session, address, is_operator=True)


def test_a_session_and_an_address_have_only_so_many() -> None:
    pages = LivePages(LIMITS)
    with ExitStack() as stack:
        for session in ("a", "a", "b"):
            stack.enter_context(pages.opened(viewer(session)))
        with pytest.raises(TooManyLivePages, match="3 live pages are open from this address"):
            stack.enter_context(pages.opened(viewer("c")))
        with pytest.raises(TooManyLivePages, match="2 live pages are open of this session"):
            stack.enter_context(pages.opened(viewer("a", "10.0.0.2")))
        stack.enter_context(pages.opened(operator("d")))
        assert len(pages) == 4
    assert len(pages) == 0
    with pages.opened(viewer("a")):
        assert len(pages) == 1


def test_viewers_leave_places_for_operators() -> None:
    pages = LivePages(LIMITS)
    with ExitStack() as stack:
        for number in range(4):
            stack.enter_context(pages.opened(viewer(f"v{number}", f"10.0.0.{number}")))
        with pytest.raises(TooManyLivePages, match="4 live pages are open over all"):
            stack.enter_context(pages.opened(viewer("v", "10.0.0.9")))
        for number in range(2):
            stack.enter_context(pages.opened(operator(f"o{number}")))
        with pytest.raises(TooManyLivePages, match="6 live pages are open over all"):
            stack.enter_context(pages.opened(operator("o")))


@pytest.mark.parametrize("wrong", [{"total": 0}, {"per_session": -1}, {"per_address": 0}, {"kept_for_operators": 1000}])
def test_limits_that_make_no_sense_are_named(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidSetting) as caught:
        LivePageLimits(**wrong)
    assert caught.value.setting in wrong
