"""The history: the event store's runs with filters, and the page of one run with its states and its failure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from starlette.exceptions import HTTPException
from starlette.responses import Response

from aioelasticjob.clock import moment
from aioelasticjob.console.request import PageRequest, registry_of
from aioelasticjob.console.timeline import SPANS
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.events import fence_of
from aioelasticjob.model import FireSource, Outcome
from aioelasticjob.observers.sql import EventStore, Filter

ROWS: Final = 50
OUTCOMES: Final = ("running", *(one.value for one in Outcome), "handed over", "cut off")
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
FIELDS: Final = ("job", "item", "instance", "outcome", "source", "since", "until", "text")


async def page(request: PageRequest) -> Response:
    """Show runs, newest first."""
    asked = {name: request.http.query_params.get(name, "").strip()[:200] for name in FIELDS}
    after = request.http.query_params.get("after") or None
    context: dict[str, object] = {
        "asked": asked,
        "after": after,
        "ranges": _ranges(request),
        "outcomes": OUTCOMES,
        "sources": tuple(FireSource),
        "tab": "history",
    }
    store = _store(request)
    if store is None:
        return request.page("history.html", store=False, rows=(), next=None, counts={}, problem="", **context)
    try:
        which = _filter(asked, request.viewer.zone)
        found = await store.history(which, after=after, limit=ROWS)
        counts = await store.counts(which)
    except ElasticJobError as error:
        status = 400 if isinstance(error, InvalidSetting) else 503
        return request.page(
            "history.html",
            status,
            store=True,
            rows=(),
            next=None,
            counts={},
            problem=request.translate.error(error),
            **context,
        )
    return request.page(
        "history.html", store=True, rows=found.rows, next=found.next, counts=counts, problem="", **context
    )


async def run(request: PageRequest) -> Response:
    """Show one run."""
    store = _store(request)
    details = None if store is None else await store.run(request.http.path_params["run"])
    if details is None:
        raise HTTPException(404, request.translate("There is no such run."))
    job = registry_of(request).snapshot.value.jobs.get(details.run.job)
    fence = fence_of(details.run.task_id)
    return request.page(
        "run.html", details=details, run=details.run, states=STATES, job=job, fence=fence, tab="history"
    )


def _ranges(request: PageRequest) -> Mapping[str, str]:
    """Return when the stretches of time to choose from begin, as the form's field has it, by their names."""
    now, zone = request.state.clock.now(), ZoneInfo(request.viewer.zone)
    return {name: moment(now - size).astimezone(zone).strftime("%Y-%m-%dT%H:%M") for name, size in SPANS.items()}


def _store(request: PageRequest) -> EventStore | None:
    watch = registry_of(request).store
    return None if watch is None else watch.store


def _filter(asked: Mapping[str, str], zone: str) -> Filter:
    item = asked["item"]
    if item and not (item.isascii() and item.isdecimal() and len(item) < 10):
        raise InvalidSetting("item", item, "a whole number")
    return Filter(
        job=asked["job"] or None,
        item=int(item) if item else None,
        instance=asked["instance"] or None,
        outcome=asked["outcome"] or None,
        source=asked["source"] or None,
        since=_moment("since", asked["since"], zone),
        until=_moment("until", asked["until"], zone),
        text=asked["text"] or None,
    )


def _moment(setting: str, text: str, zone: str) -> datetime | None:
    """Read what a browser's field for date and time gives: the page asks for it in the viewer's time zone."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)) if text else None
    except ValueError:
        raise InvalidSetting(setting, text, f"a moment like 2026-11-20T14:30, in {zone}") from None
