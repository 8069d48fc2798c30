"""Several namespaces may write to one event store: its rows say whose they are, and a query may ask for one's only."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from aioelasticjob.events import Misfired
from aioelasticjob.model import Outcome
from aioelasticjob.observers.missed import Count, total_of
from aioelasticjob.observers.sql import EventStore, EventStoreUnreachable, Filter, open_store, schema
from aioelasticjob.observers.sql import store as store_module
from aioelasticjob.observers.sql.rows import halved
from tests.observers.sample_events import ME, NOON, OTHER, Clock, batch, beginning, end, raised

SINCE = datetime.fromtimestamp(NOON / 1000, UTC) - timedelta(minutes=1)


async def _fill(store: EventStore) -> None:
    """Write a failed run and another's success of one job name, a run of nobody's namespace, and one in upper case."""
    failed = end(outcome=Outcome.FAILED, failure=raised())
    await store.write(batch(*beginning(), failed, end(item=5, job="audit"), namespace="shop"))
    await store.write(batch(*beginning(me=OTHER), end(me=OTHER), namespace="billing"))
    missed = Misfired("report", OTHER, NOON, NOON, (0,), 2, "busy", at=NOON / 1000)
    await store.write(batch(missed, namespace="billing"))
    await store.write(batch(replace(missed, instance=ME), namespace="shop"))
    await store.write(batch(end(item=7, me="10.0.0.3@-@1-aaaaaaaa", job="older")))
    await store.write(batch(end(item=8, me="10.0.0.4@-@1-bbbbbbbb", job="upper"), namespace="SHOP"))


def test_a_namespace_has_its_own_runs_only_whatever_is_asked(url: str) -> None:
    async def main() -> None:
        async with open_store(url, clock=Clock()) as store:
            await _fill(store)
            everything = (await store.history()).rows
            assert {run.namespace for run in everything} == {"shop", "billing", None, "SHOP"}
            assert [run.job for run in (await store.history(Filter(namespace="billing"))).rows] == ["report"]
            assert (await store.history(Filter(namespace=""))).rows == ()
            with_unnamed = Filter(namespace="billing", unnamed=True)
            assert await store.counts_by_job(with_unnamed) == {"report": {"completed": 1}, "older": {"completed": 1}}
            key = {run.namespace: run.id for run in everything if run.job == "report"}
            shown = await store.run(key["shop"])
            assert shown is not None
            assert shown.kin == ()  # the same moment of billing's job of that name is none of its

            store.scope = Filter(namespace="billing")
            which = Filter(since=SINCE)
            assert [run.instance for run in (await store.history()).rows] == [OTHER]
            assert {state.instance for state in (await store.states()).rows} == {OTHER}
            assert (await store.run(key["shop"]), await store.failures()) == (None, [])
            assert await store.run(key["billing"]) is not None
            assert [stroke.outcome for stroke in (await store.sparklines(["report"]))["report"]] == ["completed"]
            assert await store.job_names() == ("report",)
            assert await store.counts() == {"completed": 1}
            assert [one.runs for one in await store.timeline(which)] == [1]
            assert [one.runs for one in await store.durations(which)] == [1]
            assert [one.outcome for one in await store.histogram(which)] == ["completed"]
            assert {job: total_of(missed) for job, missed in (await store.missed(which)).items()} == {
                "report": Count(2)
            }
            assert (await store.history(Filter(namespace="shop"))).rows[0].instance == OTHER  # the scope holds
            store.scope = Filter(namespace="nobody's")
            assert await store.first() is None

    asyncio.run(main())


def test_a_store_of_some_jobs_has_their_rows_only_whatever_is_asked_and_stays_in_its_namespace(url: str) -> None:
    async def main() -> None:
        async with open_store(url, clock=Clock()) as store:
            await _fill(store)
            key = {run.job: run.id for run in (await store.history(Filter(namespace="shop"))).rows}
            store.scope = Filter(namespace="shop")
            part = store.of_jobs(frozenset({"audit", "upper"}))
            which = Filter(since=SINCE)
            assert [run.job for run in (await part.history()).rows] == ["audit"]
            assert (await part.history(Filter(job="report"))).rows == ()
            assert {state.job for state in (await part.states()).rows} == {"audit"}
            assert (await part.run(key["report"]), await part.failures()) == (None, [])
            assert await part.run(key["audit"]) is not None
            assert (await part.sparklines(["report"]))["report"] == ()
            assert await part.job_names() == ("audit",)
            assert await part.counts() == {"completed": 1}
            for found in (await part.timeline(which), await part.durations(which), await part.histogram(which)):
                assert [one.runs for one in found] == [1]
            assert await part.missed(which) == {}
            assert await store.of_jobs(frozenset()).first() is None
            assert len((await store.history()).rows) == 2  # the store itself is as it was

    asyncio.run(main())


def test_parts_of_a_batch_keep_its_namespace() -> None:
    parts = halved(batch(*beginning(), end(), namespace="shop"))
    assert [part.namespace for part in parts] == ["shop", "shop"]
    assert {row["namespace"] for part in parts for kind, row in part.rows()} == {"shop"}


def test_who_may_not_upgrade_an_older_store_can_read_it_until_somebody_else_has(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def refuse(connection: Connection, clock: Clock) -> int:
        tries.append(clock)
        raise OperationalError("ALTER TABLE", {}, Exception("attempt to write a readonly database"))

    async def main() -> None:
        async with open_store(url, clock=Clock()) as store:
            with monkeypatch.context() as older:
                older.setattr(schema, "STEPS", schema.STEPS[:3])
                await store.prepare()
            async with store._writing() as connection:
                for table in (schema.RUNS, schema.STATES):
                    await connection.exec_driver_sql(f"ALTER TABLE {table.name} DROP COLUMN namespace")
                rows = batch(*beginning(), end(outcome=Outcome.FAILED, failure=raised()))
                for row in (*rows.begun.values(), *rows.ended.values(), *rows.states):
                    del row["namespace"]
                await store._writes.all_of(rows, connection)
        async with open_store(url, clock=Clock()) as reader, open_store(url, clock=Clock()) as worker:
            with monkeypatch.context() as refused:
                refused.setattr(store_module, "upgrade", refuse)
                await _read_older(reader)
                with pytest.raises(EventStoreUnreachable, match="readonly"):
                    await reader.write(batch(end(item=3)))
                assert len(tries) == 2  # once to read, once to write
            await worker.write(batch(end(item=1), namespace="shop"))
            reader.scope = Filter(namespace="shop")
            assert [run.item for run in (await reader.history()).rows] == [1]

    async def _read_older(reader: EventStore) -> None:
        (run,) = (await reader.history()).rows
        assert (run.namespace, run.instance) == (None, ME)
        assert await reader.run(run.id) is not None
        assert {state.instance for state in (await reader.states()).rows} == {ME}
        reader.scope = Filter(namespace="shop", unnamed=True)
        assert [one.id for one in await reader.failures()] == [run.id]
        reader.scope = Filter(namespace="shop")
        assert (await reader.failures(), await reader.counts(), await reader.run(run.id)) == ([], {}, None)
        reader.scope = Filter()

    asyncio.run(main())
