"""Charts of columns over time: how many runs there were by outcome, and how long they took.  SVG, made here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from markupsafe import Markup

from aioelasticjob.console.drawing.sparkline import duration_text, outcome_class
from aioelasticjob.console.drawing.timeline import (
    AXIS,
    LABELS,
    SHORTEST,
    WIDTH,
    Style,
    Window,
    axis,
    column_link,
    edges,
    svg,
)
from aioelasticjob.observers.sql import DurationCount, OutcomeCount

PLOT: Final = 90
"""The height of the columns, in the drawing's units."""
BASE: Final = AXIS + PLOT + 4
"""Where zero is."""
HEIGHT: Final = BASE + 6
TONES: Final = ("bad", "warn", "ok", "run")
"""Style classes of outcomes, from the bottom of a column to its top: failures stand on one line."""
MARK: Final = 2
"""Height of the smallest part of a column, so that one failure among thousands of runs is seen."""


def draw_histogram(counts: Iterable[OutcomeCount], window: Window, style: Style) -> Markup:
    """Draw a column for each piece of time: as high as there were runs, by outcome; it leads to those runs."""
    columns = _by_column(counts, window)
    most = max((here.total() for here in columns.values()), default=1)
    parts = _frame(window, f"{most:,}", style)
    shapes: dict[str, str] = {}
    for column, here in sorted(columns.items()):
        tones = Counter[str]()
        for outcome, runs in here.items():
            tones[outcome_class(outcome)] += runs
        top = float(BASE)
        for tone in TONES:
            if not tones[tone]:
                continue
            height = max(MARK, tones[tone] / most * PLOT)
            top -= height
            shapes[tone] = shapes.get(tone, "") + _box(window, column, top, height)
    for tone, shape in shapes.items():
        parts.append(f'<path class="heat {tone}" d="{shape}"/>')
    for column, here in sorted(columns.items()):
        said = [style.translate.count(here.total(), "run")]
        for outcome, runs in sorted(here.items()):
            said.append(f"{runs:,} {style.translate(outcome)}")
        near = window.one_column(column)
        title = f"{style.time(near.start)}: {', '.join(said)}"
        parts.append(column_link(window, column, HEIGHT, title, style.window_url(near)))
    return svg(parts, HEIGHT, style.translate("runs by time and outcome"))


def _by_column(counts: Iterable[OutcomeCount], window: Window) -> dict[int, Counter[str]]:
    """Return how many runs there were of each outcome in each column of a window."""
    seconds = window.end - window.start
    last = max(0, -int(-seconds // window.column) - 1)
    columns: dict[int, Counter[str]] = {}
    for one in counts:
        column = min(one.column, last)  # clocks differ: what is later than the end counts as last
        columns.setdefault(column, Counter())[one.outcome] += one.runs
    return columns


def draw_durations(counts: Sequence[DurationCount], whole: DurationCount, window: Window, style: Style) -> Markup:
    """Draw the median and the 95th percentile of the durations of each piece of time; a line shows that of all runs."""
    most = max((one.p95 for one in counts), default=0.0) or 1.0
    parts = _frame(window, duration_text(most * 1000), style)
    halves = ""
    marks = ""
    for one in counts:
        median = BASE - one.median / most * PLOT
        p95 = BASE - one.p95 / most * PLOT
        halves += _box(window, one.column, median, BASE - median)
        marks += _box(window, one.column, p95 - MARK / 2, MARK)
    level = BASE - min(whole.p95 / most, 1.0) * PLOT
    parts.append(f'<path class="median" d="{halves}"/><path class="p95" d="{marks}"/>')
    parts.append(f'<line class="p95" x1="{LABELS}" y1="{level:.1f}" x2="{WIDTH}" y2="{level:.1f}"/>')
    for one in counts:
        near = window.one_column(one.column, SHORTEST)
        words = duration_words(one, style)
        said = style.translate("{runs}: half took {median} or less, 95 % took {p95} or less", **words)
        title = f"{style.time(near.start)}: {said}"
        parts.append(column_link(window, one.column, HEIGHT, title, style.window_url(near)))
    return svg(parts, HEIGHT, style.translate("durations of completed runs by time"), window)


def duration_words(one: DurationCount, style: Style) -> dict[str, str]:
    """Return the numbers of some runs as text."""
    return {
        "runs": style.translate.count(one.runs, "run"),
        "median": duration_text(one.median * 1000),
        "p95": duration_text(one.p95 * 1000),
        "longest": duration_text(one.longest * 1000),
    }


def _frame(window: Window, most: str, style: Style) -> list[str]:
    """Return the times above, a line at zero, and one at the greatest value, which is written beside it."""
    return [axis(window, HEIGHT, style.zone), *_level(BASE, "0"), *_level(BASE - PLOT, most)]


def _level(y: int, label: str) -> Iterator[str]:
    yield f'<line class="rail" x1="{LABELS}" y1="{y}" x2="{WIDTH}" y2="{y}"/>'
    yield f'<text class="item" x="{LABELS - 4}" y="{y + 3}" text-anchor="end">{label}</text>'


def _box(window: Window, column: int, top: float, height: float) -> str:
    left, right = edges(window, column)
    return f"M{left:.1f} {top:.1f}H{max(left + 1, right - 0.6):.1f}v{height:.1f}H{left:.1f}z"
