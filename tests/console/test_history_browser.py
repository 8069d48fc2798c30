"""In a real browser: new runs appear on the newest page of the history, and older pages stand still."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from aioelasticjob.model import Outcome
from tests.console.browsing import in_a_browser
from tests.console.site import Site, site
from tests.observers.sample_events import batch, end, raised

pytestmark = in_a_browser


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("console")
    with site(data, event_store=f"sqlite:///{data / 'events.db'}") as found:
        yield found


def _write(there: Site, number: int, outcome: Outcome = Outcome.COMPLETED) -> None:
    """Write a run that began some seconds ago: the greater the number, the later."""
    there.wait(lambda: there.watch.store is not None)
    slot = int(there.clock.now() - 1000 + number) * 1000
    failure = None if outcome is Outcome.COMPLETED else raised()

    async def write() -> None:
        assert there.watch.store is not None
        await there.watch.store.store.write(batch(end(slot, number, outcome, failure=failure)))

    there.run(write)


def test_the_newest_page_is_live_while_somebody_types_and_older_pages_stand_still(
    there: Site, open_page: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioelasticjob.console.pages.history.ROWS", 3)
    monkeypatch.setattr("aioelasticjob.console.pages.history.RECOUNT", 0.0)
    for number in range(0, 50, 10):
        _write(there, number)
    page = open_page("/r/billing/history")
    rows, form = page.locator("#history-runs tbody tr"), page.locator("form.filters")
    expect(rows).to_have_count(3)
    page.get_by_label("Failure contains").fill("typed")
    rows.nth(0).evaluate("(one) => { one.untouched = true }")
    _write(there, 50, Outcome.FAILED)
    expect(rows.nth(0)).to_contain_text("failed")
    expect(page.locator("#history-counts")).to_contain_text("6 runs")
    assert rows.nth(1).evaluate("(one) => one.untouched")  # the row has moved, and is no other
    expect(form.get_by_label("Failure contains")).to_have_value("typed")
    expect(form.get_by_label("Failure contains")).to_be_focused()
    page.get_by_role("link", name="Older").click()
    expect(page.get_by_text("This page stands still")).to_be_visible()
    shown = rows.all_inner_texts()
    _write(there, 60)
    page.get_by_role("link", name="Newer").click()
    expect(rows.nth(0)).to_contain_text("failed")  # 50, though 60 is newer
    page.get_by_role("link", name="Older").click()
    expect(page.get_by_text("This page stands still")).to_be_visible()
    assert rows.all_inner_texts() == shown
    page.get_by_role("link", name="Newest").click()
    expect(page.locator("#history-counts")).to_contain_text("7 runs")
    column = page.locator("#histogram a[aria-label*='1 failed']")
    column.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("since=.*until="))
    expect(page.locator("#history-runs")).to_contain_text("failed")
