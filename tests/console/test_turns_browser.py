"""In a real browser: more windows than a browser has connections are all live, since they take turns."""

from __future__ import annotations

import json
from collections.abc import Callable

from playwright.sync_api import Page, Route, expect

from aioelasticjob import operations
from tests.console.browsing import in_a_browser
from tests.console.site import Site
from tests.support.processes import ChildProcess

pytestmark = in_a_browser

WINDOWS = 12
WATCH = """() => {
  window.gone = 0;
  new MutationObserver((changes) => {
    for (const change of changes) for (const node of change.addedNodes) if (node.id === 'gone') window.gone++;
  }).observe(document.body, {childList: true});
}"""
"""Counts how often a page has said that it is not live."""

LIVE = "() => document.querySelector('.live')?._htmx?.sse?.reader"


def _describe(there: Site, description: str) -> None:
    """Change the job in the registry."""
    job = json.dumps({"jobs": [{"jobName": "report", "description": description}]})
    there.wait(lambda: there.watch.snapshot.value.read and there.watch.snapshot.value.lost is None)
    there.run(lambda: operations.import_jobs(there.watch.session, job, overwrite=True))


def test_twelve_windows_see_each_change_and_an_action_is_answered(
    there: Site, open_page: Callable[..., Page], workers: Callable[[], ChildProcess]
) -> None:
    workers()
    _describe(there, "before")
    first = open_page("/r/billing/jobs")
    paths = ("/r/billing/jobs", "/r/billing/job/report")
    windows = [first, *(first.context.new_page() for _ in range(WINDOWS - 1))]
    for number, window in enumerate(windows):
        window.goto(f"{there.url}{paths[number % 2]}")
        expect(window.get_by_text("before")).to_be_visible()
        window.evaluate(WATCH)
    assert not any(window.evaluate("() => document.hidden") for window in windows)  # a hidden page has no stream
    menu = windows[1].locator("details.switch")
    menu.locator("summary").click()
    parameter = windows[1].get_by_label("Parameter for this run")
    parameter.fill("typed")
    for description in ("changed", "changed again"):
        _describe(there, description)
        for window in windows:
            expect(window.get_by_text(description, exact=True)).to_be_visible()
    windows[-1].get_by_role("button", name="Pause").first.click()
    expect(windows[-1].get_by_role("status").filter(has_text="report")).to_be_visible()
    for window in windows:
        expect(window.get_by_text("switched off", exact=True).first).to_be_visible()
        assert window.evaluate("() => window.gone") == 0
    expect(parameter).to_have_value("typed")
    assert menu.evaluate("(menu) => menu.open")  # a stream that comes back sends all pieces, and closes no menu
    assert len(there.console.state.live_pages) <= 6


def test_a_page_is_live_also_if_one_of_its_scripts_is_late(there: Site, open_page: Callable[..., Page]) -> None:
    page = open_page("/r/billing/jobs")
    page.wait_for_function(LIVE)  # or the route would hold back a script of this page
    late = list[Route]()
    page.route("**/hx-sse.min.js", lambda route: late.append(route))
    with page.expect_request("**/hx-sse.min.js"):
        page.goto(f"{there.url}/r/billing/jobs", wait_until="commit")
    page.wait_for_function("() => window.htmx")  # it began without its extension, and the page was never live
    page.evaluate("() => new Promise((done) => setTimeout(done))")
    for route in late:
        route.continue_()
    page.wait_for_function(LIVE)
