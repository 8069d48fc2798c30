"""Items that another instance still runs: they are waited for, and are ours to run then."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aioelasticjob import operations
from aioelasticjob.core import records
from aioelasticjob.core.reasons import BUSY
from aioelasticjob.engine import commit, coordinator
from aioelasticjob.engine.member import Member
from aioelasticjob.errors import RegistryError
from aioelasticjob.events import Misfired
from aioelasticjob.model import Record
from aioelasticjob.registry.codec import failure
from aioelasticjob.registry.transaction import Committed, Create, Op
from tests.engine.test_refused_writes import EVERY_TEN, locked, slots
from tests.engine.test_rescues import workers_of
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, end_life, listening, simulate


def test_an_item_that_still_runs_elsewhere_is_waited_for_and_then_run_once() -> None:
    async def scene(here: SimulatedJobs) -> None:
        slow = here.app(cron="0/10 * * * * ?", work=25, sharding_total_count=2)
        async with listening(here, slow), slow.running():
            await here.until(11)
            quick = here.app(cron="0/10 * * * * ?", sharding_total_count=2)
            async with listening(here, quick), quick.running():
                await here.until(34)
                assert not [event for event in here.events if isinstance(event, Misfired)]
                await here.until(39)

    here = simulate(scene)
    moved = next(item for item in (0, 1) if len(here.starts(item)) > 1 and here.starts(item)[1][1] == "MISFIRE")
    assert here.starts(moved)[:2] == [(10.0, "SCHEDULE", 10.0), (35.0, "MISFIRE", 30.0)]
    missed = [event for event in here.events if isinstance(event, Misfired) and moved in event.items]
    assert [(event.moments, round(event.slot / 1000 - here.start), event.why) for event in missed] == [(1, 20, BUSY)]


@pytest.mark.parametrize(
    ("work", "misfire", "expected"),
    [
        (3, True, [(10, "SCHEDULE"), (15, "SCHEDULE")]),
        (7, True, [(12, "MISFIRE"), (19, "MISFIRE")]),
        (7, False, [(15, "SCHEDULE"), (25, "SCHEDULE")]),
    ],
)
def test_an_item_that_moves_in_the_midst_of_a_run_goes_on_when_that_has_ended(
    work: float, misfire: bool, expected: list[tuple[float, str]]
) -> None:
    """Nothing in the mirrored part tells of it: the next tick, which looks at everything, is a minute away."""

    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, work=work, misfire=misfire, sharding_total_count=2, cron="0/5 * * * * ?")
        await them.start_process("a")
        await here.until(5.5)
        await them.start_process("b")
        await here.until(30)
        moved = [(at, source) for at, name, _, source in them.runs if name == "b"]
        assert moved[:2] == expected

    simulate(scene)


def refuse_ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the registry refuse the first two times that the leader ends a run; return what was refused."""
    refused = list[str]()

    async def refusing(member: Member, ops: Sequence[Op], what: str, **options: bool) -> Committed:
        if "EndRun" in what and len(refused) < 2:
            refused.append(what)
            member.refusals.refused(what, error := RegistryError("the quota is used up"))
            raise error
        return await commit.write(member, ops, what, **options)

    monkeypatch.setattr(coordinator, "write", refusing)
    return refused


@pytest.mark.parametrize("seed", [2, 4])
def test_an_item_runs_on_though_its_run_could_not_be_given_up_at_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To give a run up changes its record only, which nobody mirrors: its holder hears of it by looking again."""
    refused = refuse_ends(monkeypatch)

    async def scene(here: SimulatedJobs) -> None:
        workers = workers_of(here, work=20, cron="0 * * * * ?", sharding_total_count=1, max_rescues=1)
        people = {name: await workers.start_process(name) for name in "abcde"}
        for second in (61, 72):
            await here.until(second)
            here.faults.crash(people[workers.runs[-1][1]])
        await here.until(81)
        assert (await here.record(0)).outcome == "given up"
        await here.until(181)
        assert [(at, source) for at, _, _, source in workers.runs[2:]] == [(120, "SCHEDULE"), (180, "SCHEDULE")]

    simulate(scene, seed=seed)
    assert len(refused) == 2


def test_an_item_runs_on_though_its_cancelled_run_could_not_be_ended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The item has moved to another instance, and the one that runs it dies before it hears of the cancellation."""
    refused = refuse_ends(monkeypatch)

    async def scene(here: SimulatedJobs) -> None:
        workers = workers_of(here, work=20, cron="0 * * * * ?", sharding_total_count=1)
        people = {name: await workers.start_process(name) for name in "cb"}  # c leads, and b has the item
        await here.until(61)
        await workers.start_process("a")  # a is given the item, and waits for the end of the run
        await here.until(64)
        here.faults.crash(people["b"])
        assert await operations.cancel(here.observer, "job", item=0, by="anna")
        await here.until(81)
        assert (await here.record(0)).outcome == "stopped"
        await here.until(181)
        assert [(at, name) for at, name, _, _ in workers.runs] == [(60, "b"), (120, "a"), (180, "a")]

    simulate(scene, seed=2)
    assert len(refused) == 2


@pytest.mark.parametrize("failover", [True, False])
def test_a_lock_of_ones_own_session_without_an_execution_is_removed(
    failover: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron=EVERY_TEN, sharding_total_count=2, failover=failover)
        async with app.running() as session:
            await here.until(5)
            (me,) = await here.names(LAYOUT.instances)
            begun = records.encode(Record(int(here.start * 1000) - 10_000, "SCHEDULE", me, 1, completed=False))
            left = [Create(LAYOUT.item(0).execution, begun), Create(LAYOUT.item(0).running, b"me", ephemeral=True)]
            await session.commit(left, incarnation=session.incarnation)
            await here.until(35)
            assert slots(here, 1) == [10, 20, 30]
            assert set(slots(here, 0)) >= {20, 30}
            assert [source for _, source, _ in here.starts(0)].count("FAILOVER") == failover
            assert await locked(here) == []
        assert (
            "job: item 0 was still locked by this instance, though its run had been cut off; the lock was removed"
            in caplog.messages
        )

    simulate(scene)


def test_a_lock_of_an_earlier_life_on_an_item_that_another_instance_holds_is_removed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        one, two = (here.app(cron=EVERY_TEN, sharding_total_count=4) for _ in range(2))
        async with one.running() as session, two.running():
            await here.until(5)
            (job,) = two.health.jobs
            item = job.holds[0]
            begun = records.encode(Record(int(here.start * 1000) - 10_000, "SCHEDULE", "me", 1, completed=False))
            paths = LAYOUT.item(item)
            left = [Create(paths.execution, begun), Create(paths.running, b"me", ephemeral=True)]
            await session.commit(left, incarnation=session.incarnation)
            end_life(one, failure(-102, "/job"))
            await here.until(45)
            assert await locked(here) == []
            assert set(slots(here, item)) >= {20, 30, 40}

    simulate(scene)
