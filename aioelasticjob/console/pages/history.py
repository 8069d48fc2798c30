"""The history: the event store's runs with filters, live, and the page of one run with its states and its failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from math import floor
from typing import Final
from zoneinfo import ZoneInfo

from starlette.exceptions import HTTPException
from starlette.responses import Response

from aioelasticjob.console.drawing.charts import draw_histogram
from aioelasticjob.console.drawing.timeline import SPANS, Style, Window
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.web import frame
from aioelasticjob.console.web.frame import frame_pieces
from aioelasticjob.console.web.request import PageRequest, registry_of
from aioelasticjob.console.web.stream import Piece, Pieces, stream
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.events import fence_of
from aioelasticjob.ground.times import moment
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.model import FireSource, Outcome
from aioelasticjob.observers.sql import EventStore, Filter, OutcomeCount, RunEntry
from aioelasticjob.operations.open_runs import ENDED, RUNNING, judged, recounted

ROWS: Final = 50
"""Runs on a page."""
FIELDS: Final = ("job", "item", "instance", "outcome", "source", "since", "until", "run", "text")
OUTCOMES: Final = (RUNNING, *(one.value for one in Outcome), "handed over", "cut off")
MAX_OPEN: Final = 500
"""Runs without an end that are compared with the registry when runs are counted: the newest ones."""
REDRAW: Final = 2.0
"""Seconds after which the newest runs are read anew."""
RECOUNT: Final = 10.0
"""Seconds after which they are counted anew at the earliest, if other runs are the newest: that reads many rows."""
A_DAY: Final = 86_400
STATES: Final = {
    "TASK_STAGING": "staged",
    "TASK_RUNNING": "running",
    "TASK_ATTEMPT_FAILED": "attempt failed",
    "TASK_FINISHED": "completed",
    "TASK_ERROR": "failed",
    "TASK_TIMED_OUT": "timed out",
    "TASK_KILLED": "cancelled",
    "TASK_HANDED_OVER": "handed over",
    "TASK_RESCUED": "rescued",
    "TASK_MISFIRED": "misfired",
}
"""Words for the states of the trace; keys of the catalogue."""


async def page(request: PageRequest) -> Response:
    """Show runs, newest first."""
    asked = asked_of(request)
    store = registry_of(request).store
    context: dict[str, object] = {
        "asked": asked,
        "ranges": _ranges(request),
        "outcomes": OUTCOMES,
        "sources": tuple(FireSource),
        "stored": store is not None,
        "runs": None,
        "problem": "",
        "tab": "history",
    }
    if store is None:
        return request.page("history.html", **context)
    query = request.http.query_params
    try:
        pieces = HistoryPieces(request, store.answering(), asked)
        runs = await pieces.runs(query.get("after") or None, query.get("before") or None)
        context |= {"runs": runs, "counts": await pieces.counts()}
        return request.page("history.html", **context)
    except ElasticJobError as error:
        status = 400 if isinstance(error, InvalidSetting) else 503
        context |= {"runs": None, "problem": request.translate.error(error)}
        return request.page("history.html", status, **context)


async def live(request: PageRequest) -> Response:
    """Stream the newest runs that the page's address asks for, and their counts."""
    store = registry_of(request).store
    if store is None:
        return await frame.live(request)
    pieces = HistoryPieces(request, store.store, asked_of(request))

    async def render(_: RegistrySnapshot) -> Sequence[Piece]:
        found = frame_pieces(request)
        with suppress(ElasticJobError):  # the event store does not answer, which the frame says
            store.answering()
            found += await pieces.newest()
        return found

    return stream(request, Pieces(render))


async def run(request: PageRequest) -> Response:
    """Show one run."""
    store = registry_of(request).store
    details = None if store is None else await store.answering().run(request.http.path_params["run"])
    if details is None:
        raise HTTPException(404, request.translate("There is no such run."))
    run = _judged(request, [details.run])[0]
    job = registry_of(request).snapshot.value.jobs.get(run.job)
    fence = fence_of(run.task_id)
    context = {"details": details, "run": run, "states": STATES, "job": job, "fence": fence}
    return request.page("run.html", tab="history", **context)


@dataclass(frozen=True, slots=True)
class Runs:
    """One page of runs."""

    html: str
    is_newest: bool


class HistoryPieces:
    """What the history shows of the runs that its address asks for.

    Raises:
        InvalidSetting: by the constructor, if a filter makes no sense.
    """

    def __init__(self, request: PageRequest, store: EventStore, asked: Mapping[str, str]) -> None:
        self._request = request
        self._store = store
        self._asked = asked
        self._which = _filter(asked, request.viewer.zone)
        self._runs = self._counts = ""
        self._read_at = self._counted_at = float("-inf")
        self._is_stale = False
        """Whether the newest runs are others than when they were counted."""

    async def newest(self) -> list[Piece]:
        """Return the pieces of the newest page as they are now."""
        now = self._request.state.clock.now()
        if now >= self._read_at + REDRAW:
            self._read_at = now
            before = self._runs
            self._runs = (await self.runs(None, None)).html
            self._is_stale |= self._runs != before
        if self._is_stale and now >= self._counted_at + RECOUNT:
            self._counts = await self.counts()
            self._counted_at = now
            self._is_stale = False
        pieces = {"history-counts": self._counts, "history-runs": self._runs}
        return [Piece(name, html) for name, html in pieces.items() if html]

    async def runs(self, after: str | None, before: str | None) -> Runs:
        """Return a page of runs; the newest page where nothing newer is left."""
        page = await self._store.history(self._which, after=after, before=before, limit=ROWS)
        if before is not None and page.previous is None:
            page = await self._store.history(self._which, limit=ROWS)
            after = None
        is_newest = after is None and page.previous is None
        page = replace(page, rows=_judged(self._request, page.rows))
        html = self._request.render("history-runs.html", page=page, asked=self._asked, is_newest=is_newest)
        return Runs(html, is_newest)

    async def counts(self) -> str:
        """Return how many runs there are of each outcome, and when they began."""
        since = self._which.since or await self._store.first(self._which)
        if since is None:
            return self._request.render("history-counts.html", totals={}, asked=self._asked)
        window = self._window(since)
        which = replace(self._which, since=moment(window.start))
        counts = await self._store.histogram(which, column=window.column)
        if any(one.outcome == RUNNING for one in counts):
            open_runs = await self._store.history(replace(which, outcome=RUNNING), limit=MAX_OPEN)
            counts = recounted(counts, _judged(self._request, open_runs.rows), window.start, window.column)
        return self._request.render(
            "history-counts.html",
            totals=_totals(counts),
            asked=self._asked,
            drawing=draw_histogram(counts, window, self._style()) if counts else "",
            window=window,
        )

    def _window(self, since: datetime) -> Window:
        """Return the stretch of time that is counted: in whole seconds, since links name those."""
        start = max(0, floor(since.timestamp()))
        until = self._which.until
        now = self._request.state.clock.now()
        end = now if until is None else min(until.timestamp(), max(start, now) + A_DAY)  # nothing is later than that
        return Window(start, max(end, start + 1), follows=False)

    def _style(self) -> Style:
        request = self._request
        zone = ZoneInfo(self._request.viewer.zone)

        def url(window: Window) -> str:
            stretch = {"since": field_text(window.start, zone), "until": field_text(window.end, zone)}
            return request.registry_url("history", **{**self._asked, **stretch})

        return Style(request.translate, zone, url, lambda key: request.registry_url("history", key))


def asked_of(request: PageRequest) -> dict[str, str]:
    """Return what the page's address asks for, by the names of the form's fields.

    Only operators may search in failures: others could find out credentials in them, letter by letter.
    """
    asked = {name: request.http.query_params.get(name, "").strip()[:400] for name in FIELDS}
    if not request.viewer.sees_credentials:
        asked["text"] = ""
    return asked


def field_text(seconds: float, zone: ZoneInfo) -> str:
    """Return a moment as the form's fields for date and time have it."""
    return moment(seconds).astimezone(zone).strftime("%Y-%m-%dT%H:%M:%S")


def _judged(request: PageRequest, runs: Sequence[RunEntry]) -> tuple[RunEntry, ...]:
    """Return runs of the history as they are shown: one that the registry knows to have ended is not running."""
    snapshot = registry_of(request).snapshot.value
    if not snapshot.read:
        return tuple(runs)
    return tuple(judged(run, snapshot.jobs) for run in runs)


def _totals(counts: tuple[OutcomeCount, ...]) -> dict[str, int]:
    """Return how many runs there are of each outcome, in the order of the form."""
    found = Counter[str]()
    for one in counts:
        found[one.outcome] += one.runs
    return {name: found[name] for name in (*OUTCOMES, ENDED) if found[name]}


def _filter(asked: Mapping[str, str], zone: str) -> Filter:
    item = whole_number(asked["item"], digits=9)
    if item is None and asked["item"]:
        raise InvalidSetting("item", asked["item"], "a whole number")
    return Filter(
        job=asked["job"] or None,
        item=item,
        instance=asked["instance"] or None,
        outcome=asked["outcome"] or None,
        source=asked["source"] or None,
        since=_moment("since", asked["since"], zone),
        until=_moment("until", asked["until"], zone),
        text=asked["text"] or None,
        run=asked["run"] or None,
    )


def _moment(setting: str, text: str, zone: str) -> datetime | None:
    """Read what a browser's field for date and time gives: the page asks for it in the viewer's time zone."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))
    except ValueError:
        raise InvalidSetting(setting, text, f"a moment like 2026-11-20T14:30, in {zone}") from None


def _ranges(request: PageRequest) -> Mapping[str, str]:
    """Return when the stretches of time to choose from begin, as the form's field has it, by their names."""
    now = request.state.clock.now()
    zone = ZoneInfo(request.viewer.zone)
    found = {}
    for name, seconds in SPANS.items():
        whole_minute = (now - seconds) // 60 * 60
        found[name] = field_text(whole_minute, zone)
    return found
