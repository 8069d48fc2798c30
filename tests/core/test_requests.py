"""What requests and their progress look like in the registry, and what becomes of nonsense there."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.core.records import MAX_MILLISECONDS, MAX_PARAMETER_BYTES
from aioelasticjob.core.requests import (
    Cancellation,
    Request,
    Span,
    changed,
    decode,
    decode_cancellation,
    decode_progress,
    encode,
    encode_cancellation,
    encode_progress,
    is_id,
)
from aioelasticjob.model import LEFT_OPEN, FireSource, Progress
from aioelasticjob.registry.tree import Node, Stat
from tests.schedules.made import schedule

MIDNIGHT = 1_795_132_800_000
HOUR = 3_600_000
ONCE = Request("r", FireSource.TRIGGER, 4, MIDNIGHT)
HOURLY = Span(MIDNIGHT, MIDNIGHT + 3 * HOUR, schedule("0 0 * * * ?"))
BACKFILL = Request("r", FireSource.BACKFILL, 4, MIDNIGHT + 9 * HOUR, span=HOURLY)
moments = st.integers(0, MAX_MILLISECONDS)


def node(data: bytes, version: int = 0, number: int = 0) -> Node:
    return Node.of(data, Stat.of((number, number), (0.0, 0.0), version))


@given(
    st.builds(
        Request,
        st.just("r"),
        st.just(FireSource.TRIGGER),
        st.integers(1, 9),
        moments,
        st.none() | st.sets(st.integers(0, 8), min_size=1).map(lambda items: tuple(sorted(items))),
        at=moments,
        expires=moments,
        parameter=st.none() | st.text(st.characters(codec="utf-8")),
        by=st.text(st.characters(codec="utf-8")),
        named=st.booleans(),
    )
)
def test_a_request_is_read_as_it_was_written(request: Request) -> None:
    assert decode("r", node(encode(request), 3, 7)) == replace(request, number=7, version=3)


def test_a_name_that_utf8_cannot_spell_makes_nothing_unreadable() -> None:
    """The name of a user is read from the environment, which may hold any bytes."""
    request = decode("r", node(encode(replace(ONCE, by="a\udcff@desk"))))
    assert request is not None
    assert request.by == "a?@desk"
    cancellation = decode_cancellation("c", node(encode_cancellation({0: 7}, MIDNIGHT, "a\udcff@desk")))
    assert cancellation is not None
    assert cancellation.by == "a?@desk"


def test_a_backfill_is_read_as_it_was_written() -> None:
    few = replace(BACKFILL, span=replace(HOURLY, items_at_once=2))
    assert decode("r", node(encode(BACKFILL))) == BACKFILL
    assert decode("r", node(encode(few))) == few


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"x", b"[]", b"7", b"null", b"\xff", b'{"items":[1]}', b"[" * 100_000),
        *(
            json.dumps({"kind": "TRIGGER", "count": 1, "asked": 1, **one}).encode()
            for one in (
                *({"kind": "SCHEDULE"}, {"kind": []}, {"count": "1"}, {"count": -1}, {"count": True}, {"asked": 1.5}),
                *({"items": []}, {"items": [1, "2"]}, {"items": 3}, {"items": [-1]}, {"at": None}, {"at": 10**18}),
                *(
                    {"parameter": {"a": 1}},
                    {"parameter": "x" * (MAX_PARAMETER_BYTES + 1)},
                    {"by": 7},
                    {"by": "\ud800"},
                    {"stopped": 1},
                    {"outcomes": [1]},
                ),
                *({"outcomes": {"completed": "2"}}, {"kind": "BACKFILL"}, {"closed": "now"}),
            )
        ),
        changed(encode(BACKFILL), schedule={"cron": "nonsense"}),
        changed(encode(BACKFILL), schedule={"cron": "@daily", "timeZone": "Mars/Base"}),
        changed(encode(BACKFILL), schedule={"cron": "@daily", "dst": "never"}),
        changed(encode(BACKFILL), schedule={"every": True}),
        changed(encode(BACKFILL), schedule={"at": "2026-01-01"}),
        changed(encode(BACKFILL), schedule={"at": [7]}),
        changed(encode(BACKFILL), schedule={}),
        changed(encode(BACKFILL), schedule="@daily"),
        changed(encode(BACKFILL), itemsAtOnce=-1),
    ],
)
def test_nonsense_is_no_request(data: bytes) -> None:
    assert decode("r", node(data)) is None


def test_a_request_by_hand_needs_no_key_but_its_kind() -> None:
    request = decode("r", node(b'{"kind": "TRIGGER"}'))
    assert request is not None
    assert list(request.within(3)) == [0, 1, 2]
    assert request.moment == request.asked == round(node(b"").stat.ctime * 1000)
    assert (request.by, request.parameter, request.named, request.expires) == ("", None, False, 0)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 121, "a\n", 7])
def test_these_are_no_ids(name: object) -> None:
    assert not is_id(name)
    if isinstance(name, str):
        assert decode(name, node(encode(ONCE))) is None


@pytest.mark.parametrize("name", ["nightly-2026.11", "a_b", "7"])
def test_these_are_ids(name: str) -> None:
    assert is_id(name)


def test_keys_that_are_not_known_are_kept_when_a_request_is_changed() -> None:
    data = changed(changed(encode(ONCE), colour="red"), stopped="cancelled")
    request = decode("r", node(data))
    assert request is not None
    assert (request.stopped, json.loads(data)["colour"]) == ("cancelled", "red")


@given(
    st.builds(
        Progress,
        moments,
        st.integers(0, 99),
        st.integers(20, 99),
        st.sampled_from(["", "completed", "failed", LEFT_OPEN]),
        st.dictionaries(st.sampled_from(["stopped", "cut off"]), st.integers(1, 10)),
    )
)
def test_progress_is_read_as_it_was_written(progress: Progress) -> None:
    assert decode_progress(encode_progress(progress)) == progress


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"[]",
        b"{}",
        b'{"moment":"1"}',
        b'{"moment":1,"outcome":2}',
        b'{"moment":1,"otherwise":{"a":1}}',
        b"\xff",
    ],
)
def test_an_item_whose_progress_is_nonsense_has_run_everything(data: bytes) -> None:
    progress = decode_progress(data)
    assert ONCE.following(progress) is None
    assert BACKFILL.following(progress) is None
    assert progress.outcome  # or the leader would wait for the end of its run


def test_an_item_runs_a_trigger_once_for_when_it_was_asked_or_for_when_it_was_planned() -> None:
    assert ONCE.following(None) == MIDNIGHT
    assert replace(ONCE, at=MIDNIGHT + HOUR).following(None) == MIDNIGHT + HOUR
    assert ONCE.following(Progress(MIDNIGHT)) is None


def test_an_item_goes_on_with_a_moment_whose_stream_has_given_way() -> None:
    assert ONCE.following(Progress(MIDNIGHT, outcome=LEFT_OPEN)) == MIDNIGHT
    assert BACKFILL.following(Progress(MIDNIGHT + HOUR, 2, outcome=LEFT_OPEN)) == MIDNIGHT + HOUR


def test_a_backfill_has_its_first_moment_and_not_its_end() -> None:
    assert [BACKFILL.following(None), *(BACKFILL.following(Progress(MIDNIGHT + n * HOUR)) for n in range(3))] == [
        *(MIDNIGHT, MIDNIGHT + HOUR, MIDNIGHT + 2 * HOUR, None)
    ]


def test_a_request_is_for_the_items_it_names_or_for_all_there_were() -> None:
    assert (list(ONCE.within(9)), list(ONCE.within(2))) == ([0, 1, 2, 3], [0, 1])
    some = replace(ONCE, items=(1, 3))
    assert (list(some.within(9)), list(some.within(2)), some.asks_for(3), some.asks_for(2)) == (
        [1, 3],
        [1],
        True,
        False,
    )
    assert (ONCE.asks_for(3), ONCE.asks_for(4)) == (True, False)


def test_whether_a_request_asks_for_an_item_is_known_without_a_look_at_all_its_items() -> None:
    looked_at: list[int] = []

    class Item(int):
        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            looked_at.append(self)
            return int(self) == other

        def __lt__(self, other: int) -> bool:
            looked_at.append(self)
            return int(self) < other

    many = replace(ONCE, items=tuple(map(Item, range(0, 8192, 2))))
    asked = [item for item in (8190, 8191) if many.asks_for(item)]
    assert (asked, len(looked_at) < 64) == ([8190], True)


def test_a_cancellation_is_read_as_it_was_written_and_is_no_request() -> None:
    written = node(encode_cancellation({2: 2**60, 0: 7}, MIDNIGHT, "anna"), 4)
    assert decode_cancellation("c", written) == Cancellation("c", {0: 7, 2: 2**60}, MIDNIGHT, 4, "anna")
    assert decode("c", written) is None


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"[]", b"{}", encode(ONCE)),
        *(
            json.dumps({"kind": "CANCEL", "asked": 1, "fences": {"1": 2}, **one}).encode()
            for one in (
                {"fences": [1]},
                {"fences": {"x": 1}},
                {"fences": {"1": "2"}},
                {"fences": {"1": -2}},
                {"asked": "now"},
            )
        ),
    ],
)
def test_nonsense_cancels_nothing(data: bytes) -> None:
    assert decode_cancellation("c", node(data)) is None


def test_the_moments_of_a_span_are_counted_up_to_a_limit() -> None:
    span = Span(500, 5_000, schedule("* * * * * ?"))
    assert (span.moments(9), span.moments(3), span.moments(1)) == (
        (1_000, 4_000, 4),
        (1_000, 4_000, 3),
        (1_000, 4_000, 1),
    )
