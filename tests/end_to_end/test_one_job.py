"""One job in several applications of one process: assigned, run, changed, handed over; on every server and loop."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import anyio
import pytest

from aioelasticjob.clock import SystemClock
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.reasons import BUSY
from aioelasticjob.core.rules import wanted_assignment
from aioelasticjob.errors import NodeMissing
from aioelasticjob.events import Misfired
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create, Delete
from tests.support.local_applications import EVERY_SECOND, NEVER, TIMEOUT, HandlerRuns, applications, registry_observer
from tests.support.loops import LoopKind, run_async

LAYOUT = Layout("job")


def slots_of(diary: HandlerRuns, item: int, job: str = "job") -> list[float]:
    """The scheduled moments of all runs of an item, in the order in which they began."""
    return [run.slot for run in diary.begun if (run.item, run.job) == (item, job)]


def test_three_applications_share_the_items_elect_a_leader_and_run_every_item_once_a_moment(
    registry_address: str, real_loop_kind: LoopKind
) -> None:
    async def main() -> None:
        diary = HandlerRuns()
        apps = [diary.app(registry_address, cron=EVERY_SECOND, sharding_total_count=7) for _ in range(3)]
        async with registry_observer(registry_address) as registry:
            async with applications(*apps):
                view = await registry.spread_over(3)
                assert [list(view.assignment.values()).count(name) for name in view.eligible] == [3, 2, 2]
                runs = await diary.fires(2, range(7))
                assert all(run.instance == view.assignment[run.item] for run in runs)
            assert all(len(slots := slots_of(diary, item)) == len(set(slots)) for item in range(7))
            await registry.until(lambda view: not view.instances and view.leader is None)

    run_async(real_loop_kind, main)


def test_items_follow_instances_that_come_and_go_and_no_moment_is_run_twice(registry_address: str) -> None:
    async def main() -> None:
        diary = HandlerRuns()
        one, other = (diary.app(registry_address, cron=EVERY_SECOND, sharding_total_count=4) for _ in "ab")
        async with registry_observer(registry_address) as registry, applications(one):
            alone = await registry.spread_over(1)
            await diary.fires(1, range(4))
            async with applications(other):
                both = await registry.spread_over(2)
                assert both.leader == alone.leader
                await diary.fires(2, range(4))
            await registry.spread_over(1)
            await diary.fires(1, range(4))
        for item in range(4):
            slots = slots_of(diary, item)
            assert slots == sorted(set(slots))
            assert max(later - earlier for earlier, later in pairwise(slots)) <= 3

    run_async("asyncio", main)


def test_the_leader_leaves_and_the_next_one_assigns(registry_address: str) -> None:
    async def main() -> None:
        diary = HandlerRuns()
        first, second = (diary.app(registry_address, cron=NEVER, sharding_total_count=3) for _ in "ab")
        async with registry_observer(registry_address) as registry, applications(first) as (leave,):
            before = await registry.spread_over(1)
            async with applications(second):
                assert (await registry.spread_over(2)).leader == before.leader
                leave.set()
                after = await registry.spread_over(1)
            assert after.leader != before.leader
            assert (before.epoch, after.epoch) == (0, 1)

    run_async("asyncio", main)


def test_what_an_operator_changes_takes_effect_while_the_job_runs(registry_address: str) -> None:
    async def main() -> None:
        diary = HandlerRuns()
        async with (
            registry_observer(registry_address) as registry,
            applications(diary.app(registry_address, cron=NEVER)),
        ):
            await registry.spread_over(1)
            await registry.configure(cron=EVERY_SECOND)
            await diary.fires(1, [0])
            await registry.configure(sharding_total_count=5, sharding_item_parameters={4: "Berlin"})
            await registry.spread_over(1, items=5)
            await diary.fires(1, range(5))
            await registry.configure(sharding_total_count=2, sharding_item_parameters={})
            await registry.until(lambda view: view.assignment_stands and view.items == {0, 1})
            with anyio.fail_after(TIMEOUT):
                for item in (2, 3, 4):
                    await registry.session.wait_deleted(LAYOUT.item(item).execution)
            await registry.write(Create(LAYOUT.item(1).disabled))
            await diary.fires(3, [0])  # the first of them may have been claimed before the flag was seen
            left_out = [run for run in await diary.fires(2, [0]) if run.item == 1]
            assert not left_out
            await registry.write(Delete(LAYOUT.item(1).disabled))
            await diary.fires(1, [1])

    run_async("asyncio", main)


async def until_moments_have_passed(moments: int, since: float) -> None:
    """Wait until so many moments of a schedule of every second have passed."""
    while SystemClock().now() < since + moments:
        await anyio.sleep(0.05)


def test_a_slow_item_holds_up_nobody_and_goes_on_at_its_new_holder_when_it_has_ended(registry_address: str) -> None:
    async def main() -> None:
        slow, quick, may_end = HandlerRuns(), HandlerRuns(), anyio.Event()
        settings: dict[str, Any] = {"cron": EVERY_SECOND, "sharding_total_count": 2}
        newcomer = quick.app(registry_address, **settings)
        async with (
            registry_observer(registry_address) as registry,
            applications(slow.app(registry_address, may_end=may_end, **settings)),
        ):
            old = await registry.spread_over(1)
            await slow.until(lambda: len(slow.begun) == 2)
            with newcomer.events() as events:
                async with applications(newcomer):
                    new = await registry.spread_over(2)
                    (moved,) = (item for item in (0, 1) if new.assignment[item] != old.assignment[item])
                    assert not slow.ended  # the assignment has not waited for the slow run
                    await until_moments_have_passed(3, since=SystemClock().now())
                    assert not quick.begun
                    may_end.set()
                    with anyio.fail_after(TIMEOUT):
                        async for event in events:
                            if isinstance(event, Misfired) and event.why == BUSY:
                                break
                    (run, *_) = await quick.fires(1, [moved])
            last = next(one for one in slow.ended if one.item == moved)
            assert run.fence > last.fence
            assert run.slot > last.slot

    run_async("asyncio", main)


def test_two_jobs_of_one_application_do_not_touch_each_other(registry_address: str) -> None:
    async def main() -> None:
        diary = HandlerRuns()
        app = diary.app(registry_address, name="slow", work=30, cron=EVERY_SECOND, shutdown_timeout=0)
        app.add(diary.handler(), name="quick", cron=EVERY_SECOND, sharding_total_count=2)

        async def fails(context: object) -> None:
            raise RuntimeError("on purpose")

        app.add(fails, name="failing", cron=EVERY_SECOND)
        async with registry_observer(registry_address, "quick") as registry, applications(app):
            await registry.spread_over(1)
            await diary.fires(3, [0, 1], job="quick")
            assert await registry.session.children("/") == ("failing", "quick", "slow")
        assert len(slots_of(diary, 0, "slow")) == 1
        for item in (0, 1):
            slots = slots_of(diary, item, "quick")
            assert {later - earlier for earlier, later in pairwise(slots)} <= {1, 2}

    run_async("asyncio", main)


def test_three_hundred_items_run_in_one_claim(registry_address: str) -> None:
    async def main() -> None:
        diary = HandlerRuns()
        app = diary.app(registry_address, cron=EVERY_SECOND, sharding_total_count=300)
        async with registry_observer(registry_address) as registry, applications(app):
            await registry.spread_over(1)
            runs = await diary.fires(2, range(300))
            assert all(len({run.fence for run in runs if run.slot == slot}) == 1 for slot in {run.slot for run in runs})

    run_async("asyncio", main)


def test_three_thousand_items_are_assigned_in_chunks_that_nobody_claims_from(registry_address: str) -> None:
    async def main() -> None:
        diary = HandlerRuns()
        settings: dict[str, Any] = {"cron": EVERY_SECOND, "sharding_total_count": 3000}
        async with (
            registry_observer(registry_address) as registry,
            applications(diary.app(registry_address, **settings)),
        ):
            view = await registry.until(lambda view: view.assignment_stands and len(view.assignment) == 3000)
            written = {view.tree.get(view.layout.item(item).instance).stat.mzxid for item in range(3000)}  # type: ignore[union-attr]
            assert len(written) > 1  # otherwise this shows nothing
            await diary.fires(1, range(3000))
            async with applications(diary.app(registry_address, **settings)):
                view = await registry.spread_over(2)
                assert view.assignment == wanted_assignment(view)
                await diary.fires(1, range(3000))
        for item in range(0, 3000, 7):
            slots = slots_of(diary, item)
            assert len(slots) == len(set(slots))

    run_async("asyncio", main)


@pytest.mark.parametrize("items", [1, 10, 100])
def test_a_monitored_fire_is_two_transactions_at_the_server(registry_address: str, items: int) -> None:
    """Fences are zxids, and nobody else writes: between two claims lie one settling and the second claim itself."""

    async def main() -> None:
        diary = HandlerRuns()
        async with registry_observer(registry_address) as registry:
            async with applications(diary.app(registry_address, cron=EVERY_SECOND, sharding_total_count=items)):
                await registry.spread_over(1)
                runs = await diary.fires(4, range(items))
            fences = sorted({run.fence for run in runs})
            assert [later - earlier for earlier, later in pairwise(fences)] == [2] * (len(fences) - 1)
            assert len(fences) >= 4

    run_async("asyncio", main)


def test_without_monitoring_a_fire_writes_nothing(registry_address: str) -> None:
    async def main() -> None:
        diary = HandlerRuns()
        app = diary.app(registry_address, cron=EVERY_SECOND, sharding_total_count=3, monitor_execution=False)
        async with registry_observer(registry_address) as registry, applications(app):
            await registry.spread_over(1)
            runs = await diary.fires(2, range(3))
            assert {run.fence for run in runs} == {0}
            assert await below(registry.session, LAYOUT.execution) == []

    run_async("asyncio", main)


async def below(session: Session, path: str) -> list[str]:
    try:
        return [name for name in await session.subtree([path]) if name != path]
    except NodeMissing:
        return []
