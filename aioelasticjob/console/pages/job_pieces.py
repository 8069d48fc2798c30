"""The live pieces of a job's page: its head, its items singly, its instances, and the timeline in the chosen window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from aioelasticjob import operations
from aioelasticjob.console.drawing.charts import draw_durations, duration_words
from aioelasticjob.console.drawing.run_history import durations_in, runs_in
from aioelasticjob.console.drawing.sparkline import held_label
from aioelasticjob.console.drawing.timeline import SPANS, Style, Window, draw_heat_map, draw_runs
from aioelasticjob.console.watching.partial_registry import SeenRegistry
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.web.frame import frame_pieces, gone_piece
from aioelasticjob.console.web.request import PageRequest, job_name, registry_of
from aioelasticjob.console.web.stream import Piece, PieceFeed, PieceGroup
from aioelasticjob.errors import ElasticJobError
from aioelasticjob.ground.times import moment
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.observers.sql import Filter, StateEntry
from aioelasticjob.operations import InstanceStatus, ItemStatus, JobStatus, RequestStatus

REDRAW: Final = 2.0
"""Seconds after which a timeline is drawn anew at the earliest where something has happened."""
PIECES: Final = ("head", "instances", "requests")
"""The pieces that are sent whole, besides the timeline."""
MOVE_ON: Final = 30.0
"""Seconds after which it is drawn anew where only time has passed."""
MISFIRES: Final = 10
"""Misfires of which the reason is shown."""
MAX_ITEMS_SHOWN: Final = 500
"""Items of which the page shows a tile and a row; of a job with more, those that are chosen in the timeline."""
AHEAD: Final = 0.01
"""The part of a window that follows the present and lies in the future."""

LATEST: Final = 253_402_300_799.0 - 2 * 86_400
"""The latest moment of a timeline, in seconds since the epoch: two days before the end of the year 9999 in UTC."""


@dataclass(frozen=True, slots=True)
class Lane:
    """An instance and the items it holds; without an instance: those nobody holds."""

    id: str
    instance: InstanceStatus | None
    colour: str
    items: Sequence[ItemStatus]
    closed: bool = False
    """Whether operators have switched its server off."""
    left_out: int = 0
    """How many of its items the page does not show."""


class JobPieces:
    """The pieces of a job's page; the timeline, which costs most, is drawn at bounded intervals."""

    def __init__(self, request: PageRequest) -> None:
        self._request = request
        self._registry = registry_of(request)
        self._name = job_name(request)
        self._timeline = ""
        self._drawn = float("-inf")
        self._shown = -1
        self._past = self._durations = ""
        self._measured = float("-inf")
        """When the durations were last asked for."""
        self._offsets: Mapping[int, str] = {}
        self._requests: Sequence[RequestStatus] = ()
        self._asked_at = float("-inf")
        self._rows: dict[int, tuple[tuple[object, ...], str]] = {}
        """By item, what its row was rendered of, and its HTML."""

    async def small(self, snapshot: RegistrySnapshot, status: JobStatus) -> list[Piece]:
        """Return the pieces that are sent whole."""
        now = self._request.state.clock.now()
        version = snapshot.changed[self._name]
        if now >= self._drawn + (REDRAW if version != self._shown else MOVE_ON):
            self._drawn = now
            self._shown = version
            self._timeline = await self._draw(status, now)
            self._past = await self._read_past()
            self._offsets = await _offsets(self._registry, self._name, now)
        if now >= self._measured + MOVE_ON:  # many runs change a percentile, and ranking them costs most
            self._durations = await self._draw_durations(status, now)
            self._measured = now
        if now >= self._asked_at + REDRAW:
            self._requests = await self._read_requests(now)
            self._asked_at = now
        context: dict[str, object] = {
            "job": status,
            "palette": self._registry.palettes[self._name],
            "requests": self._requests,
            "held": held_label(len(status.items), len(status.instances), self._request.translate),
            "health": self._request.state.health_of(self._registry, snapshot).of[self._name],
        }
        found = []
        for name in PIECES:
            html = self._request.render(f"job-{name}.html", **context)
            found.append(Piece(f"job-{name}", html))
        return [
            *found,
            Piece("job-timeline", self._timeline),
            Piece("job-past", self._past),
            Piece("job-durations", self._durations),
        ]

    def groups(self, status: JobStatus) -> list[PieceGroup]:
        """Return the pieces of which only the parts are sent that have changed: every lane, every item's row."""
        shown = shown_items(self._request, status)
        return [self._lanes(status, shown), self._items(status, shown)]

    def _lanes(self, status: JobStatus, shown: Sequence[ItemStatus]) -> PieceGroup:
        render = self._request.render
        found = lanes(status, self._registry, shown)
        parts = [Piece(lane.id, render("job-lane.html", lane=lane)) for lane in found]
        # An item that changes hands moves between two lanes, so the lanes are then sent together.
        held = [tuple(item.item for item in lane.items) for lane in found]
        return PieceGroup("job-lanes", parts, lambda parts: render("job-lanes.html", parts=parts), tuple(held))

    def _items(self, status: JobStatus, shown: Sequence[ItemStatus]) -> PieceGroup:
        render = self._request.render
        gone = status.gone_holders
        rows = []
        for item in shown:
            is_gone = item.holder in gone
            rows.append(Piece(f"row-{item.item}", self._row(status, item, is_gone)))
        columns = {"with_offsets": bool(self._offsets), "count": len(status.items)}
        return PieceGroup("job-items", rows, lambda parts: render("job-items.html", parts=parts, **columns), columns)

    def controls(self, status: JobStatus) -> Mapping[str, object]:
        """Return what the page needs to choose another window."""
        now = self._request.state.clock.now()
        window = window_of(self._request, status, now)
        zone = ZoneInfo(self._request.viewer.zone)
        typed = [moment(at).astimezone(zone).strftime("%Y-%m-%dT%H:%M:%S") for at in (window.start, window.end)]
        links = {
            "earlier": window.moved(-0.5),
            "later": window.moved(0.5),
            "in": window.scaled(0.5),
            "out": window.scaled(2),
        }
        whole = window.first == 0 and window.last + 1 >= len(status.items)
        return {
            "spans": SPANS,
            "span": _span(self._request, status, now) if window.follows else "",
            "window": window,
            "typed": typed,
            "links": {name: self._window_url(one) for name, one in links.items()},
            "live_query": self._query(window),
            "all_items": "" if whole else self._window_url(replace(window, first=0, last=len(status.items) - 1)),
        }

    async def _draw(self, status: JobStatus, now: float) -> str:
        request = self._request
        window = window_of(request, status, now)
        runs = await runs_in(self._registry, status, window, now)
        style = self._style()
        if runs.singles is not None:
            drawing = draw_runs(runs.singles, window, style)
        else:
            drawing = draw_heat_map(runs.fields, runs.misfires, window, style)
        has_store = self._registry.store is not None and runs.problem is None
        return request.render("job-timeline.html", drawing=drawing, runs=runs, window=window, has_store=has_store)

    async def _draw_durations(self, status: JobStatus, now: float) -> str:
        window = window_of(self._request, status, now)
        style = self._style()
        found = await durations_in(self._registry, self._name, window)
        if found.whole is None:
            return self._request.render("job-durations.html", found=found)
        return self._request.render(
            "job-durations.html",
            found=found,
            drawing=draw_durations(found.columns, found.whole, window, style),
            whole=duration_words(found.whole, style),
            newest=duration_words(found.columns[-1], style),
        )

    def _style(self) -> Style:
        request = self._request
        return Style(
            request.translate,
            ZoneInfo(request.viewer.zone),
            self._window_url,
            lambda key: request.registry_url("history", key),
        )

    async def _read_requests(self, now: float) -> Sequence[RequestStatus]:
        """Return the requests of the job; while the registry does not answer, those that were read last."""
        try:
            return await operations.requests(self._registry.session, self._name, now=now)
        except ElasticJobError:
            return self._requests

    async def _read_past(self) -> str:
        """Return the last failure with its stack, and the newest misfires with their reasons."""
        failure = None
        stack = ""
        watched = self._registry.store
        problem = ""
        misfires: Sequence[StateEntry] = ()
        if watched is not None:
            try:
                which = Filter(job=self._name)
                store = watched.answering()
                misfires = (await store.states(replace(which, state="TASK_MISFIRED"), limit=MISFIRES)).rows
                failure = next(iter(await store.failures(which, limit=1)), None)
                stack = "" if failure is None else (await store.stacks([failure.id]))[failure.id]
            except ElasticJobError as error:
                problem = str(error)
        return self._request.render(
            "job-past.html",
            failure=failure,
            stack=stack,
            misfires=misfires,
            stored=watched is not None,
            problem=problem,
        )

    def _window_url(self, window: Window) -> str:
        return self._request.registry_url("job", self._name, **self._query(window)) + "#h-runs"

    def _query(self, window: Window) -> dict[str, object]:
        """Return what the address of a page with this window holds."""
        items = {"items": f"{window.first}-{window.last}"} if window.chosen or window.first else {}
        if window.follows:
            return {"span": self._request.http.query_params.get("span", ""), **items}
        return {"from": f"{window.start:.0f}", "to": f"{window.end:.0f}", **items}

    def _row(self, status: JobStatus, item: ItemStatus, is_gone: bool) -> str:
        colour = self._registry.palettes[self._name].css_class(item.holder)
        offset = self._offsets.get(item.item)
        made_of = (item, colour, is_gone, offset, bool(self._offsets))
        kept = self._rows.get(item.item)
        if kept is None or kept[0] != made_of:
            html = self._request.render(
                "job-item.html",
                job=status,
                item=item,
                colour=colour,
                is_gone=is_gone,
                offset=offset,
                with_offsets=bool(self._offsets),
            )
            kept = self._rows[item.item] = made_of, html
        return kept[1]


class JobFeed(PieceFeed):
    """What one open page of a job has been sent; ``at`` names the version that the page was rendered at."""

    def __init__(self, request: PageRequest, at: str = "") -> None:
        super().__init__()
        self._request = request
        self._registry = registry_of(request)
        self._name = job_name(request)
        self._pieces = JobPieces(request)
        self._at = at

    async def changes(self, snapshot: RegistrySnapshot) -> Sequence[Piece]:
        """Return the pieces that have changed."""
        self._sent.has_more = False
        found = [piece for piece in frame_pieces(self._request) if self._sent.differs(piece)]
        status = snapshot.jobs.get(self._name)
        if status is None:
            if snapshot.read:
                gone = self._request.translate("This job is not in the registry (any more).")
                label = self._request.translate("To the jobs")
                head = gone_piece(self._request, "job-head", gone, "jobs", label)
                if self._sent.differs(head):
                    found.append(head)
            return found
        found += [piece for piece in await self._pieces.small(snapshot, status) if self._sent.differs(piece)]
        groups = self._pieces.groups(status)
        if self._at == f"{self._registry.epoch}.{snapshot.changed[self._name]}":
            for group in groups:
                self._sent.assume(group)
        self._at = ""
        for group in groups:
            size = sum(len(piece.html) for piece in found)
            found += self._sent.changed_parts(group, size)
        return found


def window_of(request: PageRequest, status: JobStatus, now: float) -> Window:
    """Return the window that the page's address asks for, else one of some thirty fires that follows the present."""
    query = request.http.query_params
    first, last, chosen = _items(query.get("items", ""), len(status.items))
    zone = ZoneInfo(request.viewer.zone)
    start = _moment(query.get("from", ""), zone)
    end = _moment(query.get("to", ""), zone)
    if start is not None and end is not None and start < end:
        return Window(start, end, first, last, follows=False, chosen=chosen)
    span = SPANS[_span(request, status, now)]
    return Window(now - span, now + span * AHEAD, first, last, chosen=chosen)


def shown_items(request: PageRequest, status: JobStatus) -> Sequence[ItemStatus]:
    """Return the items of which the page shows a tile and a row.

    Thousands of them would be a page of megabytes, which is not loaded and brought up to date in time.
    """
    if len(status.items) <= MAX_ITEMS_SHOWN:
        return status.items
    first, last, _ = _items(request.http.query_params.get("items", ""), len(status.items))
    return [item for item in status.items if first <= item.item <= last][:MAX_ITEMS_SHOWN]


def lanes(status: JobStatus, registry: SeenRegistry, shown: Sequence[ItemStatus]) -> list[Lane]:
    """Return who holds which of the items shown: the instances by age, then what nobody holds."""
    palette = registry.palettes[status.name]
    held: dict[str | None, list[ItemStatus]] = {one.id: [] for one in status.instances}
    for item in shown:
        holder = item.holder if item.holder in held else None
        held.setdefault(holder, []).append(item)
    closed = {server.ip for server in status.servers if server.flags or status.paused}
    found = []
    for index, one in enumerate(status.instances):
        items = held[one.id]
        lane = Lane(
            id=f"lane-{index}",
            instance=one,
            colour=palette.css_class(one.id),
            items=items,
            closed=one.ip in closed,
            left_out=len(one.holds) - len(items),
        )
        found.append(lane)
    if None in held:
        found.append(Lane("lane-nobody", None, "c-none", held[None]))
    return found


async def _offsets(registry: SeenRegistry, job: str, now: float) -> Mapping[int, str]:
    """Return the handlers' checkpoints, which lists of jobs leave out."""
    try:
        status = await operations.job(registry.session, job, now=now)
    except ElasticJobError:  # gone, or the registry is: the page says so elsewhere
        return {}
    return {item.item: item.offset for item in status.items if item.offset is not None}


def _span(request: PageRequest, status: JobStatus, now: float) -> str:
    """Return the stretch of time wished, else one that shows some thirty fires."""
    wanted = request.http.query_params.get("span", "")
    if wanted in SPANS:
        return wanted
    schedule = status.schedule
    fires = [] if schedule is None else schedule.times_after(moment(now), 2)
    if len(fires) < 2:
        return "24h"
    wide = 30 * (fires[1] - fires[0]).total_seconds()
    return next((name for name, seconds in SPANS.items() if seconds >= wide), "7d")


def _items(text: str, count: int) -> tuple[int, int, bool]:
    """Read the first and the last item of ``3-17``; all items where the text says nothing sensible."""
    start, _, end = text.partition("-")
    first = whole_number(start, digits=7)
    last = whole_number(end, digits=7)
    highest = max(0, count - 1)
    if first is not None and last is not None and first <= min(last, highest):
        return first, min(last, highest), True
    return 0, highest, False


def _moment(text: str, zone: ZoneInfo) -> float | None:
    """Read a moment: seconds since the epoch, as in links, or what the field for date and time gives.

    A time before 1970, or at the end of the year 9999, is moved to where it can be shown in every zone.
    """
    seconds = whole_number(text, digits=11)
    if seconds is not None:
        return float(seconds)
    try:
        typed = datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(typed, 0.0), LATEST)
