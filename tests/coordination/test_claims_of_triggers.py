"""The claim that answers a request removes it: both happen, or neither."""

from __future__ import annotations

import pytest

from aioelasticjob.coordination.claims import ITEMS_AT_ONCE
from aioelasticjob.model import Fire, FireSource, Outcome
from aioelasticjob.registry.transaction import Create, Set
from tests.coordination.test_claims import LAYOUT, ME, NOW, Desk

PATH = LAYOUT.trigger(ME)
ASKED = Fire(NOW, FireSource.TRIGGER, "P", (PATH, 0))


def asked(items: int = 3) -> Desk:
    desk = Desk(items)
    desk.write(Create(PATH, b"P"))
    return desk


@pytest.mark.parametrize("reply", ["well", "reply lost", "never arrived"])
def test_a_claim_removes_the_request_whether_or_not_its_reply_comes(reply: str) -> None:
    desk = asked()
    desk.line.commits.append(reply)
    claim = desk.taken(ASKED)
    assert PATH not in desk.registry.nodes
    assert desk.running() == [0, 1, 2]
    assert {(seen.record.asked, seen.record.parameter) for seen in claim.items.values()} == {(NOW, "P")}
    assert desk.settle(claim, *[Outcome.COMPLETED] * 3)
    assert desk.record().completed


def test_another_request_in_its_place_refuses_the_claim_and_stays() -> None:
    desk = asked()
    desk.write(Set(PATH, b"Q", 0))
    taken = desk.claim(ASKED)
    assert taken.claim is None
    assert taken.stale
    assert desk.running() == []
    assert desk.registry.nodes[PATH].data == b"Q"


def test_a_request_that_has_been_taken_refuses_the_claim() -> None:
    desk = Desk()
    assert desk.claim(ASKED).stale
    assert desk.running() == []


def test_a_claim_that_has_to_leave_everything_out_leaves_the_request() -> None:
    desk = asked()
    for item in desk.items:
        desk.elsewhere(item)
    taken = desk.claim(ASKED)
    assert (taken.claim, taken.stale, taken.elsewhere) == (None, False, {0, 1, 2})
    assert PATH in desk.registry.nodes


def test_the_first_part_that_is_taken_removes_the_request_for_all() -> None:
    desk = asked(ITEMS_AT_ONCE + 3)
    for item in range(ITEMS_AT_ONCE):
        desk.elsewhere(item)
    claim = desk.taken(ASKED)
    assert list(claim.items) == list(range(ITEMS_AT_ONCE, ITEMS_AT_ONCE + 3))
    assert PATH not in desk.registry.nodes
    desk = asked(ITEMS_AT_ONCE + 3)
    claim = desk.taken(ASKED)
    assert desk.running() == list(desk.items)
    assert desk.settle(claim, *[Outcome.COMPLETED] * len(desk.items))
