"""In a real browser: somebody chooses a handler, fills in its form, and sees the job run."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from playwright.sync_api import Page, expect

from tests.console.browsing import in_a_browser
from tests.console.site import Site
from tests.support.processes import ChildProcess

pytestmark = in_a_browser

WORKER = """
    import sys

    from pydantic import BaseModel

    from aioelasticjob import ElasticJob, ItemContext

    app = ElasticJob(sys.argv[1])


    class Report(BaseModel):
        tenant: int
        recipient: str = "office@example.org"


    @app.handler("report", parameter=Report)
    async def report(context: ItemContext) -> None: ...


    app.run()
"""


@pytest.fixture
def worker(there: Site, tmp_path: Path) -> Iterator[ChildProcess]:
    """A process with the handler."""
    program = tmp_path / "worker.py"
    program.write_text(dedent(WORKER))
    process = ChildProcess([sys.executable, str(program), there.registry], tmp_path / "worker.log")
    yield process
    process.terminate()


def test_a_job_for_a_tenant_is_made_in_a_form(open_page: Callable[..., Page], worker: ChildProcess) -> None:
    page = open_page("/r/billing/jobs")
    page.get_by_role("link", name="New job").click()
    choice = page.get_by_role("link", name="report", exact=True)
    while not choice.count():  # the process starts
        page.reload()
    choice.click()
    page.get_by_label("Name", exact=True).fill("report-17")
    page.get_by_label("Cron", exact=True).fill("* * * * * ?")
    expect(page.get_by_label("Recipient", exact=True)).to_have_value("office@example.org")
    page.get_by_label("Tenant", exact=True).fill("0.5")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert")).to_contain_text("no process with the handler report takes it")
    page.get_by_label("Tenant", exact=True).fill("17")
    page.get_by_role("button", name="Create").click()
    expect(page).to_have_url(re.compile("/r/billing/job/report-17"))
    expect(page.locator("#row-0")).to_contain_text("completed")
