"""Asking for runs, and pausing and cancelling what was asked for.

Each is one conditional transaction.  The instances of the job answer a request whenever they can, also those that start
later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypedDict, Unpack
from uuid import uuid4

from aioelasticjob.config.durations import EXPECTED, Duration, as_seconds
from aioelasticjob.core.records import MAX_MILLISECONDS
from aioelasticjob.core.requests import CANCELLED, Request, changed, decode, encode, is_id
from aioelasticjob.core.view import JobView
from aioelasticjob.cron.zone import local_time
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.times import time_text
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.model import FireSource
from aioelasticjob.operations.instances import items_of, parameter_text, see_who_runs
from aioelasticjob.operations.queries import items_text, listed, no_such_item, requests_view, view_of
from aioelasticjob.operations.request_status import existing, status_of_request
from aioelasticjob.operations.results import ChangedMeanwhile, NotPossible, OperationResult, commit, noted
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Check, Create, Op, Set

MOST_LATE = 60_000
"""Milliseconds by which the time of a new request may have passed: asking takes a moment, and clocks differ."""
ATTEMPTS = 5
"""How often a request is written if others change the same nodes meanwhile."""


@dataclass(frozen=True, slots=True)
class Asked(OperationResult):
    """The result of asking for runs."""

    request: str = ""
    """The id of the request."""


class RunOptions(TypedDict, total=False):
    """How runs may be asked for; without any of these: all items, at once."""

    items: Iterable[int] | None
    """The items to run; all of them if none are named.

    A run at once is then for the items that are enabled.  In a planned run the part of items that are disabled waits
    until they are enabled.  The summary names the items that are disabled in both cases.
    """
    instance: str | None
    """Only the items that this instance holds now, without those that are disabled."""
    at: datetime | None
    """The time for which they are asked for."""
    delay: Duration | None
    """How long after now that is: seconds, or text as ``10m``."""
    expires: datetime | Duration | None
    """When nothing more of it is begun: at a time, or so long after it is due.  Without it, it runs however late."""
    id: str | None
    """A second request with the same id is the same request."""


async def ask(
    session: Session,
    job: str,
    *,
    parameter: str | Mapping[str, object] | None = None,
    by: str = "",
    **options: Unpack[RunOptions],
) -> Asked:
    """Ask for one run of a job's items, at once or later, as the options say.

    A ``parameter`` that is a mapping is passed on as JSON.

    Raises:
        TypeError: there is no such option.
        InvalidSetting: no such job or instance, or an argument makes no sense.
        NotPossible: nobody can answer it.
        ChangedMeanwhile: others have changed the job meanwhile.
        RegistryError: the registry could not be read or written.
    """
    if unknown := options.keys() - (known := RunOptions.__annotations__.keys()):
        raise TypeError(f"a request has no option {listed(sorted(unknown))}: known are {', '.join(sorted(known))}")
    items = options.get("items")
    id = options.get("id")
    at = options.get("at")
    delay = options.get("delay")
    text = parameter_text(parameter)
    chosen = None if items is None else item_numbers(items)
    instance = options.get("instance")
    if instance is not None and chosen is not None:
        raise InvalidSetting("instance", instance, "names the items that it holds: give either it or items")
    planned = _see_when(at, delay)
    view = await view_of(session, job, request=id or "")
    see_whether_requests_work(view)
    if instance is not None:
        chosen = items_of(view, instance)
    if not planned and not (is_id(id) and view.layout.request(str(id)) in view.tree):  # else it was asked already
        see_who_runs(view)
    wanted = await new_request(session, view, chosen, id, by)
    wanted, left_out = (wanted, "") if planned else _for_now(view, wanted)
    wanted = replace(wanted, at=_due(at, delay, wanted.asked), parameter=text)
    wanted = replace(wanted, expires=_expiry(options.get("expires"), wanted.moment, view.config.time_zone))
    summary = f"{job}: asked to run {named(wanted, view)}{left_out}"
    return await write_request(session, view, wanted, summary, delay is not None)


async def new_request(
    session: Session, view: JobView, items: tuple[int, ...] | None, id: str | None, by: str
) -> Request:
    """Return a request for one run, as of now by the registry's clock, also of items that are disabled.

    Raises:
        InvalidSetting: the job has no such items, or the id is none.
        RegistryError: the registry could not be asked for its time.
    """
    if id is not None and not is_id(id):
        raise InvalidSetting("id", id, "must be 1 to 120 letters, digits, '_', '-' or '.'")
    now = round(await session.server_time(view.layout.system_time) * 1000)
    count = view.config.sharding_total_count
    name = id or f"{now:x}-{uuid4().hex[:8]}"
    if beyond := [item for item in items or () if not 0 <= item < count]:
        raise no_such_item("items", items, view.layout.job, count, beyond)
    return Request(name, FireSource.TRIGGER, count, now, items, by=by, named=id is not None)


async def write_request(
    session: Session, view: JobView, request: Request, summary: str, is_delayed: bool = False
) -> Asked:
    """Write a new request, unless the same one is there already.  ``view`` has the request of its id, if there is one.

    A request ``is_delayed`` if its time follows from when it is asked for: then it is the same whenever it is asked.

    Raises:
        NotPossible: its id belongs to another request.
        ChangedMeanwhile: others have changed the job meanwhile.
        RegistryError: the registry could not be read or written.
    """
    for attempt in range(1, ATTEMPTS + 1):
        path = view.layout.request(request.id)
        if (node := view.tree.get(path)) is not None:
            done = await commit(session, (), _already(view, request, decode(request.id, node), is_delayed))
            return Asked(done.summary, done.paths, done.zxid, request.id)
        if request.expires and request.expires <= request.asked:
            passed = _iso(request.expires, view.config.time_zone)
            raise InvalidSetting("expires", passed, "has passed already, so that nothing would be run")
        if request.at and request.at < request.asked - MOST_LATE:
            passed = _iso(request.at, view.config.time_zone)
            raise InvalidSetting("at", passed, "has passed: give a later time, or none to run it at once")
        parent = [] if await session.exists(view.layout.requests) else [Create(view.layout.requests)]
        operations: list[Op] = [Check(view.layout.config), *parent, Create(path, encode(request))]
        try:
            waiting = disabled_note(view, request)
            done = await commit(session, operations, f"{summary}, as the request {request.id}{waiting}")
        except ChangedMeanwhile:
            if attempt == ATTEMPTS:
                raise
            view = await view_of(session, view.layout.job, request=request.id)
            see_whether_requests_work(view)
        else:
            return Asked(done.summary, done.paths, done.zxid, request.id)
    raise AssertionError("the last attempt returns or raises")


async def cancel_request(session: Session, job: str, id: str, *, by: str = "") -> OperationResult:
    """Cancel a request: nothing more of it is begun.  Runs that have begun go on.

    Raises:
        InvalidSetting: there is no such job, or no such request.
        ChangedMeanwhile: others have changed the request meanwhile.
        RegistryError: the registry could not be read or written.
    """
    view = await requests_view(session, job, id)
    wanted = existing(view, id)
    if not wanted.is_open:
        how = "is cancelled" if wanted.stopped == CANCELLED else "has ended"
        return await commit(session, (), f"{job}: the request {id} {how} already")
    return await _change_request(session, view, wanted, by, f"{job}: the request {id} is cancelled", stopped=CANCELLED)


async def pause_request(session: Session, job: str, id: str, *, by: str = "") -> OperationResult:
    """Pause a request: nothing more of it is begun until it is resumed; raises the errors of ``cancel_request``."""
    view = await requests_view(session, job, id)
    wanted = existing(view, id)
    if wanted.paused or not wanted.is_open:
        return await commit(session, (), f"{job}: the request {id} {'is paused' if wanted.paused else 'ended'} already")
    return await _change_request(session, view, wanted, by, f"{job}: the request {id} is paused", paused=True)


async def resume_request(session: Session, job: str, id: str, *, by: str = "") -> OperationResult:
    """Undo ``pause_request``; raises the same errors."""
    view = await requests_view(session, job, id)
    wanted = existing(view, id)
    if not wanted.is_open:
        return await commit(session, (), f"{job}: the request {id} has ended already")
    if not wanted.paused:
        return await commit(session, (), f"{job}: the request {id} is not paused")
    return await _change_request(session, view, wanted, by, f"{job}: the request {id} goes on", paused=False)


async def _change_request(
    session: Session, view: JobView, wanted: Request, by: str, summary: str, **keys: object
) -> OperationResult:
    """Change some keys of a request."""
    path = view.layout.request(wanted.id)
    node = view.tree.get(path)
    assert node is not None
    change = [Set(path, changed(node.data, **keys), wanted.version)]
    return await commit(session, [*noted(view.layout, view.tree, by, change), *change], summary)


def see_whether_requests_work(view: JobView) -> None:
    """Check that the job's configuration allows requests.

    Raises:
        NotPossible: the configuration is invalid.
    """
    if view.fault is not None:
        raise NotPossible(f"{view.fault}: import a whole configuration in its place first")


def see_whether_recorded(view: JobView, otherwise: str) -> None:
    """Check that the job keeps records; ``otherwise`` is the sentence that says what is not possible without them.

    Raises:
        InvalidSetting: the job's execution is not monitored.
    """
    if not view.config.monitor_execution:
        raise InvalidSetting("monitor_execution", False, otherwise)


def _already(view: JobView, wanted: Request, there: Request | None, is_delayed: bool) -> str:
    """Return the result if the id already belongs to the same request.

    Raises:
        NotPossible: it is taken by another one.
    """
    job = view.layout.job
    if there is None:
        raise NotPossible(f"{job}: the id {wanted.id!r} belongs to another request: choose another id")
    holds = f"{job}: asked already: {named(there, view)}, as the request {there.id}"
    if differing := list(_differing(wanted, there, is_delayed)):
        raise NotPossible(
            f"{holds}; {'; '.join(differing)}; choose another id, "
            "or wait until that id is forgotten, 7 days after the end of its request"
        )
    found = status_of_request(view, there, wanted.asked / 1000)
    ended = found.outcomes_text.replace(", ", "; ")  # parts of a sentence, which pages translate one by one
    return f"{holds} ({found.state}: {ended})"


def _differing(wanted: Request, there: Request, is_delayed: bool) -> Iterator[str]:
    """Yield each difference between two requests of the same id, as parts of a sentence that pages translate."""
    if wanted.source is not there.source or wanted.span != there.span:
        yield "the moments differ" if wanted.source is there.source else "the kind differs"
    if wanted.items != there.items:
        yield "the items differ"
    if wanted.parameter != there.parameter:
        yield "the parameter differs"
    if wanted.at != there.at and not (is_delayed and there.at):
        yield "the time differs"
    elif wanted.expires != there.expires and wanted.expires - wanted.moment != there.expires - there.moment:
        yield "the time at which it expires differs"


def item_numbers(given: Iterable[int]) -> tuple[int, ...]:
    """Return numbers of items, each once.  An InvalidSetting is raised if there is none, or if they are no numbers."""
    if not isinstance(given, Iterable):
        raise InvalidSetting("items", given, "must be numbers of items, at least one")
    items = tuple(given)
    if not items or not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
        raise InvalidSetting("items", items, "must be numbers of items, at least one")
    return tuple(sorted(set(items)))


def items_in(text: str) -> list[int]:
    """Return the numbers of items in a text such as ``2, 3``; an InvalidSetting is raised if it is none."""
    items = list[int]()
    for part in text.split(","):
        item = whole_number(part.strip(), digits=9)
        if item is None:
            raise InvalidSetting("items", text[:200], "write the numbers of items, such as 2,3")
        items.append(item)
    return items


def disabled_note(view: JobView, request: Request) -> str:
    """Return the end of a sentence that names the items of a request that are disabled; empty if none is."""
    waiting = sorted(view.disabled_items.intersection(request.within(view.config.sharding_total_count)))
    return f"; the items that are disabled wait until they are enabled: {listed(waiting)}" if waiting else ""


def _for_now(view: JobView, wanted: Request) -> tuple[Request, str]:
    """Return a request without the items that cannot run now, and the part of a sentence that names these.

    Raises:
        NotPossible: items that were named are disabled, or all are.
    """
    off = sorted(view.disabled_items.intersection(wanted.within(view.config.sharding_total_count)))
    if not off:
        return wanted, ""
    rest = tuple(item for item in wanted.within(wanted.count) if item not in off)
    if wanted.items is not None or not rest:
        if len(off) == 1:
            raise NotPossible(f"{view.layout.job}: item {off[0]} is disabled: enable it first")
        raise NotPossible(f"{view.layout.job}: items {listed(off)} are disabled: enable them first")
    return replace(wanted, items=rest), f", without those that are disabled ({listed(off)})"


def _see_when(at: object, delay: object) -> bool:
    """Return whether a run is planned for later."""
    if at is not None and delay is not None:
        raise InvalidSetting("delay", delay, "give either a time (at) or a delay")
    return at is not None or delay is not None


def _due(at: datetime | None, delay: Duration | None, now: int) -> int:
    """Return the moment for which a run is asked for; 0 for at once."""
    if at is not None:
        return milliseconds("at", at)
    if delay is None:
        return 0
    return now + _span("delay", delay)


def _expiry(expires: datetime | Duration | None, due: int, time_zone: str) -> int:
    if expires is None:
        return 0
    last = milliseconds("expires", expires) if isinstance(expires, datetime) else due + _span("expires", expires)
    if last <= due:
        raise InvalidSetting("expires", expires, f"must be later than the time when it is due, {_iso(due, time_zone)}")
    return last


def _span(setting: str, given: Duration) -> int:
    try:
        seconds = as_seconds(given)
    except ValueError as error:
        raise InvalidSetting(setting, given, str(error)) from None
    if not isinstance(seconds, int | float) or not 0 <= seconds < 10 * 366 * 86_400:
        raise InvalidSetting(setting, given, f"{EXPECTED}, 0 or more and less than ten years")
    return round(seconds * 1000)


def milliseconds(setting: str, given: object) -> int:
    """Return a time in milliseconds since the epoch.

    Raises:
        InvalidSetting: it is no aware datetime between 1970 and 9999.
    """
    if not isinstance(given, datetime) or given.utcoffset() is None:
        raise InvalidSetting(setting, given, "must be a datetime with a time zone")
    found = round(given.timestamp() * 1000)
    if not 0 < found < MAX_MILLISECONDS:
        raise InvalidSetting(setting, given, "must be after 1970 and before 9999")
    return found


def named(request: Request, view: JobView) -> str:
    """Return what a request asks for, for a sentence, with times in the job's time zone."""
    zone = view.config.time_zone
    span = request.span
    when = f" at {_iso(request.at, zone)}" if request.at else ""
    if span is not None:
        when = f" for the moments from {_iso(span.start, zone)} to {_iso(span.end, zone)}"
    if request.items is None:
        return f"all its items{when}"
    return f"{items_text(request.items)}{when}"


def _iso(milliseconds: int, time_zone: str) -> str:
    return time_text(local_time(milliseconds, time_zone))
