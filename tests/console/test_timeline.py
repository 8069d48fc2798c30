"""The timeline of a job: single runs from near, a heat map from afar, and nothing left out without a word."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

from aioelasticjob.console.drawing.run_history import Runs, runs_in
from aioelasticjob.console.drawing.timeline import (
    COLUMNS,
    MAX_BANDS,
    Style,
    Window,
    draw_heat_map,
    draw_runs,
    fields_of,
)
from aioelasticjob.console.language.i18n import language
from aioelasticjob.ground.times import moment
from aioelasticjob.model import Outcome
from aioelasticjob.observers.missed import Count
from aioelasticjob.observers.sql import open_store
from aioelasticjob.operations import JobStatus
from aioelasticjob.operations.observed_runs import ObservedRun
from tests.console.samples import item, status
from tests.observers.sample_events import NOON, Clock, batch, beginning, end

STYLE = Style(language("en"), ZoneInfo("UTC"), lambda window: f"/w?{window.start:.0f}", lambda key: f"/run/{key}")


def _run(item: int, begun: int, took: int, outcome: str = "completed", **more: str) -> ObservedRun:
    return ObservedRun(item, begun, begun + took, more.get("source", "SCHEDULE"), outcome, "", more.get("id", ""))


def _asked(store: Any, job: JobStatus, window: Window, *kept: ObservedRun) -> Runs:
    watched = store and SimpleNamespace(answering=lambda: store)
    registry: Any = SimpleNamespace(runs={job.name: deque(kept)}, store=watched)
    return asyncio.run(runs_in(registry, job, window, window.end))


def test_failures_misfires_and_rescues_can_be_told_apart_and_a_bar_leads_to_its_run() -> None:
    runs = [
        _run(0, 1_000, 500, id="abc"),
        _run(1, 3_000, 500, "failed"),
        _run(1, 6_000, 500, source="FAILOVER"),
        _run(0, 8_000, 0, "misfired"),
        _run(7, 9_000, 500),  # an item that was not asked for
        _run(0, 90_000, 500),  # not in the window
    ]
    drawn = draw_runs(runs, Window(0, 10, 0, 1), STYLE)
    assert [drawn.count(f'class="{look}"') for look in ("ok", "bad", "ok rescued", "miss")] == [1, 1, 1, 1]
    assert "item 1: failed" in drawn
    assert '<a href="/run/abc"' in drawn
    assert "1970-01-01 00:00:01 UTC" in drawn


def test_ten_short_runs_are_ten_marks() -> None:
    runs = [_run(0, n * 1000, 80) for n in range(10)]
    drawn = draw_runs(runs, Window(0, 60, 0, 0), STYLE)
    found = re.findall(r'class="ok" x="([\d.]+)" y="26" width="([\d.]+)"', drawn)
    marks = [(float(x), float(width)) for x, width in found]
    assert len(marks) == 10
    assert all(x + width < following for (x, width), (following, _) in pairwise(marks))


def test_a_heat_map_of_many_runs_stays_small_counts_all_and_hides_no_failure() -> None:
    runs = [_run(n % 300, n * 100, 80, "failed" if n == 54_321 else "completed") for n in range(100_000)]
    window = Window(0, 10_000, 0, 299)
    fields = fields_of(runs, window)
    assert sum(field.runs for field in fields) == 100_000
    drawn = draw_heat_map(fields, [replace(_run(3, 500_000, 0, "misfired"), missed=Count(3))], window, STYLE)
    assert len(drawn) < 150_000
    assert len(re.findall(r'class="heat bad', drawn)) == 1
    assert drawn.count('class="column"') <= COLUMNS
    assert drawn.count('class="item"') <= MAX_BANDS
    assert "1 failure" in drawn
    assert "3 missed moments" in drawn


def test_a_window_is_moved_and_scaled_and_stands_still_then() -> None:
    window = Window(1000, 2000, 0, 9)
    assert (window.moved(-0.5).start, window.moved(-0.5).end) == (500, 1500)
    assert (window.scaled(2).start, window.scaled(2).end) == (500, 2500)
    assert not window.scaled(0.5).follows
    nearest = Window(1000, 1001).scaled(0.5)
    assert nearest.end - nearest.start == 10


def test_the_event_store_gives_single_runs_from_near_and_counts_from_afar(sqlite_url: str) -> None:
    job = status("report", (item(0), item(1)), now=NOON / 1000)
    start = NOON / 1000

    async def fill() -> None:
        async with open_store(sqlite_url, clock=Clock()) as store:
            for n in range(300):
                outcome = Outcome.FAILED if n == 7 else Outcome.STOPPED if n == 8 else Outcome.COMPLETED
                await store.write(batch(*beginning(NOON + 1000 * n, n % 2), end(NOON + 1000 * n, n % 2, outcome)))

    asyncio.run(fill())

    async def ask(window: Window) -> Runs:
        async with open_store(sqlite_url, clock=Clock()) as store:
            registry: Any = SimpleNamespace(runs={}, store=SimpleNamespace(answering=lambda: store))
            return await runs_in(registry, job, window, start + 300)

    near = asyncio.run(ask(Window(start, start + 60, 0, 1)))
    assert near.singles is not None
    assert len(near.singles) == near.total == 60
    assert all(run.id for run in near.singles)
    afar = asyncio.run(ask(Window(start, start + 7 * 86_400, 0, 1)))
    assert (afar.singles, afar.total) == (None, 300)
    assert sum(field.runs for field in afar.fields) == 300
    assert sum(field.failures for field in afar.fields) == 1  # what somebody has stopped has not failed
    one = asyncio.run(ask(Window(start, start + 7 * 86_400, 1, 1, chosen=True)))
    assert one.total == 150


def test_without_an_event_store_it_is_said_since_when_the_console_knows() -> None:
    job = status("report", (item(0),), now=1000)
    known = _asked(None, job, Window(0, 1000), _run(0, 5_000, 80), _run(0, 7_000, 0, "misfired"))
    assert (known.stored, known.since, known.total) == (False, 5.0, 1)
    many = _asked(None, job, Window(0, 1000), *(_run(0, n * 1000, 10) for n in range(200)))
    assert (many.singles, many.total) == (None, 200)


def test_a_window_in_another_zone_has_its_times_at_whole_hours_of_that_zone() -> None:
    zone = ZoneInfo("Asia/Kathmandu")  # 5:45 ahead
    start = moment(1_800_000_000).astimezone(zone).replace(hour=8, minute=0).timestamp()
    drawn = draw_runs([], Window(start, start + 6 * 3600), Style(language("en"), zone, str, str))
    assert re.findall(r'class="time"[^>]*>([\d:. ]+)<', drawn)[0].endswith("09:00")
