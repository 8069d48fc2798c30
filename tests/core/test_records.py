from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from aioelasticjob.core.records import (
    MAX_MILLISECONDS,
    MAX_PARAMETER_BYTES,
    decode,
    encode,
    ended,
    left_open,
    open_moment,
    too_large,
)
from aioelasticjob.model import FireSource, Outcome, Record, VersionedRecord

SCHEDULED = Record(1_000, "CRON", "10.0.0.1@-@1", 1_001, 1_002, 2_000, True, "completed")
TRIGGERED = replace(SCHEDULED, source="TRIGGER", asked=1_500, parameter="day 7")
text = some.text(some.characters(exclude_categories=["Cs"]))
times = some.integers(0, MAX_MILLISECONDS)


@given(
    some.builds(
        Record,
        slot=times,
        source=some.sampled_from([one.value for one in FireSource]),
        instance=text,
        begun=times,
        completed_at=times,
        next_fire=times,
        completed=some.booleans(),
        outcome=some.sampled_from(["", *(one.value for one in Outcome)]),
        asked=some.integers(1, MAX_MILLISECONDS),
        ahead=some.integers(0, MAX_MILLISECONDS),
        parameter=some.none() | text,
    )
)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert decode(encode(record)) == record
    assert decode(encode(replace(record, asked=0, parameter=None))) == replace(record, asked=0, parameter=None)


def test_a_run_that_has_ended_keeps_everything_else() -> None:
    run = replace(TRIGGERED, request="r", ahead=7, rescues=2, unknown=',"x":1')
    for outcome, done, rescues in ((Outcome.FAILED, True, 0), (None, False, 2)):
        found = ended(VersionedRecord(run, 3, 4), outcome, 9_000)
        said = "failed" if done else "cancelled"
        assert found.record == replace(run, completed=done, completed_at=9_000, outcome=said, rescues=rescues)
        assert (found.version, found.zxid) == (3, 4)


def test_what_nobody_asked_for_by_hand_costs_nothing_in_a_record() -> None:
    assert {"asked", "parameter", "ahead"}.isdisjoint(json.loads(encode(SCHEDULED)))
    assert json.loads(encode(TRIGGERED))["parameter"] == "day 7"


def test_a_run_is_for_when_it_was_asked_for_or_else_for_when_it_was_scheduled() -> None:
    assert (SCHEDULED.moment, TRIGGERED.moment, Record().moment) == (1_000, 1_500, 0)


@pytest.mark.parametrize(
    ("asked", "parameter"), [("soon", None), (-1, None), (True, None), (MAX_MILLISECONDS + 1, "x"), (None, 1)]
)
def test_a_record_that_was_asked_for_at_no_moment_is_none(asked: object, parameter: object) -> None:
    fields = json.loads(encode(TRIGGERED)) | {"asked": asked, "parameter": parameter}
    assert decode(json.dumps(fields).encode()) is None


def test_a_parameter_written_by_hand_is_text_whatever_it_is() -> None:
    fields = json.loads(encode(TRIGGERED)) | {"parameter": 7}
    assert decode(json.dumps(fields).encode()) == replace(TRIGGERED, parameter="7")


@pytest.mark.parametrize("size", [0, 1, MAX_PARAMETER_BYTES])
def test_a_parameter_that_fits_is_none_too_large(size: int) -> None:
    assert too_large(b"x" * size) is None


def test_the_error_for_a_parameter_that_is_too_large_is_short() -> None:
    message = str(too_large(b"x" * MAX_PARAMETER_BYTES + b"y"))
    assert "parameter" in message
    assert f"must be at most {MAX_PARAMETER_BYTES} bytes, is {MAX_PARAMETER_BYTES + 1}" in message
    assert len(message) < 200


def test_fields_that_are_not_known_are_written_again() -> None:
    fields = json.loads(encode(TRIGGERED)) | {"epoch": {"a": ["ü", None]}, "x": 1}
    record = decode(json.dumps(fields).encode())
    assert record is not None
    assert json.loads(encode(replace(record, slot=7))) == fields | {"slot": 7}
    assert replace(record, unknown="") == TRIGGERED


def test_rescues_are_left_out_while_there_are_none() -> None:
    assert b"rescues" not in encode(SCHEDULED)
    rescued = replace(SCHEDULED, rescues=2)
    assert json.loads(encode(rescued))["rescues"] == 2
    assert decode(encode(rescued)) == rescued
    assert decode(b'{"slot": 1, "rescues": -1}') is None


def test_a_moment_that_was_left_open_can_be_claimed_again_and_is_known_as_such() -> None:
    opened = left_open(SCHEDULED)
    assert opened.slot == SCHEDULED.slot - 1
    assert open_moment(opened) == SCHEDULED.slot
    assert left_open(opened) == opened


def test_a_run_that_was_asked_for_leaves_no_moment_of_the_schedule_open() -> None:
    assert TRIGGERED.slot % 1000 == 0
    assert left_open(TRIGGERED) == TRIGGERED  # its slot is an earlier moment, which has run to its end
    assert decode(encode(left_open(TRIGGERED))) == TRIGGERED


@pytest.mark.parametrize(
    "record",
    [
        SCHEDULED,
        replace(SCHEDULED, slot=999, completed=False),  # it runs, or was cut off
        replace(SCHEDULED, slot=999, ahead=5_000),  # it was lowered to the time of a clock
        Record(slot=999),  # it stands for nonsense that was written then
    ],
)
def test_no_other_record_has_an_open_moment(record: Record) -> None:
    assert open_moment(record) == 0
