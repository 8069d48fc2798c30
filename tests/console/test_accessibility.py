"""In a real browser: axe-core finds nothing serious on any page of the console, in both themes, nor on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, ViewportSize, expect
from starlette.routing import Route

from aioelasticjob.console.routes import routes
from tests.console.browsing import in_a_browser
from tests.console.every_page import Keys, fill, paths_of
from tests.console.site import Site, site

pytestmark = in_a_browser

GRAVE = ("serious", "critical")
NO_PAGES = ("/", "/healthz", "/export")
"""What leads to another page, and what gives no page."""
PHONE, SCREEN = ViewportSize(width=390, height=844), ViewportSize(width=1280, height=900)
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
LOOKS: tuple[tuple[Literal["light", "dark"], ViewportSize, dict[str, Any]], ...] = (
    ("light", PHONE, {}),
    ("light", SCREEN, {}),
    ("dark", SCREEN, CONTRAST),
)
"""Theme, size, and what axe-core looks for.  The themes differ in nothing but colours."""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("console")
    store = f"sqlite:///{data / 'events.db'}"
    with site(data, event_store=store, allowed_addresses=("zk://*",)) as found:
        yield found


@pytest.fixture(scope="module")
def filled(there: Site) -> Keys:
    """Let every kind of thing be on the pages."""
    return fill(there)


def _patterns(there: Site) -> set[re.Pattern[str]]:
    """Return the addresses of all pages that the console has."""
    found = {
        one.path_regex
        for one in routes(there.console.state)
        if isinstance(one, Route) and "GET" in (one.methods or ()) and not one.path.endswith(("/live", *NO_PAGES))
    }
    assert len(found) > 15
    return found


@pytest.mark.timeout(1200)  # as the pages are many: against what hangs only
def test_axe_finds_nothing_serious_on_any_page(there: Site, filled: Keys, open_page: Callable[..., Page]) -> None:
    page, found = open_page("/r/billing/jobs"), list[str]()
    paths = paths_of(filled)
    visited = [path.partition("?")[0] for path in ("/login", *paths)]
    assert [
        one.pattern for one in _patterns(there) if not any(map(one.match, visited))
    ] == []  # a new page belongs here
    for path in paths:
        answer = page.goto(f"{there.url}{path}")
        assert answer is not None
        assert answer.ok or path == "/no/such/page", path  # the page itself, and not one that says what is wrong
        found += _problems(page)
    page.goto(f"{there.url}/r/billing/transfer")
    page.locator("textarea").fill('{"jobs": [{"jobName": "taken-in", "cron": "0 0 2 * * ?"}]}')
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("row", name=re.compile("taken-in"))).to_be_visible()
    found += _problems(page)
    page.goto(f"{there.url}/r/billing/jobs")
    page.get_by_label("Which jobs").select_option("found")
    page.locator("#selection").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("heading", name="Pause: 7 jobs")).to_be_visible()
    found += _problems(page)
    found += _problems(open_page("/login", name=None))
    assert not found, "\n".join(found)


def _problems(page: Page) -> Iterator[str]:
    """Yield what is serious on a page whose menus are open, in each of its looks; it is loaded once."""
    expect(page.locator("main")).to_be_visible()
    for menu in page.locator("details").all():
        menu.evaluate("(one) => { one.open = true }")
    for scheme, size, wanted in LOOKS:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size(size)
        for one in Axe().run(page, options=wanted).response["violations"]:
            if one["impact"] in GRAVE:
                nodes = "; ".join(f"{node['html'][:120]} {node['failureSummary'][:300]}" for node in one["nodes"][:3])
                yield f"{page.url}, {scheme}, at {size['width']}: {one['id']} ({len(one['nodes'])}): {nodes}"
