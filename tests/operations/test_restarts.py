"""A restart that was announced makes no job need attention, and one after a crash does: on whole clusters."""

from __future__ import annotations

from collections.abc import Sequence

from anyio import sleep

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.events import Misfired
from aioelasticjob.observers.missed import MissedMoments, count_of, total_of
from aioelasticjob.operations.attention import Reason, Seen, reasons
from aioelasticjob.testing import VirtualCluster, simulated

JOBS = tuple(f"job-{number}" for number in range(8))
MANY = tuple(f"job-{number}" for number in range(40))


def application(names: Sequence[str] = JOBS) -> ElasticJob:
    """Return an application with jobs that fire each second."""
    app = ElasticJob("zk://somewhere/billing")

    async def work(context: ItemContext) -> None:
        await sleep(0.01)

    for name in names:
        app.add(work, name=name, cron="* * * * * ?", sharding_total_count=2)
    return app


class Watcher:
    """What a console would know of all jobs: when instances have left, and which moments were missed."""

    def __init__(self, cluster: VirtualCluster, names: Sequence[str] = JOBS) -> None:
        self._cluster = cluster
        self._departures: dict[str, list[float]] = {name: [] for name in names}

    async def look(self) -> None:
        """Note when an instance has left each job last."""
        for name in self._departures:
            left = (await self._cluster.status(name)).left_at
            if left is not None and left.timestamp() not in self._departures[name]:
                self._departures[name].append(left.timestamp())

    def missed(self, job: str) -> tuple[MissedMoments, ...]:
        """Return the moments of a job that were reported as missed."""
        found = [event for event in self._cluster.events if isinstance(event, Misfired) and event.job == job]
        return tuple(MissedMoments(count_of(one.moments, len(one.items)), one.why, one.at, one.at) for one in found)

    async def reasons(self) -> dict[str, tuple[Reason, ...]]:
        """Return by job why it needs attention."""
        found = {}
        for name in self._departures:
            status = await self._cluster.status(name)
            seen = Seen(missed=self.missed(name), departures=self._departures[name])
            found[name] = reasons(status, self._cluster.now.timestamp(), seen)
        return found


@simulated
async def test_moments_that_a_single_process_missed_while_it_restarted_are_no_fault(
    virtual_cluster: VirtualCluster,
) -> None:
    app = application()
    watcher = Watcher(virtual_cluster)
    only = await virtual_cluster.start(app)
    await sleep(10)
    await only.stop()
    await watcher.look()
    assert {job: found for job, found in (await watcher.reasons()).items() if found} == {}  # nobody is there
    await sleep(4)
    await virtual_cluster.start(app)
    await sleep(2)
    assert all(total_of(watcher.missed(job)).number >= 2 for job in JOBS)
    assert {job: found for job, found in (await watcher.reasons()).items() if found} == {}


@simulated
async def test_a_rolling_restart_of_many_jobs_on_three_processes_makes_none_of_them_need_attention(
    virtual_cluster: VirtualCluster,
) -> None:
    app = application(MANY)
    watcher = Watcher(virtual_cluster, MANY)
    running = [await virtual_cluster.start(app) for _ in range(3)]
    await sleep(10)
    for old in running:
        await old.stop()
        await watcher.look()
        assert {job: found for job, found in (await watcher.reasons()).items() if found} == {}
        await sleep(3)
        await virtual_cluster.start(app)
        await sleep(3)
        await watcher.look()
        assert {job: found for job, found in (await watcher.reasons()).items() if found} == {}


@simulated
async def test_moments_that_were_missed_after_a_crash_are_a_fault_until_that_has_ended(
    virtual_cluster: VirtualCluster,
) -> None:
    app = application()
    watcher = Watcher(virtual_cluster)
    first = await virtual_cluster.start(app)
    await virtual_cluster.start(app)
    await sleep(10)
    first.kill("silent")
    await sleep(60)
    await watcher.look()
    kinds = {job: [one.kind for one in found] for job, found in (await watcher.reasons()).items()}
    assert kinds == {job: ["misfiring"] for job in JOBS}
    await sleep(300)
    assert {job: found for job, found in (await watcher.reasons()).items() if found} == {}
