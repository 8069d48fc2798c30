"""One job: who holds what and how it moves, every item's runs over time, and all that can be done about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from aioelasticjob import operations
from aioelasticjob.clock import moment
from aioelasticjob.console.drawing import Window, timeline
from aioelasticjob.console.live import Picture, Watched
from aioelasticjob.console.past import runs_between
from aioelasticjob.console.standing import tone_of
from aioelasticjob.console.stream import Piece, Pieces, stream
from aioelasticjob.console.visit import Visit
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


async def page(visit: Visit) -> Response:
    """Show a job."""
    status, picture = _job(visit), _registry(visit).picture.value
    pieces = {piece.target: piece.html for piece in await _Drawn(visit).render(picture)}
    return visit.page(
        "job.html", job=status, pieces=pieces, tab="jobs", span=_span(visit, status), spans=SPANS, picture=picture
    )


async def live(visit: Visit) -> Response:
    """Stream what changes on a job's page."""
    return stream(visit, Pieces(_Drawn(visit).render))


async def dump(visit: Visit) -> Response:
    """Show every node of a job, to look at or to send to somebody; without addresses if wished."""
    masked = visit.request.query_params.get("masked") == "1"
    name = visit.request.path_params["job"]
    text = await operations.dump(_registry(visit).session, name, masked=masked)
    if visit.request.query_params.get("as") == "text":
        return PlainTextResponse(text + "\n")
    return visit.page("dump.html", name=name, text=text, masked=masked, tab="jobs")


async def confirm(visit: Visit) -> Response:
    """Ask whether something is really meant."""
    action, status = _action(visit), _job(visit)
    asked = {name: visit.request.query_params.get(name, "")[:200] for name in action.asks}
    name = visit.request.path_params["action"]
    return visit.page("confirm.html", action=action, name=name, job=status, asked=asked, tab="jobs")


async def act(visit: Visit) -> Response:
    """Do something to a job, and write down who did what."""
    action, name = _action(visit), visit.request.path_params["job"]
    if action.typed and visit.form.get("typed") != name:
        raise InvalidSetting("name", visit.form.get("typed", "")[:200], f"type {name} to confirm")
    registry, deed = _registry(visit), visit.request.path_params["action"]
    session = registry.session
    asked = {key: visit.form[key] for key in action.asks if visit.form.get(key)}
    before = facts(registry.picture.value.jobs.get(name))
    async with visit.console.audit.doing(visit.deed(deed, name, asked=asked, before=before)) as result:
        done = await action.do(session, name, visit.form)
        result.summary, result.after = done.summary, await _after(session, name, visit.console.clock.now())
    gone = deed == "remove"
    return visit.go(visit.here("jobs") if gone else visit.here("job", name), done.summary)


def facts(status: JobStatus | None) -> Mapping[str, object]:
    """Return what actions may change, for the audit log."""
    if status is None:
        return {}
    return {
        "state": status.state,
        "instances": len(status.instances),
        "paused": status.paused,
        "pausedOn": [server.ip for server in status.servers if server.paused],
        "disabledOn": [server.ip for server in status.servers if server.disabled],
        "disabledItems": [item.item for item in status.items if item.disabled],
    }


async def _after(session: Session, name: str, now: float) -> Mapping[str, object]:
    try:
        return facts(await operations.job(session, name, now=now))
    except ElasticJobError:  # removed, or the registry is gone: the action itself is done
        return {}


class _Drawn:
    """The pieces of a job's page, the costly one not drawn more often than an eye can use."""

    def __init__(self, visit: Visit) -> None:
        self._visit, self._name = visit, visit.request.path_params["job"]
        self._timeline, self._drawn, self._shown = "", float("-inf"), -1
        self._offsets: Mapping[int, str] = {}

    async def render(self, picture: Picture) -> Sequence[Piece]:
        visit, registry = self._visit, _registry(self._visit)
        state = Piece("state", visit.render("state.html", picture=picture))
        status = picture.jobs.get(self._name)
        if status is None:
            gone = visit.words("This job is not in the registry (any more).")
            return [state, Piece("job-head", visit.render("gone.html", text=gone))] if picture.read else [state]
        palette = registry.palettes[self._name]
        context: dict[str, object] = {
            "job": status,
            "palette": palette,
            "tone": tone_of(status),
            "lanes": lanes(status, registry),
        }
        now = visit.console.clock.now()
        version = picture.changed[self._name]
        if now >= self._drawn + (REDRAW if version != self._shown else MOVE_ON):
            self._drawn, self._shown = now, version
            self._timeline = await self._draw(status, now)
            self._offsets = await _offsets(registry, self._name, now)
        context["offsets"] = self._offsets
        pieces = {
            name: visit.render(f"job-{name}.html", shown=SHOWN, **context)
            for name in ("head", "lanes", "items", "instances")
        }
        pieces["timeline"] = self._timeline
        return [state, *(Piece(f"job-{name}", html) for name, html in pieces.items())]

    async def _draw(self, status: JobStatus, now: float) -> str:
        visit, span = self._visit, SPANS[_span(self._visit, status)]
        window = Window(now - span, now + span / 100)
        runs = await runs_between(_registry(visit), status, window.start, window.end)
        items = [item.item for item in status.items][:SHOWN]
        picture = timeline(items, runs.seen, window, visit.words)
        return visit.render("job-timeline.html", picture=picture, job=status, runs=runs)


async def _offsets(registry: Watched, job: str, now: float) -> Mapping[int, str]:
    """Return the handlers' checkpoints, which lists of jobs leave out."""
    try:
        status = await operations.job(registry.session, job, now=now)
    except ElasticJobError:  # gone, or the registry is: the page says so elsewhere
        return {}
    return {item.item: item.offset for item in status.items if item.offset is not None}


def lanes(status: JobStatus, registry: Watched) -> list[Lane]:
    """Return who holds which items: the instances by age, then what nobody holds."""
    palette = registry.palettes[status.name]
    there = {one.id for one in status.instances}
    items = status.items[:SHOWN]
    closed = {server.ip for server in status.servers if server.flags or status.paused}
    found = [
        Lane(
            f"lane-{index}",
            one,
            palette.of(one.id),
            [item for item in items if item.holder == one.id],
            one.ip in closed,
        )
        for index, one in enumerate(status.instances)
    ]
    if left := [item for item in items if item.holder not in there]:
        found.append(Lane("lane-nobody", None, "c-none", left))
    return found


def _action(visit: Visit) -> Action:
    found = ACTIONS.get(visit.request.path_params["action"])
    if found is None:
        raise HTTPException(404, visit.words("There is no such page."))
    return found


def _job(visit: Visit) -> JobStatus:
    registry, name = _registry(visit), visit.request.path_params["job"]
    found = registry.picture.value.jobs.get(name)
    if found is None:
        lost = registry.picture.value.lost
        known = registry.picture.value.read or lost is None
        raise HTTPException(404 if known else 503, visit.words("There is no such job.") if known else str(lost))
    return found


def _registry(visit: Visit) -> Watched:
    assert visit.registry is not None
    return visit.registry


def _span(visit: Visit, status: JobStatus) -> str:
    """Return the stretch of time wished, else one that shows some thirty fires."""
    wanted = visit.request.query_params.get("span", "")
    if wanted in SPANS:
        return wanted
    schedule = status.config.schedule
    fires = [] if schedule is None else schedule.times_after(moment(visit.console.clock.now()), 2)
    if len(fires) < 2:
        return "24h"
    wide = 30 * (fires[1] - fires[0]).total_seconds()
    return next((name for name, seconds in SPANS.items() if seconds >= wide), "7d")
