"""The event streams of a job, read while it lives, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import anyio
import pytest

from aioelasticjob import ElasticJob
from aioelasticjob.errors import InvalidState
from aioelasticjob.operations.streams import Streams
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

E = TypeVar("E")


async def follow(stream: AbstractAsyncContextManager[AsyncIterator[E]], into: list[E], pause: float = 0) -> None:
    async with stream as changes:
        async for change in changes:
            into.append(change)
            await anyio.sleep(pause)


def watch(stream: str, *, pause: float = 0, **settings: Any) -> list[Any]:
    """Return the events of a scene in which an instance comes, runs, is paused and renamed, and goes."""
    events: list[Any] = []

    async def scene(here: SimulatedJobs) -> None:
        streams = Streams(here.observer, "job")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, getattr(streams, stream)(), events, pause)
            await here.until(1)
            app = here.app(**{"cron": "0/10 * * * * ?", "work": 2, **settings})
            async with app.running():
                await here.until(15)
                await here.write(Create(LAYOUT.server_paused("127.0.0.1")))
                await here.until(16)
                await here.write(Delete(LAYOUT.server_paused("127.0.0.1")))
                await here.write(Set(LAYOUT.config, app.jobs[0].changed(job_parameter="new").to_json(), -1))
                await here.until(17)
                await here.write(Create(f"{LAYOUT.execution}/007"))
                await here.write(Create(f"{LAYOUT.execution}/{'9' * 200}"))
                await here.write(Set(LAYOUT.config, b"nonsense", -1))
                await here.until(18)
            await here.until(60)
            tasks.cancel_scope.cancel()

    simulate(scene)
    return events


def test_servers_tell_who_comes_and_goes_and_what_is_paused() -> None:
    first, joined, paused, resumed, left = watch("servers")
    assert first.servers == {}
    (instance,) = joined.joined
    assert joined.servers["127.0.0.1"].instances[0].id == instance
    assert [event.servers["127.0.0.1"].paused for event in (joined, paused, resumed, left)] == [
        False,
        True,
        False,
        False,
    ]
    assert (left.left, left.servers["127.0.0.1"].instances) == ({instance}, ())


def test_config_tells_what_changed_and_keeps_the_last_good_one() -> None:
    first, written, changed, wrong = watch("config")
    assert (first.config, written.config.cron) == (None, "0/10 * * * * ?")
    assert changed.changed == {"job_parameter"}
    assert (wrong.config, wrong.changed) == (changed.config, frozenset())
    assert "no job configuration" in wrong.fault


def watch_by_hand(stream: str, *remove: str) -> list[Any]:
    """Return the events of a scene in which nodes are removed by hand below a job that runs."""
    events: list[Any] = []

    async def scene(here: SimulatedJobs) -> None:
        async with here.app(cron="0/10 * * * * ?").running(), anyio.create_task_group() as tasks:
            await here.until(5)
            tasks.start_soon(follow, getattr(Streams(here.observer, "job"), stream)(), events)
            await here.until(6)
            for path in remove:
                below = [f"{path}/{name}" for name in await here.names(path)]
                await here.write(*map(Delete, [*below, path]))
            await here.until(8)
            tasks.cancel_scope.cancel()

    simulate(scene)
    return events


def test_an_instance_has_not_left_because_its_servers_node_is_removed_by_hand() -> None:
    first, *others = watch_by_hand("servers", LAYOUT.server("127.0.0.1"))
    (instance,) = first.joined
    assert [(event.joined, event.left) for event in others] == [(frozenset(), frozenset())] * len(others)
    for event in (first, *others):
        server = event.servers["127.0.0.1"]
        assert ([one.id for one in server.instances], server.host) == ([instance], first.servers["127.0.0.1"].host)


def test_no_config_is_left_when_it_is_removed() -> None:
    first, removed = watch_by_hand("config", LAYOUT.config)
    assert first.config is not None
    assert (removed.config, removed.changed, removed.fault) == (None, frozenset(), "/job/config is missing")


def test_leader_tells_of_elections() -> None:
    events = [(event.leader is not None, event.epoch) for event in watch("leader")]
    assert events == [(False, -1), (True, 0), (False, 0)]


def test_execution_tells_what_runs_and_how_it_went() -> None:
    events = watch("execution")
    running = [(event.items[0].running is not None, event.items[0].record.outcome) for event in events if event.items]
    assert running == [(True, ""), (False, "completed")]
    assert [event.changed for event in events] == [set(), {0}, {0}]  # there is a first event in any case


def test_an_item_has_misfired_from_the_report_of_missed_moments_until_its_next_run() -> None:
    events = watch("execution", cron="0/3 * * * * ?", work=4, misfire=False)
    states = [(event.items[0].misfired, event.items[0].running is not None) for event in events if event.items]
    misfired = [list(group) for _, group in groupby(states, key=itemgetter(0))]
    assert misfired[1] == [(True, False)]
    assert misfired[2][0] == (False, True)


def test_a_slow_reader_skips_but_ends_with_the_newest_state() -> None:
    often = {"cron": "* * * * * ?", "work": 0.2}
    quick, slow = watch("execution", **often), watch("execution", pause=5, **often)
    assert len(slow) < len(quick) / 2
    assert slow[-1].items == quick[-1].items


def test_an_applications_streams_need_it_to_run() -> None:
    with pytest.raises(InvalidState, match="must be running"):
        ElasticJob("embedded://").streams("job")

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?")
        async with app.running(), app.streams("job").leader() as changes:
            async for change in changes:
                if change.leader is not None:
                    return

    simulate(scene)
