"""Small pictures for a row, a sparkline of runs and a bar of shares, and the words beside them.  SVG, made here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Final

from markupsafe import Markup, escape

from aioelasticjob.console.language.i18n import Language
from aioelasticjob.model import is_failure
from aioelasticjob.operations.observed_runs import MISFIRED, ObservedRun

BARS: Final = 24
"""Runs that a sparkline shows."""
BAR_WIDTH: Final = 4
SPARK_HEIGHT: Final = 22

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
    "left open": "run",
}


def outcome_class(outcome: str) -> str:
    """Return the style class of an outcome."""
    return _TONES.get(outcome, "warn")


def sparkline(runs: Sequence[ObservedRun], translate: Language) -> Markup:
    """Draw the newest runs as bars, taller the longer they took (by the square root); failures stand out."""
    shown = [run for run in runs if run.outcome != MISFIRED][-BARS:]
    if not shown:
        return Markup("")
    longest = max(_length(run) for run in shown) or 1
    strokes: dict[str, str] = {}  # one path for all bars of a colour: a page has a thousand of these
    for index, run in enumerate(shown, BARS - len(shown)):
        height = max(2, round(SPARK_HEIGHT * sqrt(_length(run) / longest)))
        look = outcome_class(run.outcome)
        strokes[look] = f"{strokes.get(look, '')}M{index * BAR_WIDTH + 1.5:g} {SPARK_HEIGHT}v-{height}"
    bars = [f'<path class="{look}" d="{path}"/>' for look, path in strokes.items()]
    failed = sum(is_failure(run.outcome) for run in shown)
    took = duration_text(_length(shown[-1]))
    sentence = "the last {runs}: {failed} failed, the newest took {took}"
    label = translate(sentence, runs=translate.count(len(shown), "run"), failed=failed, took=took)
    return Markup(
        f'<svg class="spark" viewBox="0 0 {BARS * BAR_WIDTH} {SPARK_HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>{''.join(bars)}</svg>"
    )


def bar(shares: Sequence[tuple[str, int]], label: str) -> Markup:
    """Draw parts of a whole as one bar: each a style class and its size."""
    whole = sum(size for _, size in shares) or 1
    x = 0.0
    parts = list[str]()
    for look, size in shares:
        width = 100 * size / whole
        parts.append(f'<rect class="{look}" x="{x:.2f}" width="{max(0.5, width - 1):.2f}" height="8" rx="1.5"/>')
        x += width
    return Markup(
        f'<svg class="whole" viewBox="0 0 100 8" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def held_label(items: int, instances: int, translate: Language) -> str:
    """Say how many items are on how many instances."""
    counts = {"items": translate.count(items, "item"), "instances": translate.count(instances, "instance")}
    return translate("{items} on {instances}", **counts)


def duration_text(milliseconds: float) -> str:
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


def _length(run: ObservedRun) -> int:
    return max(0, run.ended - run.begun)
