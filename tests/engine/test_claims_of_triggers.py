"""The claim that answers a request removes it: both happen, or neither."""

from __future__ import annotations

import pytest

from aioelasticjob.engine.claims import ITEMS_AT_ONCE
from aioelasticjob.model import Fire, FireSource, Outcome
from aioelasticjob.registry.transaction import Create, Set
from tests.engine.test_claims import LAYOUT, ME, NOW, ClaimedJob

PATH = LAYOUT.trigger(ME)
ASKED = Fire(NOW, FireSource.TRIGGER, "P", (PATH, 0))


def asked(items: int = 3) -> ClaimedJob:
    job = ClaimedJob(items)
    job.write(Create(PATH, b"P"))
    return job


@pytest.mark.parametrize("reply", ["well", "reply lost", "never arrived"])
def test_a_claim_removes_the_request_whether_or_not_its_reply_comes(reply: str) -> None:
    job = asked()
    job.session.commits.append(reply)
    claim = job.taken(ASKED)
    assert PATH not in job.registry.nodes
    assert job.running() == [0, 1, 2]
    assert {(seen.record.asked, seen.record.parameter) for seen in claim.items.values()} == {(NOW, "P")}
    assert job.settle(claim, *[Outcome.COMPLETED] * 3)
    assert job.record().completed


def test_another_request_in_its_place_refuses_the_claim_and_stays() -> None:
    job = asked()
    job.write(Set(PATH, b"Q", 0))
    taken = job.claim(ASKED)
    assert taken.claim is None
    assert taken.stale
    assert job.running() == []
    assert job.registry.nodes[PATH].data == b"Q"


def test_a_request_that_has_been_taken_refuses_the_claim() -> None:
    job = ClaimedJob()
    assert job.claim(ASKED).stale
    assert job.running() == []


def test_a_claim_that_has_to_leave_everything_out_leaves_the_request() -> None:
    job = asked()
    for item in job.items:
        job.elsewhere(item)
    taken = job.claim(ASKED)
    assert (taken.claim, taken.stale, taken.elsewhere) == (None, False, {0, 1, 2})
    assert PATH in job.registry.nodes


def test_the_first_part_that_is_taken_removes_the_request_for_all() -> None:
    job = asked(ITEMS_AT_ONCE + 3)
    for item in range(ITEMS_AT_ONCE):
        job.elsewhere(item)
    claim = job.taken(ASKED)
    assert list(claim.items) == list(range(ITEMS_AT_ONCE, ITEMS_AT_ONCE + 3))
    assert PATH not in job.registry.nodes
    job = asked(ITEMS_AT_ONCE + 3)
    claim = job.taken(ASKED)
    assert job.running() == list(job.items)
    assert job.settle(claim, *[Outcome.COMPLETED] * len(job.items))
