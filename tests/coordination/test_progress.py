from __future__ import annotations

import pytest

from aioelasticjob.coordination.progress import Offsets
from aioelasticjob.errors import SessionEnded, Suspended
from aioelasticjob.registry.transaction import Create
from tests.coordination.test_claims import LAYOUT, MINE, ClaimedJob, done


def test_an_offset_that_another_saved_first_is_not_read_before_a_claim_but_under_it() -> None:
    job = ClaimedJob()
    offsets = Offsets(job.member)
    done(offsets.learn(job.items))
    job.write(Create(LAYOUT.item(1).offset, b"here"))
    assert offsets.to_read == set()
    assert done(offsets.reread({0, 1})) == {1: "here"}
    assert offsets.to_read == {1}
    assert done(offsets.read(offsets.to_read)) == {1: "here"}


def test_an_offset_under_a_claim_is_read_however_often_the_connection_breaks() -> None:
    job = ClaimedJob()
    offsets = Offsets(job.member)
    job.write(Create(LAYOUT.item(1).offset, b"here"))
    job.session.reads.extend(["suspended"] * 3)
    assert done(offsets.reread([1])) == {1: "here"}
    job.session.reads.append("suspended")
    with pytest.raises(Suspended):
        done(offsets.read([1]))


def test_an_offset_under_a_claim_that_is_over_is_not_waited_for() -> None:
    job = ClaimedJob()
    offsets = Offsets(job.member)
    job.session.reads.append("suspended")
    job.session.renew(MINE + 5)
    with pytest.raises(SessionEnded, match="lost before the registry answered"):
        done(offsets.reread([1]))
