"""In a real browser: the page of a server, with a few jobs and with a thousand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pytest
from playwright.sync_api import Page, expect

from aioelasticjob.ground.times import moment
from aioelasticjob.operations import ActiveRun, JobStatus
from tests.console.browsing import in_a_browser
from tests.console.samples import INSTANCES, item, status
from tests.console.site import Site
from tests.support.processes import ChildProcess

pytestmark = in_a_browser

IP = INSTANCES[0].partition("@")[0]


def _running(name: str, now: float, since: float) -> JobStatus:
    run = ActiveRun(INSTANCES[0], moment(since))
    return status(name, (item(0), item(1, run=run)), now=now, cron="0 0 2 * * ?")


def test_a_server_shows_what_runs_there_what_its_jobs_hold_and_since_when_one_is_off(
    there: Site, open_page: Callable[..., Page]
) -> None:
    now = there.clock.now()
    off = status("off", (item(0),), now=now - 7200, paused=True)
    there.show(_running("busy", now, now - 60), off)
    page = open_page("/r/billing/servers")
    page.get_by_role("link", name=IP).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(IP)
    expect(page.locator("#server-runs li")).to_have_count(1)
    expect(page.locator("#server-runs li")).to_contain_text("busy item 1 for 1 min")
    busy, paused = (page.locator("#server-jobs tbody tr").filter(has_text=name) for name in ("busy", "off"))
    expect(busy.locator("td").first).to_have_text("2")
    expect(busy).to_contain_text(INSTANCES[0])
    expect(paused.locator(".chip.warn")).to_have_text("paused for 2 h")
    there.show(replace(_running("busy", now, now), items=(item(0),)), off)  # the run has ended; the page is live
    expect(page.locator("#server-runs")).to_contain_text("Nothing runs here now.")
    busy.get_by_role("link", name="busy").click()
    page.locator(".lane .who").get_by_role("link").click()  # and back, from a lane
    expect(page.get_by_role("heading", level=1)).to_contain_text(IP)
    there.show()
    expect(page.locator("#server-head")).to_contain_text("No job knows this server.")


def test_a_server_that_is_enabled_again_leaves_off_what_was_off_deliberately(
    there: Site, open_page: Callable[..., Page], workers: Callable[..., ChildProcess]
) -> None:
    workers()
    ip = there.watch.snapshot.value.jobs["report"].servers[0].ip
    page = open_page(f"/r/billing/servers/{ip}")
    job = page.get_by_role("row").filter(has_text="report")
    job.get_by_role("button", name="Disable").click()  # deliberately, in this job only
    expect(job.locator(".chip.warn")).to_contain_text(["disabled for"])
    for label, before in (("Disable", False), ("Enable", True)):
        page.goto(f"{there.url}/r/billing/servers")
        page.get_by_role("row").filter(has_text=ip).get_by_role("link", name=label, exact=True).click()
        expect(page.locator("main dl")).to_contain_text("report")  # it asks first, and names the jobs
        assert there.watch.snapshot.value.jobs["report"].servers[0].disabled_everywhere is before
        page.get_by_role("button", name=label, exact=True).click()
        expect(page.get_by_role("status").filter(has_text=ip)).to_be_visible()
    page.goto(f"{there.url}/r/billing/servers/{ip}")
    expect(page.locator("#server-head")).not_to_contain_text("disabled in all jobs")
    expect(job.locator(".chip.warn")).to_have_count(1)
    expect(job.locator(".chip.warn")).to_contain_text("disabled for")
    job.get_by_role("button", name="Enable").click()
    expect(job.locator(".chip.warn")).to_have_count(0)


@pytest.mark.parametrize("width", [390, 1280])
def test_a_server_with_a_thousand_jobs_shows_a_hundred_on_a_page(
    there: Site, open_page: Callable[..., Page], width: int
) -> None:
    now = there.clock.now()
    there.show(*(_running(f"job-{number:04}", now, now - number) for number in range(1000)))
    with mock.patch.object(there.watch, "_publish"):  # or what the registry really holds is shown before page 2 is
        page = open_page(f"/r/billing/servers/{IP}", width=width)
        expect(page.locator("#server-jobs tbody tr")).to_have_count(100)
        expect(page.locator("#server-runs li")).to_have_count(50)
        expect(page.locator("#server-runs li").first).to_contain_text("job-0999")
        expect(page.locator("#server-runs")).to_contain_text("The 50 that have run longest, of 1000.")
        assert page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        page.get_by_role("link", name="More").click()
        expect(page.locator("#server-jobs tbody tr").first).to_contain_text("job-0100")
        expect(page.locator(".pages")).to_contain_text("page 2 of 10")
    there.show()
