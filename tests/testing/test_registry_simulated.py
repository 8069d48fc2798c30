"""The registry's client and the embedded server, both unmodified, in simulated time under faults."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from aioelasticjob.errors import Conflict, RegistryError
from aioelasticjob.registry.session import ConnectionSettings, Session, SessionState, open_session
from aioelasticjob.registry.transaction import Create
from aioelasticjob.testing import Farewell, Faults, Process, VirtualClock, run
from aioelasticjob.zookeeper.server import serve

SERVER, OBSERVER = "10.0.0.1", "127.0.0.1"
ADDRESS = f"zk://{SERVER}:2181/house"
TIMEOUT, HOUR = 10.0, 3600.0


@dataclass
class Instance:
    """A process that holds a session and an ephemeral node, and tells what becomes of it."""

    faults: Faults
    number: int
    incarnations: list[int] = field(default_factory=list)
    states: list[SessionState] = field(default_factory=list)
    host: str = ""

    @property
    def address(self) -> str:
        return f"10.0.1.{self.number}"

    @property
    def node(self) -> str:
        return f"/instance-{self.number}"

    def start(self) -> Process:
        return self.faults.start(f"instance-{self.number}", self.address, self.main)

    async def main(self) -> None:
        async with session() as registry:
            self.host = registry.host
            await self.register(registry)
            async for status in registry.status:
                self.states.append(status.state)
                if status.incarnation not in self.incarnations:
                    self.incarnations.append(status.incarnation)

    async def register(self, registry: Session) -> None:
        """Make the node; one that an earlier life left has to go first."""
        while True:
            try:
                await registry.connected()
                await registry.commit([Create(self.node, ephemeral=True)], incarnation=registry.incarnation)
            except Conflict:
                await registry.wait_deleted(self.node)
            except RegistryError:
                continue
            else:
                return


@asynccontextmanager
async def session() -> AsyncIterator[Session]:
    settings = ConnectionSettings.parse(ADDRESS, session_timeout=TIMEOUT, connection_timeout=HOUR)
    async with open_session(settings, clock=VirtualClock()) as registry:
        yield registry


async def server() -> None:
    async with serve("0.0.0.0", 2181, tick_time=1000, clock=VirtualClock().now):
        await anyio.sleep_forever()


@asynccontextmanager
async def world(count: int = 1) -> AsyncIterator[tuple[Faults, Session, list[Instance]]]:
    """Yield a simulated world with a server and some instances, all running, and a session that looks on."""
    faults = Faults()
    faults.start("zookeeper", SERVER, server)
    async with session() as registry:
        yield faults, registry, [Instance(faults, number) for number in range(1, count + 1)]


def test_an_hour_of_heartbeats_takes_a_moment() -> None:
    async def main() -> None:
        async with world(3) as (_, registry, instances):
            for instance in instances:
                instance.start()
            await asyncio.sleep(HOUR)
            assert await registry.children("/") == tuple(sorted(f"instance-{i.number}" for i in instances))
            assert all(len(instance.incarnations) == 1 for instance in instances)
            assert [instance.host for instance in instances] == [instance.address for instance in instances]
            assert await registry.server_time("/systemTime/current") == pytest.approx(VirtualClock().now(), abs=0.1)

    began = time.process_time()
    run(main)
    assert time.process_time() - began < 20  # some 0.8 s


def test_a_paused_process_loses_its_session_and_learns_it_when_it_wakes() -> None:
    async def main() -> None:
        async with world() as (faults, registry, (instance,)):
            process = instance.start()
            await asyncio.sleep(5)
            faults.pause(process)
            with anyio.fail_after(TIMEOUT + 2):
                await registry.wait_deleted(instance.node)
            assert instance.states == [SessionState.CONNECTED]  # it sleeps, and believes
            faults.resume(process)
            await asyncio.sleep(TIMEOUT)
            assert SessionState.EXPIRED in instance.states
            assert instance.states[-1] == SessionState.CONNECTED
            assert len(instance.incarnations) == 2

    run(main)


def test_a_short_pause_costs_nothing() -> None:
    async def main() -> None:
        async with world() as (faults, registry, (instance,)):
            process = instance.start()
            await asyncio.sleep(5)
            faults.pause(process)
            await asyncio.sleep(TIMEOUT / 3)
            faults.resume(process)
            await asyncio.sleep(TIMEOUT * 3)
            assert await registry.exists(instance.node)
            assert len(instance.incarnations) == 1

    run(main)


@pytest.mark.parametrize("farewell", ["fin", "reset", "silent"])
def test_a_crashed_process_vanishes_after_its_session_timeout(farewell: Farewell) -> None:
    async def main() -> None:
        async with world() as (faults, registry, (instance,)):
            process = instance.start()
            await asyncio.sleep(5)
            faults.crash(process, farewell)
            await asyncio.sleep(TIMEOUT / 2)
            assert await registry.exists(instance.node)
            with anyio.fail_after(TIMEOUT):
                await registry.wait_deleted(instance.node)
            instance.start()  # the next one on this host
            await asyncio.sleep(1)
            assert await registry.exists(instance.node)

    run(main)


@pytest.mark.parametrize(("seconds", "survives"), [(0.4 * TIMEOUT, True), (3 * TIMEOUT, False)])
def test_a_partition_heals_with_the_old_session_or_a_new_one(seconds: float, survives: bool) -> None:
    async def main() -> None:
        async with world() as (faults, registry, (instance,)):
            instance.start()
            await asyncio.sleep(5)
            faults.partition([SERVER, OBSERVER], [instance.address])
            await asyncio.sleep(seconds)
            faults.heal()
            await asyncio.sleep(2 * TIMEOUT)
            assert (await registry.exists(instance.node) is not None) == survives
            assert instance.states[-1] == SessionState.CONNECTED
            assert len(instance.incarnations) == (1 if survives else 2)

    run(main)


def test_a_half_open_connection_is_replaced_within_the_session() -> None:
    async def main() -> None:
        async with world() as (faults, registry, (instance,)):
            instance.start()
            await asyncio.sleep(5)
            faults.half_open(instance.address, SERVER)
            await asyncio.sleep(2 * TIMEOUT)
            assert await registry.exists(instance.node)
            assert SessionState.SUSPENDED in instance.states
            assert instance.states[-1] == SessionState.CONNECTED
            assert len(instance.incarnations) == 1

    run(main)


def chaos(seed: int) -> int:
    """Return the fingerprint of five minutes in which a random thing happens to a random instance every few seconds."""

    async def main() -> int:
        async with world(5) as (faults, _, instances):
            dice = faults.loop.random
            processes = {instance.address: instance.start() for instance in instances}
            while faults.loop.time() < 300:
                await asyncio.sleep(dice.uniform(0.1, 10))
                instance = dice.choice(instances)
                process = processes[instance.address]
                match dice.randrange(6):
                    case 0:
                        faults.crash(process, dice.choice(["fin", "reset", "silent"]))
                        processes[instance.address] = instance.start()
                    case 1:
                        faults.pause(process)
                    case 2:
                        faults.resume(process)
                    case 3:
                        faults.drop(instance.address, SERVER, both=dice.random() < 0.5)
                    case 4:
                        faults.reset(instance.address, SERVER)
                    case _:
                        faults.heal(instance.address)
            return faults.network.fingerprint

    return run(main, seed=seed)


@pytest.mark.simulation
def test_the_same_seed_gives_the_same_five_minutes_of_chaos() -> None:
    assert chaos(1) == chaos(1) != chaos(2)
