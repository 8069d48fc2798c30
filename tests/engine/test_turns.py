"""Turns: who gets one when, and what becomes of tasks and errors."""

from __future__ import annotations

import asyncio
import sys
from asyncio import get_running_loop
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from math import inf

from anyio import CancelScope, Event, Semaphore, create_task_group, sleep, sleep_forever

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.engine.turns import AT_ONCE, Activity, Scheduler, TaskScope, Work
from aioelasticjob.errors import NotAnException
from aioelasticjob.testing import run

Turn = Callable[[], float | Work]


@dataclass
class Part:
    """A part of a job that takes its turns by calling a function."""

    turn: Turn


class RecordedScheduler:
    """A scheduler that runs, and what its activities have done."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.errors, self.is_over = scheduler, list[Exception](), False
        self.tasks = TaskScope(scheduler, self)
        self.turns: list[tuple[float, str]] = []

    def fail(self, error: Exception) -> None:
        self.errors.append(error)

    def end_soon(self) -> None:
        self.is_over = True

    def activity(self, turn: Turn, *, is_urgent: bool = True) -> Activity:
        return Activity(self.tasks, Part(turn), is_urgent=is_urgent)

    def noting(self, name: str, found: Turn | float = inf, *, is_urgent: bool = True) -> Activity:
        """Return an activity that notes its turns, and then rests or does as ``found`` does."""

        def turn() -> float | Callable[[], Awaitable[float]]:
            self.turns.append((round(get_running_loop().time(), 3), name))
            return found if isinstance(found, float) else found()

        return self.activity(turn, is_urgent=is_urgent)


@asynccontextmanager
async def recorded_scheduler() -> AsyncIterator[RecordedScheduler]:
    async with create_task_group() as tasks:
        here = RecordedScheduler(Scheduler(Semaphore(1)))
        tasks.start_soon(here.scheduler.run)
        yield here
        here.tasks.cancel()
        await here.tasks.ended()
        here.scheduler.stop()


def test_an_activity_gets_a_turn_when_it_is_woken_and_when_its_time_has_come() -> None:
    async def main() -> None:
        async with recorded_scheduler() as here:
            activity = here.noting("a", 10.0)
            activity.wake()
            await sleep(25)
            activity.wake()
            await sleep(14)
            assert here.turns == [(0.0, "a"), (10.0, "a"), (20.0, "a"), (25.0, "a"), (35.0, "a")]

    run(main)


def test_an_activity_that_rests_for_next_to_no_time_does_not_get_turns_without_end() -> None:
    async def main() -> None:
        async with recorded_scheduler() as here:
            await sleep(8)
            here.noting("a", 1e-16).wake()  # added to 8, it is still 8
            await sleep(0.0045)
            assert here.turns == [(8.0, "a"), (8.001, "a"), (8.002, "a"), (8.003, "a"), (8.004, "a")]

    run(main)


def test_an_earlier_time_that_was_asked_for_is_forgotten_when_a_later_one_is() -> None:
    async def main() -> None:
        async with recorded_scheduler() as here:
            waits = iter([5.0, 20.0, inf])
            activity = here.noting("a", lambda: next(waits))
            activity.wake()
            await sleep(1)
            activity.wake()  # and asks for 21 now, rather than for 5
            await sleep(60)
            assert here.turns == [(0.0, "a"), (1.0, "a"), (21.0, "a")]

    run(main)


def test_times_that_were_asked_for_and_are_of_no_use_any_more_do_not_pile_up() -> None:
    async def main() -> None:
        async with recorded_scheduler() as here:
            waits = cycle([60.2, 0.5])
            activity = here.noting("a", lambda: next(waits))
            for _ in range(500):  # each time it asks for half a second, and then for a minute, which never comes
                activity.wake()
                await sleep(1)
            assert len(here.turns) == 1000 - 1
            assert len(here.scheduler._heap) <= 60 + 2

    run(main)


def test_at_rest_there_is_no_task_and_one_timer_for_all() -> None:
    async def main() -> None:
        async with recorded_scheduler() as here:
            for number in range(100):
                here.noting(str(number), 1000.0 + number).wake()
            await sleep(1)
            loop = get_running_loop()
            assert not here.tasks._scopes
            assert sum(not timer.cancelled() for timer in loop._scheduled) == 1  # type: ignore[attr-defined]

    run(main)


def test_news_that_come_during_work_are_good_for_one_turn_after_it() -> None:
    async def main() -> None:
        async with recorded_scheduler() as here:
            done = Event()

            async def work() -> float:
                await done.wait()
                return inf

            activity = here.noting("a", lambda: work)
            activity.wake()
            await sleep(1)
            for _ in range(3):
                activity.wake()
            await sleep(1)
            assert here.turns == [(0.0, "a")]
            done.set()
            await sleep(1)
            assert here.turns == [(0.0, "a"), (2.0, "a")]

    run(main)


def test_news_that_a_turn_has_for_itself_are_not_lost_in_the_work_that_it_begins() -> None:
    async def main() -> None:
        async with recorded_scheduler() as here:
            first = iter([True])

            async def work() -> float:
                return inf

            def turn() -> Callable[[], Awaitable[float]]:
                if next(first, False):
                    activity.wake()
                return work

            activity = here.noting("a", turn)
            activity.wake()
            await sleep(1)
            assert [name for _, name in here.turns] == ["a", "a"]

    run(main)


def test_turns_are_given_while_the_process_is_cancelled_until_the_scheduler_is_stopped() -> None:
    """As when the body of ``app.running()`` is cancelled: then the jobs have yet to leave."""

    async def main() -> None:
        async with create_task_group() as tasks:
            here = RecordedScheduler(Scheduler(Semaphore(1)))
            tasks.start_soon(here.scheduler.run)

            async def work() -> float:
                await sleep(2)
                return inf

            here.noting("resting", 10.0).wake()
            await sleep(1)
            tasks.cancel_scope.cancel()
            with CancelScope(shield=True):
                await sleep(1)
                here.noting("worker", lambda: work).wake()
                await sleep(18.5)
                assert here.turns == [(0.0, "resting"), (2.0, "worker"), (10.0, "resting"), (20.0, "resting")]
                here.scheduler.stop()
                assert here.scheduler._timer is None
                await sleep(20)
                assert len(here.turns) == 4

    run(main)


def test_what_is_urgent_goes_first_and_the_others_in_the_order_in_which_they_were_woken() -> None:
    async def main() -> None:
        async with recorded_scheduler() as here:
            patient = [here.noting(str(number), is_urgent=False) for number in range(2 * AT_ONCE + 10)]
            for activity in patient:
                activity.wake()
            here.noting("urgent").wake()
            while len(here.turns) < AT_ONCE:
                await sleep(0)
            here.noting("urgent, too").wake()
            patient[0].wake()  # has had its turn, so it is the last
            await sleep(1)
            names = [name for _, name in here.turns]
            assert names[: AT_ONCE + 1] == ["urgent", *map(str, range(AT_ONCE))]
            assert names[AT_ONCE + 1] == "urgent, too"
            assert names[AT_ONCE + 2 :] == [*map(str, range(AT_ONCE, len(patient))), "0"]

    run(main)


def test_an_error_of_a_turn_or_of_its_work_is_that_job_s() -> None:
    async def main() -> None:
        async with recorded_scheduler() as here:

            def fails() -> float:
                raise ValueError("turn")

            async def broken() -> float:
                raise ValueError("work")

            other = here.noting("other", 1.0)
            for activity in (here.noting("a", fails), here.noting("b", lambda: broken), other):
                activity.wake()
            await sleep(2.5)
            assert [str(error) for error in here.errors] == ["turn", "work"]
            assert [name for _, name in here.turns].count("other") == 3

    run(main)


def test_a_future_that_closes_the_coroutines_which_await_it_is_an_error_of_that_job() -> None:
    async def main() -> None:
        async with recorded_scheduler() as here:
            future = get_running_loop().create_future()

            async def awaits() -> float:
                await future
                raise AssertionError

            here.noting("a", lambda: awaits).wake()
            await sleep(1)
            future.set_exception(GeneratorExit())
            await sleep(1)
            assert [type(error) for error in here.errors] == [NotAnException]

    run(main)


def test_tasks_are_cancelled_together_and_nothing_begins_afterwards() -> None:
    async def main() -> None:
        async with recorded_scheduler() as here:
            ended = list[str]()

            async def work() -> float:
                try:
                    await sleep_forever()
                finally:
                    ended.append("work")
                return inf

            activity = here.noting("a", lambda: work)
            activity.wake()
            here.tasks.start_soon(work)
            await sleep(1)
            here.tasks.start_soon(work)  # which has not taken its first step when all are cancelled
            here.tasks.cancel()
            await here.tasks.ended()
            assert ended == ["work", "work"]
            activity.wake()
            here.tasks.start_soon(work)
            await sleep(1)
            assert [name for _, name in here.turns] == ["a"]

    run(main)


def test_a_cancellation_of_all_tasks_by_asyncio_does_not_keep_jobs_from_leaving() -> None:
    """As at the end of ``asyncio.run``.  A task that has not begun then never does, so it never says that it ended."""

    async def main() -> None:
        async def work() -> float:
            await sleep_forever()
            return inf

        scheduler = Scheduler(Semaphore(1))
        scheduling, here = asyncio.create_task(scheduler.run()), RecordedScheduler(scheduler)
        here.noting("a", lambda: work).wake()
        await sleep(1)
        here.tasks.start_soon(sleep_forever)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await sleep(1)
        here.noting("b").wake()
        await sleep(1)
        assert (here.turns, here.is_over) == ([(0.0, "a"), (2.0, "b")], True)
        await here.tasks.ended()
        scheduler.stop()
        await asyncio.wait([scheduling])

    run(main)


if sys.version_info >= (3, 12):  # and not skipped before: a test that is skipped counts as a failure

    def test_of_tasks_that_begin_eagerly_only_those_that_go_on_are_kept() -> None:
        async def main() -> None:
            async with recorded_scheduler() as here:
                get_running_loop().set_task_factory(asyncio.eager_task_factory)
                done, ended = Event(), list[str]()

                async def work(name: str) -> None:
                    if name == "waits":
                        await done.wait()
                    ended.append(name)

                await sleep(1)
                for name in ("waits", "ends at once", "ends at once"):
                    here.tasks.start_soon(work, name)
                assert ended == ["ends at once"] * 2
                assert [task is not None and task.done() for task in here.tasks._scopes.values()] == [False]
                done.set()
                await here.tasks.ended()
                assert not here.tasks._scopes

        run(main)

    def test_an_application_whose_tasks_begin_eagerly_runs_its_jobs_and_stops() -> None:
        moments, ended = list[int](), list[int]()

        async def at_once(context: ItemContext) -> None:
            moments.append(context.fire_time.second)

        async def takes_long(context: ItemContext) -> None:
            await sleep(3)
            ended.append(context.item)

        async def main() -> None:
            get_running_loop().set_task_factory(asyncio.eager_task_factory)
            app = ElasticJob("embedded://")
            app.add(at_once, name="at-once", cron="* * * * * ?")
            app.add(takes_long, name="takes-long", cron="0/10 * * * * ?", sharding_total_count=2)
            async with asyncio.timeout(60), app.running():
                await sleep(21.5)  # the second run of the job that takes long goes on, and is waited for
            assert asyncio.all_tasks() == {asyncio.current_task()}

        run(main)
        assert len(moments) == 21
        assert moments == [(moments[0] + number) % 60 for number in range(21)]
        assert sorted(ended) == [0, 0, 1, 1]
