"""Plain functions in executors that packages add: one for each job, given back or waited for when cancelled."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor

import anyio
import pytest

from aioelasticjob import ElasticJob, InvalidSetting, ItemContext
from aioelasticjob.engine.executors import Executors, OwnExecutors
from aioelasticjob.events import Ended
from aioelasticjob.model import Outcome
from aioelasticjob.observers.metrics import Metrics
from aioelasticjob.testing import VirtualCluster, simulated
from tests.support.contexts import of_item
from tests.support.loops import LoopKind, run_async
from tests.support.own_executors import added


def with_executors(
    main: Callable[[OwnExecutors], Awaitable[None]], kind: LoopKind = "asyncio", **found: object
) -> None:
    async def body() -> None:
        executors = OwnExecutors()
        with anyio.fail_after(60):
            async with executors.open():
                await main(executors)

    with added(**found):
        run_async(kind, body)


def test_each_job_has_an_executor_of_its_own_which_is_shut_down_at_the_end(real_loop_kind: LoopKind) -> None:
    made: list[ThreadPoolExecutor] = []

    def make(job: str) -> ThreadPoolExecutor:
        made.append(ThreadPoolExecutor(1, thread_name_prefix=f"mine-{job}"))
        return made[-1]

    async def main(executors: OwnExecutors) -> None:
        def name() -> str:
            return threading.current_thread().name

        names = [await executors.call("mine", job, name) for job in ("a", "b", "a")]
        assert names == ["mine-a_0", "mine-b_0", "mine-a_0"]

    with_executors(main, real_loop_kind, mine=make)
    assert len(made) == 2
    for executor in made:
        with pytest.raises(RuntimeError):
            executor.submit(print)


def test_a_call_that_has_not_begun_is_taken_back_and_one_that_has_is_waited_for() -> None:
    begun, go_on, ran = threading.Event(), threading.Event(), list[str]()

    def hold(which: str) -> str:
        ran.append(which)
        begun.set()
        go_on.wait()
        return which

    async def main(executors: OwnExecutors) -> None:
        ended = list[str]()

        async def call(which: str) -> None:
            ended.append(await executors.call("mine", "job", hold, which))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "first")
            await anyio.to_thread.run_sync(begun.wait)
            with anyio.CancelScope() as waiting:
                tasks.start_soon(_cancel_soon, waiting)
                await call("second")
            assert waiting.cancelled_caught
            tasks.cancel_scope.cancel()
            go_on.set()
        assert (ended, ran) == (["first"], ["first"])

    with_executors(main, mine=lambda job: ThreadPoolExecutor(1))


async def _cancel_soon(scope: anyio.CancelScope) -> None:
    await anyio.lowlevel.checkpoint()
    scope.cancel()


class Broken(Executor):
    """An executor that has lost what runs its functions."""

    def submit(self, function: Callable[..., object], /, *arguments: object, **named: object) -> Future[object]:  # type: ignore[override]
        raise BrokenExecutor


def test_the_call_after_one_that_met_a_broken_executor_is_given_a_new_one() -> None:
    made = iter([Broken(), ThreadPoolExecutor(1)])

    async def main(executors: OwnExecutors) -> None:
        with pytest.raises(BrokenExecutor):
            await executors.call("mine", "job", int, "7")
        assert await executors.call("mine", "job", int, "7") == 7

    with_executors(main, mine=lambda job: next(made))


def test_what_makes_no_executor_is_named() -> None:
    async def main(executors: OwnExecutors) -> None:
        with pytest.raises(InvalidSetting, match=r"made a str for job; it must make a concurrent.futures.Executor"):
            await executors.call("mine", "job", int)

    with_executors(main, mine=lambda job: "pool")


def test_an_async_function_behind_a_plain_decorator_is_awaited_in_the_loop() -> None:
    ran: list[str] = []

    async def handler() -> int:
        ran.append(threading.current_thread().name)
        return 7

    async def main() -> None:
        executors = Executors()
        async with executors.open():
            for executor in ("thread", "mine"):
                assert await executors.call(executor, lambda context: handler(), of_item()) == 7

    with added(mine=lambda job: ThreadPoolExecutor(1)):
        run_async("asyncio", main)
    assert ran == [threading.main_thread().name] * 2


def test_in_simulated_time_functions_are_called_in_the_loop() -> None:
    ran: list[str] = []
    app = ElasticJob("zk://registry:2181/shop")

    async def main(cluster: VirtualCluster) -> None:
        app.add(lambda context: ran.append(threading.current_thread().name), name="job", cron="@daily", executor="mine")
        await cluster.start(app)
        await cluster.next_fire()

    with added(mine=lambda job: ThreadPoolExecutor(1)):
        simulated(main)(VirtualCluster())
    assert ran == [threading.main_thread().name]


def test_a_jobs_plain_handler_runs_in_its_own_executor_and_is_given_its_offset_to_read() -> None:
    seen: list[tuple[str, int, str | None]] = []
    refused: list[InvalidSetting] = []

    def compute(context: ItemContext) -> None:
        seen.append((threading.current_thread().name, context.item, context.offset))
        with pytest.raises(InvalidSetting) as error:
            anyio.run(context.save_offset, "1")
        refused.append(error.value)

    async def main() -> None:
        app = ElasticJob("embedded://")
        app.add(compute, executor="mine", sharding_total_count=2)
        with anyio.fail_after(60):
            async with app.running():
                ended = dict[int, Outcome]()
                with app.events() as events:
                    await app.trigger("compute")
                    async for event in events:
                        if isinstance(event, Ended):
                            ended[event.item] = event.outcome
                        if len(ended) == 2:
                            break
                assert ended == {0: Outcome.COMPLETED, 1: Outcome.COMPLETED}

    with added(mine=lambda job: ThreadPoolExecutor(1, thread_name_prefix=f"own-{job}")):
        run_async("asyncio", main)
    assert sorted(seen) == [("own-compute_0", 0, None), ("own-compute_0", 1, None)]
    assert {(one.setting, one.value) for one in refused} == {("executor", "mine")}


def test_the_calls_that_run_and_those_that_wait_are_counted_by_executor() -> None:
    go, app = threading.Event(), ElasticJob("embedded://", threads=1, processes=2)

    def now() -> dict[str, tuple[float, int]]:
        return {name: (found.borrowed_tokens, found.tasks_waiting) for name, found in app.vitals.calls.items()}

    def wait(context: ItemContext) -> None:
        go.wait(60)

    async def main() -> None:
        app.add(wait, sharding_total_count=3)
        with anyio.fail_after(60):
            async with app.running():
                try:
                    await app.trigger("wait")
                    while now() != {"thread": (1, 2), "process": (0, 0)}:
                        await anyio.sleep(0.01)
                    text = (await Metrics(app).render())[0].decode()
                    for line in ('running{executor="thread"} 1.0', 'waiting{executor="thread"} 2.0'):
                        assert f"\naioelasticjob_executor_calls_{line}\n" in text
                finally:
                    go.set()
                while now() != {"thread": (0, 0), "process": (0, 0)}:
                    await anyio.sleep(0.01)
        assert now() == {}

    run_async("asyncio", main)
