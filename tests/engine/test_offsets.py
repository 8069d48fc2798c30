from __future__ import annotations

from typing import Any

import pytest

from aioelasticjob.engine import offsets as offsets_module
from aioelasticjob.engine.commit import write
from aioelasticjob.engine.offsets import Offsets, encoded
from aioelasticjob.errors import Conflict, InvalidSetting
from aioelasticjob.registry.transaction import Committed, Create, Delete
from tests.engine.test_claims import LAYOUT, ClaimedJob, done


def test_which_items_have_an_offset_is_known_from_when_they_were_read_last() -> None:
    job = ClaimedJob()
    offsets = Offsets(job.member, job.reader)
    assert done(offsets.read(job.items)) == {}
    job.write(Create(LAYOUT.item(1).offset, b"here"))
    assert offsets.possible(frozenset({0, 1})) == frozenset()
    assert done(offsets.read({0, 1})) == {1: "here"}
    assert offsets.possible(frozenset({0, 1})) == {1}


def test_an_offset_saved_while_another_read_was_under_way_is_read_before_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = ClaimedJob()
    offsets = Offsets(job.member, job.reader)
    claim = job.claims.unmonitored(job.command(job.view(), items=[0]))

    async def write_after_a_read(*given: Any, **options: Any) -> Committed:
        await offsets.read([0])
        return await write(*given, **options)

    monkeypatch.setattr(offsets_module, "write", write_after_a_read)
    done(offsets.save(claim, 0, "42"))
    assert offsets.possible(frozenset({0, 1})) == {0}


def test_an_offset_that_utf_8_cannot_spell_is_refused_by_name() -> None:
    with pytest.raises(InvalidSetting, match="must be text that UTF-8 can spell"):
        encoded("\ud800")


def test_an_offset_that_a_node_made_by_hand_keeps_out_is_refused_at_once() -> None:
    job = ClaimedJob()
    claim = job.taken()
    offsets = Offsets(job.member, job.reader)
    job.registry.commit([Delete(LAYOUT.offsets), Create(LAYOUT.offsets, ephemeral=True)], 77)
    with pytest.raises(Conflict):
        done(offsets.save(claim, 1, "5"))
