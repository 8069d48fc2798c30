"""When a stream gives way, and that its items go on where they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext, JobConfig
from aioelasticjob.engine.early_end import is_to_end, left_open
from aioelasticjob.model import Claim, Fire, FireSource, Record, VersionedRecord
from aioelasticjob.registry.transaction import Create, Delete, Op, Set
from aioelasticjob.testing import VirtualClock
from tests.core.rules.world import world
from tests.engine.test_dataflow_cluster import SERVER, DataflowProcesses, offset
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

ME, OTHER = "10.0.0.1@-@1", "10.0.0.2@-@1"
CHANGES: dict[str, tuple[object, str]] = {
    "concurrency": (2, "2 at a time, 2 long"),
    "ordered": (True, "1 at a time, 2 long"),
    "batch_size": (5, "8 at a time, 5 long"),
    "record_timeout": (0.1, "8 at a time, 2 long, failing"),
    "max_failures": (0, "8 at a time, 2 long"),
    "prefetch": (False, "8 at a time, 2 long"),
}


def test_a_stream_gives_way_to_whoever_joins_and_its_items_go_on_where_they_were() -> None:
    async def scene(here: SimulatedJobs) -> None:
        plant = DataflowProcesses(here)
        await plant.start_process("a")
        await here.until(25)
        assert plant.holders(10) == {0: {"a"}, 1: {"a"}}
        await plant.start_process("b")
        joined = here.now()
        await here.until(40)
        split = plant.holders(joined + 2)
        assert split == {0: {"a"}, 1: {"b"}} or split == {0: {"b"}, 1: {"a"}}
        for item in (0, 1):  # in order, and none of them twice: nobody was cut off
            records = [record for _, _, one, record in plant.seen if one == item]
            assert sorted(records) == list(range(len(records)))
        # given way at once, though neither the stream nor the schedule would have ended it
        assert min(at for at, name, item, _ in plant.seen if name == "b") < joined + 3

    simulate(scene)


@pytest.mark.parametrize(
    ("said", "unsaid"),
    [
        ([Create(LAYOUT.server_paused(SERVER))], [Delete(LAYOUT.server_paused(SERVER))]),
        ([Create(LAYOUT.server_disabled(SERVER))], [Delete(LAYOUT.server_disabled(SERVER))]),
        (
            [Create(LAYOUT.item(item).disabled) for item in (0, 1)],
            [Delete(LAYOUT.item(item).disabled) for item in (0, 1)],
        ),
    ],
    ids=["pause", "disable", "disable items"],
)
def test_an_operators_word_ends_a_stream_after_what_is_in_process(said: list[Op], unsaid: list[Op]) -> None:
    async def scene(here: SimulatedJobs) -> None:
        plant = DataflowProcesses(here)
        await plant.start_process("a")
        await here.until(15)
        await here.write(*said)
        await here.until(19)
        assert sorted(plant.through) == sorted(plant.fetched)
        quiet = len(plant.seen)
        assert max(at for at, *_ in plant.seen) < 17.5  # one batch in process and one ahead, 40 records a second
        for item in (0, 1):
            assert await offset(here, item) == sum(one == item for _, _, one, _ in plant.seen)
            assert (await here.record(item)).outcome == "completed"
        await here.until(45)
        assert len(plant.seen) == quiet
        await here.write(*unsaid)
        await here.until(55)
        assert len(plant.seen) > quiet
        assert max(Counter((item, record) for *_, item, record in plant.seen).values()) == 1

    simulate(scene)


@pytest.mark.parametrize("setting", CHANGES)
def test_a_changed_setting_takes_effect_on_a_stream_at_once(setting: str) -> None:
    value, expected = CHANGES[setting]

    async def scene(here: SimulatedJobs) -> None:
        busy, most, longest, failed = 0, 0, 0, 0
        app = ElasticJob(here.address, clock=VirtualClock(), session_timeout=5)

        @app.dataflow("job", cron="5 0/30 * * * ?", streaming=True, concurrency=8, batch_size=2)
        async def fetch(context: ItemContext) -> AsyncIterator[list[int]]:
            while True:
                yield list(range(100))

        @fetch.process
        async def process(context: ItemContext, records: list[int]) -> None:
            nonlocal busy, most, longest, failed
            busy += 1
            most, longest = max(most, busy), max(longest, len(records))
            try:
                await anyio.sleep(0.2)
            except BaseException:
                failed += 1
                raise
            finally:
                busy -= 1

        async with app.running():
            await here.until(8)
            assert (most, longest, failed) == (8, 2, 0)
            await change(here, **{setting: value})
            await here.until(11)
            most = longest = failed = 0
            await here.until(15)
            assert f"{most} at a time, {longest} long" + ", failing" * (failed > 0) == expected

    simulate(scene)


def test_streaming_switched_off_ends_a_stream() -> None:
    async def scene(here: SimulatedJobs) -> None:
        plant = DataflowProcesses(here, items=1)
        await plant.start_process("a")
        await here.until(15)
        await change(here, streaming=False)
        await here.until(100)
        assert len(plant.runs) == 2  # what goes on is one shot, and gives way to nothing
        await change(here, concurrency=1)
        await here.until(130)
        assert len(plant.runs) == 2

    simulate(scene)


@pytest.mark.parametrize("monitored", [True, False])
def test_a_stream_that_gave_way_goes_on_at_once_however_rare_its_moments_are(monitored: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        plant = DataflowProcesses(here, settings={"cron": "10 0/30 * * * ?", "monitor_execution": monitored})
        one = await plant.start_process("a")
        await here.until(15)
        await plant.start_process("b")
        await here.until(25)
        if monitored:  # without a lock and a record nobody knows that b's item is not finished
            assert sorted(plant.holders(20)) == [0, 1]
            assert plant.holders(20)[0] != plant.holders(20)[1]
        assert "a" in set().union(*plant.holders(20).values())
        one.terminate()
        await one.wait()
        left = here.now()
        await here.until(left + 5)
        if monitored:
            assert plant.holders(left + 3) == {0: {"b"}, 1: {"b"}}
        assert max(Counter((item, record) for *_, item, record in plant.seen).values()) == 1

    simulate(scene)


def test_an_end_of_its_own_is_an_end() -> None:
    async def scene(here: SimulatedJobs) -> None:
        plant = DataflowProcesses(here, size=100, settings={"cron": "10 0/30 * * * ?"})
        await plant.start_process("a")
        await here.until(30)
        await plant.start_process("b")
        await here.until(60)
        assert len(plant.runs) == 2

    simulate(scene)


def test_a_trigger_ends_a_stream_and_is_answered() -> None:
    async def scene(here: SimulatedJobs) -> None:
        plant = DataflowProcesses(here, items=1)
        await plant.start_process("a")
        await here.until(15)
        await here.trigger()
        await here.until(17)
        assert [(source, at < 16) for at, _, _, source in plant.runs] == [("SCHEDULE", True), ("TRIGGER", True)]

    simulate(scene)


async def change(here: SimulatedJobs, **settings: object) -> None:
    config = JobConfig.from_json((await here.observer.get(LAYOUT.config)).data, LAYOUT.config)
    await here.write(Set(LAYOUT.config, config.changed(**settings).to_json(), -1))


def claimed(*items: int, source: FireSource = FireSource.SCHEDULE) -> Claim:
    seen = {item: VersionedRecord(Record(slot=9_000), 0, 1) for item in items}
    return Claim(Fire(9_000, source), ME, 1, seen, {})


@pytest.mark.parametrize(
    ("happens", "ends"),
    [
        ([Create(LAYOUT.necessary)], True),
        ([Set(LAYOUT.sharding, b"", -1)], True),
        ([Create(LAYOUT.server_paused("10.0.0.1"))], True),
        ([Create(LAYOUT.server_paused("10.0.0.2"))], False),
        ([Create(LAYOUT.item(0).disabled)], True),
        ([Create(LAYOUT.item(2).disabled)], False),
        ([Create(LAYOUT.request("r"), b'{"kind": "TRIGGER"}')], True),
        ([Create(LAYOUT.request("r"), b'{"kind": "TRIGGER", "items": [2, 3]}')], False),
        ([Create(LAYOUT.request("r"), b"nonsense")], False),
        ([Set(LAYOUT.item(0).instance, OTHER.encode(), -1)], True),
        ([Create(LAYOUT.item(3).orphan)], True),
        ([Create(LAYOUT.item(3).orphan), Create(LAYOUT.item(3).disabled)], False),
        ([Create(LAYOUT.item(3).orphan), Create(LAYOUT.item(3).failover)], False),
        ([Set(LAYOUT.config, b"nonsense", -1)], False),
    ],
)
def test_a_stream_is_to_end_for_what_waits_for_it_and_for_nothing_else(happens: list[Op], ends: bool) -> None:
    here = world(2, sharding_total_count=4, failover=True)
    begun = here.settle()
    assert [item for item, holder in begun.assignment.items() if holder == ME] == [0, 1]
    assert not is_to_end(begun, begun, claimed(0, 1))
    here.registry.commit(happens)
    assert is_to_end(begun, here.view(), claimed(0, 1)) is ends


def test_a_rescue_goes_on_though_its_item_is_anothers_by_assignment_and_a_scheduled_run_does_not() -> None:
    here = world(2, sharding_total_count=4, failover=True)
    begun = here.settle()
    here.registry.commit([Set(LAYOUT.host, b"", -1)])
    assert not is_to_end(begun, here.view(), claimed(0, 1, 2, source=FireSource.FAILOVER))
    assert is_to_end(begun, here.view(), claimed(0, 1, 2))


def test_a_stream_ends_when_an_item_of_ours_can_be_run_again_that_could_not_when_it_began() -> None:
    here = world(2, sharding_total_count=4)
    here.settle()
    here.registry.commit([Create(LAYOUT.item(1).disabled)])
    begun = here.view()
    here.registry.commit([Delete(LAYOUT.item(1).disabled)])
    assert is_to_end(begun, here.view(), claimed(0))
    assert not is_to_end(begun, here.view(), claimed(0, 1))  # it is run as it is
    later = here.view()
    here.registry.commit([Create(LAYOUT.item(2).disabled)])
    assert not is_to_end(later, here.view(), claimed(0))  # another instance may have run it when it was claimed


def told_of_missed(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if " missed " in one.getMessage()]


@pytest.mark.parametrize("misfire", [True, False])
def test_a_stream_that_gave_way_goes_on_elsewhere_at_once_and_its_moment_is_not_reported_as_missed(
    misfire: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        plant = DataflowProcesses(here, settings={"cron": "0/30 * * * * ?", "misfire": misfire})
        await plant.start_process("a")
        await here.until(35)
        await plant.start_process("b")
        await here.until(45)
        began = [at for at, name, *_ in plant.runs if name == "b"]
        assert len(began) == 1
        assert began[0] < 39
        assert told_of_missed(caplog) == []

    simulate(scene)


def test_a_stream_goes_on_with_a_newer_moment_in_the_place_of_the_one_that_it_has_left_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "aioelasticjob.engine.missed_reports")

    async def scene(here: SimulatedJobs) -> None:
        plant = DataflowProcesses(here, settings={"cron": "0/10 * * * * ?"})
        await plant.start_process("a")
        await here.until(35)
        await plant.start_process("b")
        await here.until(38.5)
        assert "b" in {name for _, name, *_ in plant.runs}
        assert told_of_missed(caplog)  # of what came while the stream ran
        assert not [text for text in told_of_missed(caplog) if "T00:00:10+" in text]  # that was run

    simulate(scene)


def test_a_triggered_stream_that_gives_way_before_the_first_moment_of_its_schedule_leaves_none_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        plant = DataflowProcesses(here, items=1, settings={"cron": "0 0 12 * * ?"})
        await plant.start_process("a")
        await here.until(3)
        await here.trigger()
        await here.until(8)
        assert [source for *_, source in plant.runs] == ["TRIGGER"]
        await change(here, concurrency=4)
        await here.until(15)
        assert (await here.record(0)).slot == 0
        assert not [one for one in caplog.records if "is not the record of a run" in one.getMessage()]

    simulate(scene)


def test_the_moment_of_items_with_more_to_do_is_left_open_and_that_of_the_others_is_not() -> None:
    claim = claimed(0, 1)
    assert left_open(claim, []) == claim
    opened = left_open(claim, [1])
    assert opened.items[0] == claim.items[0]
    assert opened.items[1].version == claim.items[1].version
    assert (opened.items[1].record.slot, opened.items[1].record.accounted) == (9_000, 8_999)
