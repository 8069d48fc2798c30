"""One job: which instance holds which item, every item's runs over time, and the actions on the job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from aioelasticjob import operations
from aioelasticjob.clock import moment
from aioelasticjob.console.drawing import Window, timeline
from aioelasticjob.console.frame import frame_pieces
from aioelasticjob.console.pages.overview import held_label
from aioelasticjob.console.registry_watch import RegistrySnapshot, RegistryWatch
from aioelasticjob.console.request import PageRequest, registry_of
from aioelasticjob.console.run_history import runs_between
from aioelasticjob.console.stream import Piece, Pieces, stream
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.operations import InstanceStatus, ItemStatus, JobStatus, OperationResult
from aioelasticjob.registry.session import Session

SPANS: Final = {"5m": 300, "30m": 1800, "3h": 10_800, "24h": 86_400, "7d": 604_800}
"""Stretches of time that a timeline shows, in seconds."""
SHOWN: Final = 200
"""Items drawn and listed on one page."""
REDRAW: Final = 2.0
"""Seconds after which a timeline is drawn anew at the earliest where something has happened."""
MOVE_ON: Final = 30.0
"""Seconds after which it is drawn anew where only time has passed."""


@dataclass(frozen=True, slots=True)
class Lane:
    """An instance and the items it holds; without an instance: those nobody holds."""

    id: str
    instance: InstanceStatus | None
    colour: str
    items: Sequence[ItemStatus]
    closed: bool = False
    """Whether operators have switched its server off."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that may be done to a job."""

    label: str
    do: Callable[[Session, str, Mapping[str, str]], Awaitable[OperationResult]]
    warning: str = ""
    """What to think of before; asks for confirmation where there is one."""
    typed: bool = False
    """Whether the job's name must be typed to confirm."""
    asks: Sequence[str] = field(default=())
    """What else the form may carry."""


def _may(form: Mapping[str, str], name: str) -> str | None:
    return form.get(name) or None


def _item(form: Mapping[str, str]) -> int | None:
    text = form.get("item", "")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise InvalidSetting("item", text[:40], "a whole number")
    return int(text)


ACTIONS: Final[Mapping[str, Action]] = {
    "trigger": Action(
        "Run now",
        lambda s, job, form: operations.trigger(
            s, job, instance=_may(form, "instance"), parameter=_may(form, "parameter")
        ),
        asks=("instance", "parameter"),
    ),
    "pause": Action(
        "Pause", lambda s, job, form: operations.pause(s, job, server=_may(form, "server")), asks=("server",)
    ),
    "resume": Action(
        "Resume", lambda s, job, form: operations.resume(s, job, server=_may(form, "server")), asks=("server",)
    ),
    "disable": Action(
        "Disable",
        lambda s, job, form: operations.disable(s, job, server=_may(form, "server"), item=_item(form)),
        asks=("server", "item"),
    ),
    "enable": Action(
        "Enable",
        lambda s, job, form: operations.enable(s, job, server=_may(form, "server"), item=_item(form)),
        asks=("server", "item"),
    ),
    "shut-down": Action(
        "Shut down",
        lambda s, job, form: operations.shut_down(s, job, instance=_may(form, "instance")),
        "Its instances finish their items, hand them over and leave this job until their processes are started again.",
        asks=("instance",),
    ),
    "remove": Action(
        "Remove",
        lambda s, job, form: operations.remove(s, job),
        "Everything the registry holds of this job is deleted: settings, offsets, records. This cannot be undone.",
        typed=True,
    ),
}


async def page(request: PageRequest) -> Response:
    """Show a job."""
    status, snapshot = _job(request), registry_of(request).snapshot.value
    pieces = {piece.target: piece.html for piece in await _JobPieces(request).render(snapshot)}
    return request.page(
        "job.html", job=status, pieces=pieces, tab="jobs", span=_span(request, status), spans=SPANS, snapshot=snapshot
    )


async def live(request: PageRequest) -> Response:
    """Stream what changes on a job's page."""
    return stream(request, Pieces(_JobPieces(request).render))


async def dump(request: PageRequest) -> Response:
    """Show every node of a job, to look at or to send to somebody; without addresses if wished."""
    masked = request.http.query_params.get("masked") == "1"
    name = request.http.path_params["job"]
    text = await operations.dump(registry_of(request).session, name, masked=masked)
    if request.http.query_params.get("as") == "text":
        return PlainTextResponse(text + "\n")
    return request.page("dump.html", name=name, text=text, masked=masked, tab="jobs")


async def confirm(request: PageRequest) -> Response:
    """Ask whether something is really meant."""
    action, status = _action(request), _job(request)
    asked = {name: request.http.query_params.get(name, "")[:200] for name in action.asks}
    name = request.http.path_params["action"]
    return request.page("confirm.html", action=action, name=name, job=status, asked=asked, tab="jobs")


async def act(request: PageRequest) -> Response:
    """Do something to a job, and write down who did what."""
    action, name = _action(request), request.http.path_params["job"]
    if action.typed and request.form.get("typed") != name:
        raise InvalidSetting("name", request.form.get("typed", "")[:200], f"type {name} to confirm")
    registry, kind = registry_of(request), request.http.path_params["action"]
    session = registry.session
    asked = {key: request.form[key] for key in action.asks if request.form.get(key)}
    before = facts(registry.snapshot.value.jobs.get(name))
    async with request.audited(kind, name, asked=asked, before=before) as result:
        done = await action.do(session, name, request.form)
        result.summary, result.after = done.summary, await _after(session, name, request.state.clock.now())
    gone = kind == "remove"
    return request.redirect(request.registry_url("jobs") if gone else request.registry_url("job", name), done.summary)


def facts(status: JobStatus | None) -> Mapping[str, object]:
    """Return what actions may change, for the audit log."""
    if status is None:
        return {}
    return {
        "state": status.state,
        "instances": len(status.instances),
        "paused": [server.ip for server in status.servers if server.paused],
        "disabled": [server.ip for server in status.servers if server.disabled],
        "disabledItems": [item.item for item in status.items if item.disabled],
    }


async def _after(session: Session, name: str, now: float) -> Mapping[str, object]:
    try:
        return facts(await operations.job(session, name, now=now))
    except ElasticJobError:  # removed, or the registry is gone: the action itself is done
        return {}


class _JobPieces:
    """The pieces of a job's page; the timeline, which costs most, is drawn at bounded intervals."""

    def __init__(self, request: PageRequest) -> None:
        self._request, self._name = request, request.http.path_params["job"]
        self._timeline, self._drawn, self._shown = "", float("-inf"), -1
        self._offsets: Mapping[int, str] = {}

    async def render(self, snapshot: RegistrySnapshot) -> Sequence[Piece]:
        request, registry = self._request, registry_of(self._request)
        frame = frame_pieces(request)
        status = snapshot.jobs.get(self._name)
        if status is None:
            gone = request.translate("This job is not in the registry (any more).")
            return [*frame, Piece("job-head", request.render("gone.html", text=gone))] if snapshot.read else frame
        palette = registry.palettes[self._name]
        context: dict[str, object] = {
            "job": status,
            "palette": palette,
            "held": held_label(status, request.translate),
            "health": request.state.health_of(registry, snapshot).of[self._name],
            "lanes": lanes(status, registry),
        }
        now = request.state.clock.now()
        version = snapshot.changed[self._name]
        if now >= self._drawn + (REDRAW if version != self._shown else MOVE_ON):
            self._drawn, self._shown = now, version
            self._timeline = await self._draw(status, now)
            self._offsets = await _offsets(registry, self._name, now)
        context["offsets"] = self._offsets
        pieces = {
            name: request.render(f"job-{name}.html", shown=SHOWN, **context)
            for name in ("head", "lanes", "items", "instances")
        }
        pieces["timeline"] = self._timeline
        return [*frame, *(Piece(f"job-{name}", html) for name, html in pieces.items())]

    async def _draw(self, status: JobStatus, now: float) -> str:
        request, span = self._request, SPANS[_span(self._request, status)]
        window = Window(now - span, now + span / 100)
        runs = await runs_between(registry_of(request), status, window.start, window.end)
        items = [item.item for item in status.items][:SHOWN]
        drawing = timeline(items, runs.seen, window, request.translate)
        return request.render("job-timeline.html", drawing=drawing, job=status, runs=runs)


async def _offsets(registry: RegistryWatch, job: str, now: float) -> Mapping[int, str]:
    """Return the handlers' checkpoints, which lists of jobs leave out."""
    try:
        status = await operations.job(registry.session, job, now=now)
    except ElasticJobError:  # gone, or the registry is: the page says so elsewhere
        return {}
    return {item.item: item.offset for item in status.items if item.offset is not None}


def lanes(status: JobStatus, registry: RegistryWatch) -> list[Lane]:
    """Return who holds which items: the instances by age, then what nobody holds."""
    palette = registry.palettes[status.name]
    there = {one.id for one in status.instances}
    items = status.items[:SHOWN]
    closed = {server.ip for server in status.servers if server.disabled or server.paused}
    found = [
        Lane(
            f"lane-{index}",
            one,
            palette.css_class(one.id),
            [item for item in items if item.holder == one.id],
            one.ip in closed,
        )
        for index, one in enumerate(status.instances)
    ]
    if left := [item for item in items if item.holder not in there]:
        found.append(Lane("lane-nobody", None, "c-none", left))
    return found


def _action(request: PageRequest) -> Action:
    found = ACTIONS.get(request.http.path_params["action"])
    if found is None:
        raise HTTPException(404, request.translate("There is no such page."))
    return found


def _job(request: PageRequest) -> JobStatus:
    registry, name = registry_of(request), request.http.path_params["job"]
    found = registry.snapshot.value.jobs.get(name)
    if found is None:
        lost = registry.snapshot.value.lost
        known = registry.snapshot.value.read or lost is None
        raise HTTPException(404 if known else 503, request.translate("There is no such job.") if known else str(lost))
    return found


def _span(request: PageRequest, status: JobStatus) -> str:
    """Return the stretch of time wished, else one that shows some thirty fires."""
    wanted = request.http.query_params.get("span", "")
    if wanted in SPANS:
        return wanted
    schedule = status.config.schedule
    fires = [] if schedule is None else schedule.times_after(moment(request.state.clock.now()), 2)
    if len(fires) < 2:
        return "24h"
    wide = 30 * (fires[1] - fires[0]).total_seconds()
    return next((name for name, seconds in SPANS.items() if seconds >= wide), "7d")
