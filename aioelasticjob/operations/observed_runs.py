"""Runs that a reader of the registry has seen end, and moments that it has seen reported as missed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aioelasticjob.model import Owing, Record
from aioelasticjob.observers.missed import NOTHING_COUNTED, Count, MissedMoments, count_of
from aioelasticjob.operations.status import ItemStatus

MISFIRED = "misfired"
"""Stands for the outcome of a report of missed moments, which is drawn beside the runs."""


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """A run as its record describes it, or a report of missed moments; times in milliseconds since the epoch."""

    item: int
    begun: int
    ended: int
    source: str
    outcome: str
    instance: str
    id: str = ""
    """Its key in the event store; empty where only the registry has been seen."""
    missed: Count = NOTHING_COUNTED
    """How many moments a report of missed moments stands for."""


def new_runs(before: Mapping[int, ItemStatus], items: Iterable[ItemStatus]) -> list[ObservedRun]:
    """Return the runs that have ended, and the moments that were reported as missed, since ``before``."""
    found = list[ObservedRun]()
    for item in items:
        old = before.get(item.item)
        record = item.record
        if record is None:
            continue
        if _has_ended(record) and not (old is not None and _is_same_run(old.record, record)):
            run = ObservedRun(
                item=item.item,
                begun=record.begun,
                ended=record.completed_at,
                source=record.source,
                outcome=record.outcome,
                instance=record.instance,
            )
            found.append(run)
        if old is not None:
            found += [_misfire(item.item, one) for one in _new_reports(old.record, record)]
    return found


def new_missed(before: Mapping[int, ItemStatus], items: Iterable[ItemStatus]) -> list[MissedMoments]:
    """Return the moments that were reported as missed since ``before``; of an item that is new, all that are known."""
    found = list[MissedMoments]()
    for item in items:
        if item.record is not None and item.record.owing:
            old = before.get(item.item)
            found += [_missed(one) for one in _new_reports(None if old is None else old.record, item.record)]
    return found


def _new_reports(before: Record | None, record: Record) -> list[Owing]:
    known = set() if before is None else {one.last for one in before.owing}
    return sorted((one for one in record.owing if one.last not in known), key=lambda one: one.last)


def _misfire(item: int, one: Owing) -> ObservedRun:
    return ObservedRun(item, one.last, one.last, "SCHEDULE", MISFIRED, "", missed=count_of(one.count))


def _missed(one: Owing) -> MissedMoments:
    return MissedMoments(count_of(one.count), one.why, one.at / 1000, one.at / 1000)


def _has_ended(record: Record) -> bool:
    return bool(record.begun and record.outcome and record.completed_at)


def _is_same_run(before: Record | None, record: Record) -> bool:
    """Whether two records are of one run that has ended: what an item has missed may be written after it."""
    if before is None:
        return False
    return (before.begun, before.completed_at, before.outcome) == (record.begun, record.completed_at, record.outcome)
