"""In a real browser: what a page says of jobs is so, and all of it is there."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from aioelasticjob.operations import JobStatus
from tests.console.browsing import in_a_browser
from tests.console.samples import ended, item, status
from tests.console.site import Site

pytestmark = in_a_browser


def _show(there: Site, *jobs: JobStatus) -> None:
    """Make the console believe that its registry, which is empty, holds these jobs."""
    there.wait(lambda: there.watch.snapshot.value.read)

    async def publish() -> None:
        there.watch._publish(tuple(jobs))

    there.run(publish)


def test_what_fails_or_misfires_needs_attention_and_what_is_switched_off_does_not_count_down(
    there: Site, open_page: Callable[..., Page]
) -> None:
    now = there.clock.now()
    cron = {"cron": "0 0 2 * * ?", "now": now}
    _show(
        there,
        status("calm", (item(0, record=ended("completed", now)),), **cron),
        status("failing-job", (item(0, record=ended("failed", now)),), **cron),
        status("misfiring-job", (item(0, misfired=True),), **cron),
        status("off", (item(0),), **cron, paused=True),
    )
    page = open_page("/r/billing/jobs")

    def row(name: str) -> tuple[str, str]:
        found = page.get_by_role("row", name=re.compile(name))
        expect(found).to_be_visible()
        dot = found.locator(".dot").get_attribute("class") or ""
        return dot.split()[-1], found.locator(".state").inner_text()

    assert row("calm") == ("ok", "waiting")
    assert row("failing-job") == ("bad", "failing")
    assert row("misfiring-job") == ("warn", "misfiring")
    assert row("off") == ("off", "switched off")
    expect(page.get_by_role("row", name=re.compile("failing-job"))).to_contain_text("failing, 1 in a row: items 0")
    expect(page.get_by_role("row", name=re.compile("failing-job")).locator(".next time")).to_have_count(1)
    expect(page.get_by_role("row", name=re.compile("off")).locator(".next time")).to_have_count(0)
    expect(page.locator("#tiles .t-attention b")).to_have_text("2")
    page.get_by_role("link", name=re.compile("off")).last.click()
    expect(page.locator("#job-head")).to_contain_text("none while it is switched off")
    expect(page.locator("#job-head time[data-until]")).to_have_count(0)


def test_all_times_that_are_shown_or_typed_are_in_the_one_time_zone_that_was_chosen(
    there: Site, open_page: Callable[..., Page]
) -> None:
    now = there.clock.now()
    _show(there, status("daily", (item(0),), now=now, cron="0 30 2 * * ?"))
    page = open_page("/r/billing/job/daily")
    clock = page.locator("#job-head time[data-clock]").first
    expect(clock).to_contain_text("02:30:00 UTC")
    page.context.add_cookies([{"name": "aioej_zone", "value": "Asia%2FKathmandu", "url": there.url}])
    page.reload()
    expect(page.get_by_label("Times are in this time zone")).to_have_value("Asia/Kathmandu")
    expect(clock).to_contain_text("08:15:00 GMT+5:45")
    page.get_by_label("Times are in this time zone").select_option("UTC")
    expect(clock).to_contain_text("02:30:00 UTC")
    expect(page.get_by_label("Times are in this time zone")).to_have_value("UTC")
