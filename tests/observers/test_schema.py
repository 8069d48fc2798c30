"""Tables come from nothing, from Elastic-Job's, or from any older version, and no row is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from anyio import create_task_group
from sqlalchemy import Connection, text
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import CreateTable

from aioelasticjob.observers.sql import EventStore, EventStoreUnreachable, Filter, open_store, schema
from aioelasticjob.observers.sql.writes import Writes
from tests.observers.sample_events import Clock, batch, beginning, end
from tests.support.processes import Workers

JAVA = (
    """CREATE TABLE JOB_EXECUTION_LOG (id VARCHAR(40) NOT NULL, job_name VARCHAR(100) NOT NULL,
    task_id VARCHAR(255) NOT NULL, hostname VARCHAR(255) NOT NULL, ip VARCHAR(50) NOT NULL,
    sharding_item INTEGER NOT NULL, execution_source VARCHAR(20) NOT NULL, failure_cause VARCHAR(4000) NULL,
    is_success INTEGER NOT NULL, start_time TIMESTAMP NULL, complete_time TIMESTAMP NULL, PRIMARY KEY (id))""",
    """CREATE TABLE JOB_STATUS_TRACE_LOG (id VARCHAR(40) NOT NULL, job_name VARCHAR(100) NOT NULL,
    original_task_id VARCHAR(255) NOT NULL, task_id VARCHAR(255) NOT NULL, slave_id VARCHAR(50) NOT NULL,
    execution_type VARCHAR(20) NOT NULL, sharding_item VARCHAR(100) NOT NULL, state VARCHAR(20) NOT NULL,
    message VARCHAR(4000) NULL, creation_time TIMESTAMP NULL, PRIMARY KEY (id))""",
    "CREATE INDEX TASK_ID_STATE_INDEX ON JOB_STATUS_TRACE_LOG (task_id, state)",
)
"""As Elastic-Job 3 makes them in PostgreSQL."""
ROWS = (
    """INSERT INTO job_execution_log VALUES ('a', 'old', 'old@-@0@-@READY@-@1.2.3.4@-@7', 'h', '1.2.3.4', 0,
    'NORMAL_TRIGGER', NULL, 1, '2020-01-01 10:00:00', '2020-01-01 10:00:02')""",
    """INSERT INTO job_execution_log VALUES ('b', 'old', 'old@-@0@-@READY@-@1.2.3.4@-@7', 'h', '1.2.3.4', 1,
    'NORMAL_TRIGGER', 'java.lang.NullPointerException', 0, '2020-01-01 11:00:00', '2020-01-01 11:00:03')""",
    """INSERT INTO job_execution_log VALUES ('c', 'old', 'old@-@0@-@READY@-@1.2.3.4@-@7', 'h', '1.2.3.4', 2,
    'NORMAL_TRIGGER', NULL, 0, '2020-01-01 12:00:00', NULL)""",
    """INSERT INTO job_status_trace_log VALUES ('d', 'old', '', 'old@-@0@-@READY@-@1.2.3.4@-@7', '1.2.3.4', 'READY',
    '[0, 1, 2]', 'TASK_STAGING', '', '2020-01-01 10:00:00')""",
)


async def execute(store: EventStore, statements: Sequence[str]) -> None:
    async with store._writing() as connection:
        for statement in statements:
            await connection.execute(text(statement))


async def columns(store: EventStore, table: str) -> list[str]:
    async with store._writing() as connection:
        return list((await connection.execute(text(f"SELECT * FROM {table}"))).keys())


def test_elastic_jobs_tables_are_taken_over_with_their_rows(url: str) -> None:
    async def main() -> None:
        async with open_store(url, clock=Clock()) as store:
            await execute(store, JAVA)
            await execute(store, ROWS)
            await store.write(batch(*beginning(job="n" * 150), end(job="n" * 150)))
            old = (await store.history(Filter(job="old"))).rows
            assert [(run.id, run.outcome, run.seconds) for run in old] == [
                ("c", "running", None),
                ("b", "failed", 3.0),
                ("a", "completed", 2.0),
            ]
            assert old[1].failure == "java.lang.NullPointerException"
            assert old[0].instance == "1.2.3.4"
            assert (await store.counts(Filter(outcome="completed"))) == {"completed": 2}
            (state,) = (await store.states(Filter(job="old"))).rows
            assert (state.item, state.state, state.message, state.fire_time) == (
                "[0, 1, 2]",
                "TASK_STAGING",
                None,
                None,
            )
            details = await store.run("b")
            assert details is not None
            assert (details.stack, details.kin) == (None, ())
            if url.startswith("postgresql"):  # SQLite does not mind its widths
                assert store.widths["job_name"] == 100
                (new,) = (await store.history(Filter(outcome="completed"), limit=1)).rows
                assert len(new.job) == 100
            await execute(store, [ROWS[0].replace("'a'", "'e'").replace(" VALUES", f" ({','.join(java)}) VALUES")])
            assert len((await store.history(Filter(job="old"))).rows) == 4  # Java goes on writing

    java = schema.RUNS.columns.keys()[:11]
    asyncio.run(main())


def test_an_older_version_gets_what_it_lacks_and_keeps_its_rows(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with open_store(url, clock=Clock()) as store:
            with monkeypatch.context() as older:
                older.setattr(schema, "STEPS", schema.STEPS[:1])
                await store.prepare()
            assert "fire_time" not in await columns(store, "job_execution_log")
            await execute(store, ROWS)
        async with open_store(url, clock=Clock()) as store:
            assert len((await store.history()).rows) == 3
            assert "fire_time" in await columns(store, "job_execution_log")

    asyncio.run(main())


def test_a_newer_version_is_left_as_it_is(url: str) -> None:
    async def main() -> None:
        async with open_store(url, clock=Clock()) as store:
            await store.write(batch(end()))
            await execute(store, ["INSERT INTO aioelasticjob_schema VALUES (99, NULL)"])
            await execute(store, ["ALTER TABLE job_execution_log ADD COLUMN of_the_future VARCHAR(9)"])
        async with open_store(url, clock=Clock()) as store:
            assert await store.counts() == {"completed": 1}
            assert "of_the_future" in await columns(store, "job_execution_log")

    asyncio.run(main())


def test_a_step_that_was_cut_off_is_taken_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """MySQL cannot roll back what was done of it; the other two do, so half of it is done by hand as well."""

    def stumble(connection: Connection) -> None:
        second(connection)
        raise OSError("the power went off")

    async def main() -> None:
        async with open_store(url, clock=Clock()) as store:
            with monkeypatch.context() as once:
                once.setattr(schema, "STEPS", (schema.STEPS[0], stumble))
                with pytest.raises(EventStoreUnreachable, match="power"):
                    await store.prepare()
            await execute(store, JAVA)  # nothing is there: the first step was rolled back with the second
            await execute(store, ["ALTER TABLE job_execution_log ADD COLUMN fire_time TIMESTAMP"])
            await execute(store, ["CREATE INDEX job_execution_log_start ON job_execution_log (start_time)"])
            await store.write(batch(end()))
            assert await store.counts() == {"completed": 1}

    second = schema.STEPS[1]
    asyncio.run(main())


def test_stores_that_open_at_the_same_moment_upgrade_once(url: str) -> None:
    async def open_and_write(item: int) -> None:
        async with open_store(url, clock=Clock()) as store:
            await store.write(batch(end(item=item)))

    async def main() -> None:
        async with create_task_group() as tasks:
            for item in range(4):
                tasks.start_soon(open_and_write, item)
        async with open_store(url, clock=Clock()) as store:
            assert await store.counts() == {"completed": 4}
            async with store._writing() as connection:
                versions = (
                    await connection.execute(text("SELECT version FROM aioelasticjob_schema ORDER BY 1"))
                ).scalars()
                assert list(versions) == [1, 2, 3, 4]

    asyncio.run(main())


@pytest.mark.process
def test_processes_that_start_at_the_same_moment_upgrade_once(url: str, worker_processes: Workers) -> None:
    program = (
        "import asyncio, sys\n"
        "from aioelasticjob.observers.sql import open_store\n"
        "async def main():\n"
        "    async with open_store(sys.argv[1]) as store:\n"
        "        print(await store.counts())\n"
        "asyncio.run(main())\n"
    )
    children = [worker_processes.start("-c", program, url) for _ in range(3)]
    for child in children:
        assert child.wait(90) == 0, child.output
        assert child.output == "{}\n"


def test_the_statements_that_mysql_gets() -> None:
    """MySQL is not among the databases that tests start; its words at least are what it understands."""
    dialect = mysql.dialect()  # type: ignore[no-untyped-call]
    made = str(CreateTable(schema.RUNS, if_not_exists=True).compile(dialect=dialect))
    assert "start_time DATETIME(6)" in made
    assert "namespace TEXT COLLATE utf8mb4_bin" in made  # upper and lower case are different namespaces
    assert made.strip().startswith("CREATE TABLE IF NOT EXISTS job_execution_log")
    writes = Writes("mysql")
    begin, finish = (str(statement.compile(dialect=dialect)) for statement in (writes.begin, writes.end))
    assert begin.startswith("INSERT INTO job_execution_log (id, job_name, ")
    assert begin.endswith("ON DUPLICATE KEY UPDATE id = VALUES(id)")
    assert "is_success = VALUES(is_success), start_time = VALUES(start_time), complete_time = VALUES" in finish
    assert "job_name = VALUES" not in finish
    for table in (schema.RUNS, schema.STATES):
        assert all(len(column.name) < 64 for column in table.columns)
