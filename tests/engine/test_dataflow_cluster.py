"""Dataflows on a registry, with instances that come, go and die: who gives way when, and that no record is lost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.error_handlers import Failure, Options, find
from aioelasticjob.errors import Fenced
from aioelasticjob.testing import Process, VirtualClock
from tests.engine.test_progress import number
from tests.error_handlers.failures import delivered_by
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
class DataflowProcesses:
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

    async def start_process(self, name: str) -> Process:
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


def test_a_graceful_stop_lets_what_was_fetched_be_processed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        cluster = DataflowProcesses(here)
        one = await cluster.start_process("a")
        await here.until(15)
        one.terminate()
        await one.wait()
        assert here.now() < 17
        assert sorted(cluster.through) == sorted(cluster.fetched)
        assert await offset(here, 0) == sum(item == 0 for _, item, _ in cluster.through)

    simulate(scene)


def test_counts_of_a_dataflow_are_of_records() -> None:
    async def scene(here: SimulatedJobs) -> None:
        cluster = DataflowProcesses(here, items=1, size=100, settings={"statistics_interval": 30.0})
        await cluster.start_process("a")
        await here.until(32)
        success = LAYOUT.success_count(SERVER)
        assert await number(here, success) == 100

    simulate(scene)


@pytest.mark.parametrize("items", [2, 6])
def test_a_rescuer_starts_from_the_last_offsets_and_gives_the_items_back_at_their_next_moment(items: int) -> None:
    async def scene(here: SimulatedJobs) -> None:
        cluster = DataflowProcesses(
            here, items, settings={"failover": True, "cron": "0/30 * * * * ?", "sharding_strategy": "sticky"}
        )
        processes = {name: await cluster.start_process(name) for name in "ab"}
        await here.until(35)
        (owner,) = cluster.holders(30)[0]
        here.faults.crash(processes[owner])
        lost = sorted(item for item, names in cluster.holders(30).items() if names == {owner})
        crashed_at, saved = here.now(), {item: await offset(here, item) for item in lost}
        await here.until(45)
        rescues = [(at, name, item) for at, name, item, source in cluster.runs if source == "FAILOVER"]
        (other,) = {"a", "b"} - {owner}
        assert sorted((name, item) for _, name, item in rescues) == [(other, item) for item in lost]
        assert len(lost) == items // 2
        assert max(rescues)[0] - min(rescues)[0] < 0.1  # in one run
        again = [(item, record) for at, name, item, record in cluster.seen if name == other and at > crashed_at]
        for item in lost:
            assert min(record for one, record in again if one == item) >= saved[item]
        await here.until(70)
        assert cluster.holders(61) == {item: {other} for item in range(items)}
        assert {source for at, _, _, source in cluster.runs if at >= 60} <= {"SCHEDULE", "MISFIRE"}

    simulate(scene)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(5))
def test_ten_kills_lose_no_record_and_give_each_one_effect(seed: int) -> None:
    """At least once by the offset; exactly one effect by a store that knows each record; no zombie by the fence."""

    async def scene(here: SimulatedJobs) -> None:
        dice = Random(seed)
        cluster = DataflowProcesses(
            here, items=3, size=900, batch=15, work=0.3, settings={"failover": True, "concurrency": 4}
        )
        processes = {name: await cluster.start_process(name) for name in "abc"}
        kills = 0
        while kills < 10:
            await anyio.sleep(dice.uniform(2, 9))
            name = dice.choice(sorted(processes))
            here.faults.crash(processes[name], dice.choice(["fin", "reset", "silent"]))
            kills += 1
            await anyio.sleep(dice.uniform(0, 3))
            processes[name] = await cluster.start_process(name)
        assert cluster.store.rows < cluster.all_of_it()  # killed while at work, not afterwards
        with anyio.fail_after(600):
            while {item: await _offset_or_0(here, item) for item in range(3)} != dict.fromkeys(range(3), 900):
                await anyio.sleep(1)
        assert cluster.store.rows == cluster.all_of_it()
        assert set(cluster.store.effects.values()) == {1}
        assert cluster.errors == []
        seen = Counter((item, record) for *_, item, record in cluster.seen)
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
        cluster = DataflowProcesses(here, items=1, settings={"failover": True})
        await cluster.start_process("a")
        await here.until(9.5)
        await cluster.start_process("b")
        await here.until(13)
        (owner,) = cluster.holders(10)[0]
        (other,) = {"a", "b"} - {owner}
        address = f"10.0.0.{ord(owner) - 96}"
        here.faults.drop(address, "10.0.9.9")
        await here.until(30)
        lost = max(at for at, name, *_ in cluster.seen if name == owner)
        taken = min(at for at, name, *_ in cluster.seen if name == other)
        assert lost < taken  # cut off before another could begin
        here.faults.heal()
        before = await offset(here, 0)
        await here.until(40)
        assert await offset(here, 0) > before
        assert cluster.store.refused == 0

    simulate(scene)


def test_a_process_that_was_paused_and_wakes_up_late_is_refused_by_fence_and_store() -> None:
    async def scene(here: SimulatedJobs) -> None:
        cluster = DataflowProcesses(here, items=1, settings={"failover": True})
        processes = {name: await cluster.start_process(name) for name in "ab"}
        await here.until(13)
        (owner,) = cluster.holders(10)[0]
        (other,) = {"a", "b"} - {owner}
        here.faults.pause(processes[owner])
        await here.until(30)
        assert cluster.holders(20) == {0: {other}}
        before = await offset(here, 0)
        here.faults.resume(processes[owner])
        await here.until(35)
        assert await offset(here, 0) >= before
        assert set(cluster.store.effects.values()) == {1}

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


def test_a_failed_record_is_not_called_a_failed_run_in_the_log_and_in_alerts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts: list[Failure] = []

    async def alert(failure: Failure, options: Options) -> None:
        alerts.append(failure)

    delivered_by(monkeypatch, mine=alert)

    async def scene(here: SimulatedJobs) -> None:
        app = ElasticJob(here.address, clock=VirtualClock())

        def declare(name: str, **settings: Any) -> None:
            @app.dataflow(name, cron="0/10 * * * * ?", **settings)
            async def fetch(context: ItemContext) -> list[str]:
                return ["secret", "good"]

            @fetch.process
            async def process(context: ItemContext, record: str) -> None:
                if record == "secret":
                    raise ValueError("bad record")

        declare("logged")
        declare("alerted", error_handler="mine")
        declare("strict", error_handler="mine", max_failures=0)
        async with app.running():
            await here.until(12)

    simulate(scene)
    find.cache_clear()
    (line,) = (one for one in caplog.messages if one.startswith("logged:"))
    assert re.fullmatch(
        r"logged: a record of item 0 failed on \S+ in the run of \S+ \(the run goes on\): ValueError: bad record", line
    )
    assert sorted(one.subject for one in alerts) == [
        "alerted: a record of item 0 failed (the run goes on): ValueError: bad record",
        "strict: a record of item 0 failed (the run ends: max_failures is exceeded): ValueError: bad record",
        "strict: item 0 failed: TooManyFailures: 1 record failed, max_failures = 0: nothing more was fetched",
    ]
    assert "secret" not in caplog.text + "".join(one.text for one in alerts)
