"""Events as rows of one transaction; the rows' keys make a transaction that is written twice have the same result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TypeAlias

from aioelasticjob.events import (
    AttemptFailed,
    Began,
    Closed,
    Ended,
    HandedOver,
    JobEvent,
    Misfired,
    Rescued,
    Started,
)
from aioelasticjob.model import CUT_OFF, HANDED_OVER, FireSource, Outcome
from aioelasticjob.observers.failures import cause, stack
from aioelasticjob.observers.missed import MISSED, message_of

Row: TypeAlias = dict[str, object]
StoredEvent: TypeAlias = Began | Started | AttemptFailed | Ended | Rescued | Closed | HandedOver | Misfired
"""The events about runs of items, which are stored."""

STATES = {
    Outcome.COMPLETED: "TASK_FINISHED",
    Outcome.FAILED: "TASK_ERROR",
    Outcome.TIMED_OUT: "TASK_TIMED_OUT",
    Outcome.CANCELLED: "TASK_KILLED",
    Outcome.STOPPED: "TASK_KILLED",
}
"""The states of the status trace for the ends of runs: Elastic-Job's names, as far as it has one."""
WIDTHS = {"job_name": 255, "task_id": 255, "hostname": 255, "instance": 255, "failure_cause": 4000, "message": 4000}
"""Characters that the columns hold in tables that we have made."""
TAIL_CHARACTERS = 80
"""Characters that are kept of the end of a shortened text: a task id is unique by its end."""
KINDS = {
    "begun": "the beginning of a run",
    "ended": "the end of a run",
    "states": "a state of a run",
    "handed_over": "a run that was handed over",
    "cut_off": "a run that was cut off",
}
"""The groups of rows that a batch has, in the words of log lines."""
EVENT_TIMES = ("creation_time", "complete_time", "over", "start_time")
"""The columns that say when the event of a row came: the first of them that the row has."""
LONGEST_VALUE = 100
"""Characters of a value in a log line."""
MAX_CLOCK_DIFFERENCE = timedelta(minutes=5)
"""A host finds the run of another host if their clocks differ by no more than this."""


@dataclass(slots=True)
class Batch:
    """The rows that one transaction writes.

    A row's id is derived from its run.  So a batch can be written again if it is unknown whether it was written: each
    row is there once.
    """

    host: str
    """The name of this machine."""
    namespace: str | None = None
    """The namespace of the jobs' registry."""
    events: int = 0
    """The number of events that were added."""
    since: float = 0.0
    """When it was begun, by the clock of the event loop."""
    begun: dict[str, Row] = field(default_factory=dict)
    ended: dict[str, Row] = field(default_factory=dict)
    states: list[Row] = field(default_factory=list)
    handed_over: list[Row] = field(default_factory=list)
    cut_off: list[Row] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.begun) + len(self.ended) + len(self.states) + len(self.handed_over) + len(self.cut_off)

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield every row with the group of rows that it belongs to."""
        for kind in KINDS:
            rows = getattr(self, kind)
            for row in rows.values() if isinstance(rows, dict) else rows:
                yield kind, row

    def times(self) -> Iterator[datetime]:
        """Yield when the events came that the rows are of."""
        for _, row in self.rows():
            known = (row.get(column) for column in EVENT_TIMES)
            time = next((one for one in known if isinstance(one, datetime)), None)
            if time is not None:
                yield time.replace(tzinfo=UTC)

    def fit(self, widths: Mapping[str, int]) -> None:
        """Shorten texts that are longer than their columns: Elastic-Job may have made narrower columns than we do."""
        narrow = {column: width for column, width in widths.items() if width < WIDTHS.get(column, 0)}
        if narrow:
            for row in (*self.begun.values(), *self.ended.values(), *self.states):
                for column, width in narrow.items():
                    if isinstance(text := row.get(column), str):
                        row[column] = shortened(text, width)

    def add(self, event: JobEvent) -> None:
        """Add the rows of an event."""
        self.events += 1
        match event:
            case Began():
                self._begin(event)
            case Started():
                for item in event.items:
                    self._state(event, item, event.task_id, "TASK_RUNNING")
            case AttemptFailed():
                self._fail_attempt(event)
            case Ended():
                self._end(event)
            case Rescued():
                message = f"cut off on {event.cut_off}"
                self._state(event, event.item, event.task_id, "TASK_RESCUED", message)
                self._close(event, event.item)
            case Closed():
                message = f"cut off on {event.cut_off}, and cancelled"
                self._state(event, event.item, event.task_id, STATES[event.outcome], message)
                self._close(event, event.item, event.outcome.value)
            case HandedOver():
                self._state(event, event.item, event.task_id, "TASK_HANDED_OVER")
                self._hand_over(event)
            case Misfired():
                for item in event.items:
                    task = f"{event.job}@-@{item}@-@READY@-@{event.instance}@-@{event.slot:x}"
                    message = message_of(event.moments, event.why)
                    self._state(event, item, task, MISSED, message)
                    if event.cut_off:
                        self._close(event, item)
            case _:  # a refusal or a catch-up is not about a run; the fire of a catch-up has events of its own
                pass

    def _begin(self, event: Began) -> None:
        for item, task in zip(event.items, event.task_ids, strict=True):
            self._state(event, item, task, "TASK_STAGING")
            row = self._run(event, item, task, event.at)
            self.begun[_id(event.slot, task, item)] = row

    def _fail_attempt(self, event: AttemptFailed) -> None:
        message = shortened(clean(f"attempt {event.attempt}: {cause(event.failure)}"), WIDTHS["message"])
        for item in event.items:
            self._state(event, item, event.task_id, "TASK_ATTEMPT_FAILED", message, number=event.attempt)

    def _end(self, event: Ended) -> None:
        why = None if event.failure is None else shortened(clean(cause(event.failure)), WIDTHS["failure_cause"])
        self._state(event, event.item, event.task_id, STATES[event.outcome], why)
        row = self._run(event, event.item, event.task_id, event.at - event.seconds)
        row["is_success"] = int(event.outcome is Outcome.COMPLETED)
        row["complete_time"] = at(event.at)
        row["outcome"] = event.outcome.value
        row["seconds"] = event.seconds
        row["attempts"] = event.attempt
        row["failure_cause"] = why
        row["failure_stack"] = None if event.failure is None else clean(stack(event.failure))
        key = str(row["id"])
        self.begun.pop(key, None)
        self.ended[key] = row

    def _hand_over(self, event: HandedOver) -> None:
        key = _id(event.slot, event.task_id, event.item)
        if key in self.ended:
            self.ended[key]["outcome"] = HANDED_OVER
        else:
            self.handed_over.append({"key": key})

    def _close(self, event: Rescued | Misfired | Closed, item: int, outcome: str = CUT_OFF) -> None:
        """End the run that was cut off, since its own instance could not."""
        fired = at(event.slot / 1000)
        self.cut_off.append(
            {
                "job": event.job,
                "item": item,
                "who": event.cut_off,
                "fired": fired,
                "earliest": fired - MAX_CLOCK_DIFFERENCE,
                "over": at(event.at),
                "ended_as": outcome,
            }
        )

    def _run(self, event: Began | Ended, item: int, task: str, start: float) -> Row:
        return {
            "id": _id(event.slot, task, item),
            "job_name": event.job,
            "task_id": shortened(task, WIDTHS["task_id"]),
            "hostname": self.host,
            "ip": ip(event.instance),
            "sharding_item": item,
            "execution_source": event.source.value,
            "failure_cause": None,
            "is_success": 0,
            "start_time": at(start),
            "complete_time": None,
            "instance": event.instance,
            "fire_time": at(event.slot / 1000),
            "outcome": None,
            "seconds": None,
            "failure_stack": None,
            "attempts": None,
            "namespace": self.namespace,
        }

    def _state(
        self, event: StoredEvent, item: int, task: str, state: str, message: str | None = None, *, number: int = 0
    ) -> None:
        source = _source(event)
        which = f"{state}/{number}" if number else state  # two may come in one millisecond
        self.states.append(
            {
                "id": _id(int(event.at * 1000), f"{task}/{which}", item),
                "job_name": event.job,
                "original_task_id": "",
                "task_id": shortened(task, WIDTHS["task_id"]),
                "slave_id": ip(event.instance),
                "execution_type": "FAILOVER" if source is FireSource.FAILOVER else "READY",
                "sharding_item": str(item),
                "state": state,
                "message": message,
                "creation_time": at(event.at),
                "instance": event.instance,
                "fire_time": at(event.slot / 1000),
                "execution_source": source.value,
                "namespace": self.namespace,
            }
        )


def halved(batch: Batch) -> tuple[Batch, Batch]:
    """Split a batch into two, each with a part of its rows."""
    one = Batch(batch.host, batch.namespace, batch.events // 2, batch.since)
    other = Batch(batch.host, batch.namespace, batch.events - one.events, batch.since)
    for n, (kind, row) in enumerate(batch.rows()):
        half = one if n < len(batch) // 2 else other
        if kind in ("begun", "ended"):
            getattr(half, kind)[row["id"]] = row
        else:
            getattr(half, kind).append(row)
    return one, other


def described(batch: Batch) -> str:
    """Return the rows of a batch in words, for a log line."""
    found = list[str]()
    for kind, row in batch.rows():
        values = [f"{name}={shortened(str(value), LONGEST_VALUE)}" for name, value in row.items() if value is not None]
        found.append(f"{KINDS[kind]}: {', '.join(values)}")
    return clean("; ".join(found))


def at(seconds: float) -> datetime:
    """Return a moment as the tables hold it: a naive datetime in UTC."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def ip(instance: str) -> str:
    """Return the IP address in an instance's name."""
    return instance.partition("@-@")[0][:50]


def shortened(text: str, width: int) -> str:
    """Return text cut to a width; its beginning and its end are kept."""
    return text if len(text) <= width else f"{text[: width - TAIL_CHARACTERS - 1]}…{text[-TAIL_CHARACTERS:]}"


def clean(text: str) -> str:
    """Return text that every database accepts: without NUL and without halves of surrogate pairs."""
    return text.replace("\0", "�").encode("utf-8", "replace").decode()


def _source(event: StoredEvent) -> FireSource:
    match event:
        case Rescued():
            return FireSource.FAILOVER
        case Misfired():
            return FireSource.MISFIRE
        case _:
            return event.source


def _id(slot: int, task: str, item: int) -> str:
    """Return a key that grows with time, so that new rows are at the end of an index; equal input gives equal keys."""
    return f"{slot:012x}{blake2b(f'{task}/{item}'.encode(), digest_size=10).hexdigest()}"
