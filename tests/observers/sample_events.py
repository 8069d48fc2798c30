"""Events as a runner would tell them."""

from __future__ import annotations

from aioelasticjob.clock import SystemClock
from aioelasticjob.events import Began, Ended, JobEvent, Started
from aioelasticjob.model import FireSource, Outcome, run_name
from aioelasticjob.observers.sql.rows import Batch

NOON = 1_800_000_000_000
"""A scheduled moment, in milliseconds."""
ME = "10.0.0.1@-@7-0a1b2c3d"
OTHER = "10.0.0.2@-@9-4e5f6a7b"


class Clock(SystemClock):
    """Stands still an hour after noon."""

    def now(self) -> float:
        return NOON / 1000 + 3600


def name(slot: int, item: int, job: str = "report", me: str = ME) -> str:
    return f"{job}@-@{item}@-@READY@-@{me}@-@{run_name(slot)}.{slot:x}"


def beginning(
    slot: int = NOON, item: int = 0, *, job: str = "report", me: str = ME, source: FireSource = FireSource.SCHEDULE
) -> list[JobEvent]:
    task = name(slot, item, job, me)
    return [
        Began(job, me, slot, source, (item,), 0.01, (task,)),
        Started(job, me, slot, source, (item,), task, slot / 1000 + 0.02),
    ]


def end(
    slot: int = NOON,
    item: int = 0,
    outcome: Outcome = Outcome.COMPLETED,
    *,
    job: str = "report",
    me: str = ME,
    failure: BaseException | None = None,
    seconds: float = 2.0,
    source: FireSource = FireSource.SCHEDULE,
) -> Ended:
    over = slot / 1000 + 0.02 + seconds
    return Ended(job, me, slot, source, item, outcome, seconds, name(slot, item, job, me), over, failure)


def batch(*events: JobEvent, namespace: str | None = None) -> Batch:
    made = Batch("host-1", namespace)
    for event in events:
        made.add(event)
    return made


def raised(text: str = "no luck") -> ValueError:
    """Return an error that has been through a stack."""
    try:
        raise ValueError(text)
    except ValueError as error:
        return error
