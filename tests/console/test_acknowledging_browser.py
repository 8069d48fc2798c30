"""In a real browser: somebody acknowledges why a job needs attention, and a new reason brings it back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from aioelasticjob.operations import JobStatus
from tests.console.browsing import in_a_browser
from tests.console.samples import item, status
from tests.console.site import Site

pytestmark = in_a_browser


def _cut_off(there: Site, *items: int) -> JobStatus:
    """Return a job some of whose three items are cut off."""
    now = there.clock.now()
    return status("report", tuple(item(number, orphaned=number in items) for number in range(3)), now=now)


def test_an_acknowledged_job_is_no_longer_among_those_that_need_attention_until_its_reason_is_a_new_one(
    there: Site, open_page: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, publish = [_cut_off(there, 1)], there.watch._publish
    monkeypatch.setattr(there.watch, "_publish", lambda _: publish(tuple(shown)))  # whatever the registry holds
    there.show(*shown)
    watching = open_page("/r/billing/jobs?show=attention")
    row = watching.locator("#jobs tr.job")
    expect(row).to_contain_text("cut off")
    page = open_page("/r/billing/jobs?show=attention")
    page.locator("#jobs").get_by_role("link", name="report").click()
    page.get_by_role("link", name="Acknowledge").click()
    page.get_by_label("Note: what is known, and what is done about it").fill("INC-7: Grace looks at it")
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.locator("#notices")).to_have_text("Acknowledged: it needs no attention until then.")
    expect(page.locator("#job-head")).to_contain_text("INC-7: Grace looks at it")
    expect(row).to_have_count(0)  # seen without loading the page anew
    expect(watching.locator("#jobs")).to_contain_text("No job is like that.")
    page.goto(f"{there.url}/r/billing/jobs")
    page.locator("#tiles").get_by_role("link", name="acknowledged").click()
    expect(page.locator("#jobs tr.job")).to_contain_text("acknowledged by ada until")
    expect(page.locator("#jobs tr.job")).to_contain_text("INC-7: Grace looks at it")
    shown[:] = [_cut_off(there, 1, 2)]  # another item is another reason
    there.show(*shown)
    expect(row).to_contain_text("cut off")
    expect(watching.locator("#tiles .t-attention")).to_contain_text("1")
    expect(page.locator("#jobs")).to_contain_text("No job is like that.")
