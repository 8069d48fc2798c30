"""Encodes and decodes records of items and marks of orphans: JSON with times in milliseconds since the epoch."""

from __future__ import annotations

import json
from dataclasses import replace
from json.encoder import encode_basestring_ascii as quoted
from typing import NamedTuple

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.encoding import unencodable_text
from aioelasticjob.ground.nesting import read_json
from aioelasticjob.model import ASKED, SCHEDULED, Fire, FireSource, Outcome, Record, VersionedRecord

MAX_MILLISECONDS = 253_402_214_399_999
"""The last moment that every time zone can show: a day before the end of the year 9999, the last of ``datetime``."""
MAX_PARAMETER_BYTES = 64 * 1024
"""The largest parameter of a trigger, in bytes: the record of every item that it runs contains it."""


_KNOWN = frozenset(
    {
        *("slot", "source", "instance", "lastBeginTime", "lastCompleteTime", "nextFireTime"),
        *("completed", "outcome", "asked", "parameter", "request", "ahead", "rescues"),
    }
)


def encode(record: Record) -> bytes:
    """Return the data of ``execution/{item}``."""
    rescues = f',"rescues":{record.rescues}' if record.rescues else ""
    asked = "" if not record.asked else f',"asked":{record.asked},"parameter":{json.dumps(record.parameter)}'
    asked += f',"request":{quoted(record.request)}' if record.asked and record.request else ""
    asked += f',"ahead":{record.ahead}' if record.ahead else ""
    return (
        f'{{"slot":{record.slot},"source":"{record.source}","instance":{quoted(record.instance)},'
        f'"lastBeginTime":{record.begun},"lastCompleteTime":{record.completed_at},"nextFireTime":{record.next_fire},'
        f'"completed":{"true" if record.completed else "false"},"outcome":{quoted(record.outcome)}{asked}{rescues}'
        f"{record.unknown}}}"
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
            ahead=whole_number(fields.get("ahead", 0)),
            parameter=None if fields.get("parameter") is None else str(fields["parameter"]),
            request=str(fields["request"]) if fields.get("asked") and fields.get("request") else "",
            rescues=whole_number(fields.get("rescues", 0)),
            unknown="" if fields.keys() <= _KNOWN else _unknown(fields),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


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
    fields = {"slot": record.moment, "instance": record.instance}
    return json.dumps(fields | {"fence": fence} if fence else fields).encode()


def decode_mark(data: bytes) -> OrphanMark | None:
    """Return what an orphan's mark says; None if it names no run."""
    try:
        fields = read_json(data)
        slot, instance, fence = whole_number(fields["slot"]), fields["instance"], fields.get("fence", 0)
    except (ValueError, TypeError, KeyError):
        return None
    if not isinstance(instance, str) or unencodable_text(instance) is not None:
        return None
    return OrphanMark(slot, instance, fence if type(fence) is int else 0)


def _unknown(fields: dict[str, object]) -> str:
    return "".join(f",{json.dumps(key)}:{json.dumps(value)}" for key, value in fields.items() if key not in _KNOWN)


def whole_number(value: object, most: int = MAX_MILLISECONDS) -> int:
    """Return a value that was read if it is a whole number from 0 to ``most``; otherwise raise Type- or ValueError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    if not 0 <= value <= most:
        raise ValueError(f"{value} is not between 0 and {most}")
    return value


def begun(last: Record, fire: Fire, me: str, begins: int, next_fire: int) -> Record:
    """Return the record of a run that is claimed.  It keeps values of the last record that the next holder needs."""
    slot, asked, parameter, request = last.slot, 0, None, ""
    if fire.source in SCHEDULED:
        slot = fire.slot
    elif fire.source in ASKED:
        asked, parameter, request = fire.slot, fire.parameter, "" if fire.requested is None else fire.requested.id
    else:  # if this rescue is cut off, the next rescuer needs what came with the trigger as well
        asked, parameter, request = last.asked, last.parameter, last.request
    run = slot, fire.source.value, me, begins, last.completed_at, next_fire, False, ""
    ahead = last.ahead if last.ahead > slot else 0
    rescues = last.rescues + 1 if fire.source is FireSource.FAILOVER else 0
    return Record(*run, asked, parameter, request, ahead, rescues, last.unknown)


def is_taken(record: Record, fire: Fire) -> bool:
    """Whether a scheduled moment, or a later one, has been claimed."""
    return fire.source in SCHEDULED and (record.slot >= fire.slot or record.ahead == fire.slot)


def ended(seen: VersionedRecord, outcome: Outcome | None, now: int) -> VersionedRecord:
    """Return the record of a run that has ended; without an outcome it was cut off."""
    outcome = outcome or Outcome.CANCELLED
    done = outcome is not Outcome.CANCELLED
    last = seen.record
    run = last.slot, last.source, last.instance, last.begun
    asked = last.asked, last.parameter, last.request, last.ahead
    rescues = 0 if done else last.rescues  # written out, because ``replace`` takes 4 microseconds for each item
    record = Record(*run, now, last.next_fire, done, outcome.value, *asked, rescues, last.unknown)
    return VersionedRecord(record, seen.version, seen.zxid)


def is_cut_off(record: Record) -> bool:
    """Whether a run was begun and not completed.  The caller knows that it is not going on."""
    return record.begun > 0 and not record.completed


def left_open(record: Record) -> Record:
    """Return the record of a stream that has given way: its moment counts as unclaimed, so its holder claims it again.

    Moments of schedules are whole seconds, so ``open_moment`` finds it again.  The record of a run that somebody has
    asked for stays as it is: its ``slot`` is an earlier moment, and it is the request that is left open.
    """
    is_scheduled = not record.asked and record.slot and record.slot % 1000 == 0
    return replace(record, slot=record.slot - 1) if is_scheduled else record


def open_moment(record: Record) -> int:
    """Return the moment that a stream has run and left open; 0 if there is none."""
    is_open = record.begun and record.completed and not record.ahead and record.slot % 1000 == 999
    return record.slot + 1 if is_open else 0
