"""Pictures of runs: a sparkline for a row of the overview, and a timeline of every item.  SVG, made here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import sqrt
from typing import Final

from markupsafe import Markup, escape

from aioelasticjob.clock import moment
from aioelasticjob.console.live import Seen
from aioelasticjob.console.words import Language

BARS: Final = 24
BAR_WIDTH, SPARK_HEIGHT = 4, 22
WIDTH, ROW, LABELS, AXIS = 1000, 22, 36, 22
"""Of a timeline, in its own units: all of it, a row, the column of item numbers, the line of times."""
MOST_MARKS: Final = 600
"""Bars drawn in a timeline, about: where there are more runs, neighbours of one kind become one bar."""
_STEPS: Final = (5, 10, 15, 30, 60, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)

_TONES: Final[Mapping[str, str]] = {
    "completed": "ok",
    "failed": "bad",
    "timed out": "bad",
    "cancelled": "warn",
    "stopped": "warn",
    "misfired": "miss",
    "cut off": "bad",
    "given up": "bad",
    "running": "run",
}


def tone(outcome: str) -> str:
    """Return the style class of an outcome."""
    return _TONES.get(outcome, "warn")


def sparkline(runs: Sequence[Seen], words: Language) -> Markup:
    """Draw the newest runs as bars, taller the longer they took (by the square root); failures stand out."""
    shown = [run for run in runs if run.outcome != "misfired"][-BARS:]
    if not shown:
        return Markup("")
    longest = max(_length(run) for run in shown) or 1
    strokes: dict[str, str] = {}  # one path for all bars of a colour: a page has a thousand of these
    for index, run in enumerate(shown, BARS - len(shown)):
        height = max(2, round(SPARK_HEIGHT * sqrt(_length(run) / longest)))
        look = tone(run.outcome)
        strokes[look] = f"{strokes.get(look, '')}M{index * BAR_WIDTH + 1.5:g} {SPARK_HEIGHT}v-{height}"
    bars = [f'<path class="{look}" d="{path}"/>' for look, path in strokes.items()]
    failed = sum(tone(run.outcome) == "bad" for run in shown)
    took = spell(_length(shown[-1]))
    said = "the last {runs} runs: {failed} failed, the newest took {took}"
    label = words(said, runs=len(shown), failed=failed, took=took)
    return Markup(
        f'<svg class="spark" viewBox="0 0 {BARS * BAR_WIDTH} {SPARK_HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>{''.join(bars)}</svg>"
    )


def bar(shares: Sequence[tuple[str, int]], label: str) -> Markup:
    """Draw parts of a whole as one bar: each a style class and its size."""
    whole, x, parts = sum(size for _, size in shares) or 1, 0.0, list[str]()
    for look, size in shares:
        width = 100 * size / whole
        parts.append(f'<rect class="{look}" x="{x:.2f}" width="{max(0.5, width - 1):.2f}" height="8" rx="1.5"/>')
        x += width
    return Markup(
        f'<svg class="whole" viewBox="0 0 100 8" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


@dataclass(frozen=True, slots=True)
class Window:
    """The stretch of time a timeline shows; seconds since the epoch."""

    start: float
    end: float

    def x(self, milliseconds: int) -> float:
        """Return where a moment lies in the picture."""
        part = (milliseconds / 1000 - self.start) / (self.end - self.start)
        return LABELS + min(max(part, 0.0), 1.0) * (WIDTH - LABELS)


def timeline(items: Sequence[int], runs: Iterable[Seen], window: Window, words: Language) -> Markup:
    """Draw a row for each item with its runs in the window; failures, misfires and rescues can be told apart."""
    rows = {item: row for row, item in enumerate(items)}
    shown = [run for run in runs if run.item in rows and _inside(run, window)]
    near = max(4.0, len(rows) * (WIDTH - LABELS) / MOST_MARKS)
    height = AXIS + ROW * len(items)
    parts = [_axis(window, height)]
    for item, row in rows.items():
        y = AXIS + row * ROW
        parts.append(f'<line class="rail" x1="{LABELS}" y1="{y + ROW - 1}" x2="{WIDTH}" y2="{y + ROW - 1}"/>')
        parts.append(f'<text class="item" x="{LABELS - 10}" y="{y + 15}" text-anchor="end">{item}</text>')
    bars = _merged(sorted(shown, key=lambda run: (run.item, run.begun)), window, near)
    parts += [_mark(bar, AXIS + rows[bar[0].item] * ROW, window, words) for bar in bars]
    label = words("timeline of the runs of every item")
    return Markup(
        f'<svg class="timeline" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def spell(milliseconds: float) -> str:
    """Say how long something took, in units that need no translation."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"


def _merged(runs: Iterable[Seen], window: Window, near: float) -> list[list[Seen]]:
    """Put runs that would lie upon each other into one bar, as long as they look the same."""
    bars: list[list[Seen]] = []
    for run in runs:
        last = bars[-1] if bars else None
        if (
            last is not None
            and _look(last[0]) == _look(run)
            and last[0].item == run.item
            and window.x(run.begun) < window.x(last[0].begun) + near
        ):
            last.append(run)
        else:
            bars.append([run])
    return bars


def _look(run: Seen) -> str:
    return f"{tone(run.outcome)} rescued" if run.source == "FAILOVER" else tone(run.outcome)


def _mark(bar: Sequence[Seen], y: int, window: Window, words: Language) -> str:
    first, last = bar[0], bar[-1]
    x, end = window.x(first.begun), window.x(last.ended)
    more = f" (+{len(bar) - 1})" if len(bar) > 1 else ""
    told = f"<title>{_title(last, words)}{more}</title>"
    if first.outcome == "misfired":
        return f'<path class="miss" d="M{x:.1f} {y + 5}l5 6l-5 6l-5 -6z">{told}</path>'
    size = f'x="{x:.1f}" y="{y + 4}" width="{max(3.0, end - x):.1f}" height="{ROW - 9}"'
    return f'<rect class="{_look(first)}" {size} rx="2">{told}</rect>'


def _title(run: Seen, words: Language) -> str:
    when = moment(run.begun / 1000).strftime("%Y-%m-%d %H:%M:%S UTC")
    parts = [f"{words('item')} {run.item}: {words(run.outcome)}", when]
    if run.outcome != "misfired":
        parts.append(spell(_length(run)))
    if run.source and run.source != "CRON":
        parts.append(words(run.source))
    if run.instance:
        parts.append(run.instance)
    return str(escape(" · ".join(parts)))


def _axis(window: Window, height: int) -> str:
    step = next((step for step in _STEPS if (window.end - window.start) / step <= 8), _STEPS[-1])
    first = (int(window.start) // step + 1) * step
    parts = []
    for at in range(first, int(window.end) + 1, step):
        x = window.x(at * 1000)
        parts.append(f'<line class="tick" x1="{x:.1f}" y1="{AXIS - 4}" x2="{x:.1f}" y2="{height}"/>')
        if LABELS + 20 < x < WIDTH - 20:
            parts.append(
                f'<text class="time" data-clock="{at}" data-step="{step}" x="{x:.1f}" y="{AXIS - 9}"'
                f' text-anchor="middle">{_clock(moment(at), step)}</text>'
            )
    return "".join(parts)


def _clock(at: datetime, step: int) -> str:
    return at.strftime("%m-%d" if step >= 86_400 else "%H:%M" if step >= 60 else "%H:%M:%S")


def _inside(run: Seen, window: Window) -> bool:
    return run.ended / 1000 >= window.start and run.begun / 1000 <= window.end


def _length(run: Seen) -> int:
    return max(0, run.ended - run.begun)
