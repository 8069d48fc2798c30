"""A run that fails is tried again under its lock: what its attempts see, what is reported, and what ends them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from aioelasticjob import InstanceContext, ItemContext, Outcome, Retry, operations
from aioelasticjob.engine.early_end import HELD_ELSEWHERE, LEAVES, SWITCHED_OFF
from aioelasticjob.events import AttemptFailed, Ended
from aioelasticjob.registry.transaction import Set
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, listening, simulate

EVERY_MINUTE = "0 * * * * ?"
STEADY = Retry(3, 10.0, longest=10.0)
"""Three attempts; the waits take 5 to 10 seconds."""


@dataclass
class FailingHandler:
    """A handler that fails so many times in each run, and what it saw."""

    here: SimulatedJobs
    failing: int = 2
    work: float = 1.0
    error: Callable[[], Exception] = lambda: ConnectionError("refused")
    seen: list[tuple[float, tuple[int, ...], int, int]] = field(default_factory=list)
    """When each attempt began, its items, its number and its fence."""
    running: int = 0
    most: int = 0

    async def __call__(self, context: ItemContext) -> None:
        await self.run(context)

    async def run(self, context: ItemContext | InstanceContext) -> None:
        self.seen.append((self.here.now(), context.claimed, context.attempt, context.fence))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await anyio.sleep(self.work)
        finally:
            self.running -= 1
        if context.attempt <= self.failing:
            raise self.error()

    @property
    def numbers(self) -> list[int]:
        return [number for _, _, number, _ in self.seen]

    async def all_of(self, context: InstanceContext) -> None:
        await self.run(context)


async def lived(here: SimulatedJobs, failing_handler: FailingHandler, until: float, **settings: Any) -> None:
    """Let one instance run the job for so many seconds, and collect its events."""
    app = here.app(failing_handler.all_of if settings.get("per") == "instance" else failing_handler, **settings)
    async with listening(here, app), app.running():
        await here.until(until)


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "aioelasticjob.error_handlers"]


def test_a_run_is_tried_again_under_one_lock_and_with_no_write_for_an_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    versions: list[int] = []

    async def scene(here: SimulatedJobs) -> None:
        async def note() -> None:
            versions.append((await here.observer.get(LAYOUT.item(0).execution)).stat.version)

        app = here.app(failing_handler := FailingHandler(here), cron=EVERY_MINUTE, retry=STEADY)
        async with listening(here, app), app.running():
            await here.until(61)
            await note()
            await here.until(100)
            await note()
        (first, _, _, fence), (second, *_), (third, *_) = failing_handler.seen
        assert [(number, one) for _, _, number, one in failing_handler.seen] == [(1, fence), (2, fence), (3, fence)]
        assert all(6 <= later - earlier <= 11.1 for earlier, later in ((first, second), (second, third)))
        assert (await here.record(0)).outcome == "completed"

    here = simulate(scene)
    assert versions[1] - versions[0] == 1  # the settlement
    failed = [event for event in here.events if isinstance(event, AttemptFailed)]
    assert [(one.attempt, one.items, str(one.failure), round(one.seconds)) for one in failed] == [
        (1, (0,), "refused", 1),
        (2, (0,), "refused", 1),
    ]
    assert all(one.pause is not None and 5 <= one.pause <= 10 for one in failed)
    (ended,) = [event for event in here.events if isinstance(event, Ended)]
    assert (ended.outcome, ended.attempt, ended.failure) == (Outcome.COMPLETED, 3, None)
    assert {one.task_id for one in failed} == {ended.task_id}
    assert failures(caplog) == []
    (line,) = [one for one in caplog.messages if "attempt 1 of 3" in one]
    when = f"on {ended.instance} in the run of 2026-01-01T00:01:00+00:00"
    assert line.startswith(f"job: item 0: attempt 1 of 3 failed {when}: ConnectionError: refused; the next one begins")


def test_the_error_handler_is_called_once_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        await lived(here, FailingHandler(here, failing=9), 100, cron=EVERY_MINUTE, retry=STEADY)
        assert (await here.record(0)).outcome == "failed"
        assert here.apps[0].counts["job"].failed_attempts == 3

    here = simulate(scene)
    (line,) = failures(caplog)
    failed = [event for event in here.events if isinstance(event, AttemptFailed)]
    assert [(one.attempt, one.pause is None) for one in failed] == [(1, False), (2, False), (3, True)]
    (ended,) = [event for event in here.events if isinstance(event, Ended)]
    when = f"on {ended.instance} in the run of 2026-01-01T00:01:00+00:00"
    assert line.startswith(f"job: item 0 after 3 attempts failed {when}: ConnectionError: refused")
    assert (ended.outcome, ended.attempt, str(ended.failure)) == (Outcome.FAILED, 3, "refused")


def test_an_error_of_another_kind_has_no_further_attempt() -> None:
    async def scene(here: SimulatedJobs) -> None:
        failing_handler = FailingHandler(here, error=lambda: ValueError("for good"))
        await lived(here, failing_handler, 100, cron=EVERY_MINUTE, retry=Retry(3, 1.0, on=OSError))
        assert failing_handler.numbers == [1]
        assert (await here.record(0)).outcome == "failed"

    simulate(scene)


def test_one_call_for_all_items_is_tried_again_as_a_whole() -> None:
    async def scene(here: SimulatedJobs) -> None:
        failing_handler = FailingHandler(here, failing=1)
        await lived(here, failing_handler, 100, cron=EVERY_MINUTE, retry=STEADY, per="instance", sharding_total_count=3)
        assert [(items, number) for _, items, number, _ in failing_handler.seen] == [((0, 1, 2), 1), ((0, 1, 2), 2)]

    here = simulate(scene)
    ended = [event for event in here.events if isinstance(event, Ended)]
    assert [(one.item, one.attempt) for one in ended] == [(0, 2), (1, 2), (2, 2)]


def test_the_timeout_bounds_the_run_with_its_waits(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        failing_handler = FailingHandler(here, failing=9)
        await lived(here, failing_handler, 100, cron=EVERY_MINUTE, retry=STEADY, timeout=4)
        assert failing_handler.numbers == [1]
        assert (await here.record(0)).outcome == "timed out"

    here = simulate(scene)
    (ended,) = [event for event in here.events if isinstance(event, Ended)]
    assert round(ended.seconds, 2) == 4.0
    assert str(ended.failure) == "the run took longer than 4 s"
    assert isinstance(ended.failure.__cause__ if ended.failure else None, ConnectionError)
    assert len(failures(caplog)) == 1


@pytest.mark.parametrize(
    ("settings", "numbers", "outcome"),
    [
        ({"retry": Retry(2, 1.0)}, [1, 2], "timed out"),
        ({"retry": Retry(3, 1.0, on=TimeoutError)}, [1, 2, 3], "timed out"),
        ({"retry": Retry(3, 1.0, on=OSError)}, [1, 2, 3], "timed out"),  # a TimeoutError is an OSError
        ({"retry": Retry(3, 1.0, on=ValueError)}, [1], "timed out"),
        ({}, [1], "timed out"),
    ],
)
def test_an_attempt_that_takes_too_long_has_failed(settings: Any, numbers: list[int], outcome: str) -> None:
    async def scene(here: SimulatedJobs) -> None:
        failing_handler = FailingHandler(here, work=30)
        await lived(here, failing_handler, 100, cron=EVERY_MINUTE, attempt_timeout="2s", **settings)
        assert failing_handler.numbers == numbers
        assert (await here.record(0)).outcome == outcome
        assert all(
            later[0] - earlier[0] < 4
            for earlier, later in zip(failing_handler.seen, failing_handler.seen[1:], strict=False)
        )

    here = simulate(scene)
    (ended,) = [event for event in here.events if isinstance(event, Ended)]
    assert str(ended.failure) == f"attempt {numbers[-1]} took longer than 2 s"
    assert type(ended.failure) is TimeoutError  # which users know, and whose name is in the history and in alerts


def test_an_error_of_the_handler_about_a_time_limit_of_its_own_is_a_failure() -> None:
    async def scene(here: SimulatedJobs) -> None:
        handler = FailingHandler(here, error=lambda: TimeoutError("the bank does not answer"))
        await lived(here, handler, 100, cron=EVERY_MINUTE, attempt_timeout="2s", retry=Retry(2, 1.0))
        assert (await here.record(0)).outcome == "failed"

    simulate(scene)


async def _leave(here: SimulatedJobs) -> None:
    (me,) = await here.names(LAYOUT.instances)
    await here.flag(LAYOUT.shutdown(me))


async def _pause(here: SimulatedJobs) -> None:
    await here.flag(LAYOUT.paused)


async def _disable(here: SimulatedJobs) -> None:
    await here.flag(LAYOUT.item(0).disabled)


async def _give_away(here: SimulatedJobs) -> None:
    item = LAYOUT.item(0).instance
    await here.write(Set(item, b"10.0.0.99@-@1-other", -1))


@pytest.mark.parametrize(
    ("act", "because", "waiting"),
    [
        (_leave, LEAVES, True),
        (_leave, LEAVES, False),
        (_pause, SWITCHED_OFF, True),
        (_pause, SWITCHED_OFF, False),
        (_disable, SWITCHED_OFF, True),
        (_disable, SWITCHED_OFF, False),
        (_give_away, HELD_ELSEWHERE, True),
    ],
)
def test_no_attempt_begins_once_the_instance_may_not_go_on(
    act: Callable[[SimulatedJobs], Awaitable[None]], because: str, waiting: bool
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        failing_handler = FailingHandler(here, failing=9, work=10)
        app = here.app(failing_handler, cron=EVERY_MINUTE, retry=Retry(3, 20.0, longest=20.0))
        async with listening(here, app), app.running():
            await here.until(75 if waiting else 65)
            await act(here)
            await here.until(75.5)
            assert (await here.record(0)).outcome == "failed"
            assert failing_handler.numbers == [1]

    here = simulate(scene)
    (ended,) = [event for event in here.events if isinstance(event, Ended) and event.slot % 3_600_000 == 60_000]
    assert round(ended.seconds) == (15 if waiting else 10)
    assert ended.failure is not None
    assert ended.failure.__notes__ == [f"there is no attempt 2 of 3, because {because}"]


def test_a_run_that_is_cancelled_in_a_wait_is_stopped(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        failing_handler = FailingHandler(here)
        app = here.app(failing_handler, cron=EVERY_MINUTE, retry=STEADY)
        async with app.running():
            await here.until(63)
            await operations.cancel(here.observer, "job")
            await here.until(64)
            assert (await here.record(0)).outcome == "stopped"
            assert failing_handler.numbers == [1]

    simulate(scene)
    assert failures(caplog) == []


def test_a_rescue_begins_at_the_first_attempt() -> None:
    async def scene(here: SimulatedJobs) -> None:
        failing_handler = {name: FailingHandler(here, failing=1) for name in "ab"}
        settings = {"cron": EVERY_MINUTE, "retry": STEADY, "failover": True}

        def process(name: str) -> Callable[[], Awaitable[None]]:
            async def main() -> None:
                async with here.app(failing_handler[name], **settings).running():
                    await anyio.sleep_forever()

            return main

        people = {name: here.faults.start(name, f"10.0.0.{n}", process(name)) for n, name in enumerate("ab")}  # type: ignore[arg-type]
        await here.until(63)
        (holder,) = [name for name in "ab" if failing_handler[name].seen]
        (rescuer,) = {"a", "b"} - {holder}
        assert failing_handler[holder].numbers == [1]  # it waits
        here.faults.crash(people[holder])
        await here.until(110)
        assert failing_handler[rescuer].numbers == [1, 2]
        assert failing_handler[rescuer].seen[0][3] > failing_handler[holder].seen[0][3]
        assert ((await here.record(0)).outcome, (await here.record(0)).source) == ("completed", "FAILOVER")

    simulate(scene)


def test_the_settings_may_be_changed_and_hold_from_the_next_run_on() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(
            failing_handler := FailingHandler(here, failing=1, work=3), cron=EVERY_MINUTE, sharding_total_count=2
        )
        async with app.running():
            await here.until(90)
            assert (failing_handler.numbers, failing_handler.most) == ([1, 1], 2)
            failing_handler.most = 0
            await operations.configure(here.observer, "job", {"retry": '{"attempts": 2}', "itemsAtOnce": 1})
            await here.until(150)
            assert (failing_handler.numbers[2:], failing_handler.most) == ([1, 2, 1, 2], 1)
            await operations.configure(here.observer, "job", {"attempt_timeout": "1s", "retry": "none"})
            await here.until(210)
            assert failing_handler.numbers[6:] == [1, 1]
            assert {(await here.record(item)).outcome for item in range(2)} == {"timed out"}

    simulate(scene)


@pytest.mark.parametrize(("at_once", "most"), [(None, 5), (2, 2), (1, 1), (9, 5)])
def test_so_many_items_run_side_by_side(at_once: int | None, most: int) -> None:
    async def scene(here: SimulatedJobs) -> None:
        failing_handler = FailingHandler(here, failing=0)
        await lived(
            here, failing_handler, 70, cron=EVERY_MINUTE, sharding_total_count=5, items_at_once=at_once, timeout=1.5
        )
        assert failing_handler.most == most
        assert Counter(items for _, items, _, _ in failing_handler.seen) == {(item,): 1 for item in range(5)}
        assert {(await here.record(item)).outcome for item in range(5)} == {"completed"}

    simulate(scene)


def test_the_wait_between_attempts_keeps_the_items_turn() -> None:
    async def scene(here: SimulatedJobs) -> None:
        failing_handler = FailingHandler(here, failing=1)
        await lived(
            here, failing_handler, 119, cron=EVERY_MINUTE, sharding_total_count=3, items_at_once=1, retry=STEADY
        )
        order = [(items, number) for _, items, number, _ in failing_handler.seen]
        assert order == [(items, number) for items in dict.fromkeys(items for items, _ in order) for number in (1, 2)]
        assert len(order) == 6

    simulate(scene)
