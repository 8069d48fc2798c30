"""The marks of listeners that are called once, where others write them at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from anyio import current_time

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.request_runs import next_run
from aioelasticjob.core.requests import Request
from aioelasticjob.core.view import read
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.run_barrier import BEGUN, RunBarrier, fire_of, run_of
from aioelasticjob.errors import Conflict, NotPermitted
from aioelasticjob.model import Fire, FireSource
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Check, Committed, Create, Delete, Op
from tests.core.test_request_runs import BACKFILL, ITEMS, NOW, ONCE, asked
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

REQUEST = Check(LAYOUT.request("r"), 0)


def _marks(here: SimulatedJobs) -> RunBarrier:
    session = here.observer
    return RunBarrier(Member(session, LAYOUT, "me", "10.0.0.1", "host", 1, session.incarnation))


def test_items_take_part_in_what_is_asked_for_as_long_as_it_is() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(*map(Create, LAYOUT.skeleton), Create(REQUEST.path))
        marks = _marks(here)
        assert await marks.join("trigger-1", {0, 1}, REQUEST)
        assert await here.names(LAYOUT.started) == ("0", "1")
        await here.write(Delete(REQUEST.path))
        assert not await marks.join("trigger-2", {0, 1}, REQUEST)
        assert await marks.begun_in(0) == "trigger-1"
        await marks.end("trigger-1", {0, 1})
        await marks.end("trigger-1", {0, 1})
        assert await here.names(LAYOUT.started) == ()

    simulate(scene)


def test_a_requested_run_is_finished_when_no_item_has_yet_to_begin_it_and_the_present_run_may_be_left_out() -> None:
    async def scene(here: SimulatedJobs) -> None:
        item = LAYOUT.item(0)
        await here.write(*map(Create, LAYOUT.skeleton), Create(item.sharding), Create(item.instance, b"me"))
        await here.write(Create(LAYOUT.instance("me")), Create(REQUEST.path, b'{"kind": "TRIGGER"}'))
        asked_for = await here.observer.get(REQUEST.path)
        run, earlier, marks = f"trigger-{asked_for.stat.mzxid}", "trigger-1", _marks(here)
        view = read(await here.observer.subtree([LAYOUT.root]), LAYOUT, JobConfig(job_name=LAYOUT.job))
        for begun in (earlier, run):
            await marks.note(begun, BEGUN)
        assert await marks.finished_runs(view) == [earlier]
        await here.write(Delete(REQUEST.path))
        assert await marks.finished_runs(view) == [earlier, run]
        assert await marks.finished_runs(view, besides=run) == [earlier]

    simulate(scene)


@pytest.mark.parametrize("request_", [ONCE, BACKFILL])
def test_an_earlier_run_for_a_request_has_the_same_moment_and_name_when_its_after_is_called(request_: Request) -> None:
    job = asked(request_)
    found = next_run(job.view(), request_.source, ITEMS, NOW)
    assert found is not None
    again = fire_of(run_of(found.fire), job.view(), NOW + 60_000)
    assert (again.slot, again.source, again.run) == (found.fire.slot, request_.source, found.fire.run)
    assert again.parameter == request_.parameter


def test_an_earlier_run_of_which_nothing_is_known_any_more_has_the_present_moment_unless_its_name_tells() -> None:
    view = asked().view()
    assert fire_of("trigger-17", view, NOW) == Fire(NOW, FireSource.TRIGGER)
    assert fire_of("backfill-17-5000", view, NOW) == Fire(5000, FireSource.BACKFILL)
    assert fire_of("5000", view, NOW) == Fire(5000, FireSource.SCHEDULE)


def test_a_job_that_was_removed_gets_no_marks() -> None:
    async def scene(here: SimulatedJobs) -> None:
        marks = _marks(here)
        with pytest.raises(Conflict):
            await marks.join("1", {0})
        await here.write(Create(LAYOUT.root), Create(LAYOUT.requests), Create(REQUEST.path))
        await marks.join("1", {0})
        assert await here.names(LAYOUT.started) == ("0",)

    simulate(scene)


def test_what_is_noted_stands_though_the_right_to_call_was_removed_by_hand() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(*map(Create, LAYOUT.skeleton))
        marks = _marks(here)
        assert await marks.acquire("1", None)
        await here.write(Delete(LAYOUT.calling("1")))
        await marks.note("1", BEGUN)
        assert await marks.state("1") == BEGUN
        assert not await marks.acquire("1", None)

    simulate(scene)


def test_what_somebody_keeps_changing_is_given_up() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(*map(Create, LAYOUT.skeleton))
        await here.write(Delete(LAYOUT.guarantee), Create(LAYOUT.guarantee, ephemeral=True))
        with pytest.raises(Conflict, match="no ephemeral children"):
            await _marks(here).join("1", {0})

    simulate(scene)


@pytest.mark.parametrize("how", ["noted", "released"])
def test_the_right_to_call_is_given_up_as_soon_as_a_registry_that_refused_it_accepts_it(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calling, commit, refused = LAYOUT.calling("1"), Session.commit, list[float]()

    async def refuse_for_two_seconds(session: Session, ops: Sequence[Op], **options: Any) -> Committed:
        if any(isinstance(op, Delete) and op.path == calling for op in ops) and current_time() < began + 2:
            refused.append(current_time())
            raise NotPermitted(calling)
        return await commit(session, ops, **options)

    async def scene(here: SimulatedJobs) -> None:
        nonlocal began
        await here.write(*map(Create, LAYOUT.skeleton))
        marks = _marks(here)
        assert await marks.acquire("1", None)
        began = current_time()
        await (marks.note("1", BEGUN) if how == "noted" else marks.release("1"))
        assert await marks.caller("1") is None
        assert await marks.state("1") == (BEGUN if how == "noted" else None)

    began = 0.0
    monkeypatch.setattr(Session, "commit", refuse_for_two_seconds)
    simulate(scene)
    assert 1 < len(refused) < 50
