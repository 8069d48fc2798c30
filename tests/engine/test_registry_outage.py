"""After an outage of the registry, what passed meanwhile is reported as that, once; the newest moment is run late."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from aioelasticjob.core.reasons import AWAY, NOT_RECORDED, OURS
from aioelasticjob.errors import OutcomeUnknown
from aioelasticjob.events import Misfired
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Committed, Op, Set
from tests.support.simulated_jobs import LAYOUT, REGISTRY, SimulatedJobs, listening, simulate

Span = tuple[int, int, str]
HOST = "10.0.0.1"


async def start_process(here: SimulatedJobs, *, work: float = 0.1, **settings: object) -> None:
    """Start the job's only process; its session timeout is 10 s."""

    async def main() -> None:
        app = here.app(work=work, **{"cron": "0/10 * * * * ?", **settings})
        async with listening(here, app), app.running():
            await anyio.sleep_forever()

    here.faults.start("a", HOST, main)


async def out_of_reach(here: SimulatedJobs, start: float, end: float) -> None:
    await here.until(start)
    here.faults.partition([HOST], [REGISTRY])
    await here.until(end)
    here.faults.heal()


def reported(here: SimulatedJobs) -> list[Span]:
    """First and last moment of each report, in seconds after the start, and why."""
    reports = [one for one in here.events if isinstance(one, Misfired)]
    return [(round(one.first / 1000 - here.start), round(one.slot / 1000 - here.start), one.why) for one in reports]


def on_time(here: SimulatedJobs) -> list[int]:
    return [round(fired) for _, source, fired in here.starts() if source == "SCHEDULE"]


def late_runs(here: SimulatedJobs) -> list[float]:
    return [fired for _, source, fired in here.starts() if source == "MISFIRE"]


@pytest.mark.parametrize("items", [1, 2])
def test_the_log_says_whether_a_run_was_cancelled_because_of_the_session_or_because_the_job_leaves(
    items: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def outage(here: SimulatedJobs) -> None:
        await start_process(here, work=60, sharding_total_count=items)
        await out_of_reach(here, 12, 24)

    async def end(here: SimulatedJobs) -> None:
        async with here.app(work=60, cron="0/10 * * * * ?", sharding_total_count=items, shutdown_timeout=2).running():
            await here.until(12)

    simulate(outage)
    simulate(end)
    cancelled = [text.partition(" s: ")[2] for text in caplog.messages if " was cancelled after " in text]
    assert cancelled == ["the session may end soon, or has ended", "the job leaves"]


def test_moments_after_which_a_session_has_ended_name_the_outage() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here)
        await out_of_reach(here, 35, 82)
        await here.until(105)
        assert reported(here) == [(40, 70, AWAY)]
        assert (on_time(here), late_runs(here)) == ([10, 20, 30, 90, 100], [80])

    simulate(scene)


def test_moments_of_an_outage_that_the_session_survives_name_the_outage() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, cron="0/2 * * * * ?")
        await out_of_reach(here, 38.5, 44.8)
        await here.until(50.5)
        assert reported(here) == [(42, 44, AWAY)]  # the claim for 40 was under way
        assert (on_time(here)[-4:], late_runs(here)) == ([38, 40, 48, 50], [46])

    simulate(scene)


def test_without_misfire_the_newest_moment_of_an_outage_is_reported_and_not_run() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, misfire=False)
        await out_of_reach(here, 35, 82)
        await here.until(105)
        assert reported(here) == [(40, 80, AWAY)]
        assert (on_time(here), late_runs(here)) == ([10, 20, 30, 90, 100], [])

    simulate(scene)


@pytest.mark.parametrize(("misfire", "late"), [(True, ["MISFIRE"]), (False, [])])
def test_a_run_that_the_outage_cut_off_does_not_hide_what_came_after_it(misfire: bool, late: list[str]) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, work=12, misfire=misfire)
        await out_of_reach(here, 13, 75)
        await here.until(79)
        reports = [one for one in reported(here) if one[:2] != (10, 10)]  # which was cut off
        assert {why for _, _, why in reports} == {AWAY}
        assert (reports[0][0], reports[-1][1]) == (20, 60 if misfire else 70)
        assert [source for at, source, _ in here.starts() if at > 75] == late

    simulate(scene)


def test_what_came_before_the_outage_keeps_its_own_reason() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, work=40, cron="0/2 * * * * ?")
        await here.until(2)
        await out_of_reach(here, 20.5, 32.5)
        await here.until(45)
        _cut_off, (first, until, earlier), (after, newest, away), *_ = reported(here)
        assert (first, earlier) == (4, OURS)
        assert (after, away) == (until + 2, AWAY)
        assert 18 <= until <= 20 < 30 <= newest

    simulate(scene)


@pytest.mark.parametrize("work", [0.1, 3])  # at rest, or waiting to settle a run, when the connection comes back
def test_a_schedule_that_was_changed_during_an_outage_is_in_force_once_the_leader_could_note_it(
    work: float,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, work=work, cron="0/8 * * * * ?", misfire=False)
        await here.until(9.5)
        here.faults.partition([HOST], [REGISTRY])
        await here.until(13.5)
        stored = json.loads((await here.observer.get(LAYOUT.config)).data)
        await here.write(Set(LAYOUT.config, json.dumps({**stored, "cron": "1/2 * * * * ?"}).encode(), -1))
        await here.until(17.5)
        here.faults.heal()
        await here.until(25.5)
        assert [span for span in reported(here) if span[0] < 19] == [(16, 16, AWAY)]
        assert on_time(here)[:2] == [8, 19]

    simulate(scene)


def test_without_records_moments_of_an_outage_that_ends_the_session_are_neither_run_nor_reported() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, monitor_execution=False)
        await out_of_reach(here, 35, 82)
        await here.until(105)
        assert reported(here) == []
        assert (on_time(here), late_runs(here)) == ([10, 20, 30, 90, 100], [])

    simulate(scene)


def test_without_records_moments_of_an_outage_that_the_session_survives_are_run_again() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, cron="0/2 * * * * ?", monitor_execution=False)
        await out_of_reach(here, 38.5, 46.3)
        await here.until(54.5)
        assert reported(here) == [(44, 44, AWAY)]
        assert (on_time(here)[-6:], late_runs(here)) == ([40, 42, 48, 50, 52, 54], [46])

    simulate(scene)


@pytest.mark.parametrize(("ends", "cut_off"), [(75, [(10, 10, NOT_RECORDED)]), (14, [])])
def test_without_records_a_run_that_the_outage_cut_off_is_reported_by_who_ran_it(
    ends: float, cut_off: list[Span]
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_process(here, work=12, monitor_execution=False, misfire=False)
        await out_of_reach(here, 13, ends)
        await here.until(79)
        assert [one for one in reported(here) if one[2] == NOT_RECORDED] == cut_off
        moments = [moment for first, last, _ in reported(here) for moment in range(first, last + 1, 10)]
        assert len(moments) == len(set(moments))

    simulate(scene)


def test_a_write_that_breaks_the_connection_each_time_keeps_no_item_from_running() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def main() -> None:
            async with here.app(work=0.1, cron="0/2 * * * * ?", reconcile_interval=10).running() as session:
                commit = session.commit

                def picky(ops: Sequence[Op], **options: Any) -> asyncio.Future[Committed]:
                    if any("Count" in op.path for op in ops):
                        here.faults.reset(HOST, REGISTRY)
                        raise OutcomeUnknown("the connection broke")
                    return commit(ops, **options)

                session.commit = picky  # type: ignore[method-assign]
                await anyio.sleep_forever()

        here.faults.start("a", HOST, main)
        await here.until(70.5)
        assert max(fired for _, _, fired in here.starts()) > 60

    simulate(scene)


def test_a_start_that_costs_the_connection_while_the_time_is_asked_for_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, server_time = list[str](), Session.server_time

    async def first_lost(session: Session, path: str) -> float:
        asked.append(path)
        if len(asked) == 1:
            raise OutcomeUnknown("connection lost before the reply")
        return await server_time(session, path)

    async def scene(here: SimulatedJobs) -> None:
        monkeypatch.setattr(Session, "server_time", first_lost)
        async with here.app(cron="0/2 * * * * ?").running():
            await here.until(7)
        assert [fired for _, _, fired in here.starts()][-1] == 6

    simulate(scene)
