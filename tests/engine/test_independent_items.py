"""Independent items in virtual time: an item's next moment waits only for that item."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any

import anyio
import pytest

from aioelasticjob import InstanceContext, ItemContext, OnceListener, operations
from aioelasticjob.events import Misfired
from aioelasticjob.registry.codec import failure
from aioelasticjob.registry.transaction import Check, Create, Op
from tests.engine.test_side_by_side import Spans
from tests.support.simulated_jobs import LAYOUT, REGISTRY, SimulatedJobs, end_life, listening, simulate

INDEPENDENT: dict[str, Any] = {"independent_items": True, "sharding_total_count": 4}


def slow(seconds: float, item: int = 3) -> Callable[[ItemContext], float]:
    """Return how long runs take if those of one item are slow."""
    return lambda context: seconds if context.item == item else 0.1 * (1 + context.item)


def play(
    scene: Callable[[SimulatedJobs, Spans], Awaitable[None]], work: Callable[[ItemContext], float], **settings: Any
) -> Spans:
    """Play a scene with one process whose four items are independent, and return its runs."""
    played = list[Spans]()

    async def whole(here: SimulatedJobs) -> None:
        spans = Spans(here, work)
        played.append(spans)
        app = here.app(spans, **{**INDEPENDENT, "cron": "0/2 * * * * ?", **settings})
        async with listening(here, app), app.running() as session:
            await here.until(1)
            commit = session.commit

            def counted(ops: Sequence[Op], **options: Any) -> Any:
                if any(not isinstance(op, Check) and "/execution/" in op.path for op in ops):
                    spans.written.append((here.now(), ops))
                return commit(ops, **options)

            session.commit = counted  # type: ignore[method-assign]
            await scene(here, spans)

    simulate(whole)
    return played[0]


def begins(spans: Spans, item: int, source: str = "SCHEDULE") -> list[float]:
    return [began for one, begun_by, began, _ in sorted(spans.done) if one == item and begun_by == source]


@pytest.mark.parametrize("recorded", [True, False])
def test_beside_one_slow_item_the_fast_ones_miss_none_of_a_hundred_moments(recorded: bool) -> None:
    async def scene(here: SimulatedJobs, spans: Spans) -> None:
        await here.until(201.5)
        missed = [one for one in here.events if isinstance(one, Misfired)]
        assert {item for one in missed for item in one.items} == {3}

    spans = play(scene, slow(9), monitor_execution=recorded)
    moments = [float(second) for second in range(2, 202, 2)]
    assert [begins(spans, item) for item in (0, 1, 2)] == [moments] * 3
    assert {source for item in (0, 1, 2) for source, *_ in spans.of(item)} == {"SCHEDULE"}
    ran = sorted(began for one, _, began, _ in spans.done if one == 3)
    assert all(later - sooner < 9.5 for sooner, later in pairwise(ran))  # it catches up as soon as it has ended
    assert len(ran) > 20


def test_a_fire_whose_items_all_end_before_the_next_moment_costs_two_write_transactions() -> None:
    async def scene(here: SimulatedJobs, spans: Spans) -> None:
        await here.until(1.5)
        spans.written.clear()
        await here.until(21.5)
        assert len(spans.written) == 2 * 10

    play(scene, lambda context: 0.4 * context.item)


@pytest.mark.parametrize("seconds", [3, 9, 50])
def test_with_a_slow_item_a_moment_costs_at_most_one_write_transaction_more(seconds: float) -> None:
    async def scene(here: SimulatedJobs, spans: Spans) -> None:
        await here.until(1.5)
        spans.written.clear()
        await here.until(201.5)
        assert len(spans.written) <= 3 * 100

    play(scene, slow(seconds))


def test_with_several_slow_items_each_run_that_outlasts_a_moment_costs_at_most_one_write_transaction_more() -> None:
    async def scene(here: SimulatedJobs, spans: Spans) -> None:
        await here.until(1.5)
        spans.written.clear()
        await here.until(201.5)
        outlasting = [item for item, *_ in spans.done if item != 0]
        assert len(outlasting) > 100
        assert len(spans.written) <= 2 * 100 + len(outlasting)

    play(scene, lambda context: (0.1, 2.7, 3.3, 9.1)[context.item])


def test_what_has_ended_is_settled_in_the_transaction_that_claims_the_next_moment() -> None:
    async def scene(here: SimulatedJobs, spans: Spans) -> None:
        await here.until(1.5)
        spans.written.clear()
        await here.until(3.5)
        shown.append([(await here.record(item)).completed for item in range(4)])
        await here.until(4.05)
        claims = [ops for _, ops in spans.written if any(isinstance(op, Create) for op in ops)]
        assert len(claims) == len(spans.written) == 2
        locks = [op.path for op in claims[1] if op.path.endswith("/running")]
        assert sorted(locks) == sorted([LAYOUT.item(item).running for item in (0, 1, 2)] * 2)

    shown = list[list[bool]]()
    play(scene, slow(9))
    assert shown == [[False] * 4]  # ended, and not settled yet


def test_a_run_that_has_ended_and_waits_for_its_settlement_is_shown_as_ended() -> None:
    async def scene(here: SimulatedJobs, spans: Spans) -> None:
        await here.until(3)
        assert here.apps[0].health.jobs[0].running == (3,)

    play(scene, slow(9))


def test_a_request_for_an_item_that_has_ended_runs_at_once() -> None:
    async def scene(here: SimulatedJobs, spans: Spans) -> None:
        await here.until(15)
        await here.trigger(items=[1])
        await here.until(29)
        outcomes.append((await here.record(1)).outcome)

    outcomes = list[str]()
    spans = play(scene, slow(25), cron="0/10 * * * * ?")
    assert outcomes == ["completed"]
    assert begins(spans, 1, "TRIGGER") == [15.0]
    assert begins(spans, 1) == [10.0, 20.0]


def test_a_cancelled_item_ends_and_the_others_go_on() -> None:
    async def scene(here: SimulatedJobs, spans: Spans) -> None:
        await here.until(5)
        await operations.cancel(here.observer, "job", item=3)
        await here.until(9.5)

    spans = play(scene, slow(50))
    assert ("SCHEDULE", 2.0, 5.0) in spans.of(3)
    assert begins(spans, 0) == [2.0, 4.0, 6.0, 8.0]
    assert begins(spans, 3, "MISFIRE") + begins(spans, 3)[1:] in ([4.0, 6.0], [5.0], [6.0], [5.0, 6.0])


def test_a_job_that_leaves_settles_what_has_ended_at_once() -> None:
    async def scene(here: SimulatedJobs) -> None:
        spans = Spans(here, slow(20))
        app = here.app(spans, **INDEPENDENT, cron="0/10 * * * * ?")
        completed = list[list[bool]]()

        async def look() -> None:
            for second in (12, 14):
                await here.until(second)
                completed.append([(await here.record(item)).completed for item in range(4)])

        async with anyio.create_task_group() as tasks, app.running():
            tasks.start_soon(look)
            await here.until(13)
        assert completed == [[False] * 4, [True, True, True, False]]
        assert [(await here.record(item)).outcome for item in range(4)] == ["completed"] * 4

    simulate(scene)


def test_a_pause_excuses_moments_of_items_that_have_ended_and_lets_the_slow_one_go_on() -> None:
    async def scene(here: SimulatedJobs, spans: Spans) -> None:
        await here.until(5)
        await here.flag(LAYOUT.paused)
        await here.until(7)
        assert [(await here.record(item)).completed for item in range(4)] == [True, True, True, False]
        await here.until(30)
        assert not [one for one in here.events if isinstance(one, Misfired) and set(one.items) & {0, 1, 2}]

    spans = play(scene, slow(9))
    assert begins(spans, 0) == [2.0, 4.0]
    assert spans.of(3) == [("SCHEDULE", 2.0, 11.0)]


def test_items_that_have_ended_move_to_a_new_instance_while_the_slow_one_goes_on() -> None:
    async def scene(here: SimulatedJobs) -> None:
        spans = [Spans(here, slow(40)), Spans(here, slow(40))]

        def main(number: int) -> Callable[[], Awaitable[None]]:
            async def run() -> None:
                settings = {**INDEPENDENT, "sharding_strategy": "average", "cron": "0/20 * * * * ?"}
                async with here.app(spans[number], **settings).running():
                    await anyio.sleep_forever()

            return run

        here.faults.start("a", "10.0.0.1", main(0))
        await here.until(25)
        here.faults.start("b", "10.0.0.2", main(1))
        await here.until(79)
        ran = sorted((began, item) for one in spans for item, _, began, _ in one.done if item != 3)
        assert ran == [(float(second), item) for second in (20, 40, 60) for item in (0, 1, 2)]
        assert spans[1].done

    simulate(scene)


def test_an_outage_that_ends_the_session_cuts_off_what_had_ended_and_was_not_settled() -> None:
    async def scene(here: SimulatedJobs) -> None:
        spans = Spans(here, slow(60))

        async def main() -> None:
            async with here.app(spans, **INDEPENDENT, cron="0/30 * * * * ?", failover=True).running():
                await anyio.sleep_forever()

        here.faults.start("a", "10.0.0.1", main)
        await here.until(32)
        here.faults.partition(["10.0.0.1"], [REGISTRY])
        await here.until(50)
        here.faults.heal()
        await here.until(110)
        assert {source for source, *_ in spans.of(0)} == {"SCHEDULE", "FAILOVER"}
        assert begins(spans, 0) == [30.0, 60.0, 90.0]

    simulate(scene)


def test_what_has_ended_is_settled_when_an_error_ends_the_life_of_the_job() -> None:
    async def scene(here: SimulatedJobs) -> None:
        spans = Spans(here, slow(60))
        app = here.app(spans, **INDEPENDENT, cron="0/30 * * * * ?", failover=True)
        async with app.running():
            await here.until(32)
            assert not (await here.record(0)).completed
            end_life(app, failure(-102, "/job"))
            await here.until(35)
            assert [(await here.record(item)).outcome for item in (0, 1, 2)] == ["completed"] * 3
            await here.until(61)
        assert [begins(spans, item) for item in (0, 1, 2)] == [[30.0, 60.0]] * 3
        assert begins(spans, 0, "FAILOVER") == []  # they had ended, so nobody runs them again

    simulate(scene)


def test_listeners_that_are_called_once_are_called_for_each_moment_and_several_moments_are_open() -> None:
    said = list[tuple[str, float]]()
    start = list[float]()

    def saying(what: str) -> Callable[[InstanceContext], Awaitable[None]]:
        async def say(context: InstanceContext) -> None:
            said.append((what, context.fire.slot / 1000 - start[0]))

        return say

    async def scene(here: SimulatedJobs, spans: Spans) -> None:
        start.append(here.start)
        await here.until(30)

    play(scene, slow(7), listeners=[OnceListener(before=saying("before"), after=saying("after"))])
    before = [moment for what, moment in said if what == "before"]
    after = [moment for what, moment in said if what == "after"]
    assert len(before) == len(set(before)) > 10
    assert after == sorted(set(after))
    assert said.index(("before", 4.0)) < said.index(("after", 2.0))  # both moments were open
    assert len(after) > 8


def test_items_become_independent_while_a_job_runs() -> None:
    async def scene(here: SimulatedJobs, spans: Spans) -> None:
        await here.until(25)
        await operations.configure(here.observer, "job", {"independent_items": True})
        await here.until(51)

    spans = play(scene, slow(9), independent_items=False)
    assert len([began for began in begins(spans, 0) if began < 25]) < 5
    assert begins(spans, 0)[-9:] == [float(second) for second in range(34, 52, 2)]
