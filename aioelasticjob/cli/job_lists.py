"""Which jobs `aioelasticjob jobs` lists, in which order, and which of them need attention.  Nothing here waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rich.console import Group, RenderableType
from rich.text import Text

from aioelasticjob import operations
from aioelasticjob.cli.describe import summary_as_json
from aioelasticjob.cli.tables import TextTable
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.plural import counted
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.operations import JobStatus, ProcessStatus
from aioelasticjob.operations.attention import MILD, SEVERITY, Reason, reasons
from aioelasticjob.operations.labels import WantedLabel
from aioelasticjob.operations.status import STATES


class Order(StrEnum):
    """How jobs are sorted."""

    NAME = "name"
    WORST = "worst"
    NEXT = "next"
    LAST = "last"
    ITEMS = "items"


@dataclass(frozen=True, slots=True)
class JobList:
    """Which jobs are listed, and how.

    Raises:
        InvalidSetting: by the constructor, if no job can be in one of the states.
    """

    labels: Sequence[WantedLabel] = ()
    states: Sequence[str] = ()
    order: Order = Order.NAME
    attention: bool = False
    """Only jobs that need attention, with all of their reasons."""
    wide: bool = False
    """Every column is shown in full, however narrow the terminal is."""
    tree: bool = False
    """Each job stands below those that it follows."""

    def __post_init__(self) -> None:
        for state in self.states:
            if state not in STATES:
                raise InvalidSetting("state", state, f"must be one of {', '.join(STATES)}")

    def chosen(self, found: Sequence[JobStatus], now: float) -> Sequence[ListedJob]:
        """Return the jobs that are listed, in their order."""
        jobs = [ListedJob(status, reasons(status, now)) for status in operations.labelled(found, self.labels)]
        if self.states:
            jobs = [one for one in jobs if one.status.state in self.states]
        if self.attention:
            jobs = [one for one in jobs if one.reasons]
        return sorted(jobs, key=lambda one: one.place(self.order))

    def as_values(self, found: Sequence[JobStatus], now: float) -> list[dict[str, object]]:
        """Return the jobs that are listed, for JSON."""
        return [one.as_json() for one in self.chosen(found, now)]

    @property
    def nothing(self) -> str:
        """What is said if no job is listed."""
        labels = [name if value is None else f"{name}={value}" for name, value in self.labels]
        conditions = list[str]()
        if labels:
            conditions.append(f"the label {' and '.join(labels)}")
        if self.states:
            conditions.append(f"the state {' or '.join(self.states)}")
        which = f" with {' and '.join(conditions)}" if conditions else ""
        return f"no job{which} needs attention" if self.attention else f"no jobs{which}"


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job in a list, and why it needs attention, the worst reason first."""

    status: JobStatus
    reasons: Sequence[Reason] = field(default=())

    def place(self, order: Order) -> tuple[float, str]:
        """Return its place in an order; jobs that have no such value come last."""
        status = self.status
        last = float("inf")
        match order:
            case Order.NAME:
                value = 0.0
            case Order.WORST:
                value = self.reasons[0].severity if self.reasons else len(SEVERITY)
            case Order.NEXT:
                value = last if status.next_fire is None else status.next_fire.timestamp()
            case Order.LAST:
                value = last if status.last is None else -status.last.begun
            case Order.ITEMS:
                value = -len(status.items)
        return value, status.name

    def as_json(self, processes: Sequence[ProcessStatus] | None = None) -> dict[str, object]:
        """Return a summary of the job, with its reasons, and with what processes cannot do."""
        return {**summary_as_json(self.status, processes), "attention": [_as_json(reason) for reason in self.reasons]}


def attention_table(jobs: Sequence[ListedJob], *, wide: bool = False) -> RenderableType:
    """Return a row for each reason of each job, and below them how many jobs need attention."""
    table = TextTable("Job", "What", "Since", "Why", whole=("Job", "What"), spare=("Since",), wide=wide)
    for one in jobs:
        for number, reason in enumerate(one.reasons):
            name = "" if number else one.status.name
            style = "yellow" if reason.kind in MILD else "red"
            since = "" if reason.since is None else time_text(moment(reason.since))
            table.add(Text(name, style="bold"), Text(reason.kind, style=style), since, reason_sentence(reason))
    return Group(table, Text(f"{counted(len(jobs), 'job')} {'needs' if len(jobs) == 1 else 'need'} attention"))


def reason_sentence(reason: Reason) -> str:
    """Return a reason as a sentence."""
    return reason.sentence.format(**reason.values)


def _as_json(reason: Reason) -> Mapping[str, object]:
    since = None if reason.since is None else moment(reason.since)
    return {"kind": reason.kind, "why": reason_sentence(reason), "since": since}
