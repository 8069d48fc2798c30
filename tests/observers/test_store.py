"""What is written is found again, by every question, on real SQLite and real PostgreSQL."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any
from uuid import uuid4

import anyio
import asyncmy.errors
import pytest
from sqlalchemy import Connection, insert
from sqlalchemy.exc import DBAPIError

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.events import MOMENTS_COUNTED, AttemptFailed, Closed, Ended, HandedOver, Misfired, Rescued
from aioelasticjob.ground.times import moment
from aioelasticjob.model import FireSource, Outcome, run_name
from aioelasticjob.observers.missed import Count, MissedMoments, total_of
from aioelasticjob.observers.sql import (
    DurationCount,
    EventStore,
    EventStoreSettings,
    EventStoreUnreachable,
    Filter,
    Page,
    open_store,
    schema,
)
from aioelasticjob.observers.sql.database_errors import is_about_values
from tests.observers.sample_events import ME, NOON, OTHER, Clock, batch, beginning, end, name, raised
from tests.support.real_postgres import closed_port


def play(url: str | EventStoreSettings, scene: Callable[[EventStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with open_store(url, clock=Clock()) as store:
            await scene(store)

    asyncio.run(main())


def outcomes(slots: int = 10) -> list[Outcome]:
    return [list(Outcome)[n % 4] for n in range(slots)]


async def fill(store: EventStore, *, job: str = "report", slots: int = 10) -> None:
    """Write runs a second apart that end in each way in turn; every fifth goes on."""
    for n, outcome in enumerate(outcomes(slots)):
        slot = NOON + 1000 * n
        failure = None if outcome is Outcome.COMPLETED else raised(f"failure 50%_{n}")
        over = [end(slot, 0, outcome, job=job, failure=failure)] if n % 5 else []
        await store.write(batch(*beginning(slot, job=job), *over))


def test_a_run_is_found_with_all_that_is_known_of_it(url: str) -> None:
    async def scene(store: EventStore) -> None:
        await store.write(batch(*beginning(), end(outcome=Outcome.FAILED, failure=raised())))
        (run,) = (await store.history()).rows
        assert (run.job, run.item, run.source, run.outcome) == ("report", 0, "SCHEDULE", "failed")
        assert (run.host, run.ip, run.instance, run.task_id) == ("host-1", "10.0.0.1", ME, name(NOON, 0))
        assert run.fire_time == moment(NOON / 1000)
        assert run.began == moment(NOON / 1000 + 0.02)
        assert run.ended == moment(NOON / 1000 + 2.02)
        assert (run.seconds, run.failure) == (2.0, "ValueError: no luck")
        details = await store.run(run.id)
        assert details is not None
        assert details.run == run
        assert details.stack is not None
        assert "raise ValueError(text)\nValueError: no luck" in details.stack
        assert [(state.state, state.message) for state in details.states] == [
            ("TASK_STAGING", None),
            ("TASK_RUNNING", None),
            ("TASK_ERROR", "ValueError: no luck"),
        ]
        assert await store.run("no such run") is None

    play(url, scene)


@pytest.mark.parametrize("request_id", ["", "load-50%_", "x" * 120])
@pytest.mark.parametrize("job", ["report", "r" * 200])
def test_a_run_id_finds_all_items_of_the_run_and_their_rescues(url: str, job: str, request_id: str) -> None:
    def ended(item: int, run: str, me: str = ME, fence: int = 2**63 - 1, late: float = 2.0) -> Ended:
        task = f"{job}@-@{item}@-@READY@-@{me}@-@{run}.{fence:x}"
        return Ended(job, me, NOON, FireSource.TRIGGER, item, Outcome.COMPLETED, 0.0, task, NOON / 1000 + late)

    async def scene(store: EventStore) -> None:
        run = run_name(NOON, request_id)
        wanted = [ended(0, run), ended(1, run), ended(1, run, OTHER, 7, 9.0), ended(2, run, late=-60.0)]
        others = [ended(3, run_name(NOON + 1000, request_id)), ended(4, run_name(NOON, f"a{request_id[1:]}-b"))]
        await store.write(batch(*wanted, *others, end(NOON, 5, job="other")))
        found = (await store.history(Filter(run=f"{job}@{run}"))).rows
        assert sorted((one.item, one.instance) for one in found) == [(0, ME), (1, ME), (1, OTHER), (2, ME)]
        assert len((await store.states(Filter(run=f"{job}@{run}"))).rows) == 4
        assert not (await store.history(Filter(run=f"{job}@{run}", namespace="billing"))).rows
        if len(job) + len(request_id) < 100:  # otherwise the tables have a shortened ``task_id``
            assert {one.run_id for one in found} == {f"{job}@{run}"}

    play(url, scene)


@pytest.mark.parametrize(
    "run", ["", "report", "report@", "report@20260131", "report@x-99999999T000000Z", "a@00010101T000000Z"]
)
def test_what_is_no_run_id_is_refused_with_an_example(url: str, run: str) -> None:
    async def scene(store: EventStore) -> None:
        for question in (store.history, store.states):
            with pytest.raises(InvalidSetting, match="must be the run_id of a run, such as report@20260131T080000Z"):
                await question(Filter(run=run))

    play(url, scene)


def test_what_is_written_twice_is_there_once_and_a_late_beginning_ends_nothing(url: str) -> None:
    async def scene(store: EventStore) -> None:
        whole = batch(*beginning(), end())
        await store.write(whole)
        await store.write(whole)
        await store.write(batch(*beginning()))
        (run,) = (await store.history()).rows
        assert run.outcome == "completed"
        assert len((await store.states()).rows) == 3

    play(url, scene)


def test_a_run_goes_on_until_its_end_is_written(url: str) -> None:
    async def scene(store: EventStore) -> None:
        await store.write(batch(*beginning()))
        (run,) = (await store.history(Filter(outcome="running"))).rows
        assert (run.outcome, run.ended, run.seconds) == ("running", None, None)
        await store.write(batch(end()))
        assert (await store.counts()) == {"completed": 1}

    play(url, scene)


def test_pages_follow_each_other_without_gap_or_overlap_whatever_is_written_meanwhile(url: str) -> None:
    async def scene(store: EventStore) -> None:
        slots = [NOON + 1000 * (n // 3) for n in range(20)]  # several begin at the same moment
        await store.write(batch(*(end(slot, item) for item, slot in enumerate(slots))))
        seen, after = [], None
        while True:
            page = await store.history(after=after, limit=6)
            seen += page.rows
            await store.write(batch(end(NOON + 1_000_000 + len(seen), 99)))
            if (after := page.next) is None:
                break
        assert sorted(run.item for run in seen) == list(range(20))
        assert seen == sorted(seen, key=lambda run: (run.began, run.id), reverse=True)
        states = await store.states(limit=1000)
        first = await store.states(limit=7)
        assert (first.rows, first.next is None) == (states.rows[:7], False)

    play(url, scene)


def test_pages_of_newer_runs_lead_back_the_same_way_whatever_is_written_meanwhile(url: str) -> None:
    async def scene(store: EventStore) -> None:
        slots = [NOON + 1000 * (n // 3) for n in range(20)]  # several begin at the same moment
        await store.write(batch(*(end(slot, item) for item, slot in enumerate(slots))))
        first = await store.history(limit=6)
        second = await store.history(after=first.next, limit=6)
        third = await store.history(after=second.next, limit=6)
        await store.write(batch(*(end(NOON + 1_000_000 + n, 90 + n) for n in range(3))))
        assert first.previous is None
        back = await store.history(before=third.previous, limit=6)
        assert (back.rows, back.next) == (second.rows, second.next)
        newer = await store.history(before=back.previous, limit=6)
        assert newer.rows == first.rows
        newest = await store.history(before=newer.previous, limit=6)
        assert ([run.item for run in newest.rows], newest.previous) == ([92, 91, 90], None)
        assert (await store.history(after=newest.next, limit=6)).rows == first.rows
        assert (await store.history(before="2030-01-01T00:00:00~", limit=6)) == Page((), None)
        with pytest.raises(InvalidSetting, match="before"):
            await store.history(before="nonsense")

    play(url, scene)


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (Filter(), 10),
        (Filter(job="report"), 10),
        (Filter(job="repor"), 0),
        (Filter(item=0), 10),
        (Filter(item=1), 0),
        (Filter(instance=ME), 10),
        (Filter(instance="10.0.0.1"), 10),
        (Filter(instance="10.0.0"), 0),
        (Filter(source="SCHEDULE"), 10),
        (Filter(source="FAILOVER"), 0),
        (Filter(source="NORMAL_TRIGGER"), 0),
        (Filter(outcome="running"), 2),
        (Filter(outcome="completed"), 2),
        (Filter(outcome="failed"), 2),
        (Filter(outcome="timed out"), 2),
        (Filter(outcome="cancelled"), 2),
        (Filter(since=moment(NOON / 1000 + 3)), 7),
        (Filter(until=moment(NOON / 1000 + 3)), 3),
        (Filter(text="FAILURE 50%_7"), 1),
        (Filter(text="raise ValueError(text)"), 6),
        (Filter(text="50%7"), 0),
        (Filter(text="'; DROP TABLE job_execution_log; --"), 0),
        (Filter(job="report", outcome="failed", text="50%_1", since=moment(NOON / 1000)), 1),
    ],
)
def test_filters(sqlite_url: str, which: Filter, expected: int) -> None:
    async def scene(store: EventStore) -> None:
        await fill(store)
        assert len((await store.history(which)).rows) == expected
        assert sum((await store.counts(which)).values()) == expected

    play(sqlite_url, scene)


def test_filters_of_postgresql_find_the_same(postgres_url: str) -> None:
    async def scene(store: EventStore) -> None:
        await fill(store)
        assert len((await store.history(Filter(text="FAILURE 50%_7"))).rows) == 1
        assert len((await store.history(Filter(outcome="running", instance="10.0.0.1"))).rows) == 2
        east = datetime(2027, 1, 15, 16, 0, 3, tzinfo=UTC).astimezone()
        assert len((await store.history(Filter(since=east - timedelta(hours=8)))).rows) == 7
        assert len((await store.states(Filter(state="TASK_ERROR", item=0))).rows) == 2

    play(postgres_url, scene)


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.history(limit=0),
        lambda store: store.history(limit=1001),
        lambda store: store.history(after="yesterday~1"),
        lambda store: store.history(Filter(state="TASK_ERROR")),
        lambda store: store.states(Filter(outcome="failed")),
        lambda store: store.history(Filter(since=datetime(2027, 1, 1))),
        lambda store: store.history(Filter(since=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))))),
        lambda store: store.history(Filter(outcome="nonsense")),
        lambda store: store.history(Filter(item=-1)),
        lambda store: store.history(Filter(item=2**64)),
        lambda store: store.prune(days=0),
        lambda store: store.prune(rows=0),
    ],
)
def test_questions_that_make_no_sense(sqlite_url: str, ask: Callable[[EventStore], Awaitable[object]]) -> None:
    async def scene(store: EventStore) -> None:
        with pytest.raises(InvalidSetting):
            await ask(store)

    play(sqlite_url, scene)


def test_sparklines_are_the_newest_runs_of_each_job(url: str) -> None:
    async def scene(store: EventStore) -> None:
        for n in range(60):
            await fill(store, job=f"job-{n}", slots=2)
        await fill(store, slots=9)
        sparklines = await store.sparklines([*(f"job-{n}" for n in range(60)), "report", "unknown"], last=4)
        assert len(sparklines) == 62
        assert sparklines["unknown"] == ()
        assert all(len(sparklines[f"job-{n}"]) == 2 for n in range(60))
        assert [beat.outcome for beat in sparklines["report"]] == ["running", "timed out", "cancelled", "completed"][
            -4:
        ]
        assert [beat.began for beat in sparklines["report"]] == sorted(beat.began for beat in sparklines["report"])
        assert await store.job_names() == tuple(sorted(sparklines.keys() - {"unknown"}))
        assert (await store.counts_by_job(Filter(job="job-1"))) == {"job-1": {"running": 1, "failed": 1}}

    play(url, scene)


def test_a_run_that_was_cut_off_is_closed_by_who_rescues_it(url: str) -> None:
    async def scene(store: EventStore) -> None:
        await store.write(batch(*beginning(), *beginning(item=1), *beginning(NOON + 1000)))
        rescue = beginning(me=OTHER, source=FireSource.FAILOVER)
        now = NOON / 1000 + 30
        rescued = Rescued("report", OTHER, NOON, 0, ME, name(NOON, 0, me=OTHER), now)
        await store.write(batch(*rescue, rescued, end(me=OTHER, source=FireSource.FAILOVER)))
        found = {(run.item, run.instance, run.fire_time): run for run in (await store.history()).rows}
        cut_off = found[0, ME, moment(NOON / 1000)]
        assert (cut_off.outcome, cut_off.ended, cut_off.seconds) == ("cut off", moment(now), None)
        assert found[1, ME, moment(NOON / 1000)].outcome == "running"
        assert found[0, ME, moment(NOON / 1000 + 1)].outcome == "running"
        details = await store.run(cut_off.id)
        assert details is not None
        assert [(run.instance, run.source, run.outcome) for run in details.kin] == [(OTHER, "FAILOVER", "completed")]
        (state,) = (await store.states(Filter(state="TASK_RESCUED"))).rows
        assert (state.message, state.source) == (f"cut off on {ME}", "FAILOVER")

    play(url, scene)


def test_a_cancelled_run_that_was_cut_off_is_closed_by_the_leader_who_ends_it(url: str) -> None:
    async def scene(store: EventStore) -> None:
        await store.write(batch(*beginning(), *beginning(item=1)))
        now = NOON / 1000 + 30
        closed = Closed("report", OTHER, NOON, FireSource.SCHEDULE, 0, Outcome.STOPPED, ME, name(NOON, 0), now)
        await store.write(batch(closed))
        found = {run.item: run for run in (await store.history()).rows}
        assert (found[0].outcome, found[0].ended, found[1].outcome) == ("stopped", moment(now), "running")
        (state,) = (await store.states(Filter(state="TASK_KILLED"))).rows
        assert (state.message, state.instance) == (f"cut off on {ME}, and cancelled", OTHER)

    play(url, scene)


def test_failed_attempts_are_in_the_trace_and_counted_in_the_run(url: str) -> None:
    async def scene(store: EventStore) -> None:
        about = "report", ME, NOON, FireSource.SCHEDULE, (0,)
        failed = [
            AttemptFailed(*about, number, 1.0, 0.0, name(NOON, 0), NOON / 1000 + 1, raised(f"luck {number}"))
            for number in (1, 2)  # in the same millisecond
        ]
        over = replace(end(), attempt=3)
        await store.write(batch(*beginning(), *failed, over))
        await store.write(batch(*failed, over))  # it was unknown whether the first write had come through
        await store.write(batch(*beginning(item=1)))
        runs = {run.item: run for run in (await store.history()).rows}
        assert (runs[0].outcome, runs[0].attempts, runs[1].attempts) == ("completed", 3, None)
        details = await store.run(runs[0].id)
        assert details is not None
        states = [(state.state, state.message) for state in details.states]
        assert states[:2] + states[4:] == [("TASK_STAGING", None), ("TASK_RUNNING", None), ("TASK_FINISHED", None)]
        assert sorted(states[2:4]) == [
            ("TASK_ATTEMPT_FAILED", "attempt 1: ValueError: luck 1"),
            ("TASK_ATTEMPT_FAILED", "attempt 2: ValueError: luck 2"),
        ]

    play(url, scene)


def test_missed_moments_are_counted_in_the_database_by_moments_as_the_metrics_count_them(url: str) -> None:
    async def scene(store: EventStore) -> None:
        now = NOON / 1000
        await store.write(batch(Misfired("report", ME, NOON, NOON, (0, 1), 3, "busy", at=now)))
        await store.write(batch(Misfired("report", ME, NOON, NOON + 20, (2,), 3, "busy", at=now + 20)))
        await store.write(batch(Misfired("report", ME, NOON, NOON + 90, (2,), 3, "busy", at=now + 90)))
        await store.write(batch(Misfired("report", ME, NOON, NOON + 30, (0,), MOMENTS_COUNTED, "gone", at=now + 30)))
        await store.write(batch(Misfired("other", ME, NOON, NOON, (0,), 1, "9 × 9", at=now)))
        found = await store.missed(Filter(since=moment(now)))
        assert sorted(found["report"], key=lambda one: (one.why, one.first)) == [
            MissedMoments(Count(9), "busy", now, now + 20),
            MissedMoments(Count(3), "busy", now + 90, now + 90),
            MissedMoments(Count(16, is_least=True), "gone", now + 30, now + 30),
        ]
        assert total_of(found["report"]) == Count(28, is_least=True)
        assert await store.missed(Filter(since=moment(now + 31), job="other")) == {}

    play(url, scene)


def test_misfires_and_hand_overs_are_in_the_trace(url: str) -> None:
    async def scene(store: EventStore) -> None:
        over = HandedOver("report", ME, NOON, FireSource.SCHEDULE, 0, name(NOON, 0), NOON / 1000 + 3)
        await store.write(batch(*beginning(), end(outcome=Outcome.CANCELLED)))
        await store.write(batch(over))
        (run,) = (await store.history(Filter(outcome="handed over"))).rows
        details = await store.run(run.id)
        assert details is not None
        assert [state.state for state in details.states][-2:] == ["TASK_KILLED", "TASK_HANDED_OVER"]
        now = NOON / 1000 + 9
        missed = Misfired("report", OTHER, NOON - 5000, NOON + 5000, (0, 1), 3, "no instance was up", "", now)
        await store.write(batch(*beginning(NOON + 5000, 1), missed, replace(missed, items=(1,), cut_off=ME)))
        states = (await store.states(Filter(state="TASK_MISFIRED", item=1))).rows
        assert {state.message for state in states} == {"3 × no instance was up"}
        assert (await store.counts()) == {"handed over": 1, "cut off": 1}
        await store.write(batch(replace(missed, slot=NOON + 90_000, moments=MOMENTS_COUNTED)))
        (newest, *_) = (await store.states(Filter(state="TASK_MISFIRED", item=1))).rows
        assert newest.message == "at least 16 × no instance was up"

    play(url, scene)


def test_old_rows_are_removed_by_age_and_by_number(url: str) -> None:
    async def scene(store: EventStore) -> None:
        days = 86_400_000
        await store.write(batch(*(end(NOON - n * days, n) for n in range(700))))
        assert await store.prune(days=600) == 2 * 100  # a run and its state each
        assert sum((await store.counts()).values()) == 600
        assert await store.prune(rows=10) == 2 * 590
        assert sorted(run.item for run in (await store.history()).rows) == list(range(10))
        assert await store.prune(days=600, rows=10) == 0

    play(url, scene)


def test_a_history_may_be_kept_longer_than_there_is_a_calendar(url: str) -> None:
    async def scene(store: EventStore) -> None:
        await fill(store)
        assert await store.prune(days=1e300, rows=10**30) == 0
        assert len((await store.history()).rows) == 10

    play(url, scene)


def test_texts_that_databases_dislike_are_written(url: str) -> None:
    async def scene(store: EventStore) -> None:
        failure = raised("NUL \0 and half a pair \ud800 and 漢字 🚀" + "x" * 10_000)
        job, item = "j" * 200, "9" * 300
        ended = replace(end(outcome=Outcome.FAILED, failure=failure, job=job), task_id=f"{job}@-@{item}@-@{ME}@-@ff")
        await store.write(batch(ended))
        (run,) = (await store.history(Filter(text="漢字 🚀"))).rows
        assert run.failure is not None
        assert "NUL � and half a pair ? and" in run.failure
        assert (len(run.failure), len(run.task_id), run.task_id[-5:]) == (4000, 255, "@-@ff")

    play(url, scene)


def test_an_absent_database_is_an_error_without_the_password() -> None:
    async def scene(store: EventStore) -> None:
        with pytest.raises(EventStoreUnreachable) as failure:
            await store.history()
        assert "s3cret" not in str(failure.value)
        assert "postgresql://me:…@127.0.0.1" in str(failure.value)

    play(f"postgresql://me:s3cret@127.0.0.1:{closed_port()}/events", scene)


def test_an_option_that_the_driver_rejects_only_as_it_connects_is_an_error_without_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def reject(*_: object, **options: object) -> None:
        raise TypeError(f"cannot connect with {options}")

    async def scene(store: EventStore) -> None:
        for ask in (store.history, lambda: store.write(batch(*beginning()))):
            with pytest.raises(EventStoreUnreachable, match="'password': '…'") as failure:
                await ask()
            assert "event store postgresql://me:…@127.0.0.1" in str(failure.value)
            assert "s3cret" not in str(failure.value)
            assert not failure.value.refused  # the rows wait, as while the database is down

    monkeypatch.setattr("asyncpg.connect", reject)
    play("postgresql://me:s3cret@127.0.0.1/events", scene)


@pytest.mark.parametrize(
    "options",
    [
        "statement_cache_size=0",
        "statement_cache_size=0&prepared_statement_cache_size=0&command_timeout=60&timeout=60",
        "max_cached_statement_lifetime=60&max_cacheable_statement_size=100&ssl=prefer&target_session_attrs=any",
    ],
)
def test_postgresql_is_used_with_the_options_of_its_url(postgres_url: str, options: str) -> None:
    async def scene(store: EventStore) -> None:
        await fill(store)
        assert len((await store.history()).rows) == 10

    play(f"{postgres_url}?{options}", scene)


def test_a_wrong_password_is_an_error_without_it(postgres_url: str) -> None:
    async def scene(store: EventStore) -> None:
        with pytest.raises(EventStoreUnreachable, match="password authentication failed") as failure:
            await store.history()
        assert "wr0ng" not in str(failure.value)

    start, _, where = postgres_url.rpartition("@")
    play(f"{start.rpartition(':')[0]}:wr0ng@{where}", scene)


def test_tables_that_were_dropped_under_our_hands_are_made_again(url: str) -> None:
    async def scene(store: EventStore) -> None:
        await fill(store)
        async with store._writing() as connection:
            for table in ("job_execution_log", "job_status_trace_log", "aioelasticjob_schema"):
                await connection.exec_driver_sql(f"DROP TABLE {table}")
        with pytest.raises(EventStoreUnreachable):
            await store.history()
        assert (await store.history()).rows == ()

    play(url, scene)


@pytest.mark.parametrize("state", ["22001", "22003", "22P05", "23502", "23505", "23514"])
def test_rows_are_refused_if_postgresql_says_that_their_values_are_wrong(postgres_url: str, state: str) -> None:
    assert _refuses(postgres_url, state)


@pytest.mark.parametrize(
    "state",
    [
        "08006",  # the connection was lost
        "25006",  # the database can only be read
        "40001",  # another transaction has changed the same rows
        "40P01",  # two transactions wait for each other
        "42501",  # permission denied
        "42P01",  # there is no such table
        "53100",  # the disk is full
        "53200",  # out of memory
        "53300",  # too many connections
        "55P03",  # somebody else has locked the table
        "57014",  # somebody has cancelled the statement
        "57P01",  # the server is being shut down
        "57P03",  # the server is starting
        "58030",  # the disk cannot be read or written
        "P0001",  # a trigger raises an error
        "XX000",  # a defect of the server
    ],
)
def test_rows_wait_if_postgresql_says_anything_else(postgres_url: str, state: str) -> None:
    assert not _refuses(postgres_url, state)


def _refuses(url: str, state: str) -> bool:
    """Whether the store takes the rows for wrong if the database answers their insertion with a state of SQL."""
    refused = list[bool]()
    function = f"""CREATE FUNCTION harm() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '{state}'; END $$"""
    trigger = "CREATE TRIGGER harm BEFORE INSERT ON job_execution_log FOR EACH ROW EXECUTE FUNCTION harm()"

    async def scene(store: EventStore) -> None:
        await store.prepare()
        async with store._writing() as connection:
            await connection.exec_driver_sql(function)
            await connection.exec_driver_sql(trigger)
        with pytest.raises(EventStoreUnreachable, match="on purpose") as failure:
            await store.write(batch(end()))
        refused.append(failure.value.refused)
        async with store._writing() as connection:
            await connection.exec_driver_sql("DROP TRIGGER harm ON job_execution_log")
        await store.write(batch(end()))
        assert await store.counts() == {"completed": 1}

    play(url, scene)
    return refused[0]


@pytest.mark.parametrize(
    "values",
    [
        {"sharding_item": 2**70},
        {"hostname": "half a pair: \ud800"},
        {"hostname": None},
        {"start_time": "no time"},
    ],
    ids=["a number is too large", "half a surrogate pair", "nothing where something must be", "a time is none"],
)
def test_a_row_with_a_value_that_cannot_be_written_is_refused(url: str, values: dict[str, object]) -> None:
    async def scene(store: EventStore) -> None:
        wrong = batch(end())
        for row in wrong.ended.values():
            row.update(values)
        with pytest.raises(EventStoreUnreachable) as failure:
            await store.write(wrong)
        assert failure.value.refused
        await store.write(batch(end()))
        assert await store.counts() == {"completed": 1}

    play(url, scene)


def test_nul_in_a_text_is_refused_by_postgresql(postgres_url: str) -> None:
    async def scene(store: EventStore) -> None:
        wrong = batch(end())
        for row in wrong.ended.values():
            row["hostname"] = "a\0b"
        with pytest.raises(EventStoreUnreachable) as failure:
            await store.write(wrong)
        assert failure.value.refused

    play(postgres_url, scene)


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (asyncmy.errors.DataError(1406, "Data too long for column"), True),
        (asyncmy.errors.IntegrityError(1048, "Column cannot be null"), True),
        (asyncmy.errors.OperationalError(1366, "Incorrect string value"), True),
        (asyncmy.errors.OperationalError(3819, "Check constraint is violated"), True),
        (asyncmy.errors.OperationalError(4025, "CONSTRAINT failed"), True),
        (asyncmy.errors.OperationalError(1021, "Disk full"), False),
        (asyncmy.errors.OperationalError(1290, "running with the --read-only option"), False),
        (asyncmy.errors.OperationalError(1213, "Deadlock found"), False),
        (asyncmy.errors.OperationalError(1053, "Server shutdown in progress"), False),
        (asyncmy.errors.ProgrammingError(1146, "Table doesn't exist"), False),
        (asyncmy.errors.OperationalError(1142, "INSERT command denied"), False),
        (asyncmy.errors.IntegrityError(2013, "Lost connection"), False),
        (asyncmy.errors.DataError(9999, "of a server that is newer than this program"), False),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), True),
    ],
    ids=str,
)
def test_of_mysql_the_number_of_the_error_says_whether_rows_are_refused(error: Exception, refused: bool) -> None:
    if isinstance(error, asyncmy.errors.Error):
        error = DBAPIError.instance("INSERT", None, error, asyncmy.errors.Error)  # as SQLAlchemy wraps it
    assert is_about_values(error) is refused


def test_a_full_or_locked_sqlite_file_refuses_no_rows(sqlite_url: str) -> None:
    async def scene(store: EventStore) -> None:
        await store.write(batch(end()))
        async with store._connected() as connection:
            await connection.exec_driver_sql("PRAGMA max_page_count = 1")  # of this connection, which is used again
        many = batch(*(end(NOON + 1000 * n, failure=raised("x" * 4000)) for n in range(1, 300)))
        with pytest.raises(EventStoreUnreachable, match="full") as full:
            await store.write(many)
        assert not full.value.refused
        async with store._connected() as connection:
            await connection.exec_driver_sql("PRAGMA max_page_count = 100000")
        async with open_store(sqlite_url, clock=Clock()) as other, other._writing():
            with pytest.raises(EventStoreUnreachable) as locked:
                await store.write(batch(end(NOON + 1000)))
        assert not locked.value.refused

    play(EventStoreSettings(sqlite_url, write_timeout=2), scene)


def test_an_error_while_the_tables_are_made_is_not_the_fault_of_rows(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the unique key that two processes want to write which upgrade at once."""

    def twice(connection: Connection) -> None:
        for _ in range(2):
            connection.execute(insert(schema.VERSIONS).values(version=99))

    async def scene(store: EventStore) -> None:
        with monkeypatch.context() as once:
            once.setattr(schema, "STEPS", (*schema.STEPS, twice))
            with pytest.raises(EventStoreUnreachable) as failure:
                await store.write(batch(end()))
        assert not failure.value.refused
        await store.write(batch(end()))
        assert await store.counts() == {"completed": 1}

    play(url, scene)


def test_a_file_that_is_no_database_is_not_taken_for_rows_that_are_refused(tmp_path: Path) -> None:
    """If it were, each row would be lost, where it could have been written once the file was moved away."""
    file = tmp_path / "events.db"
    file.write_bytes(b"no database at all" * 100)

    async def scene(store: EventStore) -> None:
        with pytest.raises(EventStoreUnreachable, match=r"move it away, and an empty one is made") as failure:
            await store.write(batch(*beginning(), end()))
        assert not failure.value.refused
        file.rename(tmp_path / "damaged.db")
        await store.write(batch(*beginning(), end()))
        assert len((await store.history()).rows) == 1

    play(f"sqlite:///{file}", scene)


def test_whoever_only_reads_waits_for_no_writer(sqlite_url: str) -> None:
    async def scene(store: EventStore) -> None:
        await fill(store)
        async with store._writing() as writing:  # somebody else's long transaction
            await writing.exec_driver_sql("DELETE FROM job_execution_log")
            async with open_store(EventStoreSettings(sqlite_url, write_timeout=60), clock=Clock()) as reader:
                assert len((await reader.history()).rows) == 10

    play(sqlite_url, scene)


@pytest.mark.parametrize("cancelled", [False, True], ids=["closing goes on", "closing is cancelled, too"])
def test_a_writer_that_is_cancelled_while_it_waits_for_another_one_leaves_no_task(
    sqlite_url: str, cancelled: bool
) -> None:
    async def scene(store: EventStore) -> None:
        await store.prepare()
        async with open_store(sqlite_url, clock=Clock()) as other, other._writing():
            with anyio.move_on_after(1) as patience:
                await fill(store)
            assert patience.cancelled_caught
            closing = asyncio.all_tasks() - {asyncio.current_task()}
            assert closing  # the thread of the connection still waits for the other writer
            for task in closing:
                if cancelled:  # as it is at the end of a program
                    task.cancel()
        async with asyncio.timeout(60):
            await asyncio.wait(closing)

    play(EventStoreSettings(sqlite_url, write_timeout=30), scene)


@pytest.mark.parametrize("answers", [True, False], ids=["the disk is slow", "the disk does not answer"])
def test_a_query_that_is_cancelled_while_it_opens_the_file_leaves_no_connection(
    sqlite_url: str, answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, going_on, opened, threads = Event(), Event(), list[sqlite3.Connection](), set[Thread]()

    def connect_slowly(*given: Any, **options: Any) -> sqlite3.Connection:
        threads.add(current_thread())
        begun.set()
        going_on.wait(60)
        opened.append(connect(*given, **options))
        return opened[-1]

    async def scene(store: EventStore) -> None:
        query = asyncio.ensure_future(store.counts())
        assert await asyncio.to_thread(begun.wait, 60)
        query.cancel()
        with pytest.raises(asyncio.CancelledError):
            await query
        if answers:
            asyncio.get_running_loop().call_later(0.05, going_on.set)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", connect_slowly)
    monkeypatch.setattr("aioelasticjob.observers.sql.store.CLOSE_TIMEOUT", 60 if answers else 0.05)
    play(sqlite_url, scene)
    assert going_on.is_set() is answers  # the store waits for a slow disk as it is closed
    going_on.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for file in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            file.execute("SELECT 1")


def test_whoever_only_reads_needs_no_right_to_write(postgres_url: str) -> None:
    reader = f"reader_{uuid4().hex}"

    async def scene(store: EventStore) -> None:
        await fill(store)
        async with store._writing() as connection:
            await connection.exec_driver_sql(f"CREATE ROLE {reader} LOGIN PASSWORD 'secret'")
            await connection.exec_driver_sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}")
        async with open_store(f"postgresql://{reader}:secret@{postgres_url.rpartition('@')[2]}") as looking:
            assert len((await looking.history()).rows) == 10
            with pytest.raises(EventStoreUnreachable, match="permission denied"):
                await looking.write(batch(*beginning(NOON + 60_000)))
        async with store._writing() as connection:
            await connection.exec_driver_sql(f"DROP OWNED BY {reader}")
            await connection.exec_driver_sql(f"DROP ROLE {reader}")

    play(postgres_url, scene)


def test_runs_are_counted_by_items_and_time_in_the_database(url: str) -> None:
    async def scene(store: EventStore) -> None:
        for n in range(6):
            outcome = Outcome.FAILED if n == 5 else Outcome.COMPLETED
            failure = raised() if n == 5 else None
            slot = NOON + 10_000 * n
            await store.write(batch(*beginning(slot, n), end(slot, n, outcome, failure=failure)))
        await store.write(batch(Misfired("report", ME, NOON, NOON, (1,), 1, "busy")))
        which = Filter(job="report", since=moment(NOON / 1000), until=moment(NOON / 1000 + 60))
        counts = sorted(
            (one.band, one.column, one.runs, one.failures) for one in await store.timeline(which, band=4, column=20)
        )
        assert counts == [(0, 0, 2, 0), (0, 1, 2, 0), (1, 2, 2, 1)]
        some = replace(which, items=(2, 5))
        counts = sorted((one.band, one.column, one.runs) for one in await store.timeline(some, band=2, column=60))
        assert counts == [(0, 0, 2), (1, 0, 2)]
        assert [run.item for run in (await store.history(replace(which, items=(4, 9)))).rows] == [5, 4]
        with pytest.raises(InvalidSetting, match="timeline"):
            await store.timeline(Filter(job="report"))

    play(url, scene)


def test_durations_are_ranked_by_the_database_in_pieces_of_time(url: str) -> None:
    async def scene(store: EventStore) -> None:
        taken = [float(n) for n in (7, 3, 20, 1, 15, *range(21, 36))]  # 20 runs of one minute
        ends = [end(NOON + 1000 * n, n, seconds=seconds) for n, seconds in enumerate(taken)]
        await store.write(batch(*ends, end(NOON + 60_000, 0, seconds=0.25)))
        other = [end(NOON, 50, Outcome.FAILED, seconds=900.0), end(NOON, 51, job="other", seconds=900.0)]
        await store.write(batch(*other, *beginning(NOON, 52)))
        which = Filter(job="report", outcome="completed", since=moment(NOON / 1000))
        minutes = await store.durations(which, column=60)
        assert minutes == (DurationCount(0, 20, 25.0, 34.0, 35.0), DurationCount(1, 1, 0.25, 0.25, 0.25))
        everything = await store.durations(replace(which, outcome=None), column=3600)
        assert [(one.runs, one.longest) for one in everything] == [(22, 900.0)]  # what still runs has no duration
        async with store._engine.begin() as connection:
            await connection.exec_driver_sql("UPDATE job_execution_log SET seconds = NULL, outcome = NULL")
        assert (await store.durations(which, column=60))[0].longest == 35.0  # rows of Elastic-Job's

    play(url, scene)


def test_runs_are_counted_by_time_and_outcome_in_the_database(url: str) -> None:
    async def scene(store: EventStore) -> None:
        assert await store.first() is None
        await fill(store)
        since = moment(NOON / 1000)
        counts = await store.histogram(Filter(since=since), column=5)
        assert sum(one.runs for one in counts) == 10
        assert {(one.column, one.outcome): one.runs for one in counts}[0, "failed"] == 1
        assert {one.column for one in counts} == {0, 1}
        assert {one.outcome for one in await store.histogram(Filter(since=since, outcome="failed"))} == {"failed"}
        began = await store.first(Filter(job="report", since=moment(NOON / 1000 + 3)))
        assert began is not None
        assert int(began.timestamp()) == NOON // 1000 + 3
        with pytest.raises(InvalidSetting, match="timeline"):
            await store.histogram(Filter())

    play(url, scene)
