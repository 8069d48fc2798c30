"""What may be done to a job on its page: what is asked before, what the form carries, and who may do it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from aioelasticjob import operations
from aioelasticjob.console.users.permissions import Permission
from aioelasticjob.cron.zone import typed_time
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.operations import OperationResult, consequences
from aioelasticjob.registry.session import Session

REMOVED_WITHIN: Final = 20.0
"""Seconds that somebody waits on a page until the instances of a created job have left."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A form as somebody has filled it in."""

    values: Mapping[str, str]
    by: str
    """Who has sent it."""
    zone: str
    """The time zone of the times in it."""

    def text(self, name: str) -> str | None:
        """Return what was typed; None if nothing was."""
        return self.values.get(name, "").strip() or None

    def number(self, name: str) -> int | None:
        """Return a whole number; None if nothing was typed."""
        text = self.text(name)
        if text is None:
            return None
        number = whole_number(text, digits=19)
        if number is None:
            raise InvalidSetting(name, text[:40], "a whole number")
        return number

    def items(self) -> list[int] | None:
        """Return the items that were typed; None for all of them."""
        text = self.text("items")
        return None if text is None else operations.items_in(text)

    def time(self, name: str) -> datetime | None:
        """Return a time, which is meant in the viewer's time zone if it names none; None if nothing was typed."""
        text = self.text(name)
        if text is None:
            return None
        return typed_time(name, text, ZoneInfo(self.zone), self._example)

    def needed(self, name: str) -> datetime:
        """Return a time that has to be typed."""
        found = self.time(name)
        if found is None:
            raise InvalidSetting(name, None, self._example)
        return found

    @property
    def _example(self) -> str:
        return f"a moment like 2026-11-20T14:30, in {self.zone}"


Do: TypeAlias = Callable[[Session, str, Filled], Awaitable[OperationResult]]
Plan: TypeAlias = Callable[[Session, str, Filled], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Input:
    """A field of the form that asks what exactly is to be done."""

    name: str
    label: str
    kind: Literal["text", "long", "time", "number"] = "text"
    hint: str = ""
    """An example of what may be typed."""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """Something that may be done to a job."""

    label: str
    do: Do
    warning: str = ""
    """What an operator should know before; if there is such a text, the action must be confirmed."""
    typed: bool = False
    """Whether the job's name must be typed to confirm."""
    asks: Sequence[str] = field(default=())
    """What the form carries without showing it."""
    inputs: Sequence[Input] = field(default=())
    """What the form asks for."""
    plan: Plan | None = None
    """Returns a text about what would be done, which is shown for confirmation when the form is complete."""
    needs: Permission = Permission.OPERATE
    """The permission to do it."""
    form_label: str = ""
    """What the form is called, if it does something else than the button that needs no form."""

    @property
    def heading(self) -> str:
        """What its form is called."""
        return self.form_label or self.label

    @property
    def carries(self) -> tuple[str, ...]:
        """The names of everything that the form may carry."""
        return (*self.asks, *(one.name for one in self.inputs))


async def _trigger(session: Session, job: str, form: Filled) -> OperationResult:
    return await operations.ask(
        session,
        job,
        instance=form.text("instance"),
        parameter=form.values.get("parameter") or None,
        by=form.by,
        items=form.items(),
        at=form.time("at"),
        delay=form.text("delay"),
        expires=form.text("expires"),
        id=form.text("id"),
    )


async def _backfill(session: Session, job: str, form: Filled) -> OperationResult:
    start = form.needed("from")
    end = form.needed("to")
    at_once = form.number("items_at_once")
    id = form.text("id")
    return await operations.backfill(
        session, job, start, end, items=form.items(), items_at_once=at_once, id=id, by=form.by
    )


async def _plan_backfill(session: Session, job: str, form: Filled) -> str:
    start = form.needed("from")
    end = form.needed("to")
    return (await operations.plan_backfill(session, job, start, end, items=form.items())).summary


async def _rerun(session: Session, job: str, form: Filled) -> OperationResult:
    return await operations.rerun(session, job, form.needed("fire_time"), items=form.items(), by=form.by)


async def _cancel(session: Session, job: str, form: Filled) -> OperationResult:
    return await operations.cancel(session, job, item=form.number("item"), fence=form.number("fence"), by=form.by)


async def _pause(session: Session, job: str, form: Filled) -> OperationResult:
    server = form.text("server")
    note = form.text("note") or ""
    return await operations.pause(session, job, server=server, by=form.by, note=note, until=form.time("until"))


_ITEMS: Final = Input("items", "Items", hint="2, 3")
_ID: Final = Input("id", "Id of the request", hint="report-2026-11-19")

ACTIONS: Final[Mapping[str, Action]] = {
    "trigger": Action(
        "Run now",
        _trigger,
        form_label="Plan a run",
        asks=("instance",),
        inputs=(
            Input("parameter", "Parameter", "long", '{"day": "2026-11-19"}'),
            _ITEMS,
            Input("at", "At this time", "time"),
            Input("delay", "Or after", hint="10m"),
            Input("expires", "Not if it cannot begin within", hint="2h"),
            _ID,
        ),
        needs=Permission.ASK,
    ),
    "backfill": Action(
        "Backfill",
        _backfill,
        "Moments that ran before run again: the handler has to be able to do that.",
        inputs=(
            Input("from", "From", "time", required=True),
            Input("to", "Until", "time", required=True),
            _ITEMS,
            Input("items_at_once", "Items at once in the whole cluster", "number"),
            _ID,
        ),
        plan=_plan_backfill,
    ),
    "rerun": Action(
        "Run again",
        _rerun,
        "Moments that ran before run again: the handler has to be able to do that.",
        asks=("fire_time",),
        inputs=(_ITEMS,),
        needs=Permission.ASK,
    ),
    "cancel": Action(
        "Stop",
        _cancel,
        "Handlers that run now are cancelled. Their runs end as stopped: they are neither rescued nor run again.",
        asks=("item", "fence"),
        needs=Permission.ASK,
    ),
    "cancel-request": Action(
        "Cancel the request",
        lambda s, job, form: operations.cancel_request(s, job, form.values.get("request", ""), by=form.by),
        consequences.CANCEL_REQUEST,
        asks=("request",),
        needs=Permission.ASK,
    ),
    "pause-request": Action(
        "Pause",
        lambda s, job, form: operations.pause_request(s, job, form.values.get("request", ""), by=form.by),
        asks=("request",),
    ),
    "resume-request": Action(
        "Resume",
        lambda s, job, form: operations.resume_request(s, job, form.values.get("request", ""), by=form.by),
        asks=("request",),
    ),
    "pause": Action(
        "Pause",
        _pause,
        asks=("server",),
        inputs=(Input("until", "Until (it ends by itself)", "time"), Input("note", "Why", "long")),
    ),
    "resume": Action(
        "Resume",
        lambda s, job, form: operations.resume(s, job, server=form.text("server"), by=form.by),
        asks=("server",),
    ),
    "disable": Action(
        "Disable",
        lambda s, job, form: operations.disable(
            s, job, server=form.text("server"), item=form.number("item"), by=form.by
        ),
        asks=("server", "item"),
    ),
    "enable": Action(
        "Enable",
        lambda s, job, form: operations.enable(
            s, job, server=form.text("server"), item=form.number("item"), by=form.by
        ),
        asks=("server", "item"),
    ),
    "shut-down": Action(
        "Shut down",
        lambda s, job, form: operations.shut_down(s, job, instance=form.text("instance"), by=form.by),
        consequences.SHUT_DOWN,
        asks=("instance",),
    ),
    "remove": Action(
        "Remove",
        lambda s, job, form: _remove(s, job, form.by),
        consequences.REMOVE,
        typed=True,
    ),
}


async def _remove(session: Session, job: str, by: str) -> OperationResult:
    """Remove a job; of one that was created, the instances leave first."""
    if await operations.is_created(session, job):
        return await operations.remove_created(session, job, timeout=REMOVED_WITHIN, by=by)
    return await operations.remove(session, job, by=by)


BULK: Final[Mapping[str, str]] = {
    "pause": "None of their runs begins until they are resumed. What runs now goes on, and items stay where they are.",
    "resume": "They run by their schedules again, where nothing else is switched off.",
    "disable": "For a whole job that is the same as pausing: none of their runs begins until they are resumed.",
    "enable": "They are resumed, and enabled on all servers that started disabled because of the setting “disabled”,"
    " which is switched off. What operators have disabled by itself stays so.",
    "trigger": "All items of each job run once, now. Jobs that are paused, or that nobody runs, refuse.",
}
"""What may be done to many jobs at once, and what it means."""
