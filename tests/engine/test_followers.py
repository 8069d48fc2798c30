"""Jobs that follow others, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext, operations
from aioelasticjob.core.layout import Layout
from aioelasticjob.events import Misfired
from aioelasticjob.ground.times import moment
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create, Delete, Op, Set
from aioelasticjob.testing import VirtualClock
from tests.support.simulated_jobs import SimulatedJobs, listening, simulate


class Chain:
    """Jobs that note their runs: by job, the second, the item and the second of the moment."""

    def __init__(self, here: SimulatedJobs) -> None:
        self.here = here
        self.runs: list[tuple[str, float, int, float]] = []
        self.work: dict[str, float] = {}
        self.failing: set[tuple[str, int, float]] = set()

    def app(self, **jobs: dict[str, Any]) -> ElasticJob:
        made = ElasticJob(self.here.address, clock=VirtualClock(), session_timeout=10)
        for name, settings in jobs.items():
            made.add(self._handler(name), name=name, **settings)
        self.here.apps.append(made)
        return made

    def _handler(self, name: str) -> Callable[[ItemContext], Awaitable[None]]:
        async def note(context: ItemContext) -> None:
            fired = context.fire_time.timestamp() - self.here.start
            self.runs.append((name, round(self.here.now(), 1), context.item, fired))
            await anyio.sleep(self.work.get(name, 0.0))
            if (name, context.item, fired) in self.failing:
                raise ValueError("as the test wants it")

        return note

    def of(self, name: str, item: int = 0) -> list[tuple[float, float]]:
        """Return at which second an item of a job ran, and for which moment."""
        return [(at, fired) for job, at, one, fired in self.runs if (job, one) == (name, item)]

    def missed(self, name: str) -> list[tuple[tuple[int, ...], float, float, str]]:
        start = self.here.start
        found = [one for one in self.here.events if isinstance(one, Misfired) and one.job == name]
        return [(one.items, one.first / 1000 - start, one.slot / 1000 - start, one.why) for one in found]


def test_a_follower_runs_each_moment_once_its_upstream_has_ended_it() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        chain.work = {"extract": 3.0, "load": 2.0}
        app = chain.app(
            extract={"every": "10s", "sharding_total_count": 3},
            load={"after": "extract", "sharding_total_count": 2},
            report={"after": "load"},
        )
        async with listening(here, app), app.running():
            await here.until(39)
        assert chain.of("extract", 2) == [(10.0, 10.0), (20.0, 20.0), (30.0, 30.0)]
        for item in range(2):
            assert chain.of("load", item) == [(13.0, 10.0), (23.0, 20.0), (33.0, 30.0)]
        assert chain.of("report") == [(15.0, 10.0), (25.0, 20.0), (35.0, 30.0)]
        assert [one for one in here.events if isinstance(one, Misfired)] == []

    simulate(scene)


def test_a_failed_item_upstream_makes_the_moment_missed_unless_any_outcome_will_do() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        chain.failing = {("extract", 1, 20.0)}
        app = chain.app(
            extract={"every": "10s", "sharding_total_count": 3, "error_handler": "ignore"},
            load={"after": "extract"},
            report={"after": "load"},
            always={"after": "extract", "after_outcome": "any"},
        )
        async with listening(here, app), app.running():
            await here.until(35)
        assert chain.of("load") == [(10.0, 10.0), (30.0, 30.0)]
        assert chain.missed("load") == [((0,), 20.0, 20.0, "item 1 of extract, which comes first, ended as failed")]
        assert chain.of("report") == [(10.0, 10.0), (30.0, 30.0)]
        assert chain.missed("report") == [((0,), 20.0, 20.0, "item 0 of load, which comes first, missed it")]
        assert [fired for _, fired in chain.of("always")] == [10.0, 20.0, 30.0]

    simulate(scene)


def test_moments_that_an_upstream_missed_are_missed_and_those_during_a_run_of_the_follower_are_its_own() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        chain.work = {"extract": 25.0, "load": 1.0}
        app = chain.app(extract={"every": "10s", "misfire": False}, load={"after": "extract"})
        async with listening(here, app), app.running():
            await here.until(75)
        assert chain.of("extract") == [(10.0, 10.0), (40.0, 40.0), (70.0, 70.0)]
        assert chain.of("load") == [(35.0, 10.0), (65.0, 40.0)]
        why = "item 0 of extract, which comes first, missed it"
        assert chain.missed("load") == [((0,), 20.0, 30.0, why), ((0,), 50.0, 60.0, why)]

    simulate(scene)


def test_a_follower_that_is_busy_runs_the_newest_moment_late_and_misses_those_before() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        chain.work = {"load": 25.0}
        app = chain.app(extract={"every": "10s"}, load={"after": "extract"})
        async with listening(here, app), app.running():
            await here.until(64)
        assert chain.of("load") == [(10.0, 10.0), (35.0, 30.0), (60.0, 60.0)]
        why = "the last run was still going on"
        assert chain.missed("load") == [((0,), 20.0, 20.0, why), ((0,), 40.0, 50.0, why)]

    simulate(scene)


def test_a_follower_of_two_jobs_runs_their_common_moments_once_both_have_ended_them() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        chain.work = {"slow": 3.0}
        app = chain.app(fast={"every": "10s"}, slow={"every": "20s"}, both={"after": ["fast", "slow"]})
        async with listening(here, app), app.running():
            await here.until(65)
        assert chain.of("both") == [(23.0, 20.0), (43.0, 40.0), (63.0, 60.0)]
        assert chain.missed("both") == []

    simulate(scene)


def test_an_item_that_is_off_counts_as_ended_and_a_job_that_is_paused_has_ended_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        app = chain.app(extract={"every": "10s", "sharding_total_count": 2}, load={"after": "extract"})
        extract = Layout("extract")
        async with listening(here, app), app.running():
            await here.until(5)
            await here.flag(extract.item(1).disabled)
            await here.until(25)
            await here.flag(extract.paused)
            await here.until(55)
            await here.write(Delete(extract.paused), Delete(extract.item(1).disabled))
            await here.until(75)
        assert [fired for _, fired in chain.of("extract", 1)] == [60.0, 70.0]
        assert [fired for _, fired in chain.of("load")] == [10.0, 20.0, 60.0, 70.0]
        assert [(first, last, why) for _, first, last, why in chain.missed("load")] == [
            (second, second, "extract, which comes first, was switched off") for second in (30.0, 40.0, 50.0)
        ]

    simulate(scene)


def test_a_moment_waits_while_nobody_runs_the_upstream_and_comes_when_somebody_does() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        upstream = chain.app(extract={"every": "10s", "catch_up": 60})
        follower = chain.app(load={"after": "extract"})
        async with listening(here, follower), follower.running():
            async with upstream.running():
                await here.until(15)
            await here.until(44)
            again = chain.app(extract={"every": "10s", "catch_up": 60})
            async with again.running():
                await here.until(58)
        loaded = [fired for _, fired in chain.of("load")]
        assert loaded == [10.0, 40.0, 50.0]
        assert all(at >= 44 for at, fired in chain.of("load") if fired == 40.0)
        why = "item 0 of extract, which comes first, missed it"
        assert chain.missed("load") == [((0,), 20.0, 30.0, why)]

    simulate(scene)


def test_a_follower_that_was_away_catches_up_by_when_the_upstream_ended_the_moment() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        chain.work = {"extract": 6.0}
        upstream = chain.app(extract={"every": "20s"})
        async with upstream.running():
            for catch_up, came, back in ((5, 46.0, 48.0), (4, 86.0, 91.0)):
                async with chain.app(load={"after": "extract", "catch_up": catch_up}).running():
                    await here.until(came - 19)
                await here.until(back)
                overwritten = {"after": "extract", "catch_up": catch_up, "overwrite": True}
                follower = chain.app(load=overwritten)
                async with listening(here, follower), follower.running():
                    await here.until(came + 10)
        assert [fired for _, fired in chain.of("load")] == [20.0, 40.0, 60.0]
        assert chain.missed("load") == [((0,), 80.0, 80.0, "no instance was up")]

    simulate(scene)


def test_a_follower_takes_up_the_new_schedule_of_its_upstream_without_losing_a_moment_of_the_old_one() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        chain.work = {"extract": 4.0}
        app = chain.app(extract={"every": "10s"}, load={"after": "extract"}, report={"after": "load"})
        async with listening(here, app), app.running():
            await here.until(22)  # in the middle of a run
            await operations.configure(here.observer, "extract", {"every": "7s"})
            await here.until(40)
        for job in ("load", "report"):
            assert chain.of(job) == [(14.0, 10.0), (24.0, 20.0), (32.0, 28.0), (39.0, 35.0)]
            assert chain.missed(job) == []

    simulate(scene)


def test_a_new_item_upstream_does_not_hold_up_a_moment_that_came_before_it() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        chain.work = {"extract": 9.0}
        app = chain.app(extract={"every": "60s"}, load={"after": "extract"})
        async with listening(here, app), app.running():
            await here.until(62)
            await operations.configure(here.observer, "extract", {"sharding_total_count": 3})
            await here.until(133)
        assert chain.of("load") == [(69.0, 60.0), (129.0, 120.0)]
        assert chain.of("extract", 2) == [(120.0, 120.0)]
        assert chain.missed("load") == []

    simulate(scene)


def test_a_new_item_of_a_follower_runs_the_moment_that_waits_together_with_the_others() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        chain.work = {"extract": 9.0}
        app = chain.app(extract={"every": "60s"}, load={"after": "extract"})
        async with listening(here, app), app.running():
            await here.until(62)
            await operations.configure(here.observer, "load", {"sharding_total_count": 2})
            await here.until(75)
        assert chain.of("load", 0) == chain.of("load", 1) == [(69.0, 60.0)]
        assert chain.missed("load") == []

    simulate(scene)


def test_jobs_that_somebody_makes_follow_each_other_run_nothing() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        app = chain.app(extract={"every": "10s"}, load={"after": "extract"})
        async with app.running():
            await here.until(15)
            config = json.loads((await here.observer.get(Layout("extract").config)).data)
            by_hand = json.dumps({**config, "every": None, "after": ["load"]}).encode()
            await here.write(Set(Layout("extract").config, by_hand, -1))
            await here.until(60)
        assert [fired for _, fired in chain.of("extract")] == [10.0]
        assert [fired for _, fired in chain.of("load")] == [10.0]

    simulate(scene)


def test_a_follower_waits_for_an_upstream_that_is_removed_and_follows_it_again_when_it_is_there_again() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        follower = chain.app(load={"after": "extract"})
        async with listening(here, follower), follower.running():
            async with chain.app(extract={"every": "10s"}).running():
                await here.until(15)
            await operations.remove(here.observer, "extract")
            await here.until(35)
            async with chain.app(extract={"every": "10s"}).running():
                await here.until(58)
        assert [fired for _, fired in chain.of("load")] == [10.0, 40.0, 50.0]
        assert all(first > 10.0 and last < 40.0 for _, first, last, _ in chain.missed("load"))

    simulate(scene)


def test_a_run_that_somebody_asked_for_is_no_reason_for_followers_to_run() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        app = chain.app(extract={"every": "10s"}, load={"after": "extract"})
        async with app.running():
            await here.until(12)
            await app.trigger("extract")
            await app.backfill("extract", moment(here.start), moment(here.start + 11))
            await here.until(19)
        assert len(chain.of("extract")) == 4
        assert chain.of("load") == [(10.0, 10.0)]

    simulate(scene)


def test_a_run_is_told_how_the_items_of_its_upstreams_have_ended() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        chain.failing = {("extract", 1, 10.0)}
        told = list[object]()
        app = chain.app(extract={"every": "10s", "sharding_total_count": 2, "error_handler": "ignore"})

        async def load(context: ItemContext) -> None:
            told.append(context.upstream)

        app.add(load, after="extract", after_outcome="any")
        async with app.running():
            await here.until(15)
            await app.trigger("load")
            await here.until(19)
        assert told == [{"extract": {0: "completed", 1: "failed"}}, {}]

    simulate(scene)


def test_an_upstream_is_not_told_of_a_follower_that_has_another_schedule_now() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        app = chain.app(extract={"every": "10s"}, other={"every": "10s"}, load={"after": "extract"})
        async with app.running():
            await here.until(12)
            assert (await here.record(0, Layout("extract"))).ends
            await operations.configure(here.observer, "load", {"after": "other"})
            await here.until(25)
            assert await here.names(Layout("extract").followers) == ()
            assert await here.names(Layout("other").followers) == ("load",)
            assert not (await here.record(0, Layout("extract"))).ends
            await operations.configure(here.observer, "load", {"after": "extract"})
            await here.until(35)
        assert [fired for _, fired in chain.of("load")] == [10.0, 20.0, 30.0]

    simulate(scene)


@dataclass
class Requests:
    """The transactions and reads of all sessions."""

    written: list[list[Op]] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    is_open: bool = True
    """Whether they are noted."""

    def clear(self) -> None:
        self.written.clear()
        self.read.clear()

    def note_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        commit = Session.commit
        get_many = Session.get_many

        def committed(session: Session, ops: Sequence[Op], **options: Any) -> Any:
            if self.is_open:
                self.written.append(list(ops))
            return commit(session, ops, **options)

        def got(session: Session, paths: Iterable[str]) -> Any:
            paths = list(paths)
            if self.is_open:
                self.read += paths
            return get_many(session, paths)

        monkeypatch.setattr(Session, "commit", committed)
        monkeypatch.setattr(Session, "get_many", got)


@pytest.mark.parametrize("is_followed", [False, True])
def test_a_job_that_is_followed_pays_one_operation_for_each_settled_item_and_another_job_pays_nothing(
    is_followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = Requests()
    requests.note_all(monkeypatch)

    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        upstream = chain.app(extract={"every": "10s", "sharding_total_count": 3})
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(upstream.running())
            if is_followed:
                await stack.enter_async_context(chain.app(load={"after": "extract"}).running())
            await here.until(35)
            requests.clear()
            await here.until(55)
            requests.is_open = False
        assert len(chain.of("extract")) == 5

    simulate(scene)
    extract = Layout("extract")
    fires = [ops for ops in requests.written if any(op.path == extract.item(0).execution for op in ops)]
    told = [op.path for ops in fires for op in ops if op.path.startswith(extract.followed)]
    assert told == [extract.item(item).followed for item in range(3)] * 2 * is_followed
    assert [len(ops) for ops in fires] == [2 + 6, 6 + 3 * is_followed] * 2
    assert [path for path in requests.read if path.startswith(extract.root + "/")] == []
    if not is_followed:
        assert not any("follow" in op.path for ops in requests.written for op in ops)


def test_nobody_is_told_any_more_once_the_follower_is_removed_also_by_hand() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        extract = Layout("extract")
        async with chain.app(extract={"every": "10s", "reconcile_interval": 15}).running():
            for remove in (operations.remove, remove_by_hand):
                async with chain.app(load={"after": "extract"}).running():
                    await here.until(here.now() + 12)
                    assert await here.names(extract.followers) == ("load",)
                    assert (await here.record(0, extract)).ends
                await remove(here.observer, "load")
                await here.until(here.now() + 30)
                assert await here.names(extract.followers) == ()
                assert not (await here.record(0, extract)).ends

    simulate(scene)


async def remove_by_hand(session: Session, job: str) -> None:
    tree = await session.subtree([Layout(job).root])
    for path in sorted(tree, key=lambda path: -path.count("/")):
        await session.commit([Delete(path)], incarnation=session.incarnation)


@pytest.mark.parametrize("failover", [True, False])
def test_a_moment_whose_run_was_killed_upstream_comes_once_its_rescue_or_its_loss_is_written(failover: bool) -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        chain.work = {"extract": 5.0}
        jobs = {"extract": {"every": "30s", "failover": failover}, "load": {"after": "extract"}}

        async def main() -> None:
            async with chain.app(**jobs).running():
                await anyio.sleep_forever()

        first = here.faults.start("a", "10.0.0.1", main)
        await here.until(20)
        here.faults.start("b", "10.0.0.2", main)
        await here.until(31)
        first.kill()
        await here.until(99)
        loaded = [fired for _, fired in chain.of("load")]
        if failover:
            assert loaded == [30.0, 60.0, 90.0]
            assert [fired for _, fired in chain.of("extract")] == [30.0, 30.0, 60.0, 90.0]
            assert chain.of("load")[0][0] > chain.of("extract")[1][0] + 4.9
        else:
            assert loaded == [60.0, 90.0]

    simulate(scene)


@pytest.mark.parametrize("after", [31.0, 36.0])
def test_a_follower_that_is_killed_before_or_during_its_run_is_rescued_and_misses_no_later_moment(after: float) -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        chain.work = {"extract": 5.0, "load": 5.0}

        async def upstream() -> None:
            async with chain.app(extract={"every": "30s"}).running():
                await anyio.sleep_forever()

        async def main() -> None:
            settings = {"after": "extract", "failover": True, "sharding_total_count": 2}
            async with chain.app(load=settings).running():
                await anyio.sleep_forever()

        here.faults.start("upstream", "10.0.0.3", upstream)
        first = here.faults.start("a", "10.0.0.1", main)
        await here.until(20)
        here.faults.start("b", "10.0.0.2", main)
        await here.until(after)
        first.kill()
        await here.until(110)
        begun = sorted([fired for _, fired in chain.of("load", item)] for item in range(2))
        once = [30.0, 60.0, 90.0]
        assert begun == ([once, once] if after < 35 else [[30.0, *once], once])

    simulate(scene)


def test_a_follower_of_a_job_with_a_calendar_leaves_out_the_same_days_also_through_another_job() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        closed = f"{moment(here.start + 86_400).date()}"
        await here.write(Create("/~calendars"), Create("/~calendars/closed", closed.encode()))
        midnight = "0 0 0 * * ?"
        app = chain.app(
            extract={"cron": midnight, "calendar": "closed"}, load={"after": "extract"}, report={"after": "load"}
        )
        async with listening(here, app), app.running():
            await here.until(2.5 * 86_400)
        for job in ("extract", "load", "report"):
            assert [fired / 86_400 for _, fired in chain.of(job)] == [2.0]
        assert chain.missed("report") == []

    simulate(scene)


@pytest.mark.parametrize("is_failing", [False, True])
def test_a_backfill_that_cascades_goes_on_in_the_followers_once_all_their_upstreams_have_run_it(
    is_failing: bool,
) -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        chain.work = {"extract": 1.0, "clean": 3.0, "load": 2.0}
        app = chain.app(
            extract={"every": "1h", "sharding_total_count": 2, "error_handler": "ignore"},
            clean={"after": "extract"},
            load={"after": "extract"},
            report={"after": ["clean", "load"]},
            always={"after": "extract", "after_outcome": "any"},
        )
        async with app.running():
            await here.until(2 * 3_600 + 60)
            chain.runs.clear()
            if is_failing:
                chain.failing = {("extract", 1, 3_600.0)}
            span = moment(here.start + 3_600), moment(here.start + 7_201)
            asked = await app.backfill("extract", *span, cascade=True)
            await here.until(2 * 3_600 + 100)
            found = {job: [one.state for one in await app.requests(job)] for job in ("extract", "clean", "report")}
        twice = [3_600.0, 7_200.0]
        assert [fired for _, fired in chain.of("extract", 1)] == twice
        assert [fired for _, fired in chain.of("always")] == twice
        ran = {job: [fired for _, fired in chain.of(job)] for job in ("clean", "load", "report")}
        if is_failing:
            assert ran == {"clean": [], "load": [], "report": []}
            assert found == {"extract": ["done"], "clean": ["cancelled"], "report": ["cancelled"]}
        else:
            assert ran == {"clean": twice, "load": twice, "report": twice}
            ends = {job: chain.of(job)[-1][0] + chain.work.get(job, 0) for job in ("extract", "clean", "load")}
            assert min(chain.of("clean")[0][0], chain.of("load")[0][0]) >= ends["extract"]
            assert chain.of("report")[0][0] >= max(ends["clean"], ends["load"])
        assert asked.summary.startswith("extract: asked to run 2 moments")
        assert "and then of always, clean, load, report" in asked.summary

    simulate(scene)


def test_a_rerun_that_cascades_runs_its_moment_again_in_the_whole_chain() -> None:
    async def scene(here: SimulatedJobs) -> None:
        chain = Chain(here)
        app = chain.app(extract={"every": "20s"}, load={"after": "extract"}, report={"after": "load"})
        async with app.running():
            await here.until(25)
            await app.rerun("extract", moment(here.start + 20), cascade=True)
            await here.until(38)
        for job in ("extract", "load", "report"):
            assert [fired for _, fired in chain.of(job)] == [20.0, 20.0]

    simulate(scene)
