"""``python -m tests.console.screenshots [DIRECTORY]``: pictures of the console, for the documentation.

It runs a console, an embedded registry and three processes with a shop's jobs for some minutes, and kills one of them.
``--every`` takes each page instead, of jobs that are made up, on a screen and on a phone, in both themes: to look at.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, expect, sync_playwright

from aioelasticjob.console.users.permissions import Role
from tests.console.browsing import QUIETLY, first_password, sign_in
from tests.console.client import PASSWORD
from tests.console.every_page import fill, paths_of
from tests.console.site import Site, site
from tests.support.processes import ROOT, ChildProcess

IMAGES: Final = ROOT / "docs" / "images"
JOB: Final = "/r/billing/job/order-sync"
BEFORE_THE_KILL, AFTER_IT = 100, 40
"""Seconds that the jobs run."""
LOOKS: Final = (("light", "light", "en-GB"), ("dark", "dark", "en-GB"), ("chinese", "light", "zh-CN"))
"""Each with a name, the colours and the browser's language."""
SCREEN, PHONE = 1400, 390
"""Widths in pixels."""
PATIENCE: Final = 180_000
"""Milliseconds that a page may take: the machine may be busy."""
WITHOUT_OUR_PATHS: Final = """
(texts, root) => texts.forEach(one => { one.textContent = one.textContent.replaceAll(root, '/srv/shop') })
"""
"""A script for the browser: stacks name no directory of whoever takes the pictures."""


def main(directory: Path) -> None:
    """Take the pictures."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        store = f"sqlite:///{place}/events.db"
        with site(Path(place) / "data", event_store=store) as there:
            workers = [_worker(there, store, seed, Path(place)) for seed in range(3)]
            alert = ["-m", "aioelasticjob", "alert", "--registry", there.registry]
            others = [ChildProcess([sys.executable, *alert], Path(place) / "alert.log")]
            try:
                chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=QUIETLY)
                _take(chromium, there, workers[1], directory)
                chromium.close()
            finally:
                for process in (*workers, *others):
                    process.kill()


def every(directory: Path) -> None:
    """Take each page in both widths, in both themes and in Chinese."""
    directory.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,
        sync_playwright() as playwright,
        site(Path(place), event_store=f"sqlite:///{place}/events.db", allowed_addresses=("zk://*",)) as there,
    ):
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=QUIETLY)
        first_password(chromium, there)
        paths = paths_of(fill(there))
        entrance = _page(chromium, SCREEN)
        sign_in(entrance, f"{there.url}/login", "ada", PASSWORD)
        expect(entrance).to_have_url(re.compile("/(jobs|registries)$"))
        signed_in = entrance.context.storage_state()
        for look, scheme, language in LOOKS:
            _take_widths(
                _page(chromium, SCREEN, scheme=scheme, language=language),
                *(f"{there.url}/login", directory, f"login-{look}"),
            )
            page = _page(chromium, SCREEN, scheme=scheme, language=language, state=signed_in)
            for number, path in enumerate(paths):
                name = re.sub(r"\W+", "-", re.sub("/r/(billing|real)|[0-9A-Za-z_-]{12,}", "", path)).strip("-")
                _take_widths(page, f"{there.url}{path}", directory, f"{number:02}-{name}-{look}")
        chromium.close()


def _take_widths(page: Page, address: str, directory: Path, name: str) -> None:
    for width in (SCREEN, PHONE):
        page.set_viewport_size({"width": width, "height": 860})
        page.goto(address)
        _shoot(page, directory / f"{name}-{width}.png", whole=True)


def _worker(there: Site, store: str, seed: int, place: Path) -> ChildProcess:
    words = ["-m", "tests.console.showcase", there.registry, store, str(seed)]
    return ChildProcess([sys.executable, *words], place / f"worker{seed}.log")


def _take(chromium: Browser, there: Site, victim: ChildProcess, directory: Path) -> None:
    page = _page(chromium, SCREEN)
    page.goto(there.invitation)
    _shoot(page, directory / "welcome.png")
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("The same again").fill(PASSWORD)
    page.get_by_role("button", name="Set the password").click()
    expect(page).to_have_url(re.compile("/jobs$"))
    there.until(lambda jobs: "order-sync" in jobs and len(jobs["order-sync"].instances) == 3)
    page.goto(f"{there.url}/r/billing/job/index-rebuild")
    page.get_by_role("button", name="Run now").first.click()
    time.sleep(BEFORE_THE_KILL)  # real processes work for real seconds
    there.until(lambda jobs: len(jobs["order-sync"].running) == 8)  # so that something is cut off
    time.sleep(0.5)
    victim.kill()
    time.sleep(AFTER_IT)
    cookies = page.context.storage_state()
    _pages(page, there, directory)
    for name, width, height, scheme in (("phone", 390, 844, "dark"), ("wall", 1920, 1080, "dark")):
        other = _page(chromium, width, height, scheme, cookies)
        other.goto(f"{there.url}/r/billing/jobs")
        _shoot(other, directory / f"overview-{name}.png")
        other.goto(f"{there.url}{JOB}")
        _shoot(other, directory / f"job-{name}.png")
        other.goto(f"{there.url}/r/billing/alerts")
        _shoot(other, directory / f"alerts-{name}.png")
    for scheme in ("light", "dark"):
        shown = _page(chromium, 1280, 900, scheme, cookies)
        shown.goto(f"{there.url}{JOB}")
        _shoot(shown, directory / f"readme-job-{scheme}.png")
    chinese = _page(chromium, SCREEN, state=cookies, language="zh-CN")
    chinese.goto(f"{there.url}/r/billing/jobs")
    _shoot(chinese, directory / "overview-chinese.png")
    page.context.clear_cookies()
    page.goto(f"{there.url}/login")
    _shoot(page, directory / "login.png")


def _pages(page: Page, there: Site, directory: Path) -> None:
    def take(name: str, path: str, prepare: Callable[[], object] = lambda: None, *, whole: bool = True) -> None:
        page.goto(f"{there.url}{path}")
        prepare()
        _shoot(page, directory / f"{name}.png", whole=whole)

    def change() -> None:
        page.get_by_label("Cron", exact=True).fill("0/20 * * * * ?")
        page.get_by_label("Number of items").fill("6")
        expect(page.locator("#preview .changes li")).to_have_count(2)

    take("overview", "/r/billing/jobs", whole=False)
    take("job", JOB)
    take("settings", f"{JOB}/settings", change, whole=False)
    _calendar(page, there, directory)
    take("servers", "/r/billing/servers", whole=False)
    take("alerts", "/r/billing/alerts", whole=False)
    take("history", "/r/billing/history?job=order-sync", whole=False)
    page.goto(f"{there.url}/r/billing/history?outcome=failed")
    page.locator("tbody a").first.click()
    _shoot(page, directory / "run.png")
    take("dump", "/r/billing/job/nightly-report/dump?masked=1", whole=False)
    take("registries", "/registries", whole=False)
    take("transfer", "/r/billing/transfer", whole=False)
    take("confirm", f"{JOB}/do/shut-down", whole=False)
    page.goto(f"{there.url}/users")
    page.get_by_label("Name").fill("grace")
    page.locator("form.grid select[name=role]").select_option(Role.VIEWER.value)
    page.get_by_role("button", name="Make a one-time link").click()
    _shoot(page, directory / "users.png")
    page.goto(f"{there.url}/r/billing/job/nightly-report")
    page.get_by_role("button", name="Pause").first.click()
    page.get_by_role("button", name="Resume").first.click()
    expect(page.get_by_role("status").filter(has_text="nightly-report")).to_be_visible()
    take("audit", "/audit", whole=False)
    take("account", "/account", whole=False)


def _calendar(page: Page, there: Site, directory: Path) -> None:
    """Take the page of a calendar, and the settings of a job that is to heed it, with their preview."""
    page.goto(f"{there.url}/r/billing/calendars")
    page.get_by_label("Name", exact=True).fill("holidays")
    page.get_by_label("Days").fill("weekdays sat, sun\n2026-12-25 Christmas Day\n2026-12-26 Boxing Day\n2027-01-01\n")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("link", name="holidays").click()
    _shoot(page, directory / "calendar.png")
    page.goto(f"{there.url}{JOB}/settings")
    page.get_by_label("Cron", exact=True).fill("0 0 9 * * ?")
    page.get_by_label("Calendars", exact=True).fill("holidays")
    page.locator("select[name=calendar_mode]").select_option("next")
    expect(page.locator("#preview .changes li")).to_have_count(3)
    _shoot(page, directory / "settings-calendar.png")


def _page(
    chromium: Browser,
    width: int,
    height: int = 860,
    scheme: str = "light",
    state: object = None,
    language: str = "en-GB",
) -> Page:
    context = chromium.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        locale=language,
        timezone_id="Europe/Berlin",
        storage_state=state,  # type: ignore[arg-type]  # what another context gave
    )
    context.set_default_timeout(PATIENCE)
    return context.new_page()


def _shoot(page: Page, file: Path, *, whole: bool = False) -> None:
    page.wait_for_load_state("load")
    page.wait_for_timeout(1500)  # the stream's first event, and what moves has moved
    size = page.viewport_size
    assert size is not None
    if whole:  # rows that are not in view are not drawn, and their height is only known when they have been
        for _ in range(2):
            height = page.evaluate("() => document.documentElement.scrollHeight")
            page.set_viewport_size({"width": size["width"], "height": max(height, size["height"])})
            page.wait_for_timeout(200)
    page.locator("pre").evaluate_all(WITHOUT_OUR_PATHS, str(ROOT))
    page.screenshot(path=file)
    page.set_viewport_size(size)


if __name__ == "__main__":
    names = [word for word in sys.argv[1:] if word != "--every"]
    take = every if "--every" in sys.argv else main
    take(Path(names[0]) if names else IMAGES)
