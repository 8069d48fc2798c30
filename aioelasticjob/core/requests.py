"""Requests for runs as values: what ``requests/{id}`` and ``requests/{id}/{item}`` hold.

A node that a person has edited may hold anything.  A request that makes no sense is left alone, and progress that makes
no sense counts as the end of its item: no run is made twice, and no job stops, because of it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from aioelasticjob.config.job import MAX_ITEMS
from aioelasticjob.core.records import MAX_MILLISECONDS, too_large, whole_number
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.encoding import encodable_text, unencodable_text
from aioelasticjob.ground.nesting import read_json
from aioelasticjob.model import LEFT_OPEN, FireSource, Outcome, Progress
from aioelasticjob.registry.tree import Node
from aioelasticjob.schedules import Schedule, ScheduleSettings, schedule_of
from aioelasticjob.schedules.calendars import Calendar

CANCELLED = "cancelled"
EXPIRED = "expired"
"""Why a request was stopped before all its items had run."""
MAX_FENCE = 2**63 - 1
_NAME = re.compile(r"[\w.-]{1,120}")
_SOURCES = {"TRIGGER": FireSource.TRIGGER, "BACKFILL": FireSource.BACKFILL}


@dataclass(frozen=True, slots=True)
class Span:
    """The scheduled moments that a backfill runs: those of a schedule from one moment up to another one."""

    start: int
    """In milliseconds since the epoch, included."""
    end: int
    """In milliseconds since the epoch, not included."""
    schedule: Schedule
    items_at_once: int = 0
    """How many items run at a time in the whole cluster; 0 for all."""

    def following(self, last: int) -> int | None:
        """Return the first moment of the span after ``last``; None if there is none."""
        found = _following(self.schedule, max(last, self.start - 1))
        return found if found is not None and found < self.end else None

    def moments(self, at_most: int) -> tuple[int, int, int]:
        """Return the first and the last moment, and how many there are; the count stops at ``at_most``."""
        first = self.following(0) or self.start
        last = first
        count = 1
        while count < at_most and (following := self.following(last)) is not None:
            last = following
            count += 1
        if count == at_most:  # there may be more, which are not counted
            last = self.schedule.until(self.end - 1) or last
        return first, last, count


@dataclass(frozen=True, slots=True)
class Request:
    """Somebody has asked a job to run items.  Times are in milliseconds since the epoch."""

    id: str
    source: FireSource
    count: int
    """The number of the job's items when this was asked."""
    asked: int
    """When this was asked."""
    items: tuple[int, ...] | None = None
    """The items to run, in ascending order; None for all."""
    at: int = 0
    """The moment for which this was asked; 0 for at once."""
    expires: int = 0
    """From this moment on nothing more of it is begun; 0 for never."""
    parameter: str | None = None
    by: str = ""
    """The name of the person or program that made the request."""
    named: bool = False
    """Whether the person or program that made the request chose its id, so that it is remembered for a week."""
    span: Span | None = None
    """Which moments a backfill runs."""
    paused: bool = False
    stopped: str = ""
    """Why nothing more of it is begun, although not all items have run; empty if that is not so."""
    closed: int = 0
    """When the leader noted the end of the request; 0 before."""
    outcomes: Mapping[str, int] | None = None
    """How many runs ended in which way, once it is closed."""
    number: int = 0
    """The zxid of the transaction that made the request."""
    version: int = 0
    """The version of the request's node."""
    then: tuple[str, ...] = ()
    """The followers of the job that have a request of the same id, which goes on when this one is over."""
    awaits: tuple[str, ...] = ()
    """The followed jobs whose requests of the same id have yet to be over before this one begins."""
    takes_any: bool = False
    """Whether it also begins if runs for these requests have not completed."""

    @property
    def moment(self) -> int:
        """The moment that a triggered run is for."""
        return self.at or self.asked

    @property
    def is_open(self) -> bool:
        """Whether runs of it may still begin."""
        return not (self.stopped or self.closed)

    def within(self, count: int) -> Iterator[int]:
        """Yield the items to run, in their order, of a job that has so many items now."""
        if self.items is None:
            return iter(range(min(self.count, count)))
        return iter(self.items[: bisect_left(self.items, count)])

    def beyond(self, count: int) -> tuple[int, ...]:
        """Return the items that this asks for by number, and that a job with so many items does not have."""
        return () if self.items is None else self.items[bisect_left(self.items, count) :]

    def asks_for(self, item: int) -> bool:
        """Whether an item is one of those to run."""
        if self.items is None:
            return item < self.count
        place = bisect_left(self.items, item)  # a list of thousands is searched for each of thousands
        return self.items[place : place + 1] == (item,)

    def following(self, progress: Progress | None) -> int | None:
        """Return the moment that an item has to run next, given its progress; None if it has run all.

        A stream that has given way goes on with its moment.
        """
        if progress is not None and progress.outcome == LEFT_OPEN:
            return progress.moment
        if self.span is not None:
            return self.span.following(0 if progress is None else progress.moment)
        return self.moment if progress is None else None


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Somebody wants runs to be stopped.  They are named by their fences, so the next run of an item goes on."""

    id: str
    fences: Mapping[int, int]
    """The fence of the run of each item."""
    asked: int
    """When this was asked, in milliseconds since the epoch."""
    version: int
    """The version of its node."""
    by: str = ""
    """The name of the person or program that made the request."""


def is_id(text: object) -> bool:
    """Whether a text can be the id of a request."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None and bool(text.strip("."))


def encode(request: Request) -> bytes:
    """Return the data of a new request's node."""
    fields: dict[str, object] = {"kind": request.source.value, "count": request.count, "asked": request.asked}
    if request.items is not None:
        fields["items"] = list(request.items)
    by = encodable_text(request.by)
    optional = {"at": request.at, "expires": request.expires, "by": by, "named": request.named}
    fields |= {key: value for key, value in optional.items() if value}
    if request.parameter is not None:
        fields["parameter"] = request.parameter
    if request.then:
        fields["then"] = list(request.then)
    if request.awaits:
        fields |= {"awaits": list(request.awaits), "takesAny": request.takes_any}
    if (span := request.span) is not None:
        fields |= {"from": span.start, "to": span.end, "schedule": span.schedule.settings.as_json()}
        if calendars := span.schedule.calendars:  # so that no edit of them changes what is run
            fields["calendars"] = [calendar.text for calendar in calendars]
        if span.items_at_once:
            fields["itemsAtOnce"] = span.items_at_once
    return json.dumps(fields).encode()


def changed(data: bytes, **keys: object) -> bytes:
    """Return the data of a request's node with some keys changed; keys that this release does not know are kept."""
    return json.dumps({**read_json(data), **keys}).encode()


def is_completed(data: bytes) -> bool:
    """Whether the data of a request's node says that it is over, and that all its runs have completed."""
    fields = read_json(data)
    return not fields.get("stopped") and fields.get("outcomes", {}).keys() <= {Outcome.COMPLETED.value}


def after_upstream(data: bytes, upstream: str, *, completed: bool) -> bytes:
    """Return the data of a follower's request once that of a followed job is over.

    Unless any outcome will do, it is cancelled if runs of the followed job have not ``completed``.
    """
    fields = read_json(data)
    keys: dict[str, object] = {"awaits": [one for one in fields.get("awaits", ()) if one != upstream]}
    if not completed and fields.get("takesAny") is not True:
        keys["stopped"] = CANCELLED
    return changed(data, **keys)


def decode(name: str, node: Node) -> Request | None:
    """Return the request in a node; None if somebody has written something else there.

    Who writes one by hand may leave out all but its kind: then all items are asked for, when the node was made.
    """
    try:
        fields = read_json(node.data)
        if unencodable_text(fields) is not None or not is_id(name):
            return None
        source = _SOURCES[fields["kind"]]
        outcomes = fields.get("outcomes")
        counted = None if outcomes is None else {_text(key): whole_number(value) for key, value in outcomes.items()}
        return Request(
            name,
            source,
            whole_number(fields.get("count", MAX_ITEMS), MAX_ITEMS),
            whole_number(fields.get("asked", round(node.stat.ctime * 1000))),
            _items(fields.get("items")),
            at=whole_number(fields.get("at", 0)),
            expires=whole_number(fields.get("expires", 0)),
            parameter=_parameter(fields.get("parameter")),
            by=_text(fields.get("by", "")),
            named=fields.get("named") is True,
            span=_span(fields) if source is FireSource.BACKFILL else None,
            paused=fields.get("paused") is True or bool(fields.get("awaits")),
            stopped=_text(fields.get("stopped", "")),
            closed=whole_number(fields.get("closed", 0)),
            outcomes=counted,
            number=node.stat.czxid,
            version=node.stat.version,
            then=tuple(map(_text, fields.get("then", ()))),
            awaits=tuple(map(_text, fields.get("awaits", ()))),
            takes_any=fields.get("takesAny") is True,
        )
    except (ValueError, TypeError, KeyError, AttributeError, InvalidSetting):
        return None


def encode_cancellation(fences: Mapping[int, int], asked: int, by: str) -> bytes:
    """Return the data of a node that asks to stop runs."""
    by_item = {str(item): fence for item, fence in fences.items()}
    fields: dict[str, object] = {"kind": "CANCEL", "asked": asked, "fences": by_item}
    if by:
        fields["by"] = encodable_text(by)
    return json.dumps(fields).encode()


def decode_cancellation(name: str, node: Node) -> Cancellation | None:
    """Return the wish to stop runs that a node holds; None if it holds none."""
    try:
        fields = read_json(node.data)
        if fields["kind"] != "CANCEL":
            return None
        fences = {
            whole_number(int(item), MAX_ITEMS - 1): whole_number(fence, MAX_FENCE)
            for item, fence in fields["fences"].items()
        }
        if unencodable_text(fields) is not None:
            return None
        return Cancellation(name, fences, whole_number(fields["asked"]), node.stat.version, _text(fields.get("by", "")))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def encode_progress(progress: Progress) -> bytes:
    """Return the data of ``requests/{id}/{item}``."""
    fields: dict[str, object] = {"moment": progress.moment, "runs": progress.runs}
    if progress.failed:
        fields["failed"] = progress.failed
    if progress.otherwise:
        fields["otherwise"] = dict(progress.otherwise)
    if progress.instance:
        fields["instance"] = progress.instance
    if progress.outcome:
        fields["outcome"] = progress.outcome
    return json.dumps(fields).encode()


@lru_cache(maxsize=1024)
def decode_progress(data: bytes) -> Progress:
    """Return the progress in a node's data; the end of the item's runs if somebody has written something else there."""
    try:
        fields = read_json(data)
        outcome = _text(fields.get("outcome", ""))
        if unencodable_text(fields) is not None:
            raise TypeError("no text that UTF-8 can spell")
        otherwise = {_text(key): whole_number(value) for key, value in fields.get("otherwise", {}).items()}
        failed = whole_number(fields.get("failed", 0))
        if sum(otherwise.values()) > failed:
            raise ValueError("more ended otherwise than did not complete")
        runs = whole_number(fields.get("runs", 1))
        moment = whole_number(fields["moment"])
        instance = _text(fields.get("instance", ""))
        return Progress(moment, runs, failed, outcome, otherwise, instance)
    except (ValueError, TypeError, KeyError, AttributeError):
        return Progress(MAX_MILLISECONDS, 0, 0, "unknown")


def _span(fields: Mapping[str, Any]) -> Span:
    calendars = [Calendar.of_text(_text(text)) for text in fields.get("calendars", ())]
    schedule = schedule_of(
        ScheduleSettings.of_json(fields["schedule"]), calendars={calendar.hash: calendar for calendar in calendars}
    )
    if schedule is None:
        raise ValueError("there is no schedule whose moments could be run")
    at_once = whole_number(fields.get("itemsAtOnce", 0), MAX_ITEMS)
    return Span(whole_number(fields["from"]), whole_number(fields["to"]), schedule, at_once)


def _items(items: object) -> tuple[int, ...] | None:
    if items is None:
        return None
    if not isinstance(items, list) or not items:
        raise TypeError(f"{items!r} is no list of items")
    return tuple(sorted({whole_number(item, MAX_ITEMS - 1) for item in items}))


def _parameter(value: object) -> str | None:
    if value is None:
        return None
    text = _text(value)
    if too_large(text.encode()) is not None:
        raise ValueError("the parameter is too large for a record")
    return text


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


@lru_cache(maxsize=16384)
def _following(schedule: Schedule, last: int) -> int | None:
    return schedule.after(last)
