"""The console in a real browser: what people do, and what they see without loading anything anew."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from aioelasticjob.console.users.permissions import Role
from tests.console.browsing import in_a_browser
from tests.console.client import PASSWORD
from tests.console.site import Site
from tests.support.processes import ChildProcess

pytestmark = in_a_browser

LABELS = """() => [...document.querySelectorAll('input, select, textarea, button, a[href], summary, [role=img]')]
  .filter((one) => one.type !== 'hidden' && !one.labels?.length && !one.textContent.trim()
    && !one.getAttribute('aria-label') && !one.title)
  .map((one) => one.outerHTML.slice(0, 200))"""
"""What a screen reader could only call by its kind."""
IDS = """() => [...document.querySelectorAll('[id]')].map((one) => one.id)
  .filter((id, at, all) => all.indexOf(id) !== at)"""
WIDTH = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def _lane_of(page: Page, item: int) -> Locator:
    return page.locator(".lane", has=page.locator(f"#item-{item}"))


def test_a_wrong_password_is_said_and_the_right_one_leads_on(open_page: Callable[..., Page]) -> None:
    page = open_page("/r/billing/servers", name=None)
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill("not my password")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("That name and password do not belong together.")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Servers")).to_be_visible()  # where one wanted to go


def test_items_are_seen_to_move_when_an_instance_is_killed(
    open_page: Callable[..., Page], workers: Callable[[], ChildProcess]
) -> None:
    page = open_page("/r/billing/jobs")
    first, second = workers(), workers()
    row = page.get_by_role("row", name=re.compile("report"))
    expect(row.get_by_text("4 / 2")).to_be_visible()
    row.get_by_role("link", name="report").click()
    expect(page.locator(".lane .tile")).to_have_count(4)
    lanes = page.locator(".lane:not(.c-none)")
    expect(lanes.first.locator(".tile")).to_have_count(2)
    expect(lanes.last.locator(".tile")).to_have_count(2)
    moving = lanes.filter(has_text=f"@-@{second.pid}-").locator(".tile").first.get_attribute("id")
    page.evaluate("() => { window.stayed = true }")
    second.kill()
    expect(lanes).to_have_count(1)
    expect(lanes.filter(has_text=f"@-@{first.pid}-").locator(f"#{moving}")).to_be_visible()
    expect(lanes.locator(".tile")).to_have_count(4)
    assert page.evaluate("() => window.stayed")


def test_pause_resume_and_run_now_are_seen_at_once(
    open_page: Callable[..., Page], workers: Callable[[], ChildProcess]
) -> None:
    workers()
    page = open_page("/r/billing/job/report")
    head = page.locator("#job-head")
    expect(head.locator("h1 .state")).to_have_text("waiting")
    head.get_by_role("button", name="Pause").click()
    expect(head.locator("h1 .state")).to_have_text("switched off")
    expect(page.get_by_role("status").filter(has_text="report")).to_be_visible()
    head.get_by_role("button", name="Resume").click()
    expect(head.locator("h1 .state")).to_have_text("waiting")
    expect(page.locator(".lane .tile")).to_have_count(4)
    page.get_by_label("Parameter for this run").fill("by hand")
    page.get_by_role("button", name="Run now").first.click()
    expect(page.locator("#row-0")).to_contain_text("completed")
    expect(page.locator("#job-timeline rect.ok").first).to_be_attached()
    expect(page.get_by_label("Parameter for this run")).to_have_value("")  # it was for one run


def test_runs_are_asked_for_and_cancelled_and_days_run_again_after_a_question(
    open_page: Callable[..., Page], workers: Callable[[], ChildProcess]
) -> None:
    workers()
    watching = open_page("/r/billing/job/report")
    page = open_page("/r/billing/job/report")
    expect(page.locator("#row-3")).to_be_attached()
    assert page.locator("#job-items").evaluate("(items) => items.offsetHeight") < 1000  # no room for a hundred items
    page.get_by_role("link", name="Plan a run").click()
    page.get_by_label("Items", exact=True).fill("1, 3")
    page.get_by_label("Or after").fill("soon")
    page.get_by_label("Id of the request").fill("by-hand")
    page.get_by_role("button", name="Plan a run").click()
    expect(page.get_by_role("alert")).to_contain_text("must be a number of seconds")
    expect(page.get_by_label("Items", exact=True)).to_have_value("1, 3")
    page.get_by_label("Or after").fill("1h")
    page.get_by_role("button", name="Plan a run").click()
    row, seen = (one.get_by_role("row", name=re.compile("by-hand")) for one in (page, watching))
    for there in (row, seen):  # the page that was open shows it without being loaded anew
        expect(there).to_contain_text("planned")
        expect(there).to_contain_text("1, 3")
    row.get_by_role("button", name="Pause").click()
    expect(seen).to_contain_text("paused")
    row.get_by_role("link", name="Cancel the request").click()
    expect(page.get_by_text("Nothing more of it is begun")).to_be_visible()
    page.get_by_role("button", name="Cancel the request").click()
    for there in (row, seen):
        expect(there).to_contain_text("cancelled")
    page.get_by_role("link", name="Backfill").click()
    page.get_by_label("From").fill("2026-01-01T00:00")
    page.get_by_label("Until").fill("2026-01-03T00:00")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("This would run: 2 moments")).to_be_visible()
    page.get_by_role("button", name="Backfill").click()
    expect(watching.locator("#job-requests").get_by_text("8 completed")).to_be_visible()
    assert page.evaluate(LABELS) == []


def test_a_changed_cron_changes_the_next_fire(
    open_page: Callable[..., Page], workers: Callable[[], ChildProcess]
) -> None:
    workers()
    open_elsewhere = open_page("/r/billing/job/report")
    expect(open_elsewhere.locator("#cron")).to_have_text("0 0 2 * * ?")
    page = open_page("/r/billing/job/report/settings")
    cron = page.get_by_label("Cron", exact=True)
    cron.fill("0 0 25 * * ?")
    expect(page.locator("#preview")).to_contain_text("cron")
    expect(cron).to_have_attribute("aria-invalid", "true")
    cron.fill("30 15 4 * * ?")
    expect(page.locator("#preview")).to_contain_text("04:15:30")
    expect(cron).not_to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#cron")).to_have_text("30 15 4 * * ?")
    expect(page.locator("#job-head time[data-clock]").first).to_contain_text("4:15:30")
    expect(open_elsewhere.locator("#cron")).to_have_text("30 15 4 * * ?")


def test_a_viewer_finds_nothing_to_press_and_is_refused(
    there: Site, open_page: Callable[..., Page], workers: Callable[[], ChildProcess]
) -> None:
    workers()
    _invite(there, open_page)
    page = open_page("/r/billing/job/report", name="vera")
    expect(page.get_by_role("heading", name=re.compile("report"))).to_be_visible()
    expect(page.get_by_role("button", name="Run now")).to_have_count(0)
    expect(page.get_by_role("link", name="Users")).to_have_count(0)
    status = page.evaluate(
        """async () => (await fetch('/r/billing/job/report/do/pause', {method: 'POST', body: new URLSearchParams(
             {csrf: document.querySelector('[name=csrf]').value})})).status"""
    )
    assert status == 403
    page.goto(f"{there.url}/users")
    expect(page.get_by_role("heading", name="Not allowed")).to_be_visible()


def _invite(there: Site, open_page: Callable[..., Page]) -> None:
    page = open_page("/users")
    page.get_by_label("Name").fill("vera")
    page.locator("form.grid select[name=role]").select_option(Role.VIEWER.value)
    page.get_by_role("button", name="Make a one-time link").click()
    link = page.locator("code.link").inner_text()
    guest = open_page("/login", name=None)
    guest.goto(link)
    guest.get_by_label("Password").fill(PASSWORD)
    guest.get_by_label("The same again").fill(PASSWORD)
    guest.get_by_role("button", name="Set the password").click()
    expect(guest).to_have_url(re.compile("/jobs$"))


def test_an_open_page_asks_to_sign_in_when_its_session_has_expired(
    there: Site, open_page: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioelasticjob.console.web.stream.SESSION_CHECK_INTERVAL", 0.1)
    page = open_page("/r/billing/jobs")
    expect(page.locator("#jobs")).to_be_visible()
    there.clock.ahead += 13 * 3600
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page).to_have_url(re.compile("next=%2Fr%2Fbilling%2Fjobs"))


@pytest.mark.parametrize("width", [390, 2560])
def test_every_page_can_be_read_by_everybody(
    there: Site, open_page: Callable[..., Page], workers: Callable[[], ChildProcess], width: int
) -> None:
    workers()
    page = open_page("/r/billing/jobs", width=width, scheme="dark")
    expect(page.locator("#jobs")).to_be_visible()
    job = "/r/billing/job/report"
    ip = there.watch.snapshot.value.jobs["report"].servers[0].ip
    for path in (
        "/r/billing/jobs",
        job,
        f"{job}/settings",
        f"{job}/dump",
        f"{job}/do/remove",
        f"{job}/do/trigger",
        f"{job}/do/backfill",
        f"{job}/do/backfill?from=2026-01-01T00:00&to=2026-01-03T00:00",
        "/r/billing/servers",
        f"/r/billing/servers/{ip}",
        "/r/billing/history",
        "/r/billing/transfer",
        "/registries",
        "/users",
        "/audit",
        "/account",
    ):
        page.goto(f"{there.url}{path}")
        assert page.locator("main h1").count() == 1, path
        assert page.evaluate(LABELS) == [], path
        assert page.evaluate(IDS) == [], path
        assert page.evaluate(WIDTH) <= 0, path  # nothing sticks out of the screen


def test_a_page_says_when_the_console_does_not_answer_and_goes_on_when_it_does(
    open_page: Callable[..., Page], workers: Callable[[], ChildProcess]
) -> None:
    workers()
    page = open_page("/r/billing/jobs")
    row = page.get_by_role("row", name=re.compile("report"))
    expect(row.locator(".state")).to_have_text("waiting")
    page.wait_for_function("() => document.querySelector('.live')?._htmx?.sse?.reader")
    page.context.set_offline(True)
    page.evaluate("() => document.querySelector('.live')._htmx.sse.reader.cancel()")  # offline keeps what is open
    expect(page.get_by_text("The console does not answer.")).to_be_visible()
    other = open_page("/r/billing/job/report")
    other.get_by_role("button", name="Pause").first.click()
    expect(other.locator("h1 .state")).to_have_text("switched off")
    page.context.set_offline(False)
    expect(row.locator(".state")).to_have_text("switched off")  # what was missed
    expect(page.get_by_text("The console does not answer.")).to_have_count(0)
    other.get_by_role("button", name="Resume").first.click()
    expect(row.locator(".state")).to_have_text("waiting")


def test_the_keyboard_is_enough(open_page: Callable[..., Page]) -> None:
    page = open_page("/r/billing/jobs")
    expect(page.locator("#jobs")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Find a job")).to_be_focused()
    page.keyboard.type("nothing is called so")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No job is like that.")).to_be_visible()
    page.locator("summary").last.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Sign out")).not_to_be_visible()


def test_language_and_colours_are_switched_on_the_page(open_page: Callable[..., Page]) -> None:
    page = open_page("/r/billing/jobs")
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_role("link", name="服务器")).to_be_visible()
    expect(page).to_have_url(re.compile("/r/billing/jobs$"))
    before = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="配色").click()
    expect(page.locator("html[data-theme=dark]")).to_be_attached()
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") != before
