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
    given_back,
    is_cut_off,
    left_open,
    others_owing,
    too_large,
)
from aioelasticjob.model import FireSource, Outcome, Owing, Record, VersionedRecord

SCHEDULED = Record(1_000, "SCHEDULE", "10.0.0.1@-@1", 1_001, 1_002, 2_000, True, "completed", accounted=1_000)
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
        parameter=some.none() | text,
        accounted=times,
        owing=some.lists(some.builds(Owing, text, times, times, times, times, text, text), max_size=3).map(tuple),
    )
)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert decode(encode(record)) == record
    assert decode(encode(replace(record, asked=0, parameter=None))) == replace(record, asked=0, parameter=None)


def test_a_run_that_has_ended_keeps_everything_else() -> None:
    run = replace(TRIGGERED, request="r", accounted=7, rescues=2, unknown=',"x":1')
    for outcome, done, rescues in ((Outcome.FAILED, True, 0), (None, False, 2)):
        found = ended(VersionedRecord(run, 3, 4), outcome, 9_000)
        said = "failed" if done else "cancelled"
        assert found.record == replace(run, completed=done, completed_at=9_000, outcome=said, rescues=rescues)
        assert (found.version, found.zxid) == (3, 4)


def test_what_nobody_asked_for_by_hand_costs_nothing_in_a_record() -> None:
    assert {"asked", "parameter"}.isdisjoint(json.loads(encode(SCHEDULED)))
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
    assert json.loads(encode(replace(record, slot=7, accounted=7))) == fields | {"slot": 7}
    assert replace(record, unknown="") == TRIGGERED


def test_rescues_are_left_out_while_there_are_none() -> None:
    assert b"rescues" not in encode(SCHEDULED)
    rescued = replace(SCHEDULED, rescues=2)
    assert json.loads(encode(rescued))["rescues"] == 2
    assert decode(encode(rescued)) == rescued
    assert decode(b'{"slot": 1, "rescues": -1}') is None


PROMISED = Owing("10.0.0.1@-@1", 900, 500, 900, 5, "why")
FOREIGN = Owing("10.0.0.2@-@1", 901, 400, 400, 1, "the run was cut off", "10.0.0.3@-@1")


def test_a_record_says_up_to_where_it_accounts_for_its_item_unless_that_is_its_moment() -> None:
    assert {"accounted", "owing"}.isdisjoint(json.loads(encode(SCHEDULED)))
    ahead = replace(SCHEDULED, accounted=1_700)
    assert json.loads(encode(ahead))["accounted"] == 1_700
    assert decode(encode(ahead)) == ahead
    nothing = replace(SCHEDULED, accounted=0)
    assert decode(encode(nothing)) == nothing


def test_a_record_without_that_time_accounts_for_its_moment() -> None:
    assert decode(b'{"slot": 1000}') == Record(slot=1_000, accounted=1_000)


def test_a_report_that_was_promised_is_read_as_it_was_written() -> None:
    record = replace(SCHEDULED, owing=(PROMISED, FOREIGN))
    assert json.loads(encode(record))["owing"] == [
        {"by": "10.0.0.1@-@1", "at": 900, "first": 500, "last": 900, "count": 5, "why": "why"},
        {
            **{"by": "10.0.0.2@-@1", "at": 901, "first": 400, "last": 400, "count": 1, "why": "the run was cut off"},
            "cutOff": "10.0.0.3@-@1",
        },
    ]
    assert decode(encode(record)) == record
    assert others_owing(record, "10.0.0.1@-@1") == (FOREIGN,)
    assert others_owing(SCHEDULED, "10.0.0.1@-@1") == ()


@pytest.mark.parametrize("accounted", [-1, 1.5, True, "soon", None, [], {}, MAX_MILLISECONDS + 1])
def test_a_record_that_accounts_for_its_item_up_to_no_time_is_none(accounted: object) -> None:
    fields = json.loads(encode(SCHEDULED)) | {"accounted": accounted}
    assert decode(json.dumps(fields).encode()) is None


REPORT = json.loads(encode(replace(SCHEDULED, owing=(PROMISED,))))["owing"][0]


@pytest.mark.parametrize(
    "owing",
    [
        *(None, 7, True, "why", {"by": "me"}, [None], [7], ["why"], [[]], [{}]),
        *([{**REPORT, key: wrong}] for key in ("at", "first", "last", "count") for wrong in (None, -1, 1.5, "1", True)),
        *([{key: value for key, value in REPORT.items() if key != left_out}] for left_out in REPORT),
        [REPORT, 7],
    ],
)
def test_a_record_that_promises_what_is_no_report_is_none(owing: object) -> None:
    fields = json.loads(encode(SCHEDULED)) | {"owing": owing}
    assert decode(json.dumps(fields).encode()) is None


def test_what_else_a_promised_report_says_is_left_out() -> None:
    fields = json.loads(encode(SCHEDULED)) | {"owing": [{**REPORT, "colour": {"red": [1]}}]}
    assert decode(json.dumps(fields).encode()) == replace(SCHEDULED, owing=(PROMISED,))


def test_many_promised_reports_are_read() -> None:
    fields = json.loads(encode(SCHEDULED)) | {"owing": [REPORT] * 20_000}
    record = decode(json.dumps(fields).encode())
    assert record is not None
    assert len(record.owing) == 20_000


def test_texts_of_a_promised_report_that_cannot_be_encoded_make_no_record() -> None:
    fields = json.loads(encode(SCHEDULED)) | {"owing": [{**REPORT, "why": "\ud800"}]}
    assert decode(json.dumps(fields).encode()) is None


def test_a_moment_that_was_left_open_is_owed_again_and_the_record_still_names_it() -> None:
    opened = left_open(SCHEDULED)
    assert (opened.slot, opened.accounted) == (SCHEDULED.slot, SCHEDULED.slot - 1)
    assert left_open(opened) == opened


def test_a_run_that_was_asked_for_leaves_no_moment_of_the_schedule_open() -> None:
    assert left_open(TRIGGERED) == TRIGGERED  # its slot is an earlier moment, which has run to its end
    assert decode(encode(left_open(TRIGGERED))) == TRIGGERED


def test_a_claim_that_is_given_back_leaves_the_record_of_the_last_run_and_owes_its_moment() -> None:
    claimed = replace(SCHEDULED, slot=2_000, accounted=2_000, completed=False, owing=(PROMISED, FOREIGN))
    assert given_back(SCHEDULED, claimed) == replace(SCHEDULED, accounted=1_999, owing=(FOREIGN,))


def test_a_run_was_cut_off_if_it_was_begun_and_is_not_completed() -> None:
    assert is_cut_off(replace(SCHEDULED, completed=False))
    assert not is_cut_off(SCHEDULED)
    assert not is_cut_off(Record(completed=False))
