"""The timeline of a job: single runs from near, a heat map of many runs from afar.  SVG, made here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final
from zoneinfo import ZoneInfo

from markupsafe import Markup, escape

from aioelasticjob.console.drawing.sparkline import duration_text, outcome_class
from aioelasticjob.console.language.i18n import Language
from aioelasticjob.ground.times import moment
from aioelasticjob.model import is_failure
from aioelasticjob.observers.missed import NOTHING_COUNTED, Count
from aioelasticjob.operations.observed_runs import MISFIRED, ObservedRun

WIDTH: Final = 1000
"""The width of the drawing, in its own units, as are the next four."""
ROW: Final = 22
"""The height of an item's row."""
BAND: Final = 14
"""The height of a heat map's row."""
LABELS: Final = 62
"""The width of the labels on the left."""
AXIS: Final = 22
"""The height of the times above."""
COLUMNS: Final = 80
"""Pieces of time in a heat map."""
MAX_BANDS: Final = 40
"""Rows of a heat map: of more items, several share a row."""
MAX_ROWS: Final = 60
"""Items of which single runs are drawn."""
MAX_RUNS: Final = 1000
"""Runs that are drawn singly; of more a heat map is drawn."""
SPANS: Final = {"5m": 300, "30m": 1800, "3h": 10_800, "24h": 86_400, "7d": 604_800, "30d": 2_592_000}
"""The lengths of time to choose from, in seconds."""
SHORTEST: Final = 10.0
"""Seconds of the shortest window."""
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_STEPS: Final = (
    *(1, 5, 10, 15, 30),
    *(_MINUTE * n for n in (1, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 4, 6, 12)),
    *(_DAY * n for n in (1, 7, 30, 365)),
)
"""Distances of the times above a timeline, in seconds."""
_LEVELS: Final = (0.25, 0.6, 1.0)
"""Shades of a heat map, as parts of the busiest field."""


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a timeline that is shown: a stretch of time in seconds since the epoch, and some items."""

    start: float
    end: float
    first: int = 0
    last: int = 0
    """The last item shown."""
    follows: bool = True
    """Whether the window ends now, and moves on."""
    chosen: bool = False
    """Whether the items were chosen; else they are all items."""

    def x(self, milliseconds: float) -> float:
        """Return where a moment lies in the drawing."""
        part = (milliseconds / 1000 - self.start) / (self.end - self.start)
        return LABELS + min(max(part, 0.0), 1.0) * (WIDTH - LABELS)

    def scaled(self, factor: float) -> Window:
        """Return the window with its length multiplied, around its middle."""
        middle = (self.start + self.end) / 2
        half = max(SHORTEST, (self.end - self.start) * factor) / 2
        return replace(self, start=max(0.0, middle - half), end=middle + half, follows=False)

    def moved(self, part: float) -> Window:
        """Return the window moved by a part of its length."""
        by = (self.end - self.start) * part
        return replace(self, start=max(0.0, self.start + by), end=self.end + by, follows=False)

    def one_column(self, column: int, shortest: float = 0.0) -> Window:
        """Return the window of one column; it is at least so many seconds long."""
        start = self.start + column * self.column
        return replace(self, start=start, end=start + max(self.column, shortest), follows=False)

    @property
    def column(self) -> int:
        """Seconds of one column of a heat map, rounded up."""
        seconds = self.end - self.start
        return max(1, -int(-seconds // COLUMNS))

    @property
    def band(self) -> int:
        """Items that share one row of a heat map, rounded up."""
        items = self.last - self.first + 1
        return max(1, -(-items // MAX_BANDS))


@dataclass(frozen=True, slots=True)
class Field:
    """The runs of some items in one piece of time."""

    row: int
    column: int
    runs: int
    failures: int


@dataclass(frozen=True, slots=True)
class Style:
    """How a timeline is written and where its parts lead."""

    translate: Language
    zone: ZoneInfo
    window_url: Callable[[Window], str]
    run_url: Callable[[str], str]

    def time(self, seconds: float) -> str:
        """Return a moment in the viewer's time zone."""
        return moment(seconds).astimezone(self.zone).strftime("%Y-%m-%d %H:%M:%S %Z")


def fields_of(runs: Iterable[ObservedRun], window: Window) -> list[Field]:
    """Count runs by items and time, as the event store does for those that it holds."""
    counts: dict[tuple[int, int], list[int]] = {}
    for run in runs:
        if run.outcome != MISFIRED and window.first <= run.item <= window.last:
            row = (run.item - window.first) // window.band
            column = int(run.begun / 1000 - window.start) // window.column
            count = counts.setdefault((row, column), [0, 0])
            count[0] += 1
            count[1] += is_failure(run.outcome)
    return [Field(row, column, runs, failures) for (row, column), (runs, failures) in counts.items()]


def draw_runs(runs: Iterable[ObservedRun], window: Window, style: Style) -> Markup:
    """Draw a row for each item, and in it every run and every misfire as a mark of its own."""
    items = range(window.first, window.last + 1)
    height = AXIS + ROW * len(items)
    parts = [axis(window, height, style.zone)]
    for row, item in enumerate(items):
        parts += _row(AXIS + row * ROW, ROW, str(item))
    shown = [run for run in runs if run.item in items and _inside(run, window)]
    for run in sorted(shown, key=lambda run: (run.item, run.begun)):
        parts.append(_mark(run, AXIS + (run.item - window.first) * ROW, window, style))
    return svg(parts, height, style.translate("timeline of the runs of every item"), window)


def draw_heat_map(fields: Iterable[Field], misfires: Iterable[ObservedRun], window: Window, style: Style) -> Markup:
    """Draw a row for some items each, a column for each piece of time: the more runs, the darker; red if any failed."""
    items = window.last - window.first + 1
    rows = -(-items // window.band)  # rounded up
    height = AXIS + BAND * rows + BAND  # the last row is that of the misfires
    parts = [axis(window, height, style.zone)]
    for row in range(rows):
        first = window.first + row * window.band
        last = min(first + window.band - 1, window.last)
        label = f"{first}" if first == last else f"{first}–{last}"  # an en dash, for a range
        narrow = replace(window, first=first, last=last, chosen=True)
        parts += _row(AXIS + row * BAND, BAND, label, style.window_url(narrow))
    found = [one for one in fields if 0 <= one.row < rows and 0 <= one.column <= COLUMNS]
    parts += _shades(found, window)
    parts += _columns(found, misfires, window, height, style)
    return svg(parts, height, style.translate("heat map of the runs by item and time"), window)


def _shades(fields: Sequence[Field], window: Window) -> Iterator[str]:
    busiest = max((one.runs for one in fields), default=1)
    paths: dict[str, list[str]] = {}
    for one in fields:
        colour = "bad" if one.failures else "ok"
        look = f"{colour} l{_shade(one.runs, busiest)}"
        left, right = edges(window, one.column)
        top = AXIS + one.row * BAND + 1
        shape = f"M{left:.1f} {top}H{right - 0.6:.1f}v{BAND - 2}H{left:.1f}z"
        paths.setdefault(look, []).append(shape)
    for look, shapes in sorted(paths.items()):  # one path for all fields of a shade: there may be thousands
        yield f'<path class="heat {look}" d="{"".join(shapes)}"/>'


def _shade(runs: int, busiest: int) -> int:
    """Return the number of the lightest shade that is dark enough for so many runs."""
    for number, part in enumerate(_LEVELS):
        if runs <= part * busiest:
            return number
    return len(_LEVELS) - 1


def _columns(
    fields: Sequence[Field], misfires: Iterable[ObservedRun], window: Window, height: int, style: Style
) -> Iterator[str]:
    """Yield a link for each column with runs: it says how many there are, and leads to them."""
    missed: dict[int, Count] = {}
    for mark in misfires:
        column = int(mark.begun / 1000 - window.start) // window.column
        missed[column] = missed.get(column, NOTHING_COUNTED) + mark.missed
    for column in sorted({one.column for one in fields} | missed.keys()):
        if not 0 <= column <= COLUMNS:
            continue
        near = window.one_column(column, SHORTEST)
        here = [one for one in fields if one.column == column]
        counts = {
            "run": Count(sum(one.runs for one in here)),
            "failure": Count(sum(one.failures for one in here)),
        }
        if column in missed:
            counts["missed moment"] = missed[column]
            middle = sum(edges(window, column)) / 2
            yield f'<path class="miss" d="M{middle:.1f} {height - BAND + 1}l5 6l-5 6l-5 -6z"/>'
        text = ", ".join(style.translate.counted(count, noun) for noun, count in counts.items())
        title = f"{style.time(near.start)}: {text}"
        yield column_link(window, column, height, title, style.window_url(near))


def edges(window: Window, column: int) -> tuple[float, float]:
    """Return where a column begins and ends in the drawing."""
    begin = window.start + column * window.column
    end = window.start + (column + 1) * window.column
    return window.x(begin * 1000), window.x(end * 1000)


def column_link(window: Window, column: int, height: int, title: str, link: str) -> str:
    """Return a link as large as a column: it says what is in it, and leads to that."""
    left, right = edges(window, column)
    text = escape(title)
    return (
        f'<a href="{escape(link)}" aria-label="{text}"><title>{text}</title>'
        f'<rect class="column" x="{left:.1f}" y="{AXIS}" width="{right - left:.1f}" height="{height - AXIS}"/></a>'
    )


def _row(y: int, height: int, label: str, link: str = "") -> Iterator[str]:
    yield f'<line class="rail" x1="{LABELS}" y1="{y + height - 1}" x2="{WIDTH}" y2="{y + height - 1}"/>'
    text = f'<text class="item" x="{LABELS - 8}" y="{y + height * 0.7:.0f}" text-anchor="end">{label}</text>'
    yield f'<a href="{escape(link)}">{text}</a>' if link else text


def _mark(run: ObservedRun, y: int, window: Window, style: Style) -> str:
    x = window.x(run.begun)
    end = window.x(run.ended)
    title = f"<title>{_title(run, style)}</title>"
    if run.outcome == MISFIRED:
        return f'<path class="miss" d="M{x:.1f} {y + 5}l5 6l-5 6l-5 -6z">{title}</path>'
    look = outcome_class(run.outcome)
    if run.source == "FAILOVER":
        look += " rescued"
    width = max(2.0, end - x - 0.5)  # a short run is still seen, and neighbours do not touch
    size = f'x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{ROW - 9}"'
    drawn = f'<rect class="{look}" {size} rx="1">{title}</rect>'
    if not run.id:
        return drawn
    return f'<a href="{escape(style.run_url(run.id))}" aria-label="{_title(run, style)}">{drawn}</a>'


def _title(run: ObservedRun, style: Style) -> str:
    translate = style.translate
    parts = [f"{translate('item')} {run.item}: {translate(run.outcome)}", style.time(run.begun / 1000)]
    if run.outcome == MISFIRED:
        parts.append(translate.counted(run.missed, "missed moment"))
    else:
        parts.append(duration_text(max(0, run.ended - run.begun)))
    if run.source and run.source != "SCHEDULE":
        parts.append(translate(run.source))
    if run.instance:
        parts.append(run.instance)
    return str(escape(" · ".join(parts)))


def axis(window: Window, height: int, zone: ZoneInfo) -> str:
    """Return the lines and the labels of the times, at whole hours and days of the zone."""
    span = window.end - window.start
    step = next((step for step in _STEPS if span / step <= 8), _DAY * int(span / _DAY / 8))
    utc_offset = moment(window.start).astimezone(zone).utcoffset()
    offset = 0 if utc_offset is None else int(utc_offset.total_seconds())
    first = (int(window.start + offset) // step + 1) * step - offset  # whole hours and days of the zone, not of UTC
    parts = []
    for at in range(first, int(window.end) + 1, step):
        x = window.x(at * 1000)
        parts.append(f'<line class="tick" x1="{x:.1f}" y1="{AXIS - 4}" x2="{x:.1f}" y2="{height}"/>')
        if LABELS + 20 < x < WIDTH - 20:
            text = moment(at).astimezone(zone).strftime(_format(step))
            parts.append(f'<text class="time" x="{x:.1f}" y="{AXIS - 9}" text-anchor="middle">{text}</text>')
    return "".join(parts)


def _format(step: int) -> str:
    """Return how the times above a timeline are written if they are so many seconds apart."""
    if step >= _DAY:
        return "%m-%d"
    if step >= 3 * _HOUR:
        return "%d. %H:%M"
    if step >= _MINUTE:
        return "%H:%M"
    return "%H:%M:%S"


def _inside(run: ObservedRun, window: Window) -> bool:
    return run.ended / 1000 >= window.start and run.begun / 1000 <= window.end


def svg(parts: Iterable[str], height: int, label: str, window: Window | None = None) -> Markup:
    """Return a drawing; with a window, the script lets a stretch of time be chosen by dragging."""
    span = ""
    if window is not None:
        span = f' data-from="{window.start:.3f}" data-to="{window.end:.3f}" data-inset="{LABELS / WIDTH}"'
    return Markup(
        f'<svg class="timeline" viewBox="0 0 {WIDTH} {height}"{span} role="group" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )
