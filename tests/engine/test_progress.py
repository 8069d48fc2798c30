"""Offsets, counts, listeners and triggers with a parameter, in virtual time."""

from __future__ import annotations

import anyio
import pytest

from aioelasticjob import ElasticJob, FireSource, InstanceContext, ItemContext, JobListener, operations
from aioelasticjob.core.records import MAX_PARAMETER_BYTES
from aioelasticjob.engine.offsets import MAX_OFFSET_BYTES
from aioelasticjob.errors import Fenced, InvalidSetting, NodeMissing
from aioelasticjob.events import Began, Ended
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.testing import VirtualCluster, run
from tests.engine.test_rescues import workers_of
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, listening, simulate


async def number(here: SimulatedJobs, path: str) -> int:
    return int((await here.observer.get(path)).data)


def test_an_offset_is_where_the_next_run_begins_on_whatever_instance() -> None:
    async def scene(here: SimulatedJobs) -> None:
        seen: list[str | None] = []

        async def handler(context: ItemContext) -> None:
            seen.append(context.offset)
            await context.save_offset(f"{len(seen)}")
            assert context.offset == f"{len(seen)}"

        async with here.app(handler, cron="0/10 * * * * ?").running():
            await here.until(25)
        async with here.app(handler, cron="0/10 * * * * ?").running():
            await here.until(35)
        assert seen == [None, "1", "2"]
        await here.write(Set(LAYOUT.item(0).offset, b"by hand", -1))
        async with here.app(handler, cron="0/10 * * * * ?").running():
            await here.until(45)
            await here.write(Set(LAYOUT.item(0).offset, b"while held", -1))
            await here.until(55)
        assert seen[3:] == ["by hand", "while held"]

    simulate(scene)


def test_the_offsets_of_all_items_for_one_call_per_instance() -> None:
    async def scene(here: SimulatedJobs) -> None:
        seen: list[dict[int, str | None]] = []
        refused: list[int] = []

        async def handler(context: InstanceContext) -> None:
            seen.append(dict(context.offsets))
            await context.save_offset(1, "here")
            for item in (7, True):  # True equals 1
                with pytest.raises(InvalidSetting, match="must be one of this run's"):
                    await context.save_offset(item, "not mine")
                refused.append(item)

        async with here.app(handler, cron="0/10 * * * * ?", per="instance", sharding_total_count=2).running():
            await here.until(25)
        assert seen == [{0: None, 1: None}, {0: None, 1: "here"}]
        assert refused == [7, True] * 2

    simulate(scene)


def test_a_run_that_is_over_saves_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        contexts: list[ItemContext] = []

        async def handler(context: ItemContext) -> None:
            contexts.append(context)
            await context.save_offset("good")

        async with here.app(handler, cron="0/10 * * * * ?").running():
            await here.until(15)
            with pytest.raises(Fenced, match="of item 0 has ended or was cut off"):
                await contexts[0].save_offset("late")
        assert (await here.observer.get(LAYOUT.item(0).offset)).data == b"good"

    simulate(scene)


def test_a_run_under_a_session_that_ended_saves_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        refused: list[Fenced] = []

        async def handler(context: ItemContext) -> None:
            try:
                await anyio.sleep(60)
            finally:
                with anyio.CancelScope(shield=True):
                    try:
                        await context.save_offset("a zombie's")
                    except Fenced as error:
                        refused.append(error)

        app = here.app(handler, cron="0 * * * * ?")

        async def main() -> None:
            async with app.running():
                await anyio.sleep_forever()

        process = here.faults.start("a", "10.0.0.1", main)
        await here.until(62)
        here.faults.drop("10.0.0.1", "10.0.9.9")
        await here.until(90)
        here.faults.heal()
        await here.until(100)
        assert len(refused) == 1
        with pytest.raises(NodeMissing):
            await here.observer.get(LAYOUT.item(0).offset)
        process.terminate()

    simulate(scene)


@pytest.mark.parametrize(("value", "says"), [(17, "must be text"), ("x" * (MAX_OFFSET_BYTES + 1), "at most")])
def test_an_offset_that_makes_no_sense_is_refused(value: object, says: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        errors: list[str] = []

        async def handler(context: ItemContext) -> None:
            try:
                await context.save_offset(value)  # type: ignore[arg-type]
            except InvalidSetting as error:
                errors.append(str(error))

        async with here.app(handler, cron="0/10 * * * * ?").running():
            await here.until(11)
        assert says in errors[0]

    simulate(scene)


def test_an_offset_removed_by_hand_can_be_saved_again() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None:
            await context.save_offset("one")
            await here.write(Delete(LAYOUT.item(0).offset))
            await context.save_offset("two")

        async with here.app(handler, cron="0/10 * * * * ?").running():
            await here.until(11)
            assert (await here.observer.get(LAYOUT.item(0).offset)).data == b"two"

    simulate(scene)


def test_runs_are_counted_by_server_and_interval() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None:
            if context.item == 2:
                raise ValueError

        settings = {"cron": "0/10 * * * * ?", "sharding_total_count": 3, "statistics_interval": 30.0}
        async with here.app(handler, **settings).running():
            await here.until(32)
            success, failure = LAYOUT.success_count("127.0.0.1"), LAYOUT.failure_count("127.0.0.1")
            assert (await number(here, success), await number(here, failure)) == (6, 3)
            await here.until(62)
            assert (await number(here, success), await number(here, failure)) == (6, 3)
            await here.write(Create(LAYOUT.server_paused("127.0.0.1")))
            await here.until(122)
            assert (await number(here, success), await number(here, failure)) == (0, 0)

    simulate(scene)


def test_whoever_leaves_publishes_what_ran_since_the_last_tick_and_it_ages() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/10 * * * * ?").running():
            await here.until(35)
        ip = (await here.names(LAYOUT.servers))[0]
        assert await number(here, LAYOUT.success_count(ip)) == 3
        status = await operations.job(here.observer, "job", now=here.start + here.now())
        assert (status.succeeded, status.failed) == (3, 0)
        await here.until(35 + 130)  # two intervals later
        status = await operations.job(here.observer, "job", now=here.start + here.now())
        assert (status.succeeded, status.failed) == (0, 0)

    simulate(scene)


def test_a_trigger_may_bring_a_parameter_for_its_run_alone() -> None:
    async def scene(here: SimulatedJobs) -> None:
        seen: list[tuple[str, str]] = []

        async def handler(context: ItemContext) -> None:
            seen.append((context.source.value, context.job_parameter))

        async with here.app(handler, cron="0/10 * * * * ?", job_parameter="daily").running():
            await here.until(3)
            await here.trigger(parameter="nachträglich")
            await here.until(11)
        assert seen == [("TRIGGER", "nachträglich"), ("SCHEDULE", "daily")]

    simulate(scene)


def test_a_request_with_a_parameter_too_large_for_the_records_is_not_answered_and_the_schedule_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?", job_parameter="daily")
        async with listening(here, app), app.running():
            await here.until(3)
            await here.trigger(parameter="x" * (MAX_PARAMETER_BYTES + 1))
            await here.until(11)
            assert await here.names(LAYOUT.requests) == ("by-hand",)
        assert here.starts() == [(10.0, "SCHEDULE", 10.0)]

    simulate(scene)
    (said,) = [one.getMessage() for one in caplog.records if "is not a request" in one.getMessage()]
    assert said.startswith("/job/requests/by-hand: ")


def test_listeners_are_called_around_each_run_of_an_instance() -> None:
    async def scene(here: SimulatedJobs) -> None:
        calls: list[object] = []

        async def before(context: InstanceContext) -> None:
            calls.append(("before", context.items))

        async def after(context: InstanceContext) -> None:
            calls.append("after")
            raise ValueError("only logged")

        async def handler(context: ItemContext) -> None:
            calls.append(context.item)

        listeners = [JobListener(before=before, after=after), JobListener(after=after)]
        async with here.app(handler, cron="0/10 * * * * ?", sharding_total_count=2, listeners=listeners).running():
            await here.until(11)
            assert (await here.record(1)).outcome == "completed"
        assert calls == [("before", (0, 1)), 0, 1, "after", "after"]

    simulate(scene)


def test_a_listener_that_fails_before_the_run_fails_the_run() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async def before(context: InstanceContext) -> None:
            raise ValueError("not today")

        async with here.app(cron="0/10 * * * * ?", listeners=[JobListener(before=before)]).running():
            await here.until(11)
            assert (await here.record(0)).outcome == "failed"
        assert here.runs == []

    simulate(scene)


def test_all_instances_restarted_one_after_another_lose_no_moment_and_run_none_twice() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = workers_of(here, work=1, cron="0/5 * * * * ?", sharding_total_count=6)
        people = {name: await them.start_process(name) for name in "abc"}
        await here.until(9.7)
        for name in "abc" * 2:
            people[name].terminate()
            await people[name].wait()
            people[name] = await them.start_process(name)
            await anyio.sleep(3.9)
        await here.until(61)
        begun = sorted((fired, item) for fired, item in them.slots)
        assert begun == [(float(moment), item) for moment in range(5, 61, 5) for item in range(6)]
        assert {source for _, _, _, source in them.runs} == {"SCHEDULE"}

    simulate(scene)


@pytest.mark.parametrize("seed", range(6))
def test_a_rescuer_begins_at_the_offset_of_the_dead_and_the_next_holder_at_the_rescuers(seed: int) -> None:
    began: list[tuple[int, FireSource, str | None]] = []
    app = ElasticJob("embedded://")

    @app.job(cron="0 0/10 * * * ?", sharding_total_count=3, failover=True)
    async def count(context: ItemContext) -> None:
        began.append((context.item, context.source, context.offset))
        if not context.offset:
            await context.save_offset("half")
            await anyio.sleep(60)
        await context.save_offset(f"{context.offset} and done")

    async def main() -> None:
        cluster = VirtualCluster()
        for _ in range(3):
            await cluster.start(app)
        await cluster.settled()
        victim = cluster.instances[seed % 3]
        (item,) = await victim.holds()
        await cluster.event(Began)
        await anyio.sleep(30)
        victim.kill()
        await cluster.event(Ended, source=FireSource.FAILOVER)
        await cluster.next_fire()
        runs = [(source, offset) for one, source, offset in began if one == item]
        assert runs == [
            (FireSource.SCHEDULE, None),
            (FireSource.FAILOVER, "half"),
            (FireSource.SCHEDULE, "half and done"),
        ]

    run(main, seed=seed)


@pytest.mark.parametrize("seed", range(6))
def test_who_was_given_an_item_that_is_being_rescued_begins_where_the_rescuer_came_to(seed: int) -> None:
    began: list[tuple[int, FireSource, str | None]] = []
    app = ElasticJob("embedded://")

    @app.job(cron="0 0/10 * * * ?", sharding_total_count=3, failover=True)
    async def count(context: ItemContext) -> None:
        began.append((context.item, context.source, context.offset))
        await anyio.sleep(60)
        await context.save_offset(f"{context.source.value}")  # the first one: when the item was given, there was none

    async def main() -> None:
        cluster = VirtualCluster()
        for _ in range(3):
            await cluster.start(app)
        await cluster.settled()
        victim = cluster.instances[seed % 3]
        (item,) = await victim.holds()
        await cluster.event(Began)
        await anyio.sleep(30)
        victim.kill()
        await cluster.event(Ended, source=FireSource.FAILOVER)
        await cluster.next_fire()
        runs = [(source, offset) for one, source, offset in began if one == item]
        assert runs == [(FireSource.SCHEDULE, None), (FireSource.FAILOVER, None), (FireSource.SCHEDULE, "FAILOVER")]

    run(main, seed=seed)


async def handed_on(cluster: VirtualCluster, app: ElasticJob, second: float) -> None:
    """Give the only item to a new instance at a second of the simulation, whatever the old one is doing."""
    await anyio.sleep(second - cluster.now.timestamp() % 86_400)
    (old,) = cluster.instances
    await cluster.start(app)
    await operations.disable_server(cluster._session, old.host)


@pytest.mark.parametrize("failover", [True, False])
def test_who_is_given_an_item_before_its_first_offset_is_saved_begins_there_all_the_same(failover: bool) -> None:
    async def main() -> None:
        began: list[tuple[str, str | None]] = []
        app = ElasticJob("embedded://")

        @app.job(cron="0 * * * * ?", sharding_total_count=1, failover=failover)
        async def count(context: ItemContext) -> None:
            began.append((context.instance.partition("@")[0], context.offset))
            await anyio.sleep(15)
            await context.save_offset(f"{context.fire_time:%H:%M}")

        cluster = VirtualCluster()
        await cluster.start(app)
        await cluster.settled()
        await handed_on(cluster, app, 65)  # in the midst of the first run
        await anyio.sleep(120)
        first, second = (one.host for one in cluster.instances)
        assert began == [(first, None), (second, "00:01"), (second, "00:02")]

    run(main)


@pytest.mark.parametrize("name", ["job", "a", "b"])  # whose claims are sent at different times before a moment
@pytest.mark.parametrize("work", [59.3, 59.65, 59.75, 59.8, 59.85, 59.9, 59.95])
def test_a_run_that_ends_when_the_next_claim_is_to_be_sent_hands_on_its_newest_offset(name: str, work: float) -> None:
    async def main() -> None:
        began: list[str | None] = []
        app = ElasticJob("embedded://")

        @app.job(name=name, cron="0 * * * * ?", sharding_total_count=1)
        async def count(context: ItemContext) -> None:
            began.append(context.offset)
            if len(began) == 2:
                await anyio.sleep(work)
            await context.save_offset(f"{context.fire_time:%H:%M}")

        cluster = VirtualCluster()
        await cluster.start(app)
        await cluster.settled()
        await handed_on(cluster, app, 125)
        await anyio.sleep(80)
        assert began == [None, "00:01", "00:02"]

    run(main)
