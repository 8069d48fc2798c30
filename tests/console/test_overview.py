"""The jobs page: which jobs it shows in which order and groups, seen in a real browser."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from playwright.sync_api import Page, expect

from aioelasticjob.console.pages.job_query import MOST, JobGroup, JobQuery
from aioelasticjob.console.watching.health import HealthGroups
from aioelasticjob.operations import JobStatus
from aioelasticjob.operations.observed_runs import ObservedRun
from tests.console.browsing import in_a_browser
from tests.console.samples import ended, item, status
from tests.console.site import Site

pytestmark = in_a_browser


def _labelled(now: float) -> tuple[JobStatus, ...]:
    return (
        status("a-report", (item(0),), now=now, labels={"team": "sales"}),
        status("b-invoice", (item(0),), now=now, labels={"team": "billing", "tier": "gold"}),
        status("c-refund", (item(0),), now=now, labels={"team": "billing"}),
        status("d-plain", (item(0),), now=now),
    )


def _names(page: Page) -> list[str]:
    return [text.split()[0] for text in page.locator("#jobs tr.job th[scope=row] > a").all_inner_texts()]


def test_jobs_are_filtered_and_grouped_by_labels_and_the_groups_follow_what_changes(
    there: Site, open_page: Callable[..., Page]
) -> None:
    now = there.clock.now()
    jobs = _labelled(now)
    there.show(*jobs)
    page = open_page("/r/billing/jobs")
    page.get_by_role("link", name="team=billing").first.click()
    expect(page.locator("#jobs tr.job")).to_have_count(2)
    assert _names(page) == ["b-invoice", "c-refund"]
    page.get_by_role("link", name="Without this filter").click()
    expect(page.locator("#jobs tr.job")).to_have_count(4)
    page.get_by_label("Group by label").select_option("team")
    headings = page.locator("#jobs tr.group")
    expect(headings).to_have_text(["team=billing 2 jobs", "team=sales 1 job", "without the label team 1 job"])
    assert _names(page) == ["b-invoice", "c-refund", "a-report", "d-plain"]
    there.show(*jobs[:3], status("d-plain", (item(0),), now=now, labels={"team": "sales"}))
    expect(headings).to_have_text(["team=billing 2 jobs", "team=sales 2 jobs"])
    page.get_by_label("Group by label").select_option("")
    expect(headings).to_have_count(0)
    page.locator("#jobs").get_by_role("link", name="b-invoice").click()
    page.locator("#job-head").get_by_role("link", name="tier=gold").click()
    expect(page.locator("#jobs tr.job")).to_have_count(1)
    there.show()


def test_what_is_typed_is_found_at_once_stays_live_and_has_an_address(
    there: Site, open_page: Callable[..., Page]
) -> None:
    now = there.clock.now()
    jobs = _labelled(now)
    there.show(*jobs)
    page = open_page("/r/billing/jobs?sort=-name")
    page.evaluate("() => { window.stayed = true }")
    search = page.get_by_label("Find a job")
    search.press_sequentially("BILLING")
    expect(page.locator("#jobs tr.job")).to_have_count(2)
    assert _names(page) == ["c-refund", "b-invoice"]
    expect(page).to_have_url(re.compile(r"/r/billing/jobs\?q=BILLING&sort=-name$"))
    expect(search).to_be_focused()
    more = status("e-late", (item(0),), now=now, description="the billing of late payers")
    there.show(*jobs, more)  # the stream is that of what was typed
    expect(page.locator("#jobs tr.job")).to_have_count(3)
    expect(page.locator("#tiles a").first).to_contain_text("5")
    page.get_by_label("Group by label").select_option("team")
    expect(page.locator("#jobs tr.group")).to_have_text(["team=billing 2 jobs", "without the label team 1 job"])
    search.fill("no such job")
    expect(page.locator("#jobs")).to_contain_text("No job is like that.")
    search.fill("")
    expect(page.locator("#jobs tr.job")).to_have_count(5)
    assert page.evaluate("() => window.stayed")
    page.reload()
    expect(page.locator("#jobs tr.group")).to_have_count(3)
    there.show()


def test_jobs_are_sorted_by_each_column_and_turned_around_by_a_second_click(
    there: Site, open_page: Callable[..., Page]
) -> None:
    now = there.clock.now()
    quick, slow = ended("completed", now - 10, 1.0), ended("completed", now - 60, 9.0)
    there.show(
        status("a-slow", (item(0, record=slow),), now=now, cron="0 0 2 1 1 ?"),
        status("b-quick", (item(0, record=quick), item(1)), now=now, cron="* * * * * ?"),
        status("c-never", (item(0), item(1), item(2)), now=now),
    )
    page = open_page("/r/billing/jobs")

    def chosen(column: str, direction: str) -> list[str]:
        head = page.locator("#jobs thead th").filter(has_text=column)
        head.get_by_role("link", name=column).click()
        expect(head).to_have_attribute("aria-sort", direction)
        expect(page.locator("#jobs th[aria-sort]")).to_have_count(1)
        return [name[0] for name in _names(page)]

    assert chosen("Job", "ascending") == ["a", "b", "c"]
    assert chosen("Job", "descending") == ["c", "b", "a"]
    assert chosen("Next fire", "ascending") == ["b", "a", "c"]
    assert chosen("Next fire", "descending") == ["a", "b", "c"]
    assert chosen("Last run", "descending") == ["b", "a", "c"]
    assert chosen("Last run", "ascending") == ["a", "b", "c"]
    assert chosen("Durations", "descending") == ["a", "b", "c"]
    assert chosen("Items by instance", "descending") == ["c", "b", "a"]
    assert chosen("Job", "ascending") == ["a", "b", "c"]
    there.show()


def test_the_worst_job_comes_first_until_another_order_is_chosen(there: Site, open_page: Callable[..., Page]) -> None:
    now = there.clock.now()
    flaky = [ObservedRun(0, n, n, "SCHEDULE", "failed" if n % 3 == 0 else "completed", "") for n in range(10)]
    there.show(
        status("a-well", (item(0),), now=now),
        status("b-flaky", (item(0, record=ended("completed", now)),), now=now),
        status("c-failing", (item(0, record=ended("failed", now)),), now=now),
        status("d-nobody", (item(0),), now=now, instances=()),
    )

    async def fail() -> None:
        there.watch.runs["b-flaky"] = deque(flaky)
        there.watch.touch(["b-flaky"])

    there.run(fail)
    page = open_page("/r/billing/jobs")
    expect(page.locator("#jobs tr.job")).to_have_count(4)
    assert [name[0] for name in _names(page)] == ["d", "c", "b", "a"]
    expect(page.get_by_role("link", name="the worst first")).to_have_attribute("aria-current", "true")
    page.locator("#jobs thead").get_by_role("link", name="Job").click()
    expect(page).to_have_url(re.compile("sort=name"))
    assert [name[0] for name in _names(page)] == ["a", "b", "c", "d"]
    page.get_by_role("link", name="the worst first").click()
    expect(page).not_to_have_url(re.compile("sort=name"))
    assert [name[0] for name in _names(page)] == ["d", "c", "b", "a"]
    there.show()


def test_a_group_that_spans_two_pages_keeps_its_heading_and_its_count(there: Site) -> None:
    jobs = [status(f"job-{number}", now=0, labels={"team": "b" if number else "a"}) for number in range(5)]
    there.show(*jobs)
    snapshot = there.watch.snapshot.value
    health = HealthGroups(there.watch, there.clock).update(snapshot)
    query = JobQuery(by="team", size=3, page=2)
    assert query.groups(query.found(snapshot, health)) == [JobGroup("b", 4, ("job-3", "job-4"))]
    first = JobQuery(by="team", size=3)
    assert first.groups(first.found(snapshot, health)) == [
        JobGroup("a", 1, ("job-0",)),
        JobGroup("b", 4, ("job-1", "job-2")),
    ]
    there.show()


def test_nonsense_in_an_address_means_the_usual_size_and_a_page_that_is_there() -> None:
    for wrong in ("-1", "0", "x", "1.5", "", "²"):
        assert JobQuery.of({"size": wrong, "page": wrong}) == JobQuery()
    assert JobQuery.of({"size": "123456789", "page": "99999"}) == JobQuery(size=MOST, page=99_999)
    jobs = [status(f"job-{number}", now=0) for number in range(5)]
    for page in (3, 99_999):
        assert JobQuery(size=2, page=page).groups(jobs) == [JobGroup(None, None, ("job-4",))]
    assert JobQuery(page=7).groups([]) == []


def test_a_page_behind_the_last_one_is_the_last_one(there: Site, open_page: Callable[..., Page]) -> None:
    there.show(*(status(f"job-{number}", now=0) for number in range(5)))
    page = open_page("/r/billing/jobs")
    page.goto(f"{there.url}/r/billing/jobs?size=2&page=99999")
    expect(page.get_by_text("page 3 of 3")).to_be_visible()
    assert _names(page) == ["job-4"]
    page.get_by_role("link", name="Back").click()
    expect(page.get_by_text("page 2 of 3")).to_be_visible()
    there.show()
