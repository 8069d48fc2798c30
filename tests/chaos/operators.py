"""What operators do to the jobs of a chaos run, well or badly: each action takes something and gives it back later.

They work through kazoo, not through our own client: who judges a house does not live in it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, Permissions

from aioelasticjob.config.job import JobConfig
from tests.chaos.checker import Excuse
from tests.chaos.stage import LOOK_EVERY, NAMESPACE, RECOVERED, Seat, Stage
from tests.chaos.worker import JOBS, PANIC

T = TypeVar("T")
OnJob: TypeAlias = Callable[[Stage, "Operator", JobConfig, random.Random], Awaitable[None]]
GARBAGE: Final = (b"", b"garbage", b"\xff\x00\xfe", b"17", b"[]", b"null", b'{"slot": 99999999999999999999}')
WITHDRAWN: Final = [ACL(Permissions.READ | Permissions.ADMIN, Id("world", "anyone"))]
LIMITS: Final = b"count=-1,bytes=-1,byteHardLimit=1,countHardLimit=1"
PAUSE: Final = 0.5
"""Seconds between two attempts: the ensemble is broken by others meanwhile."""
NOT_RESCUED: Final = {"rescued", "reported, not rescued"}
"""The promises about runs that were cut off.  Where their records are gone, nobody can know that they were."""
QUOTAS: Final = f"/zookeeper/quota{NAMESPACE}"


class Operator:
    """A client of the registry that goes on until what it is to do is done."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client

    async def do(self, what: Callable[[KazooClient], T]) -> T:
        """Return what ``what`` returns in the end; it has to bear being done twice."""
        while True:
            try:
                return await asyncio.to_thread(what, self._client)
            except (KazooException, KazooTimeoutError):
                await asyncio.sleep(PAUSE)

    async def configure(self, job: str, **settings: object) -> dict[str, Any]:
        """Change settings of a job; return what they were."""

        def change(client: KazooClient) -> dict[str, Any]:
            data, stat = client.get(f"{NAMESPACE}/{job}/config")
            known = json.loads(data)
            client.set(f"{NAMESPACE}/{job}/config", json.dumps(known | settings).encode(), stat.version)
            return {name: known[name] for name in settings}

        return await self.do(change)


@asynccontextmanager
async def operating(hosts: str) -> AsyncIterator[Operator]:
    """Yield an operator; his connection does not go through the workers' proxies."""
    client = KazooClient(hosts, timeout=10)
    await asyncio.to_thread(client.start, 60)
    try:
        yield Operator(client)
    finally:
        await asyncio.to_thread(client.stop)
        client.close()


async def withdraw_permission(stage: Stage, operator: Operator, job: JobConfig, rng: random.Random) -> None:
    """Nothing below a job may be created, changed or deleted for a while."""

    def set_all(acls: list[ACL]) -> Callable[[KazooClient], None]:
        def change(client: KazooClient) -> None:
            for path in _tree(client, f"{NAMESPACE}/{job.job_name}"):
                with suppress(NoNodeError):
                    client.set_acls(path, acls)

        return change

    await operator.do(set_all(WITHDRAWN))
    await asyncio.sleep(rng.uniform(0.5, 8))
    await operator.do(set_all(OPEN_ACL_UNSAFE))


async def meet_quota(stage: Stage, operator: Operator, job: JobConfig, rng: random.Random) -> None:
    """A job may have no more nodes or bytes than it has; the ensemble enforces it."""
    quota = f"{QUOTAS}/{job.job_name}"

    def limit(client: KazooClient) -> None:
        for name, data in (("limits", LIMITS), ("stats", b"count=0,bytes=0")):
            with suppress(NodeExistsError):
                client.create(f"{quota}/zookeeper_{name}", data, makepath=True)

    def lift(client: KazooClient) -> None:
        with suppress(NoNodeError):
            client.delete(quota, recursive=True)

    await operator.do(limit)
    await asyncio.sleep(rng.uniform(0.5, 8))
    await operator.do(lift)


async def nonsense_in_config(stage: Stage, operator: Operator, job: JobConfig, rng: random.Random) -> None:
    """A job's configuration is overwritten with nonsense, and put back."""
    await _overwrite(operator, f"{NAMESPACE}/{job.job_name}/config", rng)


async def nonsense_in_record(stage: Stage, operator: Operator, job: JobConfig, rng: random.Random) -> None:
    """An item's record is overwritten with nonsense, and put back unless somebody has written it anew.

    What the record said is not known meanwhile: which moment was claimed, and whether its run is over.
    """
    item, start = rng.randrange(job.sharding_total_count), stage.clock.now()
    await _overwrite(operator, f"{NAMESPACE}/{job.job_name}/execution/{item}", rng)
    rules = frozenset({"nothing lost", *NOT_RESCUED, "true reports"})
    until = stage.clock.now() + RECOVERED
    stage.excuses.append(Excuse("nonsense-in-record", job.job_name, start, until, rules, item))


async def remove_job(stage: Stage, operator: Operator, job: JobConfig, rng: random.Random) -> None:
    """All of a job is removed from the registry under its workers, which make it again when they are restarted.

    Nobody knows any more what was claimed, and runs that went on are seen by nobody.
    """
    start = stage.clock.now()
    seats = [(seat, seat.lives) for seat in stage.seats]
    await operator.do(lambda client: client.delete(f"{NAMESPACE}/{job.job_name}", recursive=True))
    for seat, lives in seats:
        await _restart(stage, seat, lives)
    rules = frozenset({"one runner", "one run per slot", "nothing lost", *NOT_RESCUED, "true reports", "window"})
    until = stage.clock.now() + RECOVERED
    stage.excuses.append(Excuse("remove-job", job.job_name, start, until, rules))


async def raise_base_exceptions(stage: Stage, operator: Operator, job: JobConfig, rng: random.Random) -> None:
    """Handlers raise what is no ``Exception`` for a while."""
    flag = stage.journal.with_name(PANIC)
    flag.touch()
    await asyncio.sleep(rng.uniform(0.5, 6))
    flag.unlink()


async def switch_failover(stage: Stage, operator: Operator, job: JobConfig, rng: random.Random) -> None:
    """Failover is switched over for a while: what is cut off then may be rescued or reported."""
    start = stage.clock.now()
    before = await operator.configure(job.job_name, failover=not job.failover)
    await asyncio.sleep(rng.uniform(1, 10))
    await operator.configure(job.job_name, **before)
    until = stage.clock.now() + RECOVERED
    rules = frozenset({"reported, not rescued"})
    stage.excuses.append(Excuse("switch-failover", job.job_name, start, until, rules))


async def switch_monitoring(stage: Stage, operator: Operator, job: JobConfig, rng: random.Random) -> None:
    """``monitor_execution`` is switched off for a while: nothing is claimed, so nobody knows who runs what.

    Nor what an item missed that has no holder then, or gets another one.
    """
    start = stage.clock.now()
    before = await operator.configure(job.job_name, monitorExecution=False, failover=False)
    await asyncio.sleep(rng.uniform(1, 10))
    await operator.configure(job.job_name, **before)
    until = stage.clock.now() + RECOVERED
    unreported = {"nothing lost", *NOT_RESCUED}
    rules = frozenset({"one runner", "one run per slot", "fences grow", "window", *unreported})
    stage.excuses.append(Excuse("switch-monitoring", job.job_name, start, until, rules))


async def _overwrite(operator: Operator, path: str, rng: random.Random) -> None:
    garbage = rng.choice(GARBAGE)

    def spoil(client: KazooClient) -> bytes | None:
        with suppress(NoNodeError):
            data, stat = client.get(path)
            if data != garbage:
                client.set(path, garbage, stat.version)
                return bytes(data)
        return None

    def mend(client: KazooClient) -> None:
        with suppress(NoNodeError):
            data, stat = client.get(path)
            if data == garbage and former is not None:
                client.set(path, former, stat.version)

    former = await operator.do(spoil)
    await asyncio.sleep(rng.uniform(0.5, 8))
    await operator.do(mend)


async def _restart(stage: Stage, seat: Seat, lives: int) -> None:
    """Restart a worker, unless it has been restarted since it was in the given life; wait until it may be disturbed."""
    while seat.lives == lives and seat not in stage.victims():  # the other job's promises rest on one that is well
        await asyncio.sleep(LOOK_EVERY)
    if seat.lives == lives:
        seat.busy = True
        await stage.leave(seat)
        stage.replace(seat)
        seat.busy, seat.well_since = False, stage.clock.now()


def _tree(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    with suppress(NoNodeError):
        for name in client.get_children(path):
            yield from _tree(client, f"{path}/{name}")


def pick_job(rng: random.Random) -> JobConfig:
    """Pick one of the jobs."""
    return rng.choice(JOBS)


ON_SETTINGS: Final[Mapping[OnJob, int]] = {switch_failover: 2, switch_monitoring: 1}
"""What operators may do to a job at any time, and how often in comparison."""
ON_JOBS: Final[Mapping[OnJob, int]] = {
    withdraw_permission: 2,
    meet_quota: 2,
    nonsense_in_config: 1,
    nonsense_in_record: 2,
    remove_job: 1,
    raise_base_exceptions: 2,
    **ON_SETTINGS,
}
