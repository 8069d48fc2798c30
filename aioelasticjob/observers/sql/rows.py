"""Events as rows: what one transaction will write, put together so that writing it twice writes it once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TypeAlias

from aioelasticjob.events import Began, Ended, HandedOver, JobEvent, Misfired, Rescued, Started
from aioelasticjob.model import FireSource, Outcome
from aioelasticjob.observers.failures import cause, stack

Row: TypeAlias = dict[str, object]
Told: TypeAlias = Began | Started | Ended | Rescued | HandedOver | Misfired
"""What is about items and leaves a trace."""

STATES = {
    Outcome.COMPLETED: "TASK_FINISHED",
    Outcome.FAILED: "TASK_ERROR",
    Outcome.TIMED_OUT: "TASK_TIMED_OUT",
    Outcome.CANCELLED: "TASK_KILLED",
}
"""How a run's end is told in the status trace: Elastic-Job's words as far as it has any."""
HANDED_OVER, CUT_OFF = "handed over", "cut off"
"""Outcomes that only become known after a run's end: others take it up, or its instance died."""
ASKEW = timedelta(minutes=5)
"""How far the clocks of two hosts may differ for the one to find the run of the other."""


@dataclass(slots=True)
class Batch:
    """What one transaction writes.

    A row's id follows from the run it tells of: what is written again, for nobody knows whether it was, is there once.
    """

    host: str
    """The name of this machine."""
    widths: Mapping[str, int]
    """Characters that the columns of either table hold: Java may have made them narrower than we do."""
    begun: dict[str, Row] = field(default_factory=dict)
    ended: dict[str, Row] = field(default_factory=dict)
    states: list[Row] = field(default_factory=list)
    handed_over: list[Row] = field(default_factory=list)
    cut_off: list[Row] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.begun) + len(self.ended) + len(self.states) + len(self.handed_over) + len(self.cut_off)

    def add(self, event: JobEvent) -> None:
        """Add what an event is told by."""
        match event:
            case Began():
                self._begin(event)
            case Started():
                for item in event.items:
                    self._state(event, item, event.task_id, "TASK_RUNNING")
            case Ended():
                self._end(event)
            case Rescued():
                message = f"cut off on {event.cut_off}"
                self._state(event, event.item, event.task_id, "TASK_RESCUED", message)
                self._close(event, event.item)
            case HandedOver():
                self._state(event, event.item, event.task_id, "TASK_HANDED_OVER")
                self._hand_over(event)
            case Misfired():
                for item in event.items:
                    task = f"{event.job}@-@{item}@-@READY@-@{event.instance}@-@{event.slot:x}"
                    message = f"{event.moments} × {event.why}" if event.moments > 1 else event.why
                    self._state(event, item, task, "TASK_MISFIRED", message)
                    if event.cut_off:
                        self._close(event, item)
            case _:  # a refusal or a catch-up is about no run: the latter's fire tells itself by its source
                pass

    def _begin(self, event: Began) -> None:
        for item, task in zip(event.items, event.task_ids, strict=True):
            self._state(event, item, task, "TASK_STAGING")
            row = self._run(event, item, task, event.at)
            self.begun[_id(event.slot, task, item)] = row

    def _end(self, event: Ended) -> None:
        why = None if event.failure is None else self._text("failure_cause", clean(cause(event.failure)))
        self._state(event, event.item, event.task_id, STATES[event.outcome], why)
        row = self._run(event, event.item, event.task_id, event.at - event.seconds)
        row["is_success"] = int(event.outcome is Outcome.COMPLETED)
        row["complete_time"] = at(event.at)
        row["outcome"] = event.outcome.value
        row["seconds"] = event.seconds
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

    def _close(self, event: Rescued | Misfired, item: int) -> None:
        """End the run that was cut off: who ran it could not."""
        fired = at(event.slot / 1000)
        self.cut_off.append(
            {
                "job": self._text("job_name", event.job),
                "item": item,
                "who": self._text("instance", event.cut_off),
                "fired": fired,
                "earliest": fired - ASKEW,
                "over": at(event.at),
            }
        )

    def _run(self, event: Began | Ended, item: int, task: str, start: float) -> Row:
        return {
            "id": _id(event.slot, task, item),
            "job_name": self._text("job_name", event.job),
            "task_id": self._text("task_id", task),
            "hostname": self._text("hostname", self.host),
            "ip": ip(event.instance),
            "sharding_item": item,
            "execution_source": event.source.value,
            "failure_cause": None,
            "is_success": 0,
            "start_time": at(start),
            "complete_time": None,
            "instance": self._text("instance", event.instance),
            "fire_time": at(event.slot / 1000),
            "outcome": None,
            "seconds": None,
            "failure_stack": None,
        }

    def _state(self, event: Told, item: int, task: str, state: str, message: str | None = None) -> None:
        source = _source(event)
        self.states.append(
            {
                "id": _id(int(event.at * 1000), f"{task}/{state}", item),
                "job_name": self._text("job_name", event.job),
                "original_task_id": "",
                "task_id": self._text("task_id", task),
                "slave_id": ip(event.instance),
                "execution_type": "FAILOVER" if source is FireSource.FAILOVER else "READY",
                "sharding_item": str(item),
                "state": state,
                "message": message,
                "creation_time": at(event.at),
                "instance": self._text("instance", event.instance),
                "fire_time": at(event.slot / 1000),
                "execution_source": source.value,
            }
        )

    def _text(self, column: str, text: str) -> str:
        width = self.widths.get(column)
        return text if width is None or len(text) <= width else text[:width]


def at(seconds: float) -> datetime:
    """Return a moment as the tables hold it: UTC without saying so."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def ip(instance: str) -> str:
    """Return the address in an instance's name."""
    return instance.partition("@-@")[0][:50]


def clean(text: str) -> str:
    """Return text that every database takes: without NUL and without halves of characters."""
    return text.replace("\0", "�").encode("utf-8", "replace").decode()


def _source(event: Told) -> FireSource:
    match event:
        case Rescued():
            return FireSource.FAILOVER
        case Misfired():
            return FireSource.MISFIRE
        case _:
            return event.source


def _id(slot: int, task: str, item: int) -> str:
    """Return a key that grows with time, so that new rows join the end of an index, and that is the same every time."""
    return f"{slot:012x}{blake2b(f'{task}/{item}'.encode(), digest_size=10).hexdigest()}"
