"""In a real browser: its tabs share one stream, so that more than six windows are live."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from aioelasticjob import operations
from tests.console.browsing import in_a_browser
from tests.console.site import Site

pytestmark = in_a_browser

VISIBLE = "Object.defineProperty(document, 'hidden', {get: () => false})"
"""Windows side by side: of tabs one at most is seen, and the others are not live."""
WINDOWS = 8


def _open_windows(there: Site, page: Page) -> list[Page]:
    page.context.add_init_script(VISIBLE)
    page.reload()
    windows = [page]
    for number in range(1, WINDOWS):
        with page.context.expect_page() as opened:
            page.evaluate("(path) => window.open(path)", f"/r/billing/{'jobs' if number % 2 else 'job/report'}")
        windows.append(opened.value)
        there.wait(lambda: len(there.console.state.live_pages) == len(windows))  # it is in front until then
    return windows


def _describe(there: Site, description: str) -> None:
    """Change the job in the registry."""
    job = json.dumps({"jobs": [{"jobName": "report", "description": description}]})
    there.wait(lambda: there.watch.snapshot.value.read and there.watch.snapshot.value.lost is None)
    there.run(lambda: operations.import_jobs(there.watch.session, job, overwrite=True))


def test_eight_windows_are_live_on_one_stream_and_give_it_back(there: Site, open_page: Callable[..., Page]) -> None:
    _describe(there, "before")
    windows = _open_windows(there, open_page("/r/billing/jobs"))
    state = there.console.state
    for window in windows:
        expect(window.get_by_text("before")).to_be_visible()
    (shared,) = state.shared_streams
    assert 1 + WINDOWS - len(shared) < 6  # streams: the shared one, and those of pages that had no answer in time
    _describe(there, "afterwards")
    for window in windows:
        expect(window.get_by_text("afterwards")).to_be_visible()
    for window in windows[1:]:
        window.close()
    there.wait(lambda: len(state.live_pages) == 1)
    _describe(there, "at last")
    expect(windows[0].get_by_text("at last")).to_be_visible()


def test_windows_go_on_on_a_new_stream_when_theirs_has_ended(there: Site, open_page: Callable[..., Page]) -> None:
    _describe(there, "before")
    windows = _open_windows(there, open_page("/r/billing/jobs"))
    (broken,) = there.console.state.shared_streams

    async def end() -> None:
        broken._tasks.cancel_scope.cancel()

    there.run(end)
    there.wait(
        lambda: len(there.console.state.live_pages) == WINDOWS and broken not in there.console.state.shared_streams
    )
    _describe(there, "afterwards")
    for window in windows:
        expect(window.get_by_text("afterwards")).to_be_visible()
        expect(window.locator("#gone")).to_have_count(0)


@pytest.mark.parametrize(
    "how",
    [
        "delete window.SharedWorker",
        "const Real = SharedWorker; window.SharedWorker = function () { return new Real('/no-such-script.js') }",
    ],
)
def test_a_browser_that_cannot_share_has_a_stream_for_each_page(
    there: Site, open_page: Callable[..., Page], how: str
) -> None:
    state = there.console.state
    _describe(there, "before")
    page = open_page("/r/billing/jobs")
    there.wait(lambda: any(map(len, state.shared_streams)))
    page.add_init_script(how)
    page.reload()
    there.wait(lambda: len(state.live_pages) == 1 and not any(map(len, state.shared_streams)))
    _describe(there, "afterwards")
    expect(page.get_by_text("afterwards")).to_be_visible()
