"""Every run that has begun ends with one event, however it ends: of its own instance, or of one that closes it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, operations
from aioelasticjob.events import Began, Ended, EventReader, JobEvent
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.testing import Process, VirtualClock
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate


@dataclass
class Office:
    """Two workers, each on a host of its own, and all their events."""

    here: SimulatedJobs
    settings: dict[str, Any]
    work: float = 20
    readers: list[EventReader] = field(default_factory=list)
    workers: list[Process] = field(default_factory=list)

    async def start(self) -> None:
        up, app = anyio.Event(), ElasticJob(self.here.address, clock=VirtualClock(), session_timeout=5)

        async def handler(context: Any) -> None:
            await anyio.sleep(self.work)

        async def main() -> None:
            with app.events() as reader:
                self.readers.append(reader)
                async with app.running():
                    up.set()
                    await anyio.sleep_forever()

        app.add(handler, name="job", **{"cron": "10 0/30 * * * ?", "sharding_total_count": 2, **self.settings})
        number = len(self.workers) + 1
        self.workers.append(self.here.faults.start(f"worker {number}", f"10.0.0.{number}", main))
        with anyio.fail_after(10):
            await up.wait()

    @property
    def events(self) -> list[JobEvent]:
        """All events so far, also those of workers that were killed."""
        return [event for reader in self.readers for event in reader._waiting]

    async def configure(self, **keys: object) -> None:
        stored = json.loads((await self.here.observer.get(LAYOUT.config)).data)
        await self.here.write(Set(LAYOUT.config, json.dumps({**stored, **keys}).encode(), -1))

    def open_ends(self) -> dict[tuple[str, int], int]:
        """Return the runs that have not ended exactly once, each with the number of its ends."""
        began: dict[tuple[str, int], Began] = {}
        ends = Counter[tuple[str, int]]()
        for event in self.events:
            if isinstance(event, Began):
                began |= dict.fromkeys(zip(event.task_ids, event.items, strict=True), event)
            if isinstance(event, Ended):
                ends[event.task_id, event.item] += 1
        for event in self.events:
            if not (who := getattr(event, "cut_off", "")):
                continue
            closed: Any = event
            for key, run in began.items():
                items = closed.items if hasattr(closed, "items") else (closed.item,)
                if (run.instance, run.slot) == (who, closed.slot) and key[1] in items and not ends[key]:
                    ends[key] += 1
        return {key: ends[key] for key in began if ends[key] != 1}


End = Callable[[Office], Awaitable[None]]


async def kill(office: Office) -> None:
    """Kill the first worker during its run."""
    office.workers[0].kill()
    await anyio.sleep(10)


async def kill_all_and_start_one(office: Office) -> None:
    for worker in office.workers:
        worker.kill()
    await anyio.sleep(10)
    await office.start()


async def kill_all_rescuers(office: Office) -> None:
    for _ in range(5):
        for worker in office.workers:
            worker.kill()
        await anyio.sleep(8)
        await office.start()
        await anyio.sleep(4)


async def kill_all_and_cancel(office: Office) -> None:
    """Cancel runs that were cut off: their items are disabled, so that nobody has rescued them yet."""
    here = office.here
    runs = {item: (await here.observer.get(LAYOUT.item(item).running)).stat.czxid for item in (0, 1)}
    for worker in office.workers:
        worker.kill()
    await anyio.sleep(10)
    wish = {"kind": "CANCEL", "asked": round(VirtualClock().now() * 1000), "fences": runs}
    await here.write(Create(LAYOUT.request("wish"), json.dumps(wish).encode()))
    await office.start()


async def kill_and_lower_the_count(office: Office) -> None:
    await office.configure(shardingTotalCount=1)
    await anyio.sleep(2)
    for worker in office.workers:
        worker.kill()
    await anyio.sleep(10)
    await office.start()


async def kill_lower_the_count_and_start(office: Office) -> None:
    for worker in office.workers:
        worker.kill()
    await anyio.sleep(10)
    await office.configure(shardingTotalCount=1)
    await office.start()


async def kill_and_switch_failover_off(office: Office) -> None:
    await office.here.flag(LAYOUT.item(0).disabled)
    await office.here.flag(LAYOUT.item(1).disabled)
    await kill(office)
    await office.configure(failover=False)
    await anyio.sleep(5)
    for item in (0, 1):
        await office.here.write(Delete(LAYOUT.item(item).disabled))
    await operations.ask(office.here.observer, "job")  # the next claim reports the run before it


async def kill_and_switch_records_off(office: Office) -> None:
    await kill(office)
    await office.configure(failover=False, monitorExecution=False)


async def leave(office: Office) -> None:
    office.workers[0].terminate()


async def lose_the_session(office: Office) -> None:
    office.here.faults.partition(["10.0.0.1"], ["10.0.9.9"])
    await anyio.sleep(12)
    office.here.faults.heal()


WITH = {"failover": True, "max_rescues": 2}
WITHOUT: dict[str, Any] = {"failover": False}
CASES: list[tuple[End, dict[str, Any]]] = [
    *(
        (end, settings)
        for end in (kill, kill_all_and_start_one, leave, lose_the_session)
        for settings in (WITH, WITHOUT)
    ),
    (kill_all_rescuers, WITH),
    (kill_all_and_cancel, WITH),
    (kill_all_and_cancel, WITHOUT),
    *(
        (end, settings)
        for end in (kill_and_lower_the_count, kill_lower_the_count_and_start)
        for settings in (WITH, WITHOUT)
    ),
    (kill_and_switch_failover_off, WITH),
    (kill_and_switch_records_off, WITH),
    (kill_and_switch_records_off, WITHOUT),
]


@pytest.mark.parametrize("asked", [False, True], ids=["scheduled", "asked for"])
@pytest.mark.parametrize("per", ["item", "instance"])
@pytest.mark.parametrize(
    ("end", "settings"), CASES, ids=[f"{end.__name__}, {settings['failover']=}" for end, settings in CASES]
)
def test_every_run_that_has_begun_ends_with_one_event(
    end: End, settings: dict[str, Any], per: str, asked: bool
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        office = Office(here, {**settings, "per": per})
        await office.start()
        await office.start()
        if asked:
            await anyio.sleep(1)
            await operations.ask(here.observer, "job")
        await here.until(16)
        assert {item for one in office.events if isinstance(one, Began) for item in one.items} == {0, 1}
        await end(office)
        await anyio.sleep(60)
        assert office.open_ends() == {}

    simulate(scene)
