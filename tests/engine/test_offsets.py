from __future__ import annotations

from typing import Any

import pytest

from aioelasticjob.engine import offsets as offsets_module
from aioelasticjob.engine.commit import write
from aioelasticjob.engine.offsets import Offsets, encoded
from aioelasticjob.errors import Conflict, InvalidSetting, SessionEnded, Suspended
from aioelasticjob.registry.transaction import Committed, Create, Delete
from tests.engine.test_claims import CRON, LAYOUT, MINE, ClaimedJob, done


def test_an_offset_that_another_saved_first_is_not_read_before_a_claim_but_under_it() -> None:
    job = ClaimedJob()
    offsets = Offsets(job.member, job.cache)
    done(offsets.read(job.items))
    job.write(Create(LAYOUT.item(1).offset, b"here"))
    assert not job.cache.items[1].may_have_offset
    assert done(offsets.reread({0, 1})) == {1: "here"}
    assert not job.cache.items[0].may_have_offset
    assert job.cache.items[1].may_have_offset
    assert done(offsets.read({1})) == {1: "here"}


def test_an_offset_saved_while_another_read_was_under_way_is_read_before_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = ClaimedJob()
    offsets, claim = Offsets(job.member, job.cache), job.claims.unmonitored(CRON, [0])

    async def write_after_a_read(*given: Any, **options: Any) -> Committed:
        await offsets.read([0])
        return await write(*given, **options)

    monkeypatch.setattr(offsets_module, "write", write_after_a_read)
    done(offsets.save(claim, 0, "42"))
    assert job.cache.items[0].may_have_offset


def test_an_offset_under_a_claim_is_read_however_often_the_connection_breaks() -> None:
    job = ClaimedJob()
    offsets = Offsets(job.member, job.cache)
    job.write(Create(LAYOUT.item(1).offset, b"here"))
    job.session.reads.extend(["suspended"] * 3)
    assert done(offsets.reread([1])) == {1: "here"}
    job.session.reads.append("suspended")
    with pytest.raises(Suspended):
        done(offsets.read([1]))


def test_an_offset_under_a_claim_that_is_over_is_not_waited_for() -> None:
    job = ClaimedJob()
    offsets = Offsets(job.member, job.cache)
    job.session.reads.append("suspended")
    job.session.renew(MINE + 5)
    with pytest.raises(SessionEnded, match="lost before the registry answered"):
        done(offsets.reread([1]))


def test_an_offset_that_utf_8_cannot_spell_is_refused_by_name() -> None:
    with pytest.raises(InvalidSetting, match="must be text that UTF-8 can spell"):
        encoded("\ud800")


def test_an_offset_that_a_node_made_by_hand_keeps_out_is_refused_at_once() -> None:
    job = ClaimedJob()
    claim = job.taken()
    offsets = Offsets(job.member, job.cache)
    job.registry.commit([Delete(LAYOUT.offsets), Create(LAYOUT.offsets, ephemeral=True)], 77)
    with pytest.raises(Conflict):
        done(offsets.save(claim, 1, "5"))
