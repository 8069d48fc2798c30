"""Dataflows on a registry, with instances that come, go and die: who gives way when, and that no record is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext, JobConfig
from aioelasticjob.errors import Fenced
from aioelasticjob.registry.transaction import Create, Delete, Op, Set
from aioelasticjob.testing import Process, VirtualClock
from tests.running.test_progress import number
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

SERVER = "10.0.0.1"


class Superseded(Exception):
    """A store has seen a later run."""


@dataclass
class Store:
    """What a database would do: it remembers the largest fence of each item, and each record once."""

    fences: Counter[int] = field(default_factory=Counter)
    effects: Counter[tuple[int, int]] = field(default_factory=Counter)
    rows: set[tuple[int, int]] = field(default_factory=set)
    refused: int = 0

    def write(self, item: int, fence: int, record: int) -> None:
        if fence < self.fences[item]:
            self.refused += 1
            raise Superseded(item)
        self.fences[item] = fence
        if (item, record) not in self.rows:
            self.rows.add((item, record))
            self.effects[item, record] += 1


@dataclass
class Plant:
    """Instances of one dataflow, each a process on a host of its own, over sources of numbered records."""

    here: SimulatedJobs
    items: int = 2
    size: int = 10_000
    """Records of each item."""
    batch: int = 20
    work: float = 0.2
    settings: dict[str, Any] = field(default_factory=dict)
    seen: list[tuple[float, str, int, int]] = field(default_factory=list)
    """Second, host, item, record."""
    runs: list[tuple[float, str, int, str]] = field(default_factory=list)
    """Second, host, item, source of each first fetch."""
    store: Store = field(default_factory=Store)
    errors: list[str] = field(default_factory=list)
    through: list[tuple[str, int, int]] = field(default_factory=list)
    fetched: list[tuple[str, int, int]] = field(default_factory=list)

    async def hire(self, name: str) -> Process:
        known = await self.here.names(LAYOUT.instances)
        process = self.here.faults.start(name, f"10.0.0.{ord(name) - 96}", lambda: self._main(name))
        while len(await self.here.names(LAYOUT.instances)) == len(known):
            assert not process.ended
            await anyio.sleep(0.01)
        return process

    async def _main(self, name: str) -> None:
        app = ElasticJob(self.here.address, clock=VirtualClock(), session_timeout=5)
        given = {"cron": "0/10 * * * * ?", "sharding_total_count": self.items, "streaming": True, "concurrency": 8}

        async def fetch(context: ItemContext) -> AsyncIterator[list[int]]:
            self.runs.append((round(self.here.now(), 1), name, context.item, context.source.value))
            position = int(context.offset or 0)
            while position < self.size:
                await anyio.sleep(0.05)
                found = list(range(position, min(self.size, position + self.batch)))
                position += len(found)
                await context.save_offset(str(position))
                self.fetched += [(name, context.item, record) for record in found]
                yield found

        flow = app.dataflow("job", **{**given, **self.settings})(fetch)

        @flow.process
        async def process(context: ItemContext, record: int) -> None:
            self.seen.append((self.here.now(), name, context.item, record))
            await anyio.sleep(self.work)
            with suppress(Superseded):
                self.store.write(context.item, context.fence, record)
            self.through.append((name, context.item, record))

        async with app.running():
            await anyio.sleep_forever()

    def holders(self, since: float) -> dict[int, set[str]]:
        found: dict[int, set[str]] = {}
        for at, name, item, _ in self.seen:
            if at >= since:
                found.setdefault(item, set()).add(name)
        return found

    def all_of_it(self) -> set[tuple[int, int]]:
        return {(item, record) for item in range(self.items) for record in range(self.size)}


async def offset(here: SimulatedJobs, item: int) -> int:
    return int((await here.observer.get(LAYOUT.item(item).offset)).data)


def test_a_stream_gives_way_to_whoever_joins_and_its_items_go_on_where_they_were() -> None:
    async def scene(here: SimulatedJobs) -> None:
        plant = Plant(here)
        await plant.hire("a")
        await here.until(25)
        assert plant.holders(10) == {0: {"a"}, 1: {"a"}}
        await plant.hire("b")
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
        plant = Plant(here)
        await plant.hire("a")
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


CHANGES: dict[str, tuple[object, str]] = {
    "concurrency": (2, "2 at a time, 2 long"),
    "ordered": (True, "1 at a time, 2 long"),
    "batch_size": (5, "8 at a time, 5 long"),
    "record_timeout": (0.1, "8 at a time, 2 long, failing"),
    "max_failures": (0, "8 at a time, 2 long"),
    "prefetch": (False, "8 at a time, 2 long"),
}


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
        plant = Plant(here, items=1)
        await plant.hire("a")
        await here.until(15)
        await change(here, streaming=False)
        await here.until(100)
        assert len(plant.runs) == 2  # what goes on is one shot, and gives way to nothing
        await change(here, concurrency=1)
        await here.until(130)
        assert len(plant.runs) == 2

    simulate(scene)


async def change(here: SimulatedJobs, **settings: object) -> None:
    config = JobConfig.from_json((await here.observer.get(LAYOUT.config)).data, LAYOUT.config)
    await here.write(Set(LAYOUT.config, config.changed(**settings).to_json(), -1))


@pytest.mark.parametrize("monitored", [True, False])
def test_a_stream_that_gave_way_goes_on_at_once_however_rare_its_moments_are(monitored: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        plant = Plant(here, settings={"cron": "10 0/30 * * * ?", "monitor_execution": monitored})
        one = await plant.hire("a")
        await here.until(15)
        await plant.hire("b")
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
        plant = Plant(here, size=100, settings={"cron": "10 0/30 * * * ?"})
        await plant.hire("a")
        await here.until(30)
        await plant.hire("b")
        await here.until(60)
        assert len(plant.runs) == 2

    simulate(scene)


def test_a_trigger_ends_a_stream_and_is_answered() -> None:
    async def scene(here: SimulatedJobs) -> None:
        plant = Plant(here, items=1)
        await plant.hire("a")
        await here.until(15)
        (me,) = await here.names(LAYOUT.instances)
        await here.write(Create(LAYOUT.trigger(me)))
        await here.until(17)
        assert [(source, at < 16) for at, _, _, source in plant.runs] == [("CRON", True), ("TRIGGER", True)]

    simulate(scene)


def test_a_graceful_stop_lets_what_was_fetched_be_processed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        plant = Plant(here)
        one = await plant.hire("a")
        await here.until(15)
        one.terminate()
        await one.wait()
        assert here.now() < 17
        assert sorted(plant.through) == sorted(plant.fetched)
        assert await offset(here, 0) == sum(item == 0 for _, item, _ in plant.through)

    simulate(scene)


def test_counts_of_a_dataflow_are_of_records() -> None:
    async def scene(here: SimulatedJobs) -> None:
        plant = Plant(here, items=1, size=100, settings={"reconcile_interval": 30.0})
        await plant.hire("a")
        await here.until(32)
        success = LAYOUT.success_count(SERVER)
        assert await number(here, success) == 100

    simulate(scene)


def test_a_rescuer_starts_from_the_last_offset_and_gives_the_item_back_at_its_next_moment() -> None:
    async def scene(here: SimulatedJobs) -> None:
        plant = Plant(here, settings={"failover": True, "cron": "0/30 * * * * ?", "sharding_strategy": "sticky"})
        people = {name: await plant.hire(name) for name in "ab"}
        await here.until(35)
        (owner,) = plant.holders(30)[0]
        here.faults.crash(people[owner])
        crashed_at, saved = here.now(), await offset(here, 0)
        await here.until(43)
        rescues = [(name, item) for _, name, item, source in plant.runs if source == "FAILOVER"]
        (other,) = {"a", "b"} - {owner}
        assert rescues == [(other, 0)]
        again = [record for at, name, item, record in plant.seen if (name, item) == (other, 0) and at > crashed_at]
        assert min(again) >= saved
        await here.until(70)
        assert plant.holders(61) == {0: {other}, 1: {other}}
        assert {source for at, _, _, source in plant.runs if at >= 60} <= {"CRON", "MISFIRE"}

    simulate(scene)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(5))
def test_ten_kills_lose_no_record_and_give_each_one_effect(seed: int) -> None:
    """At least once by the offset; exactly one effect by a store that knows each record; no zombie by the fence."""

    async def scene(here: SimulatedJobs) -> None:
        dice = Random(seed)
        plant = Plant(here, items=3, size=900, batch=15, work=0.3, settings={"failover": True, "concurrency": 4})
        people = {name: await plant.hire(name) for name in "abc"}
        kills = 0
        while kills < 10:
            await anyio.sleep(dice.uniform(2, 9))
            name = dice.choice(sorted(people))
            here.faults.crash(people[name], dice.choice(["fin", "reset", "silent"]))
            kills += 1
            await anyio.sleep(dice.uniform(0, 3))
            people[name] = await plant.hire(name)
        assert plant.store.rows < plant.all_of_it()  # killed while at work, not afterwards
        with anyio.fail_after(600):
            while {item: await _offset_or_0(here, item) for item in range(3)} != dict.fromkeys(range(3), 900):
                await anyio.sleep(1)
        assert plant.store.rows == plant.all_of_it()
        assert set(plant.store.effects.values()) == {1}
        assert plant.errors == []
        seen = Counter((item, record) for *_, item, record in plant.seen)
        repeated = sum(seen.values()) - len(seen)
        assert 0 < repeated <= 10 * 3 * 2 * 15  # what a kill repeats: two batches of each item at most

    simulate(scene, seed=seed)


async def _offset_or_0(here: SimulatedJobs, item: int) -> int:
    with suppress(Exception):
        return await offset(here, item)
    return 0


def test_a_zombie_moves_no_offset_and_has_no_effect() -> None:
    """An instance that cannot reach the registry is cut off; what it had noted is not saved under the next session."""

    async def scene(here: SimulatedJobs) -> None:
        plant = Plant(here, items=1, settings={"failover": True})
        await plant.hire("a")
        await here.until(9.5)
        await plant.hire("b")
        await here.until(13)
        (owner,) = plant.holders(10)[0]
        (other,) = {"a", "b"} - {owner}
        address = f"10.0.0.{ord(owner) - 96}"
        here.faults.drop(address, "10.0.9.9")
        await here.until(30)
        lost = max(at for at, name, *_ in plant.seen if name == owner)
        taken = min(at for at, name, *_ in plant.seen if name == other)
        assert lost < taken  # cut off before another could begin
        here.faults.heal()
        before = await offset(here, 0)
        await here.until(40)
        assert await offset(here, 0) > before
        assert plant.store.refused == 0

    simulate(scene)


def test_a_process_that_was_paused_and_wakes_up_late_is_refused_by_fence_and_store() -> None:
    async def scene(here: SimulatedJobs) -> None:
        plant = Plant(here, items=1, settings={"failover": True})
        people = {name: await plant.hire(name) for name in "ab"}
        await here.until(13)
        (owner,) = plant.holders(10)[0]
        (other,) = {"a", "b"} - {owner}
        here.faults.pause(people[owner])
        await here.until(30)
        assert plant.holders(20) == {0: {other}}
        before = await offset(here, 0)
        here.faults.resume(people[owner])
        await here.until(35)
        assert await offset(here, 0) >= before
        assert set(plant.store.effects.values()) == {1}

    simulate(scene)


def test_saving_in_process_is_fenced_too() -> None:
    async def scene(here: SimulatedJobs) -> None:
        contexts: list[ItemContext] = []
        app = ElasticJob(here.address, clock=VirtualClock(), session_timeout=5)

        @app.dataflow("job", cron="0/10 * * * * ?", ordered=True)
        async def fetch(context: ItemContext) -> list[int]:
            return list(range(int(context.offset or 0), 5))

        @fetch.process
        async def process(context: ItemContext, record: int) -> None:
            contexts.append(context)
            await context.save_offset(str(record + 1))

        async with app.running():
            await here.until(12)
            assert await offset(here, 0) == 5
            with pytest.raises(Fenced):
                await contexts[0].save_offset("7")

    simulate(scene)
