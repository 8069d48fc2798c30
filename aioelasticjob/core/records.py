"""Encodes and decodes records of items and marks of orphans: JSON with times in milliseconds since the epoch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from typing import NamedTuple

from aioelasticjob.core.ends import with_end
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.encoding import unencodable_text
from aioelasticjob.ground.nesting import read_json
from aioelasticjob.model import ASKED, SCHEDULED, End, Fire, FireSource, Outcome, Owing, Record, VersionedRecord

MAX_MILLISECONDS = 253_402_214_399_999
"""The last moment that every time zone can show: a day before the end of the year 9999, the last of ``datetime``."""
MAX_PARAMETER_BYTES = 64 * 1024
"""The largest parameter of a trigger, in bytes: the record of every item that it runs contains it."""


_KNOWN = frozenset(
    {
        *("slot", "source", "instance", "lastBeginTime", "lastCompleteTime", "nextFireTime"),
        *("completed", "outcome", "asked", "parameter", "request", "rescues", "accounted", "owing", "error"),
        "ends",
    }
)


def encode(record: Record) -> bytes:
    """Return the data of ``execution/{item}``."""
    rescues = f',"rescues":{record.rescues}' if record.rescues else ""
    asked = "" if not record.asked else f',"asked":{record.asked},"parameter":{json.dumps(record.parameter)}'
    asked += f',"request":{quoted(record.request)}' if record.asked and record.request else ""
    account = "" if record.accounted == record.slot else f',"accounted":{record.accounted}'
    if record.owing:
        account += f',"owing":{json.dumps([_written(one) for one in record.owing])}'
    error = f',"error":{quoted(record.error)}' if record.error else ""
    ends = f',"ends":{encode_ends(record.ends)}' if record.ends else ""
    return (
        f'{{"slot":{record.slot},"source":"{record.source}","instance":{quoted(record.instance)},'
        f'"lastBeginTime":{record.begun},"lastCompleteTime":{record.completed_at},"nextFireTime":{record.next_fire},'
        f'"completed":{"true" if record.completed else "false"},"outcome":{quoted(record.outcome)}{asked}{rescues}'
        f"{account}{error}{ends}{record.unknown}}}"
    ).encode()


def decode(data: bytes) -> Record | None:
    """Return the record in ``data``; an empty record if the item never ran; None if ``data`` is not a record."""
    if not data:
        return Record()
    try:
        fields = read_json(data)
        if (b"\\u" in data or not data.isascii()) and unencodable_text(fields) is not None:
            return None
        return Record(
            slot=whole_number(fields["slot"]),
            source=str(fields.get("source", "")),
            instance=str(fields.get("instance", "")),
            begun=whole_number(fields.get("lastBeginTime", 0)),
            completed_at=whole_number(fields.get("lastCompleteTime", 0)),
            next_fire=whole_number(fields.get("nextFireTime", 0)),
            completed=fields.get("completed", True) is not False,
            outcome=str(fields.get("outcome", "")),
            asked=whole_number(fields.get("asked", 0)),
            parameter=None if fields.get("parameter") is None else str(fields["parameter"]),
            request=str(fields["request"]) if fields.get("asked") and fields.get("request") else "",
            rescues=whole_number(fields.get("rescues", 0)),
            unknown="" if fields.keys() <= _KNOWN else _unknown(fields),
            accounted=whole_number(fields.get("accounted", fields["slot"])),
            owing=tuple(map(_promised, fields.get("owing", ()))),
            error=str(fields.get("error", "")),
            ends=_ends(fields.get("ends", [])),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _written(owing: Owing) -> dict[str, object]:
    """Return a promised report as JSON."""
    fields: dict[str, object] = {
        "by": owing.by,
        "at": owing.at,
        "first": owing.first,
        "last": owing.last,
        "count": owing.count,
    }
    fields["why"] = owing.why
    if owing.cut_off:
        fields["cutOff"] = owing.cut_off
    return fields


def _promised(fields: object) -> Owing:
    """Return a promised report from JSON; Type-, Key- or ValueError if it is none."""
    if not isinstance(fields, dict):
        raise TypeError(f"{fields!r} is no report")
    return Owing(
        by=str(fields["by"]),
        at=whole_number(fields["at"]),
        first=whole_number(fields["first"]),
        last=whole_number(fields["last"]),
        count=whole_number(fields["count"]),
        why=str(fields["why"]),
        cut_off=str(fields.get("cutOff", "")),
    )


def encode_ends(ends: Iterable[End]) -> str:
    """Return a list of ends as JSON, which is also the data of ``followed/{item}``."""
    return json.dumps([[one.first, one.last, one.outcome, one.at] for one in ends], separators=(",", ":"))


@lru_cache(maxsize=4096)
def decode_ends(data: bytes) -> tuple[End, ...]:
    """Return the list in a node ``followed/{item}``; an empty one if somebody has written something else there."""
    try:
        return _ends(read_json(data))
    except (TypeError, ValueError):
        return ()


def _ends(value: object) -> tuple[End, ...]:
    """Return a list of ends from JSON; Type- or ValueError if it is none."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list of ends")
    found = list[End]()
    for entry in value:
        first, last, outcome, at = entry
        found.append(End(whole_number(first), whole_number(last), str(outcome), whole_number(at)))
    return tuple(found)


def too_large(parameter: bytes) -> InvalidSetting | None:
    """Return an error if a trigger's parameter is too large for records, else None."""
    if len(parameter) <= MAX_PARAMETER_BYTES:
        return None
    begins = parameter[:40].decode("utf-8", "replace") + "…"
    return InvalidSetting("parameter", begins, f"must be at most {MAX_PARAMETER_BYTES} bytes, is {len(parameter)}")


class OrphanMark(NamedTuple):
    """What the mark of an orphan says of the run that was cut off."""

    moment: int
    instance: str
    fence: int
    """The fence of a run that was handed over; 0 otherwise."""


def encode_mark(record: Record, fence: int = 0) -> bytes:
    """Return the data of an orphan's mark: the moment of the run that was cut off, and its instance.

    An instance that hands a run over writes the run's record, so the record's transaction is the fence no more.
    Therefore the mark has the fence.
    """
    fields: dict[str, object] = {"slot": record.moment, "instance": record.instance}
    if fence:
        fields["fence"] = fence
    return json.dumps(fields).encode()


def decode_mark(data: bytes) -> OrphanMark | None:
    """Return what an orphan's mark says; None if it names no run."""
    try:
        fields = read_json(data)
        slot = whole_number(fields["slot"])
        instance = fields["instance"]
        fence = fields.get("fence", 0)
    except (ValueError, TypeError, KeyError):
        return None
    if not isinstance(instance, str) or unencodable_text(instance) is not None:
        return None
    return OrphanMark(slot, instance, fence if type(fence) is int else 0)


def _unknown(fields: dict[str, object]) -> str:
    others = {key: value for key, value in fields.items() if key not in _KNOWN}
    return "".join(f",{json.dumps(key)}:{json.dumps(value)}" for key, value in others.items())


def whole_number(value: object, most: int = MAX_MILLISECONDS) -> int:
    """Return a value that was read if it is a whole number from 0 to ``most``; otherwise raise Type- or ValueError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    if not 0 <= value <= most:
        raise ValueError(f"{value} is not between 0 and {most}")
    return value


def begun(
    last: Record,
    fire: Fire,
    me: str,
    begins: int,
    next_fire: int,
    accounted: int,
    owing: tuple[Owing, ...] = (),
    ends: tuple[End, ...] = (),
) -> Record:
    """Return the record of a run that is claimed.  It keeps values of the last record that the next holder needs."""
    slot = last.slot
    asked = 0
    parameter = None
    request = ""
    if fire.source in SCHEDULED:
        slot = fire.slot
    elif fire.source in ASKED:
        asked = fire.slot
        parameter = fire.parameter
        request = "" if fire.requested is None else fire.requested.id
    else:  # if this rescue is cut off, the next rescuer needs what came with the request as well
        asked = last.asked
        parameter = last.parameter
        request = last.request
    return Record(
        slot=slot,
        source=fire.source.value,
        instance=me,
        begun=begins,
        completed_at=last.completed_at,
        next_fire=next_fire,
        completed=False,
        asked=asked,
        parameter=parameter,
        request=request,
        rescues=last.rescues + 1 if fire.source is FireSource.FAILOVER else 0,
        unknown=last.unknown,
        accounted=accounted,
        owing=owing,
        error=last.error,
        ends=ends,
    )


def ended(seen: VersionedRecord, outcome: Outcome | None, now: int, error: str = "") -> VersionedRecord:
    """Return the record of a run that has ended; without an outcome it was cut off.

    What its runner had promised to report was reported when the run was claimed.  ``error`` is why it failed.  A run
    that was cut off leaves what stands there of the one before.
    """
    outcome = outcome or Outcome.CANCELLED
    done = outcome is not Outcome.CANCELLED
    last = seen.record
    record = Record(  # written out, because ``replace`` takes 4 microseconds for each item
        slot=last.slot,
        source=last.source,
        instance=last.instance,
        begun=last.begun,
        completed_at=now,
        next_fire=last.next_fire,
        completed=done,
        outcome=outcome.value,
        asked=last.asked,
        parameter=last.parameter,
        request=last.request,
        rescues=0 if done else last.rescues,
        unknown=last.unknown,
        accounted=last.accounted,
        owing=others_owing(last, last.instance),
        error=error if done else last.error,
        ends=_with_outcome(last, outcome.value, now) if done else last.ends,
    )
    return VersionedRecord(record, seen.version, seen.zxid)


def ended_by_others(run: Record, outcome: str, now: int) -> Record:
    """Return the record of a run that was cut off, and that nobody runs again."""
    return replace(run, completed=True, completed_at=now, outcome=outcome, ends=_with_outcome(run, outcome, now))


def _with_outcome(run: Record, outcome: str, now: int) -> tuple[End, ...]:
    """Return the ends of an item once a run has ended: only moments of the schedule count, and none that is left open.

    A job that nobody follows keeps no ends.
    """
    if not run.ends or run.asked or run.slot > run.accounted:
        return run.ends
    return with_end(run.ends, End(run.slot, run.slot, outcome, now))


def given_back(before: Record, claimed: Record) -> Record:
    """Return the record of an item whose claim is given back: its moment is owed again."""
    owing = others_owing(claimed, claimed.instance)
    return replace(before, accounted=claimed.slot - 1, owing=owing, ends=claimed.ends)


def others_owing(record: Record, me: str) -> tuple[Owing, ...]:
    """Return the reports that others have promised in a record."""
    if not record.owing:
        return ()
    return tuple(one for one in record.owing if one.by != me)


def is_cut_off(record: Record) -> bool:
    """Whether a run was begun and not completed.  The caller knows that it is not going on."""
    return record.begun > 0 and not record.completed


def left_open(record: Record) -> Record:
    """Return the record of a stream that has given way: its moment is owed again, so its holder claims it again.

    The record of a run that somebody has asked for stays as it is: it is the request that is left open.
    """
    return record if record.asked else replace(record, accounted=record.slot - 1)
