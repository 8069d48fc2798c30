"""A stream that gives way goes on, whatever makes it give way and whatever began it: no record of it is forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from typing import Any, TypeAlias

import anyio
import pytest

from aioelasticjob import ElasticJob, InstanceContext, ItemContext, operations
from aioelasticjob.engine.missed_reports import EXPIRED
from aioelasticjob.events import Misfired
from aioelasticjob.jobs.listeners import OnceListener
from aioelasticjob.model import LEFT_OPEN
from aioelasticjob.operations import RequestStatus
from aioelasticjob.registry.transaction import Create, Delete, Op
from aioelasticjob.testing import Process, VirtualClock
from tests.engine.test_stream_control import change
from tests.support.simulated_jobs import LAYOUT, REGISTRY, SimulatedJobs, simulate

JUNE = [datetime(year, 6, 1, 12, tzinfo=UTC) for year in (2024, 2025)]
"""The moments of the yearly schedule that a backfill runs again."""
YEARLY = "0 0 12 1 6 ?"
OFTEN = "10/30 * * * * ?"
SIZE, BATCH = 300, 15
RECORD = tuple[int, str, int]
"""Item, moment and number."""


@dataclass
class Streams:
    """Instances of one streaming job, each a process on a host of its own.

    Each item has ``SIZE`` records, in a backfill for each moment.  ``fetch`` returns those that were not processed yet.
    """

    here: SimulatedJobs
    by_moment: bool = False
    endless: bool = False
    is_listened: bool = True
    """Whether the job has listeners, which are called once in the cluster."""
    settings: dict[str, Any] = field(default_factory=dict)
    processed: Counter[RECORD] = field(default_factory=Counter)
    runs: list[tuple[float, str, str, tuple[int, ...], str | None, str]] = field(default_factory=list)
    """Second, host, source, items, parameter and moment of each first fetch."""
    processes: dict[str, Process] = field(default_factory=dict)
    reports: list[Misfired] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    """The listeners that are called once in the cluster, as they were called."""
    fails: bool = False
    """Whether records fail from now on."""
    lingers: float = 0.0
    """Seconds that ``fetch`` takes to say that there are no more records."""
    slow_item: int | None = None
    """The item whose records take five seconds from now on."""

    async def start(self, *names: str) -> None:
        for name in names:
            known = await self.here.names(LAYOUT.instances)
            address = f"10.0.0.{ord(name) - 96}"
            self.processes[name] = self.here.faults.start(name, address, lambda name=name: self._main(name))  # type: ignore[misc]
            while len(await self.here.names(LAYOUT.instances)) == len(known):
                assert not self.processes[name].ended
                await anyio.sleep(0.01)
            while await self.here.observer.exists(LAYOUT.necessary):
                await anyio.sleep(0.01)

    async def _main(self, name: str) -> None:
        app = ElasticJob(self.here.address, clock=VirtualClock(), session_timeout=5)
        given = {"cron": None, "sharding_total_count": 2, "streaming": True, "concurrency": 32}

        async def fetch(context: ItemContext) -> AsyncIterator[list[RECORD]]:
            async for batch in self._batches(name, context, (context.item,)):
                yield batch

        async def fetch_all(context: InstanceContext) -> AsyncIterator[list[RECORD]]:
            async for batch in self._batches(name, context, tuple(context.items)):
                yield batch

        for_all = self.settings.get("per") == "instance"
        once = OnceListener(before=self._listener("before"), after=self._listener("after"))
        listeners = [once] if self.is_listened else []
        flow = app.dataflow("job", listeners=listeners, **{**given, **self.settings})(fetch_all if for_all else fetch)

        @flow.process
        async def process(context: ItemContext | InstanceContext, record: RECORD) -> None:
            await anyio.sleep(5 if record[0] == self.slow_item else 0.2)
            if self.fails:
                raise ValueError("as told")
            self.processed[record] += 1

        with app.events() as listener:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._listen, listener)
                async with app.running():
                    await anyio.sleep_forever()

    def _listener(self, which: str) -> Callable[[InstanceContext], Awaitable[None]]:
        async def note(context: InstanceContext) -> None:
            self.called.append(which)

        return note

    async def _listen(self, events: AsyncIterator[object]) -> None:
        async for event in events:
            if isinstance(event, Misfired):
                self.reports.append(event)

    async def _batches(
        self, name: str, context: ItemContext | InstanceContext, items: tuple[int, ...]
    ) -> AsyncIterator[list[RECORD]]:
        moment = f"{context.fire_time:%Y}" if self.by_moment else ""
        run = round(self.here.now(), 1), name, context.source.value, items, context.job_parameter or None, moment
        self.runs.append(run)
        while left := [record for item in items for record in self._left(item, moment)]:
            await anyio.sleep(0.1)
            yield left[: BATCH * len(items)]
        await anyio.sleep(self.lingers)

    def _left(self, item: int, moment: str) -> list[RECORD]:
        records = ((item, moment, n) for n in (count() if self.endless else range(SIZE)))
        return list(islice((one for one in records if one not in self.processed), BATCH))

    @property
    def left(self) -> int:
        """How many records were not processed yet."""
        moments = [f"{moment:%Y}" for moment in JUNE] if self.by_moment else [""]
        wanted = {(item, moment, n) for item in (0, 1) for moment in moments for n in range(SIZE)}
        return len(wanted - self.processed.keys())


async def status(here: SimulatedJobs) -> RequestStatus:
    return await operations.request(here.observer, "job", "r")


Begin: TypeAlias = Callable[[Streams], Awaitable[None]]
GiveWay: TypeAlias = Callable[[Streams], Awaitable[None]]


async def schedule(streams: Streams) -> None:
    await streams.here.until(10.5)


async def trigger(streams: Streams) -> None:
    await operations.ask(streams.here.observer, "job", id="r", parameter="P")


async def planned_trigger(streams: Streams) -> None:
    await operations.ask(streams.here.observer, "job", id="r", parameter="P", delay=3)
    await anyio.sleep(3)


async def backfill(streams: Streams) -> None:
    start, end = JUNE[0] - timedelta(days=1), JUNE[1] + timedelta(days=1)
    await operations.backfill(streams.here.observer, "job", start, end, id="r")


async def backfill_one_at_a_time(streams: Streams) -> None:
    start, end = JUNE[0] - timedelta(days=1), JUNE[1] + timedelta(days=1)
    await operations.backfill(streams.here.observer, "job", start, end, id="r", items_at_once=1)


async def rerun(streams: Streams) -> None:
    await operations.rerun(streams.here.observer, "job", JUNE[1], id="r")


def rescue(begin: Begin) -> Begin:
    """Return what begins a stream on two instances and kills one, so that the other one rescues its item."""

    async def begin_and_kill(streams: Streams) -> None:
        await streams.start("b")
        await begin(streams)
        await anyio.sleep(1.5)
        streams.here.faults.crash(streams.processes["b"])
        with anyio.fail_after(30):
            while not any(source == "FAILOVER" for _, _, source, *_ in streams.runs):
                await anyio.sleep(0.05)

    return begin_and_kill


BEGUN: dict[str, tuple[Begin, dict[str, Any]]] = {
    "a schedule": (schedule, {"cron": OFTEN}),
    "a trigger": (trigger, {}),
    "a trigger of a job with a schedule": (trigger, {"cron": YEARLY}),
    "a planned trigger": (planned_trigger, {}),
    "a backfill": (backfill, {"cron": YEARLY}),
    "a backfill of one item at a time": (backfill_one_at_a_time, {"cron": YEARLY}),
    "a rerun": (rerun, {"cron": YEARLY}),
    "a rescue of a scheduled run": (rescue(schedule), {"cron": OFTEN, "failover": True}),
    "a rescue of a triggered run": (rescue(trigger), {"failover": True}),
    "a rescue of a backfill": (rescue(backfill), {"cron": YEARLY, "failover": True}),
    "a trigger of all items in one call": (trigger, {"per": "instance"}),
    "a trigger of a job without records": (trigger, {"monitor_execution": False}),
    "a trigger without misfire": (trigger, {"cron": YEARLY, "misfire": False}),
}
"""What begins a stream, and the settings with which it does."""


async def joins(streams: Streams) -> None:
    await streams.start("c")


async def joins_and_leaves(streams: Streams) -> None:
    await streams.start("c")
    await anyio.sleep(1.2)
    streams.processes["c"].terminate()


async def leaves(streams: Streams) -> None:
    await streams.start("c")
    streams.processes["a"].terminate()
    await streams.processes["a"].wait()


def switched(on: Callable[[], list[Op]], off: Callable[[], list[Op]]) -> GiveWay:
    """Return what switches something off for some seconds, in which no record is processed."""

    async def switch(streams: Streams) -> None:
        await streams.here.write(*on())
        await anyio.sleep(2)
        before = len(streams.processed)
        await anyio.sleep(5)
        assert len(streams.processed) == before
        assert streams.left
        await streams.here.write(*off())

    return switch


async def changes_a_setting(streams: Streams) -> None:
    await change(streams.here, concurrency=16)


async def is_triggered(streams: Streams) -> None:
    await operations.ask(streams.here.observer, "job", items=[0], id="other", parameter="other")


async def is_triggered_by_hand(streams: Streams) -> None:
    await streams.here.trigger("other", items=[0], parameter="other")


SERVER = "10.0.0.1"
REASONS: dict[str, GiveWay] = {
    "an instance joins": joins,
    "an instance joins and leaves": joins_and_leaves,
    "the instance leaves": leaves,
    "the job is paused": switched(lambda: [Create(LAYOUT.paused)], lambda: [Delete(LAYOUT.paused)]),
    "the server is paused": switched(
        lambda: [Create(LAYOUT.server_paused(SERVER))], lambda: [Delete(LAYOUT.server_paused(SERVER))]
    ),
    "the server is disabled": switched(
        lambda: [Create(LAYOUT.server_disabled(SERVER))], lambda: [Delete(LAYOUT.server_disabled(SERVER))]
    ),
    "the items are disabled": switched(
        lambda: [Create(LAYOUT.item(item).disabled) for item in (0, 1)],
        lambda: [Delete(LAYOUT.item(item).disabled) for item in (0, 1)],
    ),
    "a setting is changed": changes_a_setting,
    "another run is asked for": is_triggered,
    "another run is asked for by hand": is_triggered_by_hand,
}
"""What makes a stream give way."""


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("begun", BEGUN)
def test_a_stream_that_gives_way_goes_on_until_there_are_no_more_records(begun: str, reason: str) -> None:
    begin, settings = BEGUN[begun]

    async def scene(here: SimulatedJobs) -> None:
        streams = Streams(here, "backfill" in begun, settings=settings)
        is_requested = "schedule" not in begun or "trigger" in begun
        await streams.start("a")
        await begin(streams)
        await anyio.sleep(1.2)
        assert streams.left
        await REASONS[reason](streams)
        with anyio.fail_after(150):
            while streams.left if not is_requested else not (await status(here)).is_over:
                await anyio.sleep(0.1)
        assert streams.left == 0
        if "rescue" not in begun:
            assert max(streams.processed.values()) == 1
        if is_requested:
            found = await status(here)
            runs = 2 * len(JUNE) if "backfill" in begun else 2
            assert (found.state, found.outcomes) == ("done", {"completed": runs})
            mine = {one for *_, source, _, one, _ in streams.runs if source == "TRIGGER"} - {"other", None}
            assert mine == ({"P"} if "trigger" in begun else set())
            for item in (0, 1):  # a moment goes on before the next one begins
                moments = [one for *_, items, _, one in streams.runs if items == (item,) and one in {"2024", "2025"}]
                assert moments == sorted(moments)

    simulate(scene)


def requested(
    scene: Callable[[Streams], Awaitable[None]],
    *,
    wait: float = 1.2,
    names: str = "a",
    endless: bool = False,
    is_listened: bool = True,
    **settings: Any,
) -> None:
    """Play a scene in which a stream was asked for, and has run for a while."""

    async def play(here: SimulatedJobs) -> None:
        streams = Streams(here, endless=endless, is_listened=is_listened, settings=settings)
        await streams.start(*names)
        await trigger(streams)
        await anyio.sleep(wait)
        await scene(streams)

    simulate(play)


async def pause(streams: Streams) -> None:
    await operations.pause(streams.here.observer, "job")
    await anyio.sleep(2)


async def resume(streams: Streams, seconds: float = 30) -> None:
    await operations.resume(streams.here.observer, "job")
    await anyio.sleep(seconds)


def test_a_request_whose_stream_has_given_way_waits_and_says_that_it_was_left_open() -> None:
    async def scene(streams: Streams) -> None:
        await pause(streams)
        found = await status(streams.here)
        assert (found.state, found.is_over, found.left) == ("waiting", False, 2)
        assert (found.waiting, found.running, found.outcomes) == ((0, 1), (), {LEFT_OPEN: 2})
        assert [(await streams.here.record(item)).outcome for item in (0, 1)] == ["completed"] * 2
        await resume(streams, 1)
        found = await status(streams.here)
        assert (found.state, found.running, found.outcomes) == ("running", (0, 1), {})

    requested(scene)


def test_a_stream_that_gives_way_while_its_request_is_cancelled_does_not_go_on() -> None:
    async def scene(streams: Streams) -> None:
        await operations.cancel_request(streams.here.observer, "job", "r")
        await pause(streams)
        found = await status(streams.here)
        assert (found.state, found.is_over, found.outcomes) == ("cancelled", True, {LEFT_OPEN: 2})
        processed = len(streams.processed)
        await resume(streams)
        assert len(streams.processed) == processed

    requested(scene)


def test_a_stream_that_has_given_way_does_not_go_on_if_its_request_is_cancelled_then() -> None:
    async def scene(streams: Streams) -> None:
        await pause(streams)
        processed = len(streams.processed)
        await operations.cancel_request(streams.here.observer, "job", "r")
        await resume(streams)
        assert len(streams.processed) == processed
        found = await status(streams.here)
        assert (found.state, found.is_over, found.outcomes) == ("cancelled", True, {LEFT_OPEN: 2})

    requested(scene)


def test_a_stream_that_has_given_way_goes_on_when_its_paused_request_is_resumed() -> None:
    async def scene(streams: Streams) -> None:
        await operations.pause_request(streams.here.observer, "job", "r")
        await pause(streams)
        processed = len(streams.processed)
        await resume(streams)
        assert len(streams.processed) == processed
        await operations.resume_request(streams.here.observer, "job", "r")
        await anyio.sleep(30)
        assert streams.left == 0
        assert (await status(streams.here)).outcomes == {"completed": 2}

    requested(scene)


def test_a_stream_that_cannot_go_on_before_its_request_expires_is_reported() -> None:
    async def scene(here: SimulatedJobs) -> None:
        streams = Streams(here)
        await streams.start("a")
        await operations.ask(here.observer, "job", id="r", delay=1, expires=10)
        await anyio.sleep(2.2)
        await pause(streams)
        await here.until(20)
        await resume(streams)
        found = await status(here)
        assert (found.state, found.is_over, found.outcomes) == ("expired", True, {LEFT_OPEN: 2})
        assert [(report.items, report.why) for report in streams.reports] == [((0, 1), EXPIRED)]

    simulate(scene)


def test_a_stream_that_fails_while_it_gives_way_has_failed() -> None:
    async def scene(here: SimulatedJobs) -> None:
        streams = Streams(here, settings={"max_failures": 0})
        await streams.start("a")
        await trigger(streams)
        await anyio.sleep(1.2)
        streams.fails = True
        await pause(streams)
        await resume(streams)
        found = await status(here)
        assert (found.state, found.outcomes) == ("done", {"failed": 2})

    simulate(scene)


def test_a_stream_that_ends_by_itself_while_it_is_to_give_way_is_done() -> None:
    async def scene(streams: Streams) -> None:
        streams.lingers = 1.0
        while streams.left:
            await anyio.sleep(0.01)
        before = len(streams.runs)
        await pause(streams)  # before ``fetch`` has said that there are no more records
        found = await status(streams.here)
        assert (found.state, found.outcomes) == ("done", {"completed": 2})
        await resume(streams)
        assert len(streams.runs) == before

    requested(scene, prefetch=False)


def test_what_a_stream_has_given_way_to_begins_although_the_stream_has_no_end() -> None:
    async def scene(streams: Streams) -> None:
        here = streams.here
        await operations.ask(here.observer, "job", id="second", parameter="second")
        await anyio.sleep(3)
        assert streams.runs[-1][4] == "second"
        await operations.ask(here.observer, "job", id="third", parameter="third")
        await anyio.sleep(3)
        assert streams.runs[-1][4] == "third"
        for name in ("third", "second"):
            await operations.cancel_request(here.observer, "job", name)
        await change(here, concurrency=20)
        await anyio.sleep(3)
        assert streams.runs[-1][4] == "P"

    requested(scene, endless=True)


def test_a_stream_goes_on_that_is_left_open_while_its_next_holder_runs_another_item() -> None:
    async def scene(streams: Streams) -> None:
        here = streams.here
        slow = next(items[0] for _, name, _, items, *_ in streams.runs if name == "a")
        streams.slow_item = slow
        await anyio.sleep(1)
        streams.processes["a"].terminate()
        await anyio.sleep(3)
        assert [items for at, _, _, items, *_ in streams.runs if at > here.now() - 3] == [(1 - slow,)]
        await streams.processes["a"].wait()
        streams.slow_item = None
        ended = here.now()
        await anyio.sleep(2)
        assert (slow,) in [items for at, name, _, items, *_ in streams.runs if name == "b" and at >= ended - 0.1]

    requested(scene, names="ab", endless=True, shutdown_timeout=30)


def test_a_stream_does_not_give_way_again_and_again_because_another_item_was_cut_off() -> None:
    async def scene(streams: Streams) -> None:
        here = streams.here
        here.faults.delay("10.0.0.1", REGISTRY, 0.02)
        lost = next(items[0] for _, name, _, items, *_ in streams.runs if name == "b")
        here.faults.crash(streams.processes["b"])
        await anyio.sleep(20)  # item ``lost`` is held by a now, and has nothing to run
        await operations.ask(here.observer, "job", items=[1 - lost], id="other", parameter="other")
        await anyio.sleep(2)
        before = len(streams.runs)
        await anyio.sleep(10)
        assert len(streams.runs) == before
        assert streams.runs[-1][3:5] == ((1 - lost,), "other")

    requested(scene, names="ab", endless=True, is_listened=False)


def test_what_two_streams_on_one_instance_have_left_open_goes_on_one_after_the_other() -> None:
    async def scene(streams: Streams) -> None:
        here = streams.here
        for item in (0, 1):
            await operations.ask(here.observer, "job", items=[item], id=f"r{item}", parameter=f"r{item}")
            await anyio.sleep(1)
        before = len(streams.runs)
        await anyio.sleep(10)
        assert len(streams.runs) == before
        assert streams.runs[-1][4] == "r1"
        await change(here, concurrency=20)
        await anyio.sleep(10)
        assert [run[4] for run in streams.runs[before:]] == ["P", "P"]  # of both items: the oldest request

    requested(scene, endless=True)


def test_a_stream_that_has_given_way_does_not_go_on_if_its_run_is_cancelled_before_the_others_have_ended() -> None:
    async def scene(streams: Streams) -> None:
        streams.slow_item = 1
        await anyio.sleep(1)
        await operations.pause(streams.here.observer, "job")
        await anyio.sleep(2)  # item 0 has ended, and item 1 still processes what it has fetched
        await operations.cancel(streams.here.observer, "job")
        await anyio.sleep(2)
        found = await status(streams.here)
        assert (found.state, found.outcomes) == ("done", {"stopped": 2})
        processed = len(streams.processed)
        await resume(streams)
        assert len(streams.processed) == processed

    requested(scene)


def test_a_triggered_stream_that_gives_way_excuses_no_moment_of_a_job_without_records() -> None:
    async def scene(here: SimulatedJobs) -> None:
        settings = {"cron": "0/10 * * * * ?", "monitor_execution": False}
        streams = Streams(here, endless=True, settings=settings)
        await streams.start("a")
        await here.until(22)  # the moment of 20 is to be run late
        await here.trigger()
        await here.until(24)
        await change(here, concurrency=20)
        await here.until(28)
        begun = [(round(at), source) for at, _, source, items, *_ in streams.runs if items == (0,)]
        assert begun == [(10, "SCHEDULE"), (22, "TRIGGER"), (24, "MISFIRE"), (25, "TRIGGER")]

    simulate(scene)


def test_listeners_that_are_called_once_are_called_when_a_stream_that_gave_way_has_ended() -> None:
    async def scene(streams: Streams) -> None:
        await streams.start("c")
        await anyio.sleep(1.5)
        assert streams.called == ["before"]
        await anyio.sleep(30)
        assert streams.left == 0
        assert streams.called == ["before", "after"]

    requested(scene)
