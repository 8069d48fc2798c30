"""Fixtures for tests in a real browser: Debian's chromium, a console on a port, people who sign in, workers."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from aioelasticjob.operations import InstanceStatus, JobStatus
from tests.console.client import PASSWORD
from tests.console.site import Site, site
from tests.support.processes import ChildProcess

CHROMIUM = shutil.which("chromium")
QUIETLY = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PAGE_TIMEOUT = 90_000
"""Milliseconds until something that should be on a page has not come."""

in_a_browser = [
    pytest.mark.process,
    pytest.mark.usefixtures("nothing_goes_wrong_unseen"),
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    expect.set_options(timeout=PAGE_TIMEOUT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIETLY)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One console for all tests of this file; its operator is Ada, its viewer Vera."""
    with site(tmp_path_factory.mktemp("console")) as found:
        yield found


@pytest.fixture(scope="module")
def ada(chromium: Browser, there: Site) -> None:
    """The operator, who has set the first password."""
    first_password(chromium, there)


@pytest.fixture
def open_page(chromium: Browser, there: Site, ada: None) -> Iterator[Callable[..., Page]]:
    """Opens pages as somebody until the test ends; what goes wrong in any of them fails the test."""
    opened: list[BrowserContext] = []

    def open_it(path: str, *, name: str | None = "ada", width: int = 1280, scheme: str = "light") -> Page:
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
        )
        opened.append(context)
        page = context.new_page()
        page.set_default_timeout(PAGE_TIMEOUT)
        page.on("pageerror", lambda error: _messages.append(str(error)))
        page.on("console", lambda said: _messages.append(said.text) if said.type == "error" else None)
        if name is None:
            page.goto(f"{there.url}{path}")
        else:
            sign_in(page, f"{there.url}/login?next={path}", name, PASSWORD)
            expect(page).not_to_have_url(re.compile("/login"))  # the click does not wait for the page that follows
        return page

    yield open_it
    for context in opened:
        context.close()


_messages: list[str] = []


@pytest.fixture
def nothing_goes_wrong_unseen() -> Iterator[None]:
    """Scripts that fail and contents that the policy refuses are shown on the browser's console."""
    _messages.clear()
    yield
    refused = re.compile(
        r"status (of )?(400|401|403|404|409|503)|ERR_INTERNET_DISCONNECTED|ERR_INCOMPLETE_CHUNKED|Failed to fetch"
    )  # what a test does on purpose
    wrong = [said for said in _messages if not refused.search(said)]
    assert not wrong, wrong


@pytest.fixture
def workers(there: Site, tmp_path: Path) -> Iterator[Callable[..., ChildProcess]]:
    """Starts instances of the job; what is left of them is killed, and seen to be gone."""
    started: list[ChildProcess] = []

    def instances(jobs: Mapping[str, JobStatus]) -> Sequence[InstanceStatus]:
        return jobs["report"].instances if "report" in jobs else ()

    def start(*options: str) -> ChildProcess:
        command = [sys.executable, "-m", "tests.console.worker", there.registry, *options]
        process = ChildProcess(command, tmp_path / f"worker{len(started)}.log")
        started.append(process)
        there.until(lambda jobs: any(one.pid == process.pid for one in instances(jobs)) and jobs["report"].settled)
        return process

    yield start
    for process in started:
        if process.exit_code is None:
            process.terminate()  # in good order: that is quicker than a session's end
    there.until(lambda jobs: not instances(jobs))


def first_password(chromium: Browser, there: Site) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.goto(there.invitation)
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("The same again").fill(PASSWORD)
    page.get_by_role("button", name="Set the password").click()
    expect(page).to_have_url(re.compile("/(jobs|registries)$"))
    context.close()


def sign_in(page: Page, address: str, name: str, password: str) -> None:
    page.goto(address)
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
