"""Operators write nonsense by hand: the instances keep their last good state, say so once, and recover when mended."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import anyio
import pytest

from aioelasticjob import ElasticJob, InstanceContext, ItemContext, OnceListener
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.diagnostics import diagnose
from aioelasticjob.core.rules import wanted_assignment
from aioelasticjob.core.view import JobView, read
from aioelasticjob.errors import Conflict
from aioelasticjob.registry.codec import MULTI
from aioelasticjob.registry.connection import Connection
from aioelasticjob.registry.transaction import Create, Delete, Op, Set
from aioelasticjob.registry.tree import Tree
from aioelasticjob.testing import Process, VirtualClock
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

ITEMS, PERIOD = 4, 10.0
SETTINGS = {"cron": "0/10 * * * * ?", "sharding_total_count": ITEMS, "failover": True, "reconcile_interval": 15.0}
GARBAGE = (
    b"",
    b"garbage",
    b"\xff\x00\xfe",
    b"17",
    b"-1",
    b"[]",
    b"null",
    b'{"slot": 99999999999999999999}',
    b'{"slot": 1, "completed": false}',
    b"[" * 5000,
)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Counts what goes to the registry, by kind; transactions are MULTI."""
    counted: Counter[int] = Counter()
    call = Connection.call

    def counting(self: Connection, opcode: int, body: bytes) -> object:
        counted[opcode] += 1
        return call(self, opcode, body)

    monkeypatch.setattr(Connection, "call", counting)
    return counted


@dataclass
class ThreeInstances:
    """Three instances on hosts of their own that run the job in question and one that it must not disturb."""

    here: SimulatedJobs
    settings: dict[str, object]
    runs: list[tuple[float, str, int]] = field(default_factory=list)
    """Second, host, item."""
    others: list[float] = field(default_factory=list)
    people: list[Process] = field(default_factory=list)

    async def open(self) -> None:
        for name in "abc":
            self.people.append(self.here.faults.start(name, f"10.0.0.{ord(name) - 96}", self._main(name)))
        while len(await self.here.names(LAYOUT.instances)) < 3:
            await anyio.sleep(0.1)

    def _main(self, name: str) -> Callable[[], Coroutine[object, object, None]]:
        async def handler(context: ItemContext) -> None:
            self.runs.append((self.here.now(), name, context.item))
            await context.save_offset(name)
            await anyio.sleep(1)

        async def other(context: ItemContext) -> None:
            self.others.append(self.here.now())

        async def main() -> None:
            app = ElasticJob(self.here.address, clock=VirtualClock(), session_timeout=5)
            app.add(handler, name="job", **self.settings)  # type: ignore[arg-type]
            app.add(other, name="other", cron="0/10 * * * * ?")
            async with app.running():
                await anyio.sleep_forever()

        return main

    async def tree(self) -> Tree:
        await self.here.observer.sync()
        return await self.here.observer.subtree([LAYOUT.root])

    async def view(self) -> JobView:
        return read(await self.tree(), LAYOUT, JobConfig(job_name="job"))

    def items_since(self, second: float) -> set[int]:
        return {item for at, _, item in self.runs if at >= second}

    def nobody_else_noticed(self, since: float) -> None:
        moments = {round(at / PERIOD) for at in self.others if at >= since}
        assert moments >= set(range(int(since // PERIOD) + 1, int(self.here.now() // PERIOD)))
        assert not any(person.ended for person in self.people)

    async def is_right(self, since: float) -> None:
        """Everything is as the strategy wants it, no mark is left, and every item has run."""
        view = await self.view()
        assert diagnose(view, "") == {}
        assert len(view.eligible) == 3
        assert view.assignment_stands
        assert view.leader in view.instances
        assert view.assignment == wanted_assignment(view)
        assert (view.orphans, dict(view.rescues)) == (frozenset(), {})
        assert all(path in view.tree for path in LAYOUT.mirrored_parents)
        assert self.items_since(since) == set(range(ITEMS))


async def _nothing(context: InstanceContext) -> None: ...


async def start_three(here: SimulatedJobs, **settings: object) -> ThreeInstances:
    made = ThreeInstances(here, {**SETTINGS, **settings})
    await made.open()
    await here.until(22.5)
    await made.is_right(9)
    return made


async def uproot(here: SimulatedJobs, path: str) -> None:
    """Remove a node and everything below it, one node after the other, as ZooKeeper's shell does."""
    tree = await here.observer.subtree([path])
    for one in sorted(tree, key=lambda found: (-found.count("/"), found)):
        with suppress(Conflict):
            await here.write(Delete(one))


async def place(here: SimulatedJobs, *paths: str, data: bytes = b"") -> bool:
    """Make nodes, or replace what is there, at once; False if a parent is no place for it."""
    there = await here.observer.get_many(paths)
    operations: list[Op] = [
        Set(path, data, -1) if node else Create(path, data) for path, node in zip(paths, there, strict=True)
    ]
    try:
        await here.write(*operations)
    except Conflict:
        return False
    return True


IDLE = LAYOUT.item(0)
PARENTS = [path for path in LAYOUT.mirrored_parents if path != LAYOUT.instances]
"""Instances go with their parent, and who is removed leaves."""
BY_HAND = [
    (f"{LAYOUT.sharding}/abc",),
    (f"{LAYOUT.sharding}/007",),
    (f"{LAYOUT.sharding}/{'9' * 5000}",),
    (f"{LAYOUT.sharding}/99", f"{LAYOUT.sharding}/99/mine"),
    (f"{LAYOUT.sharding}/0/mine",),
    (f"{IDLE.instance}/mine",),
    (f"{LAYOUT.execution}/abc",),
    (f"{LAYOUT.execution}/007", f"{LAYOUT.execution}/007/running"),
    (f"{IDLE.execution}/mine",),
    (IDLE.running,),
    (IDLE.running, f"{IDLE.running}/mine"),
    (IDLE.offset,),
    (IDLE.failover,),
    (IDLE.failover, f"{IDLE.failover}/mine"),
    (IDLE.orphan,),
    (IDLE.orphan, f"{IDLE.orphan}/mine"),
    (f"{LAYOUT.orphans}/abc",),
    (LAYOUT.instance("x"),),
    (LAYOUT.instance("10.0.0.1@-@1"),),
    (LAYOUT.shutdown("nobody"),),
    (LAYOUT.shutdown("nobody"), f"{LAYOUT.shutdown('nobody')}/mine"),
    (LAYOUT.necessary,),
    (LAYOUT.necessary, f"{LAYOUT.necessary}/mine"),
    (LAYOUT.processing,),
    (LAYOUT.processing, f"{LAYOUT.processing}/mine"),
    (f"{LAYOUT.epoch}/mine",),
    (f"{LAYOUT.config}/mine",),
    (LAYOUT.server("nowhere"),),
    (f"{LAYOUT.server('10.0.0.1')}/mine",),
    (LAYOUT.started, f"{LAYOUT.started}/abc"),
    (f"{LAYOUT.root}/mine",),
]
"""Nodes where none belong, parents first."""
OURS = {
    path
    for item in (0, 99)
    for one in [LAYOUT.item(item)]
    for path in (one.running, one.orphan, one.instance, one.failover, one.sharding, one.offset)
} | {LAYOUT.necessary, LAYOUT.processing, LAYOUT.started, LAYOUT.shutdown("nobody")}
"""Marks of ours: they may go once they are answered.  All else is somebody's data."""


async def settle_down(requests: Counter[int], here: SimulatedJobs) -> None:
    """Between two moments and two ticks nothing is written."""
    now = here.now()
    await here.until(now - now % 30 + 33)  # ticks, which publish counts, come every 15 seconds
    before = requests[MULTI]
    await here.until(here.now() + 5)
    assert requests[MULTI] == before


def logged_once(caplog: pytest.LogCaptureFixture, times: int = 1) -> Counter[str]:
    """Return who said what is wrong with a node; nobody says the same twice."""
    said = Counter(record.getMessage() for record in caplog.records if record.getMessage().startswith("/job/"))
    assert all(count <= 3 * times for count in said.values()), said
    return said


@pytest.mark.parametrize("nodes", BY_HAND, ids=lambda nodes: nodes[-1][:40])
def test_nodes_where_none_belong_stop_nobody_and_are_nobodys_prey(
    nodes: tuple[str, ...], requests: Counter[int], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        there = await start_three(here)
        assert await place(here, *nodes, data=b"garbage")
        await here.until(61)
        left = await there.tree()
        assert [path for path in nodes if path not in left] == [path for path in nodes if path in OURS - set(left)]
        assert there.items_since(41) >= {1, 2, 3}
        there.nobody_else_noticed(22)
        logged_once(caplog)
        await settle_down(requests, here)
        for path in reversed(nodes):
            await uproot(here, path)
        await here.until(122)
        await there.is_right(99)
        await settle_down(requests, here)
        logged_once(caplog)

    simulate(scene)


@pytest.mark.parametrize(
    "path", [*PARENTS, LAYOUT.execution, LAYOUT.offsets, LAYOUT.guarantee, LAYOUT.epoch, LAYOUT.host]
)
def test_parents_removed_by_hand_come_back(path: str, requests: Counter[int], caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        there = await start_three(here, listeners=[OnceListener(before=_nothing)])
        await uproot(here, path)
        await here.until(62)
        await there.is_right(39)
        there.nobody_else_noticed(22)
        assert await here.observer.exists(path)
        await settle_down(requests, here)
        logged_once(caplog)

    simulate(scene)


READ_AS_JSON = (LAYOUT.server("10.0.0.1"), IDLE.execution)
PLAIN = (LAYOUT.host, LAYOUT.epoch, LAYOUT.sharding, IDLE.instance, LAYOUT.instances)
"""What is not read as JSON: garbage is nothing, something or no text there."""
GARBLED = [(path, data) for path in READ_AS_JSON for data in GARBAGE]
GARBLED += [(path, data) for path in PLAIN for data in (b"", b"garbage", b"\xff\x00\xfe")]


@pytest.mark.parametrize(("path", "data"), GARBLED, ids=lambda value: repr(value[-12:]))
def test_garbage_in_our_own_nodes_is_replaced_or_ignored(
    path: str, data: bytes, requests: Counter[int], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        there = await start_three(here)
        assert await place(here, path, data=data)
        await here.until(62)
        await there.is_right(39)
        there.nobody_else_noticed(22)
        await settle_down(requests, here)
        logged_once(caplog)

    simulate(scene)


def _configs() -> Iterator[bytes]:
    good = b'{"jobName": "job", "jobType": "SIMPLE", "cron": "0/10 * * * * ?", '
    yield from GARBAGE
    yield good + b'"shardingTotalCount": "many"}'
    yield good + b'"requires": "x", "requires": {}}'
    yield good + b'"shardingTotalCount": 1e400}'
    yield good + b'"timeZone": "../../etc/passwd"}'
    yield good + b'"timeZone": "Moon/Crater"}'
    yield good.replace(b"0/10 * * * * ?", b"every now and then") + b'"description": ""}'
    yield good.replace(b'"job"', b'"another"') + b'"description": ""}'
    yield good.replace(b"SIMPLE", b"DATAFLOW") + b'"description": ""}'
    yield good + b'"monitorExecution": false, "failover": true}'


@pytest.mark.parametrize("data", list(_configs()), ids=lambda data: repr(data[-30:]))
def test_a_configuration_that_makes_no_sense_leaves_the_last_good_one(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        there = await start_three(here)
        good = (await here.observer.get(LAYOUT.config)).data
        await here.write(Set(LAYOUT.config, data, -1))
        here.faults.drop("10.0.0.1", "10.0.9.9")  # one of them has to join again meanwhile
        await here.until(45)
        here.faults.heal()
        await here.until(72)
        assert there.items_since(59) == set(range(ITEMS))
        assert {name for at, name, _ in there.runs if at > 59} == set("abc")
        assert (await here.observer.get(LAYOUT.config)).data == data
        there.nobody_else_noticed(50)
        said = logged_once(caplog, times=2)
        assert len([one for one in said if one.startswith(LAYOUT.config)]) == 1
        await here.write(Set(LAYOUT.config, good.replace(b'"jobParameter": ""', b'"jobParameter": "mended"'), -1))
        await here.until(92)
        await there.is_right(79)
        assert f"{LAYOUT.config}: is correct now" in logged_once(caplog, times=2)

    simulate(scene)


def test_children_of_ephemeral_nodes_cannot_be(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        there = await start_three(here)
        await uproot(here, IDLE.execution)
        await here.write(Create(IDLE.execution, b"", ephemeral=True))
        await here.until(42)
        assert there.items_since(29) == {1, 2, 3}
        assert sum(logged_once(caplog).values()) == 1
        await here.write(Delete(IDLE.execution))
        await here.until(62)
        await there.is_right(49)

    simulate(scene)


@dataclass
class RandomDamage:
    """Breaks something at random and knows how to mend it."""

    here: SimulatedJobs
    dice: Random
    before: Tree
    made: list[str] = field(default_factory=list)
    did: list[str] = field(default_factory=list)

    async def strike(self) -> None:
        kind = self.dice.choice(["scribble", "scribble", "uproot", "make", "make"])
        if kind == "make":
            paths = self.dice.choice(BY_HAND)
            self.did.append(f"make {paths[-1][:60]}")
            new = [path for path in paths if await self.here.observer.exists(path) is None]
            if await place(self.here, *new, data=self.dice.choice(GARBAGE)):
                self.made += new
            return
        tree = await self.here.observer.subtree([LAYOUT.root])
        kept = (LAYOUT.root, LAYOUT.instances)
        path = self.dice.choice([one for one in tree if one not in kept and not one.startswith(LAYOUT.instances)])
        self.did.append(f"{kind} {path[:60]}")
        if kind == "uproot":
            await uproot(self.here, path)
        else:
            with suppress(Conflict):
                await self.here.write(Set(path, self.dice.choice(GARBAGE), -1))

    async def mend(self) -> None:
        for path in reversed(self.made):
            await uproot(self.here, path)
        for path in (LAYOUT.config, LAYOUT.offsets, IDLE.offset):
            node = self.before.get(path)
            if node is not None:
                await place(self.here, path, data=node.data)


@pytest.mark.parametrize("seed", range(16))
def test_whatever_is_broken_is_whole_again_once_it_is_mended(
    seed: int, requests: Counter[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def scene(here: SimulatedJobs) -> None:
        there = await start_three(here)
        damage = RandomDamage(here, Random(seed), await there.tree())
        print(f"seed {seed}:")
        for _ in range(damage.dice.randint(1, 8)):
            await damage.strike()
            print(f"  {here.now():.3f}", damage.did[-1])
            await anyio.sleep(damage.dice.choice([0, 0.001, 0.05, 1, 7]))
        await here.until(here.now() + 30)
        there.nobody_else_noticed(22)
        before = requests.total()
        await here.until(here.now() + 20)
        assert requests.total() - before < 3 * 100
        await damage.mend()
        mended = here.now()
        await here.until(mended - mended % PERIOD + 52)
        await there.is_right(here.now() - 23)
        there.nobody_else_noticed(22)
        await settle_down(requests, here)

    simulate(scene, seed=seed)


def test_a_record_without_a_beginning_that_somebody_wrote_does_not_wait_for_a_rescue() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/30 * * * * ?", failover=True, reconcile_interval=5.0)
        async with app.running():
            await here.until(35)
            record = json.dumps({"slot": (await here.record(0)).slot, "completed": False}).encode()
            await here.write(Set(LAYOUT.item(0).execution, record, -1))
            await here.until(100)  # the leader has looked for orphans meanwhile
        assert [round(second) for second, _, _ in here.starts()] == [30, 60, 90]

    simulate(scene)
