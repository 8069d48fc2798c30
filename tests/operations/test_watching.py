"""A watcher gets the newest state soon after a change, reads only what has changed, and never polls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest

from aioelasticjob import InvalidSetting, JobConfig, operations
from aioelasticjob.core.layout import Layout
from aioelasticjob.operations import JobStatus, StatusStream
from aioelasticjob.operations.servers import by_server
from aioelasticjob.operations.watching import MAX_GATHERING, MIN_GATHERING
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.testing import VirtualClock
from tests.engine.test_settings_changes import start_processes
from tests.operations.test_instances import HOSTILE
from tests.support.simulated_jobs import LAYOUT, REGISTRY, SimulatedJobs, simulate


class Screen:
    """What a reader has seen: the newest state of all jobs, and how often it was drawn."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobStatus] = {}
        self.drawn = 0

    async def follow(self, lists: StatusStream[tuple[JobStatus, ...]]) -> None:
        async for statuses in lists:
            self.jobs = {status.name: status for status in statuses}
            self.drawn += 1


@asynccontextmanager
async def screen(session: Session) -> AsyncIterator[Screen]:
    shown = Screen()
    async with operations.watch_all(session, clock=VirtualClock()) as lists, anyio.create_task_group() as tasks:
        tasks.start_soon(shown.follow, lists)
        await anyio.sleep(0)
        yield shown
        tasks.cancel_scope.cancel()


async def read(here: SimulatedJobs) -> dict[str, JobStatus]:
    now = VirtualClock().now()
    return {status.name: status for status in await operations.jobs(here.observer, now=now)}


def test_what_is_watched_is_what_is_read_whatever_happens() -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with screen(here.observer) as shown:
            assert shown.jobs == {}
            them = await start_processes(here, "ab", work=3, failover=True)
            acts: list[Callable[[], object]] = [
                lambda: operations.configure(here.observer, "job", {"sharding_total_count": 7}),
                lambda: operations.pause_server(here.observer, "10.0.0.1"),
                lambda: here.faults.crash(them.people["b"]),
                lambda: operations.resume_server(here.observer, "10.0.0.1"),
                lambda: operations.disable(here.observer, "job", item=1),
                lambda: operations.ask(here.observer, "job"),
                lambda: operations.pause(here.observer, "job"),
                lambda: operations.resume(here.observer, "job"),
                lambda: operations.configure(here.observer, "job", {"sharding_total_count": 2}),
                lambda: here.write(Set(LAYOUT.config, b"{nonsense", -1)),
                lambda: operations.shut_down(here.observer, "job"),
                lambda: operations.remove(here.observer, "job", force=True),
            ]
            for act in acts:
                done = act()
                if asyncio.iscoroutine(done):
                    await done
                for _ in range(2):  # between two fires, when nothing is under way
                    await here.until(here.now() // 10 * 10 + 16)
                    assert shown.jobs == await read(here)
            assert list(shown.jobs) == ["other"]

    simulate(scene)


def test_a_change_is_seen_within_a_tenth_of_a_second_and_many_at_once_are_one() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)
        async with screen(here.observer) as shown:
            drawn, begun = shown.drawn, here.now()
            for n in range(30):
                await operations.configure(here.observer, "job", {"description": str(n)})
            took = here.now() - begun
            await anyio.sleep(0.1)
            assert shown.jobs["job"].config.description == "29"
            assert 1 <= shown.drawn - drawn <= took / MIN_GATHERING + 1 < 10

    simulate(scene)


def test_at_rest_nothing_is_asked_and_the_next_fire_moves_on_all_the_same() -> None:
    async def scene(here: SimulatedJobs) -> None:
        for name in ("job", "rare"):
            cron = "0/10 * * * * ?" if name == "job" else "0 0 0 1 1 ?"
            root = Layout(name)
            await here.write(Create(root.root), Create(root.config, JobConfig(job_name=name, cron=cron).to_json()))
            server, me = Create(root.server("10.0.0.5")), Create(root.instance("10.0.0.5@-@1-a"), ephemeral=True)
            await here.write(Create(root.servers), server, Create(root.instances), me)
        async with screen(here.observer) as shown:
            client, asked = here.observer._client, 0  # there is no public count of reads
            read_all = client.read_all

            async def counted(*given):  # type: ignore[no-untyped-def]
                nonlocal asked
                asked += 1
                return await read_all(*given)

            client.read_all = counted  # type: ignore[method-assign]
            for second in (5.0, 15.0, 25.0, 595.0):
                await here.until(second)
                fire = shown.jobs["job"].next_fire
                assert fire is not None
                assert fire.timestamp() - here.start == second // 10 * 10 + 10
            assert asked == 0
            assert shown.drawn <= 62

    simulate(scene)


def test_counts_that_nobody_renews_are_over_after_two_intervals_though_nothing_is_read() -> None:
    async def scene(here: SimulatedJobs) -> None:
        config = JobConfig(job_name="job", monitor_execution=False, statistics_interval=60)
        await here.write(Create(LAYOUT.root), Create(LAYOUT.config, config.to_json()), Create(LAYOUT.servers))
        await here.until(7)
        failed = Create(LAYOUT.failure_count("10.0.0.5"), b"3")
        await here.write(Create(LAYOUT.server("10.0.0.5")), Create(LAYOUT.success_count("10.0.0.5"), b"0"), failed)
        async with screen(here.observer) as shown:
            await here.until(126)
            assert (shown.jobs["job"].failed, shown.drawn) == (3, 1)
            await here.until(128)
            assert (shown.jobs["job"].failed, shown.drawn) == (0, 2)
            assert shown.jobs == await read(here)
            await here.until(1000)
            assert shown.drawn == 2
            await here.write(Set(LAYOUT.failure_count("10.0.0.5"), b"4", -1))
            await here.until(1001)
            assert (shown.jobs["job"].failed, shown.drawn) == (4, 3)
            await here.until(1060)
            await here.write(Set(LAYOUT.failure_count("10.0.0.5"), b"4", -1))  # as many again
            await here.until(1179)
            assert (shown.jobs["job"].failed, shown.drawn) == (4, 3)
            await here.until(1181)
            assert (shown.jobs["job"].failed, shown.drawn) == (0, 4)

    simulate(scene)


def test_one_job_is_followed_with_its_offsets_until_it_is_removed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)
        seen: list[JobStatus] = []
        watched = operations.watch(here.observer, "job", clock=VirtualClock())
        async with watched as statuses, anyio.create_task_group() as tasks:

            async def follow() -> None:
                seen.extend([status async for status in statuses])
                over.append(here.now())

            over: list[float] = []
            tasks.start_soon(follow)
            await anyio.sleep(0.1)
            await here.write(Create(LAYOUT.item(2).offset, b"page 7"))
            await anyio.sleep(0.1)
            await here.write(Create("/elsewhere"), Create(f"{LAYOUT.guarantee}/x"))
            await anyio.sleep(0.1)
            now = await operations.job(here.observer, "job", now=VirtualClock().now())
            assert not over
            await operations.remove(here.observer, "job", force=True)
        assert [status.items[2].offset for status in seen[:2]] == [None, "page 7"]
        assert seen[1] == now

    simulate(scene)


def test_a_registry_that_disappears_is_waited_for_and_seen_again() -> None:
    async def scene(here: SimulatedJobs) -> None:
        config = JobConfig(job_name="job", cron="@daily")
        async with screen(here.observer) as shown:
            here.faults.network.unpowered.add(REGISTRY)
            here.faults.network.links_changed()
            await anyio.sleep(30)
            assert shown.jobs == {}
            here.faults.network.unpowered.discard(REGISTRY)
            here.faults.network.links_changed()
            await here.observer.connected()
            await here.write(Create(LAYOUT.root), Create(LAYOUT.config, config.to_json()))
            await anyio.sleep(1)
            assert list(shown.jobs) == ["job"]
            for n in range(3):
                await operations.configure(here.observer, "job", {"description": f"{n}"})
                await anyio.sleep(MAX_GATHERING + 0.1)
                assert shown.jobs["job"].config.description == f"{n}"

    simulate(scene)


def test_jobs_that_are_not_there_are_not_watched() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await here.write(Create(LAYOUT.root), Create(LAYOUT.config, JobConfig(job_name="job").to_json()))
        for name in HOSTILE:
            with pytest.raises(InvalidSetting, match="there are: job"):
                async with operations.watch(here.observer, name):
                    raise AssertionError("nothing to watch")
        assert not here.observer._keeper.watches.roots  # and nothing is left behind

    simulate(scene)


def test_a_reader_who_is_slow_has_the_newest_and_holds_nobody_up() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)
        async with operations.watch_all(here.observer, clock=VirtualClock()) as lists:
            first = await anext(lists)
            await here.until(47)
            last = await anext(lists)
            assert first != last
            assert {one.name: one for one in last} == await read(here)

    simulate(scene)


def test_servers_are_jobs_seen_from_the_other_side() -> None:
    async def scene(here: SimulatedJobs) -> None:
        await start_processes(here)
        await operations.disable(here.observer, "job", server="10.0.0.2")
        await anyio.sleep(1)
        one, two = by_server(await operations.jobs(here.observer, now=0))
        assert (one.ip, one.jobs, one.instances, one.disabled_in) == ("10.0.0.1", ("job", "other"), 2, ())
        assert (two.ip, two.disabled_in, two.paused_in) == ("10.0.0.2", ("job",), ())
        assert one.holds + two.holds == 4 + 5
        assert replace(two, ip="x") != two

    simulate(scene)


def test_on_either_registry_a_change_comes_by_itself(registry_address: str) -> None:
    async def main() -> None:
        settings = ConnectionSettings.parse(registry_address)
        async with (
            open_session(settings) as looking,
            open_session(settings) as operator,
            asyncio.timeout(90),
            operations.watch_all(looking) as lists,
        ):
            assert await anext(lists) == ()
            config = JobConfig(job_name="job", cron="@daily")
            made = [Create(path) for path in LAYOUT.skeleton]
            await operator.commit([*made, Create(LAYOUT.config, config.to_json())], incarnation=operator.incarnation)
            (job,) = await anext(lists)
            assert (job.name, job.state) == ("job", "nobody there")
            me = Create(LAYOUT.instance("me"), b'{"ip": "10.0.0.5"}', ephemeral=True)
            await operator.commit([Create(LAYOUT.server("10.0.0.5")), me], incarnation=operator.incarnation)
            (job,) = await anext(lists)
            assert [one.id for one in job.instances] == ["me"]
            await operator.commit([Delete(LAYOUT.instance("me"))], incarnation=operator.incarnation)
            assert (await anext(lists))[0].instances == ()
            assert (await operations.remove(operator, "job")).changed
            while await anext(lists):
                pass

    asyncio.run(main())
