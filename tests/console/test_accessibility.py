"""In a real browser: axe-core finds nothing serious on any page of the console, in both themes, nor on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, ViewportSize, expect
from starlette.routing import Route

from aioelasticjob.console.accounts import Role
from aioelasticjob.console.bulk_actions import BulkAction
from aioelasticjob.console.routes import routes
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.events import Misfired
from aioelasticjob.model import Outcome
from tests.console.browsing import in_a_browser
from tests.console.samples import INSTANCES, ended, item, status
from tests.console.site import Site, site
from tests.observers.sample_events import NOON, batch, beginning, end, raised

pytestmark = in_a_browser

GRAVE = ("serious", "critical")
NO_PAGES = ("/", "/healthz", "/export")
"""What leads to another page, and what gives no page."""
PHONE, SCREEN = ViewportSize(width=390, height=844), ViewportSize(width=1280, height=900)
SIZES = {"light": (SCREEN,), "dark": (PHONE, SCREEN)}
"""On a phone one theme is enough: what is found there only, such as what cannot be scrolled by keys, has no colour."""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("console")
    store = f"sqlite:///{data / 'events.db'}"
    with site(data, event_store=store, allowed_addresses=("zk://*",)) as found:
        yield found


@pytest.fixture(scope="module")
def filled(there: Site) -> tuple[str, str, str]:
    """Let every kind of thing be on the pages; return the keys of a run that failed, an invitation and a report."""
    there.wait(lambda: there.watch.store is not None)
    now, cron = there.clock.now(), "0 0 2 * * ?"
    jobs = (
        status("calm", (item(0, record=ended("completed", now)),), now=now, cron=cron, description="Every night"),
        status("failing", (item(0, record=ended("failed", now)), item(1, orphaned=True)), now=now, cron=cron),
        status("known", (item(0, record=ended("failed", now)),), now=now, cron=cron),
        status("misfiring", (item(0, misfired=True), item(1, disabled=True)), now=now, instances=INSTANCES),
        status("nobody", (item(0, None),), now=now, instances=()),
        status("off", (item(0),), now=now, paused=True),
        status("wide", tuple(item(n, INSTANCES[n % 3]) for n in range(60)), now=now, instances=INSTANCES),
    )

    async def fill() -> tuple[str, str, str]:
        state, store = there.console.state, there.watch.store
        assert store is not None
        groups = state.health_of(there.watch, there.watch.snapshot.value)
        (reason,) = groups.of["known"].reasons
        await state.storage.acknowledgements.add("billing", "known", reason, "ada", "INC-7", now + 3600)
        there.watch.touch(["known"])
        slot = int(now - 60) * 1000
        failed = end(slot, 0, Outcome.FAILED, job="failing", failure=raised())
        missed = Misfired("failing", INSTANCES[0], slot, slot, (1,), 1, "the run before took too long", at=slot / 1000)
        await store.store.write(batch(*beginning(slot, job="failing"), failed, missed))
        await store.store.write(batch(*beginning(NOON, job="calm"), end(NOON, job="calm")))
        await store.ask()
        bulk = BulkAction("ada", "billing", "pause", ["calm", "failing"])
        state.bulk_actions.start(bulk, _one_fails)
        await bulk.ended.wait()
        return (await store.store.failures())[0].id, await state.storage.accounts.invite("vera", Role.VIEWER), bulk.id

    there.show(*jobs)
    return there.run(fill)


async def _one_fails(job: str) -> str:
    if job == "failing":
        raise InvalidSetting("job", job, "another one")
    return f"{job}: paused"


def _paths(run: str, token: str, report: str) -> list[str]:
    job = "/r/billing/job/failing"
    return [
        *("/account", "/users", "/audit", "/registries", f"/welcome/{token}", "/no/such/page"),
        *("/r/billing/jobs", "/r/billing/jobs?show=acknowledged", "/r/billing/jobs?q=nothing-is-called-so"),
        f"/r/billing/jobs/report/{report}",
        *(
            "/r/billing/servers",
            "/r/billing/servers/10.0.0.1",
            "/r/billing/servers/10.0.0.1/disable",
            "/r/billing/transfer",
        ),
        *("/r/billing/history", f"/r/billing/history/{run}", "/r/billing/history?job=none"),
        *(job, "/r/billing/job/known", "/r/billing/job/wide", f"{job}/settings", f"{job}/dump"),
        *(
            f"{job}/acknowledge?reason=errors",
            f"{job}/do/trigger",
            f"{job}/do/backfill",
            f"{job}/do/shut-down",
            f"{job}/do/remove",
        ),
    ]


def _patterns(there: Site) -> set[re.Pattern[str]]:
    """Return the addresses of all pages that the console has."""
    found = {
        one.path_regex
        for one in routes(there.console.state)
        if isinstance(one, Route) and "GET" in (one.methods or ()) and not one.path.endswith(("/live", *NO_PAGES))
    }
    assert len(found) > 15
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_page(
    there: Site, filled: tuple[str, str, str], open_page: Callable[..., Page], scheme: str
) -> None:
    page, found = open_page("/r/billing/jobs", scheme=scheme), list[str]()
    paths = _paths(*filled)
    visited = [path.partition("?")[0] for path in ("/login", *paths)]
    assert [
        one.pattern for one in _patterns(there) if not any(map(one.match, visited))
    ] == []  # a new page belongs here
    for path in paths:
        page.goto(f"{there.url}{path}")
        found += _problems(page, scheme)
    page.goto(f"{there.url}/r/billing/transfer")
    page.locator("textarea").fill('{"jobs": [{"jobName": "taken-in", "cron": "0 0 2 * * ?"}]}')
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("row", name=re.compile("taken-in"))).to_be_visible()
    found += _problems(page, scheme)
    page.goto(f"{there.url}/r/billing/jobs")
    page.get_by_label("Which jobs").select_option("found")
    page.locator("#selection").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("heading", name="Pause: 7 jobs")).to_be_visible()
    found += _problems(page, scheme)
    found += _problems(open_page("/login", name=None, scheme=scheme), scheme)
    assert not found, "\n".join(found)


def _problems(page: Page, scheme: str) -> Iterator[str]:
    """Yield what is serious on a page whose menus are open, in each of its sizes; it is loaded once."""
    expect(page.locator("main")).to_be_visible()
    for menu in page.locator("details").all():
        menu.evaluate("(one) => { one.open = true }")
    for size in SIZES[scheme]:
        page.set_viewport_size(size)
        for one in Axe().run(page).response["violations"]:
            if one["impact"] in GRAVE:
                nodes = "; ".join(f"{node['html'][:120]} {node['failureSummary'][:300]}" for node in one["nodes"][:3])
                yield f"{page.url} at {size['width']}: {one['id']} ({len(one['nodes'])}): {nodes}"
