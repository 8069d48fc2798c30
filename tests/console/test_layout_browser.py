"""In a real browser: pages use the room that there is, and times read as their language has them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from aioelasticjob.console.pages import job_pieces
from tests.console.browsing import in_a_browser
from tests.console.samples import ended, item, status
from tests.console.site import Site

pytestmark = in_a_browser

LONG = "a-registry-with-a-long-name"


@pytest.fixture
def wide_job(there: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose table of items has all of its columns."""

    async def offsets(*_: object) -> dict[int, str]:
        return {0: '{"page": 12345}', 1: '{"page": 67890}'}

    monkeypatch.setattr(job_pieces, "_offsets", offsets)
    now = there.clock.now()
    record = ended("failed", now)
    there.show(status("wide", (item(0, record=record), item(1, record=record)), cron="0 0 2 * * ?", now=now))


@pytest.mark.parametrize("width", [1280, 1400])
@pytest.mark.usefixtures("wide_job")
def test_the_table_of_items_is_not_cut_off_on_a_screen(open_page: Callable[..., Page], width: int) -> None:
    page = open_page("/r/billing/job/wide", width=width)
    expect(page.locator("#job-items")).to_contain_text("12345")
    room = page.locator("#job-items").evaluate("one => [one.scrollWidth, one.clientWidth]")
    assert room[0] <= room[1]
    buttons = page.locator("#job-items td.do").first.evaluate("one => [one.scrollWidth, one.clientWidth]")
    assert buttons[0] <= buttons[1]


@pytest.mark.usefixtures("wide_job")
def test_the_header_leaves_a_phone_its_screen(open_page: Callable[..., Page]) -> None:
    page = open_page("/r/billing/jobs", width=390)
    page.set_viewport_size({"width": 390, "height": 844})
    header = page.locator("header.top")
    box = header.bounding_box()
    assert box is not None
    assert box["height"] <= 844 / 8
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("#switch summary").evaluate(f"one => one.lastChild.textContent = '{LONG}'")
    longer = header.bounding_box()
    assert longer is not None
    assert longer["height"] <= 844 / 8
    page.locator("main").evaluate("one => one.style.minHeight = '3000px'")
    page.mouse.wheel(0, 1500)
    expect(header).not_to_be_in_viewport()  # it scrolls away


@pytest.mark.usefixtures("wide_job")
def test_the_zone_stands_behind_the_time_in_every_language(open_page: Callable[..., Page]) -> None:
    page = open_page("/r/billing/job/wide")
    shown = page.locator("#job-head time[data-clock]").first
    expect(shown).to_have_text(re.compile(r"\d\d:\d\d:\d\d UTC$"))
    page.locator("button[name=language]").click()
    expect(page.locator("html")).to_have_attribute("lang", re.compile("^zh"))
    expect(shown).to_have_text(re.compile(r"^\d{4}年\d+月\d+日 \d\d:\d\d:\d\d UTC$"))
