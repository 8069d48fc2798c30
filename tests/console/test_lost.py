"""In a real browser: when the registry, the event store or the console is lost, every page says so."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from aioelasticjob.observers.sql import EventStore, Filter
from aioelasticjob.observers.sql.store import EventStoreUnreachable
from aioelasticjob.operations import JobStatus
from aioelasticjob.registry.session import Session
from tests.console.browsing import in_a_browser
from tests.console.site import Site, site
from tests.support.processes import ChildProcess

pytestmark = in_a_browser

LOST = "The registry billing is not there."
GREY = re.compile("grayscale")


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("console")
    with site(data, event_store=f"sqlite:///{data / 'events.db'}") as found:
        yield found


def _fires_pass(there: Site, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that waits for next fires to pass: their lists of jobs made a dead registry look alive."""
    passed = [0]
    at, connected = JobStatus.at, Session.connected

    def counted(status: JobStatus, now: float) -> JobStatus:
        passed[0] += 1
        return at(status, now)

    async def waits(self: Session) -> None:
        passed[0] += 10  # the follower reads nothing and tells nothing before it is connected again
        await connected(self)

    monkeypatch.setattr(JobStatus, "at", counted)
    monkeypatch.setattr(Session, "connected", waits)
    return lambda: there.wait(lambda: passed[0] > 3)


def test_every_page_says_for_as_long_as_the_registry_is_dead_that_it_is(
    there: Site, open_page: Callable[..., Page], workers: Callable[..., ChildProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers("* * * * * ?")
    paths = ("/r/billing/jobs", "/r/billing/job/report", "/r/billing/servers", "/r/billing/history", "/registries")
    pages = {path: open_page(path) for path in paths}
    job = pages["/r/billing/job/report"]
    expect(pages["/r/billing/jobs"].get_by_role("row", name=re.compile("report"))).to_be_visible()
    expect(pages["/registries"].get_by_text("connected", exact=True)).to_be_visible()
    there.run(there.server.stop)
    for page in pages.values():
        expect(page.get_by_text(LOST)).to_be_visible()
    _fires_pass(there, monkeypatch)()
    for path, page in pages.items():
        assert page.get_by_text(LOST).is_visible(), path
        assert page.locator("#state time").first.inner_text(), path  # since when
        assert page.locator("#switch summary .dot.bad").is_visible(), path
        if path != "/registries":  # it is about all of them
            assert GREY.search(page.evaluate("() => getComputedStyle(document.querySelector('main')).filter")), path
    expect(pages["/registries"].get_by_text("connected", exact=True)).to_have_count(0)
    job.get_by_role("button", name="Run now").first.click()
    expect(job.locator("#notices .bad")).to_contain_text("nothing was written")
    there.run(there.server.start)
    for page in pages.values():
        expect(page.get_by_text(LOST)).to_have_count(0)
        expect(page.locator("#switch summary .dot.ok")).to_be_visible()


def test_every_page_about_a_registry_says_that_its_event_store_does_not_answer(
    there: Site, open_page: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioelasticjob.console.watching.store_watch.CHECK_INTERVAL", 0.1)
    there.wait(lambda: there.watch.store is not None and there.watch.store.snapshot.as_of is not None)
    page = open_page("/r/billing/history")
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    with monkeypatch.context() as broken:
        broken.setattr(EventStore, "counts_by_job", _no_answer)
        expect(page.get_by_text("The event store of billing does not answer.")).to_be_visible()
        assert page.locator("#state time").inner_text()
        assert GREY.search(page.evaluate("() => getComputedStyle(document.querySelector('#history-runs')).filter"))
        asked = list[str]()
        for query in ("history", "first", "histogram"):
            broken.setattr(EventStore, query, lambda *_, query=query, **__: asked.append(query))
        page.reload()
        expect(page.get_by_text("The event store of billing does not answer.")).to_be_visible()
        assert not asked  # a page does not wait for it
    assert not GREY.search(page.evaluate("() => getComputedStyle(document.querySelector('main')).filter"))
    expect(page.get_by_text("The event store of billing does not answer.")).to_have_count(0)


async def _no_answer(store: EventStore, which: Filter) -> Mapping[str, int]:
    raise EventStoreUnreachable(store.settings.url, "connection refused")


def _with_its_own_clock(open_page: Callable[..., Page]) -> Page:
    """Open the page of a job whose time is the test's."""
    page = open_page("/r/billing/job/report")
    page.clock.install()
    page.reload()
    return page


def test_a_page_whose_console_says_nothing_any_more_tells_so_and_refuses_deeds(
    there: Site, open_page: Callable[..., Page], workers: Callable[..., ChildProcess]
) -> None:
    workers()
    page = _with_its_own_clock(open_page)
    page.wait_for_function("() => document.querySelector('.live')?._htmx?.sse?.reader")
    goes_on = threading.Event()
    there.loop.call_soon_threadsafe(goes_on.wait, 90)
    page.clock.fast_forward(30_000)
    expect(page.get_by_text("The console does not answer.")).to_be_visible()
    assert GREY.search(page.evaluate("() => getComputedStyle(document.querySelector('main')).filter"))
    page.get_by_role("button", name="Run now").first.click()
    expect(page.locator("#notices")).to_have_text("The console does not answer: nothing was done.")
    goes_on.set()
    page.clock.fast_forward(30_000)
    expect(page.get_by_text("The console does not answer.")).to_have_count(0)


def test_an_action_that_is_not_answered_says_so_until_it_is(
    there: Site, open_page: Callable[..., Page], workers: Callable[..., ChildProcess]
) -> None:
    workers()
    page = _with_its_own_clock(open_page)
    expect(page.get_by_role("button", name="Run now").first).to_be_visible()
    goes_on = threading.Event()
    there.loop.call_soon_threadsafe(goes_on.wait, 90)
    page.get_by_role("button", name="Run now").first.click()
    page.clock.fast_forward(1000)
    expect(page.locator("#notices")).to_contain_text("There is no answer yet.")
    goes_on.set()
    expect(page.locator("#notices")).to_contain_text("report: asked to run")
    page.clock.fast_forward(1000)
    expect(page.locator("#notices")).to_contain_text("report: asked to run")


def test_a_page_that_is_refused_says_that_it_is_not_live_and_goes_on_when_it_may(
    there: Site, open_page: Callable[..., Page]
) -> None:
    waiting = open_page("/r/billing/servers")
    expect(waiting.locator("#gone")).to_have_count(0)
    pages = there.console.state.live_pages
    there.wait(lambda: len(pages) == 1)
    limits, pages._limits = pages._limits, replace(pages._limits, total=2, kept_for_operators=0)
    try:
        first = open_page("/r/billing/jobs")
        first.wait_for_function(
            "() => document.querySelector('.live')?._htmx?.sse?.reader"
        )  # it has taken the last place for a live page
        first.evaluate(
            "Object.defineProperty(document, 'hidden', {get: () => false})"
        )  # a hidden page closes its stream, which would free the place
        with first.context.expect_page() as opened:
            first.evaluate("window.open(location.href)")
        second = opened.value
        expect(second.locator("#gone")).to_contain_text("This page is not live: too many live pages are open.")
        expect(second.locator("main")).to_have_css("filter", GREY)
        expect(first.locator("#gone")).to_have_count(0)
        first.close()
        expect(second.locator("#gone")).to_have_count(0)
    finally:
        pages._limits = limits
