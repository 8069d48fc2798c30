"""In a real browser: what a page says of jobs is so, and all of it is there."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from aioelasticjob import operations
from aioelasticjob.events import Misfired
from aioelasticjob.model import Outcome, Owing, Record
from aioelasticjob.operations.observed_runs import ObservedRun
from tests.console.browsing import in_a_browser
from tests.console.samples import INSTANCES, ended, item, status
from tests.console.site import Site, site
from tests.observers.sample_events import ME, NOON, batch, beginning, end
from tests.support.processes import ChildProcess

pytestmark = in_a_browser


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("console")
    with site(data, event_store=f"sqlite:///{data / 'events.db'}") as found:
        yield found


IN_VIEW = """(selector) => {
  const row = document.querySelector(selector);
  if (!row) return false;
  row.scrollIntoView({ block: "center" });
  const { top, bottom, height } = row.getBoundingClientRect();
  return height > 0 && top >= 0 && bottom <= innerHeight;
}"""
"""Scroll there: how far that is is known when what lies between has been laid out."""


def test_what_fails_or_misfires_needs_attention_and_what_is_switched_off_does_not_count_down(
    there: Site, open_page: Callable[..., Page]
) -> None:
    now = there.clock.now()
    cron = {"cron": "0 0 2 * * ?", "now": now}
    there.show(
        status("calm", (item(0, record=ended("completed", now)),), **cron),
        status("failing-job", (item(0, record=ended("failed", now)),), **cron),
        status("misfiring-job", (item(0, record=_missed(now)),), **cron),
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
    expect(page.get_by_role("row", name=re.compile("failing-job"))).to_contain_text(
        "failing, at least 1 in a row (items: 0)"
    )
    expect(page.get_by_role("row", name=re.compile("failing-job")).locator(".next time")).to_have_count(1)
    expect(page.get_by_role("row", name=re.compile("off")).locator(".next time")).to_have_count(0)
    expect(page.locator("#tiles .t-attention b")).to_have_text("2")
    page.get_by_role("link", name=re.compile("off")).last.click()
    expect(page.locator("#job-head")).to_contain_text("none while it is switched off")
    expect(page.locator("#job-head time[data-until]")).to_have_count(0)


def _missed(now: float) -> Record:
    at = int(now * 1000)
    owing = Owing(INSTANCES[0], at, at - 2000, at, 3, "the last run was still going on")
    return replace(ended("completed", now), owing=(owing,))


def test_a_job_whose_runs_take_longer_than_its_interval_needs_attention(
    there: Site, open_page: Callable[..., Page]
) -> None:
    now = there.clock.now()
    there.show(status("slow", (item(0, record=ended("completed", now)),), now=now))
    for begun in (now - 60, now - 30, now):
        late = replace(ended("completed", begun), source="MISFIRE")
        there.show(
            status("late", (item(0, record=late),), now=now),
            status("slow", (item(0, record=ended("completed", now)),), now=now),
        )
    page = open_page("/r/billing/jobs")
    expect(page.get_by_role("row", name=re.compile("late"))).to_contain_text("3 of the last 3 runs began late")
    there.wait(lambda: there.watch.store is not None)
    watch = there.watch.store
    assert watch is not None
    at = int(now * 1000)

    async def misfire() -> None:
        await watch.store.write(
            batch(Misfired("slow", ME, at - 2000, at, (0,), 3, "the last run was still going on", at=now))
        )
        await watch.ask()

    there.run(misfire)
    expect(page.get_by_role("row", name=re.compile("slow"))).to_contain_text("missed moments: 3")
    expect(page.locator("#tiles .t-attention b")).to_have_text("2")


def test_all_times_that_are_shown_or_typed_are_in_the_one_time_zone_that_was_chosen(
    there: Site, open_page: Callable[..., Page]
) -> None:
    now = there.clock.now()
    there.show(status("daily", (item(0),), now=now, cron="0 30 2 * * ?"))
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


def test_all_of_300_items_are_there_and_follow_what_changes(there: Site, open_page: Callable[..., Page]) -> None:
    now = there.clock.now()
    items = tuple(item(number, INSTANCES[number // 100]) for number in range(300))
    there.show(status("wide", items, now=now, instances=INSTANCES))
    page = open_page("/r/billing/job/wide")
    expect(page.locator(".lane .tile")).to_have_count(300)
    for lane in range(3):
        expect(page.locator(f"#lane-{lane} .tile")).to_have_count(100)
    expect(page.locator("#job-items tbody tr")).to_have_count(300)
    page.wait_for_function("() => document.querySelector('.live')?._htmx?.sse?.reader")
    page.evaluate("() => { document.querySelector('#row-5').untouched = true }")
    failed = replace(items[299], record=ended("failed", now))
    there.show(status("wide", (*items[:299], failed), now=now, instances=INSTANCES))
    expect(page.locator("#row-299")).to_contain_text("failed")
    assert page.evaluate("() => document.querySelector('#row-5').untouched")  # the others were not sent again
    page.wait_for_function(IN_VIEW, arg="#row-299")
    moved = replace(items[0], holder=INSTANCES[2])
    there.show(status("wide", (moved, *items[1:299], failed), now=now, instances=INSTANCES))
    expect(page.locator("#lane-2 #item-0")).to_be_visible()
    expect(page.locator(".lane .tile")).to_have_count(300)


def test_seven_days_of_many_runs_are_a_heat_map_that_leads_to_single_runs(
    there: Site, open_page: Callable[..., Page]
) -> None:
    now = there.clock.now()
    there.show(status("busy", (item(0), item(1)), now=now, cron="0 * * * * ?"))
    begun = [int((now - 60 * n) * 1000) for n in range(9000)]
    runs = [ObservedRun(n % 2, at, at + 500, "SCHEDULE", "completed", "") for n, at in enumerate(begun)]
    there.watch.runs["busy"] = deque(reversed(runs))
    page = open_page("/r/billing/job/busy?span=7d")
    timeline = page.locator("#job-timeline")
    expect(timeline).to_contain_text("9,000 runs counted by time and items")
    first = timeline.locator("a[aria-label*='runs']").first
    expect(first).to_be_attached()
    columns = timeline.locator(".column").count()
    assert columns > 60  # six of seven days were blank: only the newest 3,000 runs were asked for
    first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("This window stands still")).to_be_visible()
    expect(timeline).to_contain_text(re.compile(r"\d+ runs in this window"))
    expect(timeline.locator("rect.ok").first).to_be_attached()
    shown = page.locator("#job-timeline").inner_text()
    page.get_by_role("link", name="Earlier").click()
    expect(timeline).not_to_have_text(shown)
    page.get_by_role("link", name="Zoom out").click()
    page.get_by_label("From").fill("2026-01-01T00:00:00")
    page.get_by_label("Until").fill("2026-01-02T00:00:00")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(timeline).to_contain_text("0 runs in this window")


def test_a_stretch_of_the_timeline_is_chosen_by_dragging(there: Site, open_page: Callable[..., Page]) -> None:
    now = there.clock.now()
    there.show(status("busy", (item(0), item(1)), now=now, cron="0 * * * * ?"))
    page = open_page("/r/billing/job/busy")
    page.goto(f"{there.url}/r/billing/job/busy?from=1700000000&to=1700010000&items=0-1")
    page.locator("svg.timeline").scroll_into_view_if_needed()
    box = page.locator("svg.timeline").bounding_box()
    assert box is not None
    left, width, middle = box["x"] + 0.062 * box["width"], 0.938 * box["width"], box["y"] + box["height"] / 2

    def drag(begin: float, end: float) -> None:
        page.mouse.move(left + begin * width, middle)
        page.mouse.down()
        page.mouse.move(left + (begin + end) / 2 * width, middle)
        page.mouse.move(left + end * width, middle)

    drag(0.75, 0.25)  # also backwards
    expect(page.locator("#stretch")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#stretch")).not_to_be_visible()
    page.mouse.up()
    expect(page).to_have_url(re.compile("from=1700000000&to=1700010000"))
    drag(0.75, 0.25)
    page.mouse.up()
    expect(page.get_by_label("From")).not_to_have_value("2023-11-14T22:13:20")
    query = parse_qs(urlsplit(page.url).query)
    assert abs(int(query["from"][0]) - 1_700_002_500) <= 20  # a pixel is ten seconds
    assert abs(int(query["to"][0]) - 1_700_007_500) <= 20
    assert query["items"] == ["0-1"]
    expect(page.get_by_label("From")).to_have_value(re.compile(r"2023-11-14T22:5[45]"))


def test_on_a_phone_the_timeline_opens_at_now(there: Site, open_page: Callable[..., Page]) -> None:
    there.show(status("busy", (item(0),), now=there.clock.now(), cron="0 * * * * ?"))
    page = open_page("/r/billing/job/busy", width=390)
    page.wait_for_function("() => document.querySelector('#drawing')?.scrollLeft > 0")
    assert page.locator("#drawing").evaluate("(one) => one.scrollWidth - one.clientWidth - one.scrollLeft") <= 1
    legend = page.locator("#job-timeline .legend").bounding_box()
    assert legend is not None
    assert legend["x"] > 0  # it stays where it is


@pytest.mark.parametrize(
    ("path", "table", "button"),
    [
        ("/r/billing/servers", "#servers", "Disable"),
        ("/r/billing/servers/10.0.0.1", "#server-jobs", "Disable"),
        ("/r/billing/job/busy", "#job-items", "Disable"),
        ("/r/billing/job/busy", "#job-instances", "Shut down"),
        ("/r/billing/job/busy", "#job-instances", "Pause"),
        ("/r/billing/history", "#history-runs", None),
        ("/registries", "#registries", None),
        ("/users", "main table:not(.roles)", "New password"),
        ("/audit", ".audit", None),
    ],
)
def test_on_a_phone_rows_are_stacked_so_that_their_actions_are_in_view(
    there: Site, open_page: Callable[..., Page], path: str, table: str, button: str | None
) -> None:
    there.show(status("busy", (item(0), item(1)), now=there.clock.now()))
    page = open_page(path, width=390)
    shown = page.locator(table)
    expect(shown).to_be_visible()
    assert shown.evaluate("(one) => one.closest('.scroll').scrollWidth <= one.closest('.scroll').clientWidth")
    if button is not None:
        action = shown.get_by_text(button, exact=True).first
        expect(action).to_be_visible()
        box = action.bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 390


def test_an_import_is_previewed_job_by_job_written_as_previewed_and_audited(
    there: Site, open_page: Callable[..., Page]
) -> None:
    old, new = (json.dumps({"jobs": [{"jobName": "taken-in", "cron": f"0 0 {hour} * * ?"}]}) for hour in (2, 3))
    there.run(lambda: operations.import_jobs(there.watch.session, old))
    page = open_page("/r/billing/transfer")
    page.locator("textarea").fill(new)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("1 refused")).to_be_visible()
    page.get_by_role("switch").check()
    page.get_by_role("button", name="Preview").click()
    row = page.get_by_role("row", name=re.compile("taken-in"))
    expect(row.locator("del")).to_have_text("0 0 2 * * ?")
    expect(row.locator("ins")).to_have_text("0 0 3 * * ?")
    there.run(lambda: operations.configure(there.watch.session, "taken-in", {"cron": "0 0 4 * * ?"}))
    page.get_by_role("button", name="Import these changes").click()
    expect(page.get_by_role("alert")).to_contain_text("nothing was written")
    expect(row.locator("del")).to_have_text("0 0 4 * * ?")
    page.get_by_role("button", name="Import these changes").click()
    expect(page.get_by_role("status").filter(has_text="1 replaced")).to_be_visible()
    page.goto(f"{there.url}/audit")
    entry = page.get_by_role("row", name=re.compile("import")).first
    expect(entry).to_contain_text("taken-in: cron: 0 0 4 * * ? → 0 0 3 * * ?")


def test_outcome_tiles_keep_the_filters_and_moments_are_typed_in_the_zone_that_is_shown(
    there: Site, open_page: Callable[..., Page]
) -> None:
    there.wait(lambda: there.watch.store is not None)

    async def fill() -> None:
        assert there.watch.store is not None
        for number, outcome in enumerate((Outcome.COMPLETED, Outcome.FAILED, Outcome.COMPLETED)):
            slot = NOON + 1000 * number
            await there.watch.store.store.write(batch(*beginning(slot, number), end(slot, number, outcome)))

    there.run(fill)
    page = open_page("/login", name="ada")
    page.context.add_cookies([{"name": "aioej_zone", "value": "Asia%2FShanghai", "url": there.url}])
    page.goto(f"{there.url}/r/billing/history?job=report&since=2027-01-15T16:00&until=2027-01-15T16:01")
    rows = page.locator("main table tbody tr")
    expect(rows).to_have_count(3)  # 08:00 in UTC
    expect(rows.first.locator("time")).to_contain_text("GMT+8")
    page.locator(".tiles a", has_text="completed").click()
    expect(rows).to_have_count(2)
    expect(page.get_by_label("From (Asia/Shanghai)")).to_have_value("2027-01-15T16:00")
    expect(page.get_by_label("Job", exact=True)).to_have_value("report")


def test_a_killed_worker_is_on_the_health_strip_and_its_job_says_that_nobody_is_there(
    there: Site, open_page: Callable[..., Page], workers: Callable[..., ChildProcess]
) -> None:
    worker = workers()
    empty = sum(not job.instances for job in there.watch.snapshot.value.jobs.values())
    page = open_page("/r/billing/jobs")
    strip = page.locator("#strip")
    expect(strip).to_contain_text("connected")
    expect(strip).to_contain_text("1 there")
    gone = len(there.watch.instances.gone)
    nobody = strip.locator("div", has=page.get_by_text("Nobody there", exact=True))
    expect(nobody).to_contain_text(re.compile(rf"^Nobody there{empty} jobs?"))
    worker.kill()
    expect(strip).to_contain_text(f"0 there, {gone + 1} gone")
    expect(nobody).to_contain_text(re.compile(rf"^Nobody there{empty + 1} jobs?"))
    expect(page.get_by_role("row", name=re.compile("report"))).to_contain_text("nobody is there to run it")
    page.goto(page.url.replace("/jobs", "/job/report"))
    expect(page.locator("#row-0 [data-label='Held by']")).to_contain_text(
        "gone"
    )  # until its items are given to another


def test_the_health_strip_counts_what_failed_and_names_the_last_rescue(
    there: Site, open_page: Callable[..., Page]
) -> None:
    now = there.clock.now()
    rescued = replace(ended("completed", now), source="FAILOVER")
    page = open_page("/r/billing/jobs")
    strip = page.locator("#strip")
    there.show(status("rescued", (item(7, record=rescued),), now=now))
    expect(strip.locator("div", has=page.get_by_text("Last rescue", exact=True))).to_contain_text("rescued, item 7")
    expect(strip.locator("div", has=page.get_by_text("Event store", exact=True))).to_contain_text("answers")
    expect(strip.locator("div", has=page.get_by_text("Last hour", exact=True))).to_contain_text(
        "counted by the event store"
    )
