"""Charts of columns over time: how many runs there were by outcome, and how long they took.  SVG, made here."""

from __future__ import annotations

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
    last = max(0, -int(-(window.end - window.start) // window.column) - 1)
    columns: dict[int, dict[str, int]] = {}
    for one in counts:
        here = columns.setdefault(min(one.column, last), {})  # clocks differ: what is later than the end counts as last
        here[one.outcome] = here.get(one.outcome, 0) + one.runs
    most = max((sum(here.values()) for here in columns.values()), default=1)
    parts = _frame(window, f"{most:,}", style)
    shapes: dict[str, str] = {}
    for column, here in sorted(columns.items()):
        top = float(BASE)
        for tone in TONES:
            if number := sum(runs for outcome, runs in here.items() if outcome_class(outcome) == tone):
                height = max(MARK, number / most * PLOT)
                top -= height
                shapes[tone] = shapes.get(tone, "") + _box(window, column, top, height)
    parts += [f'<path class="heat {tone}" d="{shape}"/>' for tone, shape in shapes.items()]
    for column, here in sorted(columns.items()):
        each = (f"{number:,} {style.translate(outcome)}" for outcome, number in sorted(here.items()))
        said = ", ".join((style.translate.count(sum(here.values()), "run"), *each))
        near = window.one_column(column)
        parts.append(column_link(window, column, HEIGHT, f"{style.time(near.start)}: {said}", style.window_url(near)))
    return svg(parts, HEIGHT, style.translate("runs by time and outcome"))


def draw_durations(counts: Sequence[DurationCount], whole: DurationCount, window: Window, style: Style) -> Markup:
    """Draw the median and the 95th percentile of the durations of each piece of time; a line shows that of all runs."""
    most = max((one.p95 for one in counts), default=0.0) or 1.0
    y = {one.column: [BASE - part / most * PLOT for part in (one.median, one.p95)] for one in counts}
    parts = _frame(window, duration_text(most * 1000), style)
    halves = "".join(_box(window, column, top, BASE - top) for column, (top, _) in y.items())
    marks = "".join(_box(window, column, top - MARK / 2, MARK) for column, (_, top) in y.items())
    level = BASE - min(whole.p95 / most, 1.0) * PLOT
    parts.append(f'<path class="median" d="{halves}"/><path class="p95" d="{marks}"/>')
    parts.append(f'<line class="p95" x1="{LABELS}" y1="{level:.1f}" x2="{WIDTH}" y2="{level:.1f}"/>')
    for one in counts:
        near = window.one_column(one.column, SHORTEST)
        said = style.translate(
            "{runs}: half took {median} or less, 95 % took {p95} or less", **duration_words(one, style)
        )
        parts.append(
            column_link(window, one.column, HEIGHT, f"{style.time(near.start)}: {said}", style.window_url(near))
        )
    return svg(parts, HEIGHT, style.translate("durations of completed runs by time"), window)


def duration_words(one: DurationCount, style: Style) -> dict[str, str]:
    """Return the numbers of some runs as text."""
    seconds = {"median": one.median, "p95": one.p95, "longest": one.longest}
    return {"runs": style.translate.count(one.runs, "run")} | {
        name: duration_text(number * 1000) for name, number in seconds.items()
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
