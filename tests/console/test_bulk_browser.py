"""In a real browser: jobs are selected while the page is live, and one report says what came of each."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.console.browsing import in_a_browser
from tests.console.samples import item, status
from tests.console.site import Site
from tests.support.processes import ChildProcess

pytestmark = in_a_browser


def test_a_selection_stays_while_rows_change_and_what_is_selected_is_asked_about(
    there: Site, open_page: Callable[..., Page]
) -> None:
    now = there.clock.now()
    there.show(*(status(name, (item(0),), now=now) for name in ("a", "b", "c")))
    page = open_page("/r/billing/jobs")
    for name in ("a", "b"):
        page.get_by_role("checkbox", name=f"Select {name}").check()
    others = [status(name, (item(0),), now=now, description="anew") for name in ("c", "d")]
    there.show(status("0", now=now), status("a", (item(0),), now=now, description="changed"), *others)
    row = page.get_by_role("row", name=re.compile("changed"))
    expect(row.get_by_role("checkbox")).to_be_checked()
    expect(page.locator("#jobs :checked[type=checkbox]")).to_have_count(1)  # b is gone, and nothing took its place
    page.locator("#selection").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("heading", name="Pause: 1 job")).to_be_visible()
    page.get_by_role("link", name="Leave it").click()
    page.get_by_label("Find a job").press_sequentially("anew")
    expect(page.locator("#jobs tr.job")).to_have_count(2)
    page.get_by_label("Which jobs").select_option("all jobs that this filter shows")
    page.locator("#selection").get_by_role("button", name="Run now").click()
    expect(page.get_by_role("heading", name="Run now: 2 jobs")).to_be_visible()
    expect(page.locator("main")).to_contain_text("c, d")
    there.show()


def test_jobs_are_paused_and_the_report_says_so(
    open_page: Callable[..., Page], workers: Callable[[], ChildProcess]
) -> None:
    workers()
    page = open_page("/r/billing/jobs")
    page.get_by_role("checkbox", name="Select report").check()
    page.locator("#selection").get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("row", name=re.compile("report"))).to_contain_text("report: paused")
    expect(page.get_by_text("Done for 1 of 1 jobs.")).to_be_visible()
    page.get_by_role("link", name="To the jobs").click()
    expect(page.get_by_role("row", name=re.compile("report")).locator(".state")).to_have_text("switched off")
    page.get_by_label("Which jobs").select_option("all jobs")
    page.locator("#selection").get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("Done for 1 of 1 jobs.")).to_be_visible()
