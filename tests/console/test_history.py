"""The history's pages: newer and older ones, the newest one live; and how long a job's runs took."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import anyio
import pytest

from aioelasticjob.console.drawing.run_history import Durations, durations_in
from aioelasticjob.console.drawing.timeline import Window
from aioelasticjob.events import Misfired
from aioelasticjob.model import Outcome, run_name
from aioelasticjob.observers.sql import DurationCount, EventStoreUnreachable, open_store
from aioelasticjob.operations.observed_runs import ObservedRun
from tests.console.client import Answer
from tests.console.conftest import Play, Scene
from tests.console.samples import ended, item, status
from tests.observers.sample_events import ME, NOON, Clock, batch, beginning, end, raised

HISTORY = "/r/billing/history"
WINDOW = Window(NOON / 1000, NOON / 1000 + 160, 0, 1)  # two seconds a column


async def _write(scene: Scene, *items: int, start: int = NOON, outcome: Outcome = Outcome.COMPLETED) -> None:
    """Write a run of each item: that of item 7 begins seven seconds after ``start``."""
    failure = None if outcome is Outcome.COMPLETED else raised()
    ends = [end(start + 1000 * item, item, outcome, failure=failure) for item in items]
    await scene.registry.store.store.write(batch(*ends))


def _items(answer: Answer) -> list[int]:
    return [int(found) for found in re.findall(r'</th><td class="n" data-label="Item">(\d+)</td>', answer.text)]


def _link(answer: Answer, rel: str) -> str | None:
    found = re.search(rf'rel="{rel}" href="([^"]+)"', answer.text)
    return found and found[1].replace("&amp;", "&")


def _live(answer: Answer) -> str:
    found = re.search(r'hx-sse:connect="([^"]+)"', answer.text)
    assert found is not None
    return found[1].replace("&amp;", "&")


def test_newer_and_older_pages_stand_still_and_lead_back_to_the_newest(
    play: Play, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioelasticjob.console.pages.history.ROWS", 2)

    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        await _write(scene, *range(6))
        newest = await browser.get(f"{HISTORY}?job=report")
        assert (_items(newest), _link(newest, "prev"), _link(newest, "first")) == ([5, 4], None, None)
        second = await browser.get(_link(newest, "next") or "")
        await _write(scene, 6, 7, 8)
        third = await browser.get(_link(second, "next") or "")
        assert (_items(second), _items(third), _link(third, "next")) == ([3, 2], [1, 0], None)
        assert (_live(newest), _live(third)) == (f"{HISTORY}/live?job=report", "/r/billing/live")
        assert "This page stands still" in third.text
        back = await browser.get(_link(third, "prev") or "")
        assert _items(back) == [3, 2]
        once_more = await browser.get(_link(back, "prev") or "")
        assert (_items(once_more), _live(once_more)) == ([5, 4], "/r/billing/live")
        newer = await browser.get(_link(once_more, "prev") or "")
        assert _items(newer) == [7, 6]
        latest = await browser.get(_link(newer, "prev") or "")
        assert (_items(latest), _link(latest, "prev")) == ([8, 7], None)  # a whole page, though one run is newer
        assert _live(latest) == f"{HISTORY}/live?job=report"
        assert (await browser.get(f"{HISTORY}?before=nonsense")).status == 400

    play(act, event_store=sqlite_url)


def test_the_newest_page_is_sent_what_is_new_and_the_counts_with_it(
    play: Play, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioelasticjob.console.pages.history.REDRAW", 0.0)
    monkeypatch.setattr("aioelasticjob.console.pages.history.RECOUNT", 0.0)

    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        await _write(scene, 0)
        async with browser.listening(f"{HISTORY}/live?job=report") as stream:
            await stream.event("history-runs", "<b>1</b>")
            await scene.registry.store.store.write(batch(end(NOON, 9, job="other")))
            await _write(scene, 1, outcome=Outcome.FAILED)
            event = await stream.event("history-runs", "no luck", "1 failed")
            assert "other" not in event
            asked = anyio.Event()
            with monkeypatch.context() as broken, anyio.fail_after(90):
                broken.setattr("aioelasticjob.observers.sql.EventStore.history", lambda *_, **__: _no_answer(asked))
                await asked.wait()
            await _write(scene, 2)
            await stream.event("history-runs", "3 runs")  # it has gone on
        assert (await browser.get(f"{HISTORY}/live?item=x")).status == 409

    play(act, event_store=sqlite_url)


async def _no_answer(asked: anyio.Event) -> None:
    asked.set()
    raise EventStoreUnreachable("sqlite:///events.db", "connection refused")


def test_a_run_leads_to_all_items_of_the_same_run(play: Play, sqlite_url: str) -> None:
    async def act(scene: Scene) -> None:
        browser, run = await scene.operator(), f"report@{run_name(NOON)}"
        await scene.registry.store.store.write(batch(end(NOON, 3), end(NOON, 4, outcome=Outcome.STOPPED)))
        await _write(scene, 5)
        (key, *_) = re.findall(r'<tr id="run-(\w+)">', (await browser.get(f"{HISTORY}?item=3")).text)
        link = re.search(r'href="([^"]+)"><code>' + run, (await browser.get(f"{HISTORY}/{key}")).text)
        assert link is not None
        page = await browser.get(link[1])
        assert (sorted(_items(page)), page.value("run")) == ([3, 4], run)
        assert "1 completed" in page.text
        refused = await browser.get(f"{HISTORY}?run=report")
        assert (refused.status, "must be the run_id of a run, such as" in refused.text) == (400, True)

    play(act, event_store=sqlite_url)


def test_a_column_of_the_histogram_leads_to_its_runs_with_the_other_filters(play: Play, sqlite_url: str) -> None:
    async def act(scene: Scene) -> None:
        browser, start = await scene.operator(), int(scene.clock.now() - 750) * 1000
        empty = await browser.get(HISTORY)
        assert (empty.status, "No run is like that." in empty.text, "histogram" in empty.text) == (200, True, False)
        await _write(scene, *range(0, 40, 2), start=start)
        await _write(scene, 21, start=start, outcome=Outcome.FAILED)
        page = await browser.get(f"{HISTORY}?job=report")
        links = re.findall(r'<a href="([^"]+)" aria-label="([^"]+)"', page.text)
        columns = [(link.replace("&amp;", "&"), label) for link, label in links if "since=" in link]
        assert [label.partition(": ")[2] for _, label in columns][2] == "6 runs, 5 completed, 1 failed"
        assert "21 runs; a column is 10.0 s long" in page.text
        near = await browser.get(columns[2][0])
        assert (near.status, _items(near)) == (200, [28, 26, 24, 22, 21, 20])
        failed = await browser.get(f"{HISTORY}?outcome=failed&since=1970-01-01T00:00&until=9999-01-01T00:00")
        assert "1 run; a column" in failed.text

    play(act, event_store=sqlite_url)


def test_durations_of_a_window_are_those_of_completed_runs_of_its_items(sqlite_url: str) -> None:
    async def ask(**change: Any) -> Durations:
        async with open_store(sqlite_url, clock=Clock()) as store:
            runs = [end(NOON + 1000 * n, n % 2, seconds=n + 1.0) for n in range(4)]
            others = [end(NOON + 500, 0, Outcome.FAILED, seconds=99.0), end(NOON, 7, seconds=99.0), *beginning(NOON, 1)]
            await store.write(batch(*runs, *others, end(NOON + 160_000, 0, seconds=99.0)))
            registry: Any = SimpleNamespace(store=SimpleNamespace(answering=lambda: store))
            return await durations_in(change.get("registry", registry), "report", WINDOW)

    found = asyncio.run(ask())
    assert found.whole == DurationCount(0, 4, 2.0, 4.0, 4.0)
    assert [(one.column, one.runs, one.p95) for one in found.columns] == [(0, 2, 2.0), (1, 2, 4.0)]
    without: Any = SimpleNamespace(store=None)
    assert asyncio.run(ask(registry=without)) == Durations(stored=False)
    refusing = SimpleNamespace(durations=lambda *_, **__: _no_answer(anyio.Event()))
    broken: Any = SimpleNamespace(store=SimpleNamespace(answering=lambda: refusing))
    assert "connection refused" in (asyncio.run(ask(registry=broken)).problem or "")


def test_a_job_page_shows_how_long_runs_took_and_says_it_in_words(play: Play, sqlite_url: str) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        job, window = "/r/billing/job/report", f"?from={NOON // 1000}&to={NOON // 1000 + 100}"
        assert "No run in this window has completed." in (await browser.get(job + window)).text
        await scene.registry.store.store.write(batch(*(end(NOON + 40_000 * n, seconds=n + 1.0) for n in range(3))))
        text = (await browser.get(job + window)).text
        assert "3 runs completed in this window: half took 2.0 s or less, 95 % took 3.0 s or less" in text
        assert "In the newest column, 1 run: half took 3.0 s or less" in text
        assert 'class="median"' in text
        assert "Runs that did not complete are left out." in text

    play(act, event_store=sqlite_url)


def test_a_job_page_names_the_item_of_each_misfire(play: Play, sqlite_url: str) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        missed = Misfired("report", ME, NOON, NOON, (6,), 1, "the last run was still going on", at=NOON / 1000)
        await scene.registry.store.store.write(batch(missed))
        assert ", item 6: the last run was still going on" in (await browser.get("/r/billing/job/report")).text

    play(act, event_store=sqlite_url)


@pytest.mark.parametrize("with_store", [False, True])
def test_a_timeline_of_what_the_console_has_seen_says_whether_there_is_an_event_store(
    play: Play, sqlite_url: str, with_store: bool
) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        scene.registry.runs["report"].append(ObservedRun(0, NOON, NOON + 1000, "", "completed", ""))
        window = f"from={NOON // 1000 - 9}&to={NOON // 1000 + 9}"
        page = await (await scene.operator()).get(f"/r/billing/job/report?{window}")
        assert ("the event store has none of them" in page.text) is with_store
        assert ("an event store remembers more" in page.text) is not with_store

    play(act, event_store=sqlite_url if with_store else None)


def test_without_an_event_store_a_job_page_says_that_durations_need_one(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        assert "An event store would remember how long runs took." in (await browser.get("/r/billing/job/report")).text

    play(act)


def test_one_fact_has_one_number_on_every_page_or_at_least_is_said(
    play: Play, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioelasticjob.console.watching.store_watch.MAX_FAILURES", 3)

    async def act(scene: Scene) -> None:
        browser = await scene.operator()
        await scene.seen(lambda now: scene.registry.store is not None)
        watched = scene.registry.store
        now = scene.clock.now()
        slot = int(now * 1000) - 60_000
        runs = [end(slot + n, 0, Outcome.FAILED, failure=raised()) for n in range(5)]
        await watched.store.write(batch(*runs, end(slot, 1), end(slot, 2, Outcome.STOPPED)))
        missed = Misfired("report", ME, slot, slot, (0, 1), 3, "the last run was still going on", at=now - 60)
        await watched.store.write(batch(missed))
        await watched.ask()
        items = (item(0, record=ended("failed", now)), item(1), item(2))
        scene.registry._publish((status("report", items, now=now),))
        overview = (await browser.get("/r/billing/jobs")).text
        assert "5 failures, 6 missed moments" in overview
        assert "at least 3 times in a day" in overview
        assert "missed moments: 6" in overview
        history = (await browser.get("/r/billing/history?job=report&outcome=failed")).text
        assert '<b>5</b> <span class="outcome bad">failed</span>' in history
        window = f"?from={now - 120:.0f}&to={now:.0f}"
        timeline = (await browser.get(f"/r/billing/job/report{window}")).text
        assert timeline.count("3 missed moments") == 2  # the marks of two items
        assert "7 runs in this window" in timeline

    play(act, event_store=sqlite_url)


def test_the_history_of_a_full_disk_shows_no_run_as_running_that_has_ended(play: Play, sqlite_url: str) -> None:
    """335 runs began before the disk was full, and their ends could not be written."""

    async def act(scene: Scene) -> None:
        await scene.run_job(cron=None)
        now = scene.clock.now()
        at = int(now * 1000) - 400_000
        events = [event for run in range(335) for event in beginning(at + 1000 * run)]
        namespace = scene.registry.store.store.scope.namespace
        await scene.registry.store.store.write(batch(*events, namespace=namespace))
        browser = await scene.operator()
        await browser.post("/r/billing/job/report/do/trigger", {"csrf": (await browser.get("/account")).token})
        await scene.seen(lambda seen: seen.jobs["report"].items[0].outcome == Outcome.COMPLETED)
        page = (await browser.get("/r/billing/history?job=report")).text
        assert '<span class="outcome run">running</span>' not in page
        assert "its end is not in the history" in page
        assert '<b>335</b> <span class="outcome warn">ended</span>' in page

    play(act, event_store=sqlite_url)


def test_the_page_of_a_run_has_the_links_of_its_job_with_the_ids_of_the_run(play: Play, sqlite_url: str) -> None:
    async def act(scene: Scene) -> None:
        links = "runbook=https://wiki.example.org/{job},trace=https://traces.example.org/{run_id}"
        await scene.run_job(links=f"{links},log=https://logs.example.org/?task={{task_id}}", cron=None)
        slot = int(scene.clock.now() - 60) * 1000
        store = scene.registry.store
        assert store is not None
        namespace = store.store.scope.namespace
        await store.store.write(batch(*beginning(slot), end(slot), *beginning(slot, job="gone"), namespace=namespace))
        vera = await scene.viewer()
        for run in (await store.store.history()).rows:
            page = (await vera.get(f"/r/billing/history/{run.id}")).text
            found = re.findall(r'<a href="([^"]+)" rel="noreferrer noopener" target="_blank">(\w+) ↗</a>', page)
            if run.job == "gone":  # nobody knows its links any more
                assert found == []
                continue
            assert found == [
                ("https://wiki.example.org/report", "runbook"),
                (f"https://traces.example.org/report%40{run_name(slot)}", "trace"),
                (f"https://logs.example.org/?task={quote(run.task_id, safe='')}", "log"),
            ]

    play(act, event_store=sqlite_url)
