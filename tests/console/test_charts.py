"""Charts of columns over time say their numbers, and each column leads to what it stands for."""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo

from aioelasticjob.console.drawing.charts import BASE, PLOT, draw_durations, draw_histogram
from aioelasticjob.console.drawing.timeline import Style, Window
from aioelasticjob.console.language.i18n import language
from aioelasticjob.observers.sql import DurationCount, OutcomeCount

STYLE = Style(language("en"), ZoneInfo("UTC"), lambda window: f"/w?{window.start:.0f}-{window.end:.0f}", str)
WINDOW = Window(0, 800)  # ten seconds a column


def test_a_histogram_shows_each_failure_and_each_column_leads_to_its_runs() -> None:
    counts = [OutcomeCount(0, "completed", 9_000), OutcomeCount(0, "failed", 1), OutcomeCount(3, "running", 2)]
    drawn = draw_histogram(counts, WINDOW, STYLE)
    assert re.findall(r'class="heat (\w+)"', drawn) == ["bad", "ok", "run"]
    assert f'class="heat bad" d="M62.0 {BASE - 2:.1f}H73.1v2.0' in drawn  # below, so that it is seen
    assert re.findall(r'href="([^"]+)" aria-label="([^"]+)"', drawn) == [
        ("/w?0-10", "1970-01-01 00:00:00 UTC: 9,001 runs, 9,000 completed, 1 failed"),
        ("/w?30-40", "1970-01-01 00:00:30 UTC: 2 runs, 2 running"),
    ]
    assert ">9,001</text>" in drawn
    assert "data-from" not in drawn  # there is no form for a stretch that is dragged over


def test_runs_later_than_the_end_are_in_the_last_column() -> None:
    drawn = draw_histogram([OutcomeCount(500, "completed", 1), OutcomeCount(79, "completed", 1)], WINDOW, STYLE)
    assert re.findall(r'aria-label="1970-01-01 00:13:10 UTC: ([^"]+)"', drawn) == ["2 runs, 2 completed"]


def test_durations_are_drawn_to_the_scale_of_the_greatest_percentile() -> None:
    counts = [DurationCount(0, 20, 1.0, 4.0, 60.0), DurationCount(1, 1, 0.5, 0.5, 0.5)]
    drawn = draw_durations(counts, DurationCount(0, 21, 1.0, 2.0, 60.0), WINDOW, STYLE)
    assert re.findall(r'aria-label="1970[^"]+: (\d+ runs?: [^"]+)"', drawn) == [
        "20 runs: half took 1.0 s or less, 95 % took 4.0 s or less",
        "1 run: half took 500 ms or less, 95 % took 500 ms or less",
    ]
    assert f'<line class="p95" x1="62" y1="{BASE - PLOT / 2:.1f}"' in drawn
    assert f"v{PLOT / 4:.1f}H" in drawn
    assert ">4.0 s</text>" in drawn
    assert 'href="/w?0-10"' in drawn


def test_durations_of_no_time_at_all_are_drawn() -> None:
    none = DurationCount(0, 1, 0.0, 0.0, 0.0)
    assert "0 ms or less" in draw_durations([none], none, WINDOW, STYLE)


def test_a_window_of_centuries_has_few_labels() -> None:
    drawn = draw_histogram([OutcomeCount(0, "completed", 1)], Window(0, 250_000_000_000), STYLE)
    assert drawn.count('class="time"') <= 9
