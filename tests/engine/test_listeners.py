"""Listeners around a run: on every instance, and once in the whole cluster, whichever instance dies meanwhile."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import anyio
import pytest

from aioelasticjob import ElasticJob, FireSource, InstanceContext, ItemContext, JobListener, OnceListener, operations
from aioelasticjob.core.layout import Layout
from aioelasticjob.engine import run_barrier
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.events import Ended
from aioelasticjob.registry.transaction import Create, Delete, Set
from aioelasticjob.testing import VirtualCluster, run
from aioelasticjob.testing.virtual_cluster import Instance
from tests.engine.test_cancellation import MAX_REPEATED_CANCELS, dig_in
from tests.support.simulated_jobs import LAYOUT

Say = tuple[object, ...]


@dataclass
class RecordedInstances:
    """Instances of one job whose listeners and handlers note what they do, each with the minute it is for."""

    cluster: VirtualCluster
    app: ElasticJob
    start: float
    said: list[Say] = field(default_factory=list)
    """Second, what, minute; of an item also its number."""
    hosts: dict[object, str] = field(default_factory=dict)
    """Who did it, by what and minute."""
    work: Callable[[ItemContext], float] = lambda context: 1.0
    lead: float = 0.0
    """Seconds that ``before`` takes."""
    tail: float = 0.0
    """Seconds that ``after`` takes."""

    @property
    def now(self) -> float:
        return self.cluster.now.timestamp() - self.start

    def minute(self, context: Any) -> float:
        return round((context.fire_time.timestamp() - self.start) / 60, 1)

    async def note(self, what: str, context: Any, *more: object) -> None:
        self.said.append((round(self.now), what, *more, self.minute(context)))
        self.hosts[what, *more, self.minute(context)] = context.instance.partition("@")[0]

    async def before(self, context: InstanceContext) -> None:
        await self.note("before", context)
        await anyio.sleep(self.lead)

    async def after(self, context: InstanceContext) -> None:
        await self.note("after", context)
        await anyio.sleep(self.tail)

    async def handler(self, context: ItemContext) -> None:
        await self.note("item", context, context.item)
        await anyio.sleep(self.work(context))

    async def until(self, second: float) -> None:
        await anyio.sleep(second - self.now)

    async def write(self, *written: Create | Set | Delete) -> None:
        session = self.cluster._session
        await session.commit(written, incarnation=session.incarnation)

    async def start_instances(self, number: int) -> list[Instance]:
        all_instances = [await self.cluster.start(self.app) for _ in range(number)]
        await self.cluster.settled()
        return all_instances

    def on(self, what: object, all_instances: list[Instance]) -> Instance:
        """Return the instance that did something."""
        (one,) = (one for one in all_instances if one.host == self.hosts[what])
        return one

    def ends(self) -> list[tuple[int, str, str]]:
        """Return each item that ended, how, and why."""
        ended = [event for event in self.cluster.events if isinstance(event, Ended)]
        return [(one.item, one.outcome.value, "" if one.failure is None else str(one.failure)) for one in ended]

    async def marks(self) -> tuple[str, ...]:
        """Return what stands below ``run_barrier`` at rest, besides the parents."""
        session = self.cluster._session
        parents = (LAYOUT.guarantee, LAYOUT.started, LAYOUT.completed)
        names = await session.children_many(parents)
        return tuple(name for found in names for name in found or () if name not in ("started", "completed"))


def play(
    scene: Callable[[RecordedInstances], Awaitable[None]],
    *,
    listeners: list[OnceListener | JobListener] | None = None,
    **settings: Any,
) -> RecordedInstances:
    """Play a scene in virtual time; by default with one listener, which is called once and notes its calls."""

    async def main() -> RecordedInstances:
        cluster = VirtualCluster()
        app = ElasticJob("embedded://", session_timeout=10)
        recorded = RecordedInstances(cluster, app, cluster.now.timestamp())
        once = OnceListener(before=recorded.before, after=recorded.after)
        given = {"cron": "0 * * * * ?", "failover": True, **settings}
        app.add(recorded.handler, name="job", listeners=[once, *(listeners or ())], **given)
        await scene(recorded)
        await cluster.close()
        return recorded

    return run(main)


def test_once_in_the_cluster_before_the_first_and_after_the_last() -> None:
    async def scene(here: RecordedInstances) -> None:
        here.lead, here.work = 2, lambda context: context.item
        await here.start_instances(3)
        await here.until(130)
        assert await here.marks() == ()

    here = play(scene, sharding_total_count=4)
    for minute in (1.0, 2.0):
        mine = [one[:-1] for one in here.said if one[-1] == minute]
        at = round(60 * minute)
        assert mine[0] == (at, "before")
        assert sorted(mine[1:5]) == [(at + 2, "item", item) for item in range(4)]
        assert mine[5:] == [(at + 5, "after")]


def test_all_listeners_that_are_called_once_are_and_those_of_each_instance_are_called_inside() -> None:
    said: list[str] = []

    def saying(what: str) -> Callable[[InstanceContext], Awaitable[None]]:
        async def say(context: InstanceContext) -> None:
            said.append(what)

        return say

    async def scene(here: RecordedInstances) -> None:
        await here.start_instances(2)
        await here.until(65)

    own = JobListener(before=saying("each before"), after=saying("each after"))
    more = [own, OnceListener(before=saying("once before"), after=saying("once after")), OnceListener()]
    play(scene, listeners=more, sharding_total_count=2)
    assert said == ["once before", "each before", "each before", "each after", "each after", "once after"]


def test_after_is_called_in_the_reverse_order_and_only_of_those_whose_before_has_not_failed() -> None:
    said: list[str] = []

    def saying(what: str, second: float = inf) -> Callable[[InstanceContext], Awaitable[None]]:
        async def say(context: InstanceContext) -> None:
            said.append(what)
            if here[0].now > second:
                raise ValueError("not today")

        return say

    here = list[RecordedInstances]()

    async def scene(recorded: RecordedInstances) -> None:
        here.append(recorded)
        await recorded.start_instances(1)
        await recorded.until(65)
        assert said == ["once 1", "each 1", "each 2", "after 2", "after 1", "over 2", "over 1"]
        said.clear()
        await recorded.until(125)
        assert said == ["once 1", "each 1", "each 2", "after 1", "over 2", "over 1"]

    each = [JobListener(before=saying("each 1"), after=saying("after 1"))]
    each.append(JobListener(before=saying("each 2", 100), after=saying("after 2")))
    once = [OnceListener(before=saying("once 1"), after=saying("over 1")), OnceListener(after=saying("over 2"))]
    recorded = play(scene, listeners=[*each, *once], sharding_total_count=1)
    assert [how for _, how, _ in recorded.ends()] == ["completed", "failed"]


def test_nobody_waits_for_an_item_that_cannot_be_claimed() -> None:
    async def scene(here: RecordedInstances) -> None:
        await here.start_instances(1)
        await here.write(Create(LAYOUT.item(1).execution), Create(LAYOUT.item(1).running))  # a claim nobody answers
        await here.until(90)
        assert here.said == [(60, "before", 1.0), (60, "item", 0, 1.0)]
        await here.write(Delete(LAYOUT.item(1).running))
        await here.until(95)

    here = play(scene, sharding_total_count=2)
    assert here.said[2:] == [(90, "item", 1, 1.0), (91, "after", 1.0)]


def test_a_survivor_whose_rescue_lasts_over_the_next_moment_does_not_wait_for_itself() -> None:
    async def scene(here: RecordedInstances) -> None:
        here.work = lambda context: 40 if here.now < 200 else 1
        all_instances = await here.start_instances(2)
        await here.until(65)
        here.on(("item", 1, 1.0), all_instances).kill()
        await here.until(245)
        assert await here.marks() == ()

    here = play(scene, sharding_total_count=2)
    assert {how for _, how, _ in here.ends()} == {"completed"}
    assert [one for one in here.said if one[1] != "item"] == [
        (60, "before", 1.0),
        (140, "after", 1.0),  # of the rescue
        (140, "before", 2.0),
        (180, "after", 2.0),  # which item 1 has passed over
        (180, "before", 3.0),
        (220, "after", 3.0),
        (240, "before", 4.0),
        (241, "after", 4.0),
    ]


def test_if_the_caller_dies_in_before_the_next_one_calls_it_and_nothing_fails() -> None:
    async def scene(here: RecordedInstances) -> None:
        here.lead = 5
        all_instances = await here.start_instances(2)
        await here.until(62)
        here.on(("before", 1.0), all_instances).kill()
        await here.until(110)

    here = play(scene, sharding_total_count=2)
    (again,) = (one for one in here.said[1:] if one[1] == "before")
    assert 62 < again[0] <= 73  # the session's end
    through = again[0] + 5
    assert [one[0] for one in here.said if one[1] == "item"] == [through, through + 1]
    assert here.said[-1] == (through + 2, "after", 1.0)
    assert [how for _, how, _ in here.ends()] == ["completed", "completed"]


def test_if_the_caller_dies_in_after_whoever_rescues_its_item_calls_it() -> None:
    async def scene(here: RecordedInstances) -> None:
        here.tail, here.work = 5, lambda context: context.item
        all_instances = await here.start_instances(2)
        await here.until(63)
        here.on(("after", 1.0), all_instances).kill()
        await here.until(110)
        assert await here.marks() == ()

    here = play(scene, sharding_total_count=2)
    assert [one[1] for one in here.said if one[-1] == 1.0] == ["before", "item", "item", "after", "item", "after"]


def test_if_the_caller_dies_in_after_nobody_calls_it_before_its_item_is_rescued() -> None:
    async def scene(here: RecordedInstances) -> None:
        here.tail, here.work = 5, lambda context: 12 if context.source is FireSource.TRIGGER else context.item
        all_instances = await here.start_instances(2)
        await here.until(62)
        here.on(("after", 1.0), all_instances).kill()
        await here.until(65)
        (other,) = (one for one in all_instances if one.alive)
        ids = [one.id for one in (await here.cluster.status()).instances if one.ip == other.host]
        await operations.ask(here.cluster._session, "job", instance=ids[0])  # which begins and ends a run meanwhile
        await here.until(110)
        assert await here.marks() == ()

    here = play(scene, sharding_total_count=2)
    assert [one[1] for one in here.said if one[-1] == 1.0] == ["before", "item", "item", "after", "item", "after"]


@pytest.mark.parametrize("seconds", [2.5, 9.4])
@pytest.mark.parametrize("lead", [0, 3])
def test_a_connection_that_comes_back_calls_nothing_twice_and_forgets_nothing(lead: float, seconds: float) -> None:
    async def scene(here: RecordedInstances) -> None:
        here.lead, here.work = lead, lambda context: 2
        (one,) = await here.start_instances(1)
        await here.until(61)
        here.cluster.faults.drop(one.host, "10.0.0.1")
        await here.until(61 + seconds)
        here.cluster.faults.heal()
        await here.until(130)
        assert await here.marks() == ()

    here = play(scene, reconcile_interval=15)
    called = [one[1:] for one in here.said if one[1] != "item"]
    cut_off = lead and seconds > 9  # in ``before``, which begins anew
    assert called == [("before", 1.0)] * (2 if cut_off else 1) + [("after", 1.0), ("before", 2.0), ("after", 2.0)]


def test_a_caller_that_leaves_makes_room() -> None:
    async def scene(here: RecordedInstances) -> None:
        here.lead = 30
        all_instances = await here.start_instances(2)
        await here.until(62)
        here.lead = 1
        await here.on(("before", 1.0), all_instances).stop()
        await here.until(80)

    here = play(scene, sharding_total_count=2, shutdown_timeout=1)
    assert [one[1] for one in here.said] == ["before", "before", "item", "item", "after"]


@pytest.mark.parametrize("kind", [JobListener, OnceListener])
def test_a_run_that_is_cut_off_in_before_has_not_failed_whatever_error_before_makes_of_that(
    kind: type[JobListener] | type[OnceListener],
) -> None:
    begun: list[str] = []

    async def connect(context: InstanceContext) -> None:
        begun.append(context.instance)
        if len(begun) == 1:
            try:
                await anyio.sleep_forever()
            finally:
                raise ConnectionError("the query was cancelled")

    async def scene(here: RecordedInstances) -> None:
        one, other = await here.start_instances(2)
        await here.until(62)
        await (one if begun[0].startswith(one.host) else other).stop()
        await here.until(80)

    here = play(scene, listeners=[kind(before=connect)], shutdown_timeout=1)
    assert len(set(begun)) == 2
    assert [how for _, how, _ in here.ends()] == ["cancelled", "completed"]


def test_a_trigger_of_all_is_one_run_and_after_waits_for_the_item_rescued() -> None:
    async def scene(here: RecordedInstances) -> None:
        here.work = lambda context: 0.0 if here.now < 10 else 5.0
        all_instances = await here.start_instances(3)
        await operations.ask(here.cluster._session, "job")
        await here.until(5)
        assert [one[1] for one in here.said] == ["before", "item", "item", "item", "after"]
        here.said.clear()
        await here.until(20)
        await operations.ask(here.cluster._session, "job")
        await here.until(22)
        victim = next(
            one
            for (what, *more), host in here.hosts.items()
            for one in all_instances
            if more[0] == 1 and one.host == host
        )
        victim.kill()
        await here.until(50)
        assert await here.marks() == ()

    here = play(scene, sharding_total_count=3, cron="0 0 0 * * ?")
    assert [one[1] for one in here.said] == ["before", "item", "item", "item", "item", "after"]
    assert [one[0] for one in here.said[:4]] == [20, 20, 20, 20]


def test_a_rescue_of_several_items_goes_on_with_the_run_that_somebody_has_asked_for() -> None:
    async def scene(here: RecordedInstances) -> None:
        here.work = lambda context: 5.0
        all_instances = await here.start_instances(2)
        await operations.ask(here.cluster._session, "job")
        await here.until(2)
        all_instances[0].kill()
        await here.until(50)
        assert await here.marks() == ()

    here = play(scene, sharding_total_count=4, cron="0 0 0 * * ?")
    assert [one[1] for one in here.said] == ["before", *["item"] * 6, "after"]
    assert here.said[5][0] == here.said[6][0]  # both orphans are rescued in one run


def test_a_rescue_is_of_the_moment_claimed_though_who_died_had_not_come_to_mark_it() -> None:
    async def scene(here: RecordedInstances) -> None:
        (one,) = await here.start_instances(1)
        await here.until(65)
        begun = {"slot": round((here.start + 120) * 1000), "source": "SCHEDULE", "lastBeginTime": 1, "completed": False}
        record, old = LAYOUT.item(0).execution, str(round((here.start + 30) * 1000)).encode()
        await here.write(Set(record, json.dumps(begun).encode(), -1), Create(f"{LAYOUT.started}/0", old))
        one.kill()
        await here.start_instances(1)
        await here.until(100)
        assert await here.marks() == ()

    here = play(scene, reconcile_interval=15)
    assert [one[1:] for one in here.said[3:]] == [("before", 2.0), ("item", 0, 2.0), ("after", 2.0)]


def test_a_rescue_of_a_run_whose_listeners_were_called_calls_none_again() -> None:
    async def scene(here: RecordedInstances) -> None:
        (one,) = await here.start_instances(1)
        session = here.cluster._session
        await operations.ask(session, "job")
        await here.until(5)
        (request,) = [one.request for one in await operations.requests(session, "job")]
        asked = {"asked": request.moment, "request": request.id, "source": "TRIGGER"}
        begun = {"slot": 0, "lastBeginTime": 1, "completed": False, **asked}
        await here.write(Set(LAYOUT.item(0).execution, json.dumps(begun).encode(), -1))
        one.kill()
        await here.start_instances(1)
        await here.until(50)
        assert await here.marks() == ()

    here = play(scene, reconcile_interval=15, cron="0 0 0 * * ?")
    assert [one[1] for one in here.said] == ["before", "item", "after", "item"]


def test_a_trigger_of_one_instance_is_a_run_of_its_items() -> None:
    async def scene(here: RecordedInstances) -> None:
        all_instances = await here.start_instances(2)
        one = (await here.cluster.status()).instances[0].id
        await operations.ask(here.cluster._session, "job", instance=one)
        await here.until(20)
        assert len(all_instances) == 2

    here = play(scene, sharding_total_count=2, cron="0 0 0 * * ?")
    assert [one[1] for one in here.said] == ["before", "item", "after"]


def test_more_items_than_a_transaction_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_barrier, "MAX_OPERATIONS", 4)

    async def scene(here: RecordedInstances) -> None:
        await here.start_instances(1)
        await operations.ask(here.cluster._session, "job")
        await here.until(65)
        assert await here.marks() == ()

    here = play(scene, sharding_total_count=9)
    assert [one[1] for one in here.said] == ["before", *["item"] * 9, "after"] * 2


def test_a_listener_that_fails_on_one_instance_fails_its_items_and_after_comes_all_the_same() -> None:
    refusing: list[str] = []

    async def refuse(context: InstanceContext) -> None:
        if not refusing or context.instance == refusing[0]:
            refusing[:] = [context.instance]
            raise ValueError("not today")

    async def scene(here: RecordedInstances) -> None:
        await here.start_instances(2)
        await here.until(70)
        assert await here.marks() == ()

    here = play(scene, listeners=[JobListener(before=refuse)], sharding_total_count=2, failover=False)
    assert [one[1] for one in here.said] == ["before", "item", "after"]
    assert sorted((how, why) for _, how, why in here.ends()) == [("completed", ""), ("failed", "not today")]


@pytest.mark.parametrize("kind", [JobListener, OnceListener])
def test_an_after_that_fails_is_no_failure_of_the_items_and_those_that_failed_keep_their_errors(
    kind: type[JobListener | OnceListener], caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(context: InstanceContext) -> None:
        raise OSError("no paper")

    def work(context: ItemContext) -> float:
        if context.item:
            raise ValueError("not today")
        return 1.0

    async def scene(here: RecordedInstances) -> None:
        here.work = work
        await here.start_instances(1)
        await here.until(65)

    here = play(scene, listeners=[kind(after=refuse)], sharding_total_count=2)
    assert sorted((item, how, why) for item, how, why in here.ends()) == [
        (0, "completed", ""),
        (1, "failed", "not today"),
    ]
    (line,) = [line for line in caplog.messages if "no paper" in line]
    assert line.startswith("job: a listener's `after` of items 0, 1 failed on ")
    assert line.endswith(" (the run goes on): OSError: no paper")


def test_if_what_is_called_once_before_fails_the_run_fails_everywhere_and_at_once() -> None:
    async def refuse(context: InstanceContext) -> None:
        await anyio.sleep(1)
        raise ValueError("not today")

    async def scene(here: RecordedInstances) -> None:
        await here.start_instances(2)
        await here.until(62)
        assert len(here.ends()) == 2
        await here.until(65)
        assert await here.marks() == ()

    here = play(scene, listeners=[OnceListener(before=refuse)], sharding_total_count=2)
    assert [one[1] for one in here.said] == ["before"]
    (_, first, why), (_, second, elsewhere) = here.ends()
    assert (first, second, why) == ("failed", "failed", "not today")
    assert elsewhere.startswith("`before` failed: on 10.0.")
    assert elsewhere.endswith("ValueError: not today")


def test_before_that_takes_too_long_fails_and_says_what_setting() -> None:
    async def for_ever(context: InstanceContext) -> None:
        await anyio.sleep_forever()

    async def scene(here: RecordedInstances) -> None:
        await here.start_instances(1)
        await here.until(65)

    here = play(scene, listeners=[OnceListener(before=for_ever, started_timeout=3)])
    assert here.ends() == [(0, "failed", "`before` took longer than started_timeout = 3 s")]


def test_before_that_goes_on_after_its_time_limit_is_named_and_cancelled_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = list[float]()

    async def stubborn(context: InstanceContext) -> None:
        await dig_in(10, asked)

    async def scene(here: RecordedInstances) -> None:
        await here.start_instances(1)
        await here.until(75)

    play(scene, listeners=[OnceListener(before=stubborn, started_timeout=3)])
    assert len(asked) <= MAX_REPEATED_CANCELS + 10
    assert any("stubborn of item 0 goes on 1 s after it was cancelled" in line for line in caplog.messages)


def test_nobody_waits_for_ever_for_a_caller() -> None:
    async def scene(here: RecordedInstances) -> None:
        await here.start_instances(1)
        nobody = LAYOUT.calling(str(round((here.start + 60) * 1000)))
        await here.write(Create(nobody, b"somebody"))
        await here.until(135)

    here = play(scene)
    (item, how, why), *_ = here.ends()
    assert (item, how) == (0, "failed")
    assert why.startswith("`before` is still being called by somebody: waited 70 s")


def test_an_item_disabled_while_it_runs_is_waited_for_but_not_if_its_instance_died() -> None:
    async def scene(here: RecordedInstances) -> None:
        here.work = lambda context: 20 if context.item else 1
        all_instances = await here.start_instances(2)
        await here.until(65)
        await operations.disable(here.cluster._session, "job", item=1)
        await here.until(95)
        assert here.said[-1] == (80, "after", 1.0)
        await operations.enable(here.cluster._session, "job", item=1)
        await here.until(121)
        await operations.disable(here.cluster._session, "job", item=1)
        here.on(("item", 1, 2.0), all_instances).kill()
        await here.until(190)
        assert await here.marks() == ()

    here = play(scene, sharding_total_count=2, failover=False)
    assert [one for one in here.said if one[-1] == 2.0 and one[1] == "after"] == [(180, "after", 2.0)]
    assert here.said[-1] == (181, "after", 3.0)


def test_nonsense_in_the_marks_costs_no_more_than_a_call() -> None:
    async def scene(here: RecordedInstances) -> None:
        await here.start_instances(1)
        await here.until(65)
        mark = f"{LAYOUT.started}/0"
        await here.write(Create(mark, b"\xff"), Create(f"{mark}/below"), Create(f"{LAYOUT.completed}/0", b"[]"))
        await here.write(Set(LAYOUT.guarantee, b"[" * 5000, -1))
        await here.until(130)
        await here.write(Set(LAYOUT.guarantee, b"17", -1))
        await here.until(190)

    here = play(scene)
    assert [one[1] for one in here.said] == ["before", "item", "after"] * 3
    assert [how for _, how, _ in here.ends()] == ["completed"] * 3


def test_a_failure_after_the_run_is_reported_and_changes_no_outcome(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(context: InstanceContext) -> None:
        raise ValueError("too late")

    async def scene(here: RecordedInstances) -> None:
        await here.start_instances(1)
        await here.until(62)

    here = play(scene, listeners=[JobListener(after=fail), OnceListener(after=fail)])
    assert here.ends() == [(0, "completed", "")]
    assert caplog.text.count("item 0 failed on ") == 2
    assert caplog.text.count("raised by a listener's `after`") == 2


def test_a_listener_cancelled_from_within_has_failed_and_stops_no_schedule() -> None:
    async def cancelled(context: InstanceContext) -> None:
        raise anyio.get_cancelled_exc_class()

    async def scene(here: RecordedInstances) -> None:
        await here.start_instances(1)
        await here.until(125)

    here = play(scene, listeners=[JobListener(before=cancelled)])
    assert [(how, why) for _, how, why in here.ends()] == [
        ("failed", "the listener was cancelled from within, not by us")
    ] * 2


def test_listeners_of_each_instance_alone_do_not_touch_the_registry() -> None:
    said: list[Say] = []
    app = ElasticJob("embedded://")

    async def before(context: InstanceContext) -> None:
        said.append(("before", context.source.value, context.items))

    @app.job(cron="0 * * * * ?", sharding_total_count=2, listeners=[JobListener(before=before), JobListener()])
    async def job(context: ItemContext) -> None: ...

    async def main() -> None:
        cluster = VirtualCluster()
        await cluster.start(app)
        await cluster.trigger()
        await cluster.next_fire()
        assert await cluster._session.children(Layout("job").guarantee) == ()

    run(main)
    assert said == [("before", "TRIGGER", (0, 1)), ("before", "SCHEDULE", (0, 1))]


def test_a_stream_that_gives_way_has_not_ended() -> None:
    said: list[str] = []
    app = ElasticJob("embedded://")
    left = [4]

    async def before(context: InstanceContext) -> None:
        said.append("before")

    async def after(context: InstanceContext) -> None:
        said.append(f"after, {left[0]} left")

    listeners = [OnceListener(before=before, after=after)]

    @app.dataflow(cron="0 0 * * * ?", streaming=True, listeners=listeners)
    async def flow(context: ItemContext) -> list[int]:
        left[0] -= 1
        return [left[0]] if left[0] >= 0 else []

    @flow.process
    async def work(context: ItemContext, record: int) -> None:
        await anyio.sleep(10)

    async def main() -> None:
        cluster = VirtualCluster()
        await cluster.start(app)
        await cluster.settled()
        await anyio.sleep(3605 - (cluster.now.timestamp() % 3600))
        await cluster.start(app)  # which asks for an assignment, so that the stream gives way
        await anyio.sleep(100)

    run(main)
    assert said == ["before", "after, -1 left"]


def _plain(context: InstanceContext) -> None: ...


async def _two(context: InstanceContext, more: object) -> None: ...


@pytest.mark.parametrize("kind", [JobListener, OnceListener])
@pytest.mark.parametrize("part", ["before", "after"])
def test_a_listener_is_awaited_and_takes_one_context(kind: type, part: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{part} = '_plain': must be an async def"):
        kind(**{part: _plain})
    with pytest.raises(InvalidSetting, match=f"{part} = '_two': must take one context"):
        kind(**{part: _two})


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_the_time_that_before_may_take_is_positive(timeout: float) -> None:
    with pytest.raises(InvalidSetting, match="started_timeout"):
        OnceListener(started_timeout=timeout)


@pytest.mark.parametrize("kind", [JobListener, OnceListener])
def test_a_subclass_with_methods_is_refused_because_they_would_never_be_called(kind: type) -> None:
    mounting = type("Mounting", (kind,), {"before": RecordedInstances.before})
    text = rf"listeners = Mounting\(.*\): write {kind.__name__}\(before=…\): a method named before is never called"
    with pytest.raises(InvalidSetting, match=text):
        ElasticJob("embedded://").add(_plain, name="job", per="instance", listeners=[mounting()])
    assert ElasticJob("embedded://").add(_plain, name="job", per="instance", listeners=[type("Plain", (kind,), {})()])


@pytest.mark.parametrize("kind", [JobListener, OnceListener])
@pytest.mark.parametrize("wrapped", [staticmethod, classmethod])
def test_a_subclass_is_refused_whatever_kind_of_method_would_never_be_called(
    kind: type, wrapped: Callable[[object], object]
) -> None:
    mounting = type("Mounting", (kind,), {"after": wrapped(RecordedInstances.after)})
    with pytest.raises(InvalidSetting, match="a method named after is never called"):
        ElasticJob("embedded://").add(_plain, name="job", per="instance", listeners=[mounting()])


def test_a_subclass_that_gives_its_methods_to_the_fields_is_a_listener() -> None:
    class Mounting(JobListener):
        def __init__(self) -> None:
            super().__init__(before=self.before)

        async def before(self, _context: InstanceContext) -> None:
            pass

    async def mount(_context: InstanceContext) -> None:
        pass

    @dataclass(frozen=True, kw_only=True)
    class Default(JobListener):
        before: Callable[[InstanceContext], Awaitable[object]] | None = mount

    listeners = [Mounting(), Default()]
    assert ElasticJob("embedded://").add(_plain, name="job", per="instance", listeners=listeners)
