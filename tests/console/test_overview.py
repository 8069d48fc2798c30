"""The jobs page: which jobs it shows in which order and groups, seen in a real browser."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from aioelasticjob.console.health import HealthGroups
from aioelasticjob.console.job_query import JobGroup, JobQuery
from aioelasticjob.operations import JobStatus
from tests.console.browsing import in_a_browser
from tests.console.samples import item, status
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
