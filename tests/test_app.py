"""What a user meets first: declaring, running, and everything that can be wrong with it."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import time
import traceback
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import anyio
import pytest
from anyio.abc import TaskStatus

from aioelasticjob import ElasticJob, InvalidSetting, ItemContext, JobConfig
from aioelasticjob.core.layout import Layout
from aioelasticjob.engine.life import Life
from aioelasticjob.errors import (
    AuthenticationFailed,
    Conflict,
    ForeignData,
    InvalidState,
    JobConflict,
    NotPermitted,
    RegistryUnreachable,
)
from aioelasticjob.events import Ended, EventReader, JobEvent
from aioelasticjob.registry import client
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.registry.transaction import Create, Delete, Op
from aioelasticjob.registry.tree import Tree
from aioelasticjob.testing import run
from aioelasticjob.zookeeper.server import serve
from tests.support.embedded import EmbeddedServer, embedded_server
from tests.support.processes import TIMEOUT
from tests.support.proxy import proxy_to
from tests.support.simulated_jobs import SimulatedJobs, simulate

EVERY_SECOND = "* * * * * ?"
NOWHERE = "zk://127.0.0.1:1/nobody"
LAYOUT = Layout("job")


async def nothing(context: object) -> None:
    """Do nothing, as a job."""


class Runs:
    """Counts the runs of a job."""

    def __init__(self) -> None:
        self.count, self._news = 0, anyio.Event()

    async def __call__(self, context: ItemContext) -> None:
        self.count += 1
        self._news.set()

    async def more(self, runs: int = 1) -> None:
        """Wait for so many more runs."""
        wanted = self.count + runs
        with anyio.fail_after(TIMEOUT):
            while self.count < wanted:
                self._news = anyio.Event()
                await self._news.wait()


def quick(address: str, **options: Any) -> ElasticJob:
    """Return an application that is impatient with its registry."""
    return ElasticJob(address, **{"session_timeout": 2, "base_sleep_time": 0.1, "max_sleep_time": 0.2, **options})


@pytest.fixture
def address(embedded: EmbeddedServer) -> str:
    return f"zk://{embedded.address}/test-{uuid4().hex}"


@asynccontextmanager
async def clerk(address: str, **options: Any) -> AsyncIterator[Session]:
    """Somebody who reads and writes what is in the registry."""
    async with open_session(ConnectionSettings.parse(address, **options)) as session:
        yield session


async def write(session: Session, *operations: Op) -> None:
    await session.commit(operations, incarnation=session.incarnation)


async def everything(session: Session) -> Tree:
    await session.sync()
    return await session.subtree(["/"])


# Declaring


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sharding_item_parameters": {3: "x"}, "sharding_total_count": 3}, "item 3 is out of range.*0 to 2"),
        ({"sharding_item_parameters": "0=a,1"}, "'1' is no pair like 0=Beijing"),
        ({"sharding_item_parameters": {-1: "x"}}, "item -1 is out of range"),
        ({"sharding_total_count": 0}, "sharding_total_count = 0"),
        ({"sharding_total_count": "3"}, "sharding_total_count = '3': must be a number, not text"),
        ({"sharding_total_count": True}, "must be a number, not True or False"),
        ({"failover": "no"}, "failover = 'no': must be True or False, not text"),
        ({"cron": "0 0 25 * * ?"}, "cron = '0 0 25 ..."),
        ({"crom": EVERY_SECOND}, "did you mean cron"),
        ({"time_zone": "Europe/Atlantis", "cron": EVERY_SECOND}, "Europe/Atlantis"),
        ({"failover": True, "monitor_execution": False}, "needs monitor_execution"),
        ({"sharding_strategy": "fair"}, "sharding_strategy = 'fair': must be one of average"),
        ({"name": "a/b"}, "must be 1 to 200 letters"),
        ({"name": "zookeeper"}, "not 'zookeeper'"),
        ({"name": ""}, "job_name = '': must be 1 to 200 letters"),
        ({"name": 0}, "job_name = 0: input should be a valid string"),
        ({"job_name": "other"}, "job_name = 'other': give it as name"),
        ({"job_type": "HTTP"}, "job_type = 'HTTP'"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value_and_what_would_be_right(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidSetting, match=message):
        ElasticJob(NOWHERE).add(nothing, **{"name": "job", **settings})


@pytest.mark.parametrize(
    "handler", [None, 5, "module:function", lambda: None, lambda one, two: None, (n for n in "ab")]
)
def test_a_handler_must_take_one_context(handler: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"handler = .*must"):
        ElasticJob(NOWHERE).add(handler, name="job")


def test_the_health_of_an_application_says_whether_it_was_started_and_has_ended(address: str) -> None:
    async def main() -> None:
        app = quick(address)
        assert (app.health.phase, app.health.alive) == ("not started", False)
        async with app.running():
            assert (app.health.phase, app.health.alive) == ("running", True)
        assert (app.health.phase, app.health.alive) == ("ended", False)

    asyncio.run(main())


def test_a_handler_without_a_name_needs_one_given() -> None:
    app = ElasticJob(NOWHERE)
    for handler in (functools.partial(nothing), lambda context: None):
        for declare in (app.add, app.job(), app.dataflow()):
            with pytest.raises(InvalidSetting, match="name = None: the handler has no name of its own: write name=…"):
                declare(handler)
    assert app.add(functools.partial(nothing), name="named").job_name == "named"


def test_the_decorator_leaves_the_function_callable_and_takes_its_name() -> None:
    app = ElasticJob(NOWHERE)

    @app.job(cron=EVERY_SECOND)
    async def report(context: object) -> str:
        return "done"

    assert [job.job_name for job in app.jobs] == ["report"]
    assert asyncio.run(report(None)) == "done"


def test_the_decorator_without_parentheses_says_so() -> None:
    with pytest.raises(InvalidSetting, match=r"write @app\.job\(\)"):

        @ElasticJob(NOWHERE).job  # type: ignore[arg-type]  # which is how a type checker says it
        async def report(context: object) -> None: ...


def test_two_jobs_of_one_name_are_one_too_many() -> None:
    app = ElasticJob(NOWHERE)
    app.add(nothing)
    with pytest.raises(InvalidSetting, match="'nothing': is declared twice"):
        app.add(nothing)
    assert len(app.jobs) == 1


@pytest.mark.parametrize(
    "address",
    [
        *("", "zk", "localhost:2181", "http://localhost", "zk://", "zk://host:port", "zk://host:0", "zk://host:99999"),
        *("zk://a,,b", "zk://a/x//y", "zk://a/../b", "zk:// a", "zk://::1:2181", None, 5, b"zk://a"),
        *("embedded:", "embedded", "embedded:///a//b", "embedded:///.."),
    ],
)
def test_a_nonsense_address_is_refused_before_anything_is_tried(address: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"address|namespace"):
        ElasticJob(address)


@pytest.mark.parametrize(
    "options",
    [
        {"session_timeout": 0},
        {"connection_timeout": "soon"},
        {"base_sleep_time": 5, "max_sleep_time": 1},
        {"max_retries": -1},
        {"max_retries": 1.5},
        {"digest": "only-a-user"},
        {"digest": 5},
    ],
)
def test_a_wrong_connection_setting_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(options))) as refusal:
        ElasticJob(NOWHERE, **options)
    assert "only-a-user" not in str(refusal.value)  # half of a secret is one too


# Running


def test_an_application_runs_once_at_a_time_and_takes_jobs_in_its_own_event_loop_only(address: str) -> None:
    async def main() -> None:
        runs = Runs()
        app = quick(address)
        app.add(runs, name="job", cron=EVERY_SECOND)
        async with app.running():
            with pytest.raises(InvalidState, match="runs already"):
                async with app.running():
                    pass
            with pytest.raises(InvalidState, match=r"event loop in which the application runs; .*from_thread"):
                await asyncio.to_thread(app.add, nothing, name="late", cron=EVERY_SECOND)
            await runs.more()
        app.add(nothing, name="late", cron=EVERY_SECOND)
        async with app.running():
            await runs.more()

    asyncio.run(main())


def test_an_application_that_handles_signals_is_refused_outside_the_main_thread() -> None:
    app = ElasticJob(NOWHERE)
    app.add(nothing)
    with ThreadPoolExecutor(1) as threads, pytest.raises(InvalidState, match=r"needs the main thread.*app\.running"):
        threads.submit(app.run).result()


def chained() -> Exception:
    error = ValueError("mine")
    error.__cause__ = KeyError("why")
    return error


@pytest.mark.parametrize(
    "make",
    [chained, lambda: ExceptionGroup("mine", [ValueError("inside")]), lambda: ForeignData("a", 1, "b"), SystemExit],
    ids=["a chain", "a group", "one of ours", "an exit"],
)
def test_what_the_body_raises_comes_out_as_it_is(address: str, make: Callable[[], BaseException]) -> None:
    async def main() -> None:
        app = quick(address)
        app.add(nothing, name="job", cron=EVERY_SECOND)
        error = make()
        cause = error.__cause__
        with pytest.raises(type(error)) as caught:
            async with app.running():
                raise error
        assert caught.value is error
        assert error.__cause__ is cause
        async with clerk(address) as session:
            assert await session.children(LAYOUT.instances) == ()

    asyncio.run(main())


@pytest.mark.parametrize("block", ["the jobs", "a session"])
def test_an_error_in_a_task_group_of_the_body_comes_out(address: str, block: str) -> None:
    async def fail() -> None:
        raise ValueError("mine")

    async def main() -> None:
        open_block = quick(address).running if block == "the jobs" else functools.partial(clerk, address)
        with pytest.raises(ExceptionGroup) as caught:
            async with open_block(), asyncio.TaskGroup() as tasks:
                tasks.create_task(fail())
        assert str(caught.value.exceptions[0]) == "mine"

    asyncio.run(main())


def test_an_error_of_the_body_is_not_lost_if_leaving_is_cancelled(address: str) -> None:
    async def main() -> None:
        app, begun, error = quick(address), asyncio.Event(), ValueError("mine")

        @app.job(cron=EVERY_SECOND)
        async def slow(context: ItemContext) -> None:
            begun.set()
            await asyncio.sleep(TIMEOUT)

        async def fail() -> None:
            async with app.running():
                await begun.wait()
                raise error

        task = asyncio.create_task(fail())
        while app.health.phase != "leaving":
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert caught.value.__context__ is error

    asyncio.run(main())


def test_a_block_that_is_left_in_another_task_says_what_to_use(address: str) -> None:
    async def main() -> None:
        block = quick(address).running()
        await asyncio.create_task(block.__aenter__())
        with pytest.raises(InvalidState, match=r"left in another task than entered.*integrations\.guest"):
            await asyncio.create_task(block.__aexit__(None, None, None))

    asyncio.run(main())


@pytest.mark.parametrize("how", ["asyncio", "anyio"])
def test_a_cancelled_body_leaves_in_order_and_quickly(address: str, how: str) -> None:
    async def main() -> None:
        app, there = quick(address), anyio.Event()
        app.add(nothing, name="job", cron=EVERY_SECOND, shutdown_timeout=10 * TIMEOUT)

        async def serve_forever() -> None:
            async with app.running():
                there.set()
                await anyio.sleep_forever()

        if how == "asyncio":
            task = asyncio.ensure_future(serve_forever())
            await there.wait()
            began = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve_forever)
                await there.wait()
                began = time.monotonic()
                tasks.cancel_scope.cancel()
        assert time.monotonic() - began < TIMEOUT  # not as long as ``shutdown_timeout``
        async with clerk(address) as session:
            assert await session.children(LAYOUT.instances) == ()

    asyncio.run(main())


def test_an_application_without_jobs_is_connected_and_leaves(address: str) -> None:
    async def main() -> None:
        async with quick(address).running() as session:
            assert await session.children("/") == ()

    asyncio.run(main())


def test_a_job_without_cron_waits_for_its_trigger(address: str) -> None:
    async def main() -> None:
        runs, seen = Runs(), list[str]()

        async def handler(context: ItemContext) -> None:
            seen.append(context.source)
            await runs(context)

        app = quick(address)
        app.add(handler, name="job")
        async with app.running() as session:
            await write(session, Create(LAYOUT.request("by-hand"), b'{"kind": "TRIGGER"}'))
            await runs.more()
        assert seen == ["TRIGGER"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("address", "namespace"), [("embedded://", ""), ("embedded:///", ""), ("embedded:///first/steps", "first/steps")]
)
def test_a_private_registry_needs_no_set_up(address: str, namespace: str) -> None:
    async def main() -> None:
        runs, app = Runs(), ElasticJob(address)
        app.add(runs, name="job", cron=EVERY_SECOND)
        for _ in range(2):  # a new one each time, with nothing in it
            async with app.running() as session:
                assert session.settings.namespace == namespace
                assert "job" in await session.children("/")
                await runs.more()

    asyncio.run(main())


def test_a_server_is_known_by_the_address_that_is_set(address: str) -> None:
    async def main() -> None:
        app = quick(address, ip="10.9.8.7")
        app.add(nothing, name="job", cron="0 0 0 1 1 ? 2099")
        async with clerk(address) as session, app.running():
            (one,) = await session.children(Layout("job").instances)
            assert one.startswith("10.9.8.7@-@")
            assert await session.children(Layout("job").servers) == ("10.9.8.7",)

    asyncio.run(main())


@pytest.mark.timeout(900)  # ten seconds of processor time, of which a busy machine gives little
def test_a_thousand_jobs_join_and_leave() -> None:
    async def main(address: str) -> None:
        app = ElasticJob(address)
        for number in range(1000):
            app.add(nothing, name=f"job-{number}", cron="0 0 0 1 1 ? 2099")
        async with clerk(address) as session:
            async with app.running():
                assert len(await session.children("/")) == 1000
                (one,) = await session.children(Layout("job-999").instances)
                assert one.startswith("127.0.0.1@-@")
            left = await session.get_many([Layout(f"job-{number}").host for number in range(1000)])
            assert left == [None] * 1000

    with embedded_server(tick_time=2000) as server:  # sessions of 30 s: shorter ones end while a busy loop is blocked
        asyncio.run(main(f"zk://{server.address}/test"))


# The registry


def test_run_without_jobs_says_so() -> None:
    with pytest.raises(InvalidSetting, match=r"declare at least one: decorate a function with @app\.job"):
        ElasticJob(NOWHERE).run()


def test_run_inside_a_running_loop_names_what_to_write() -> None:
    app = ElasticJob(NOWHERE)
    app.add(nothing, name="job")

    async def main() -> None:
        app.run()

    with pytest.raises(InvalidState, match=r"write async with app\.running\(\)"):
        asyncio.run(main())


def test_run_without_a_registry_ends_with_a_short_traceback() -> None:
    app = quick(NOWHERE, connection_timeout=0.1)
    app.add(nothing, name="job")
    with pytest.raises(RegistryUnreachable) as caught:
        app.run()
    *lines, page = traceback.format_exception(caught.value)
    assert len(lines) <= 4
    assert page == "docs: errors/RegistryUnreachable\n"


def test_a_registry_that_does_not_answer_at_once_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = quick(NOWHERE, connection_timeout=client.SILENT_WAIT + 1)
    app.add(nothing, name="job")
    with pytest.raises(RegistryUnreachable):
        app.run()
    [said] = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert said.startswith("the registry at zk://127.0.0.1:1/nobody does not answer (")
    assert "refused" in said.lower()
    assert said.endswith(": it is tried for 2 s in all")


def test_a_private_registry_says_that_other_processes_have_their_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def main() -> None:
        app = ElasticJob("embedded://")
        app.add(nothing, name="job")
        async with app.running():
            pass

    asyncio.run(main())
    said = [one.getMessage() for one in caplog.records]
    assert any(text.startswith("the registry is private, in memory: another process has") for text in said)
    assert any(text.startswith("connected to a private registry, in memory, with the session 0x") for text in said)


def test_stopping_says_what_is_waited_for_and_that_it_has_stopped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "aioelasticjob.engine.application")

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(work=5, cron="0/10 * * * * ?", sharding_total_count=2, shutdown_timeout=20)
        async with app.running():
            await here.until(12)
        assert said() == ["stopping: waiting for job, items 0, 1, for at most 20 s", "stopped: the job has left"]
        assert here.now() == pytest.approx(15, abs=0.5)
        caplog.clear()
        async with here.app(cron="0 0 0 1 1 ? 2090").running():
            pass
        assert said() == ["stopping: no job runs anything at this moment", "stopped: the job has left"]
        caplog.clear()
        with anyio.move_on_after(3):  # as at Ctrl-C in asyncio.run, or in a task group that is cancelled
            async with here.app(cron="0 0 0 1 1 ? 2090").running():
                await anyio.sleep_forever()
        assert said() == ["stopping: no job runs anything at this moment", "stopped: the job has left"]

    def said() -> list[str]:
        return [one.getMessage() for one in caplog.records if one.name == "aioelasticjob.engine.application"]

    simulate(scene)


def test_a_registry_that_is_down_is_said_in_time_with_what_to_do() -> None:
    async def main() -> None:
        app = quick(NOWHERE, connection_timeout=0.4)
        app.add(nothing, name="job", cron=EVERY_SECOND)
        began = time.monotonic()
        with pytest.raises(
            RegistryUnreachable, match=r"no registry at 127\.0\.0\.1:1 within 0\.4 s.*check the address"
        ):
            async with app.running():
                raise AssertionError("nobody is there")
        assert time.monotonic() - began >= 0.4
        with pytest.raises(RegistryUnreachable):  # it can be tried again
            async with app.running():
                pass

    asyncio.run(main())


def test_a_registry_that_goes_away_and_comes_back_stops_the_jobs_for_so_long_and_fills_no_log(
    embedded: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        async with proxy_to(embedded.host, embedded.port) as proxy:
            namespace = uuid4().hex
            runs, app = Runs(), quick(f"zk://{proxy.address}/{namespace}")
            app.add(runs, name="job", cron=EVERY_SECOND)
            app.add(nothing, name="other", cron=EVERY_SECOND)
            async with app.running() as session, clerk(f"zk://{embedded.address}/{namespace}") as witness:
                await runs.more(2)
                (gone,) = await witness.children(LAYOUT.instances)
                proxy.refusing = True
                proxy.cut()
                lost = session.incarnation
                with anyio.fail_after(TIMEOUT):
                    await witness.wait_deleted(LAYOUT.instance(gone))  # so long that the session ends
                proxy.heal()
                await runs.more(2)
                assert session.incarnation != lost

    asyncio.run(main())
    lines = [record.getMessage() for record in caplog.records if " missed " not in record.getMessage()]
    assert sum("connection to the registry was lost" in line for line in lines) == 1
    assert len(lines) <= 4, lines


def test_a_registry_that_comes_back_empty_is_furnished_again() -> None:
    async def main() -> None:
        runs, stop = Runs(), anyio.Event()

        async def in_memory(port: int, stop: anyio.Event, *, task_status: TaskStatus[int]) -> None:
            async with serve("127.0.0.1", port, tick_time=100) as server:
                task_status.started(server.port)
                await stop.wait()

        async with anyio.create_task_group() as tasks:
            port = await tasks.start(in_memory, 0, stop)
            app = quick(f"zk://127.0.0.1:{port}/first/second")
            app.add(runs, name="job", cron=EVERY_SECOND, sharding_total_count=2)
            async with app.running():
                await runs.more(2)
                stop.set()
                stop = anyio.Event()
                await tasks.start(in_memory, port, stop)
                await runs.more(4)
            stop.set()

    asyncio.run(main())


def test_a_job_that_is_refused_while_running_takes_no_other_along(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody puts a node of his own, closed to us, into the place of an item's record; later it goes away."""

    async def main() -> None:
        broken, other, app = Runs(), Runs(), quick(address)
        app.add(broken, name="job", cron=EVERY_SECOND)
        app.add(other, name="other", cron=EVERY_SECOND)
        record = LAYOUT.item(0).execution
        async with app.running(), clerk(address, digest="carol:sesame") as carol:
            await broken.more()
            with anyio.fail_after(TIMEOUT):
                while True:
                    try:
                        await write(carol, Delete(record), Create(record))
                        break
                    except Conflict:  # it runs just now
                        await carol.wait_deleted(LAYOUT.item(0).running)
            before = broken.count
            await other.more(4)
            assert broken.count <= before + 1
            await write(carol, Delete(record))
            await broken.more(2)

    asyncio.run(main())
    messages = [record.getMessage() for record in caplog.records if "not permitted" in record.getMessage()]
    assert len(messages) == 1
    assert "/job/execution/0" in messages[0]


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "running"])
def test_leaving_needs_no_registry(embedded: EmbeddedServer, busy: bool) -> None:
    async def main() -> None:
        async with proxy_to(embedded.host, embedded.port) as proxy:
            began, app = anyio.Event(), quick(f"zk://{proxy.address}/{uuid4().hex}", session_timeout=40)

            async def handler(context: ItemContext) -> None:
                began.set()
                await anyio.sleep(1)

            app.add(handler, name="job", cron=EVERY_SECOND if busy else None, shutdown_timeout=2)
            async with app.running():
                if busy:
                    await began.wait()
                proxy.refusing = True
                proxy.cut()
                left = time.monotonic()
            assert time.monotonic() - left < 30  # not as long as the session, 40 s

    asyncio.run(main())


def test_without_the_digest_nobody_gets_in(address: str) -> None:
    async def main() -> None:
        def with_digest(digest: str | None) -> ElasticJob:
            app = quick(address, digest=digest)
            app.add(nothing, name="job", cron=EVERY_SECOND)
            return app

        async with with_digest("carol:sesame").running():
            async with with_digest("carol:sesame").running() as session:
                assert len(await session.children(LAYOUT.instances)) == 2
            with pytest.raises(AuthenticationFailed, match="check user and password"):
                async with with_digest("carol:guess").running():
                    pass
            with pytest.raises(NotPermitted, match="give the digest"):
                async with with_digest(None).running():
                    pass

    asyncio.run(main())


# What is there already


async def refused(app: ElasticJob, address: str, error: type[InvalidSetting], message: str) -> None:
    """See an application refused, and nothing in the registry touched."""
    async with clerk(address) as session:
        before = await everything(session)
        with pytest.raises(error, match=message):
            async with app.running():
                pass
        assert await everything(session) == before


def test_a_name_of_another_kind_of_job_is_refused_and_that_job_left_as_it_was(address: str) -> None:
    async def main() -> None:
        async with clerk(address) as session:
            theirs = JobConfig(job_name="job", job_type="SCRIPT")
            await write(session, Create("/job"), Create(LAYOUT.config, theirs.to_json()))
        app = quick(address)
        app.add(nothing, name="job", overwrite=True)
        await refused(app, address, JobConflict, "is already a SCRIPT job in this namespace: choose another name")

    asyncio.run(main())


@pytest.mark.parametrize("data", [b"hello", b"{", b"[]", b"null", b'{"jobName": "job", "dst": "red"}', b"\xff\xfe"])
def test_foreign_data_is_left_as_it_was_and_the_job_waits(address: str, data: bytes) -> None:
    async def main() -> None:
        async with clerk(address) as session:
            await write(session, Create("/job"), Create(LAYOUT.config, data))
        app = quick(address)
        app.add(nothing, name="job")
        app.add(nothing, name="innocent")
        async with clerk(address) as session:
            async with app.running():
                waits, runs = app.health.jobs
                assert re.search(r"/job/config.* = .*no job configuration", waits.problem or "")
                assert (runs.problem, app.health.status, app.health.ready) == (None, "up", False)
            assert (await session.get(LAYOUT.config)).data == data
            assert await session.children("/job") == ("config",)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("clock", 5, "an object with a method now()"),
        ("digest_file", 5, "the path of a file"),
        ("sasl_file", 5, "the path of a file"),
    ],
)
def test_an_option_of_the_wrong_type_is_refused_by_name(setting: str, value: Any, expected: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(f"{setting} = {value}: {expected}")):
        ElasticJob("zk://127.0.0.1/x", **{setting: value})


def test_the_loop_over_events_ends_when_the_application_has_left() -> None:
    app, read = ElasticJob("embedded://"), list[JobEvent]()

    app.add(nothing, name="tick", cron="* * * * * ?")

    async def follow(events: EventReader) -> None:
        async for event in events:
            read.append(event)

    async def main() -> None:
        with app.events() as events:
            for _ in range(2):  # it may run again
                with anyio.fail_after(60):
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(follow, events)
                        async with app.running():
                            await anyio.sleep(2.5)
                assert len(events) == 0
                assert len([event for event in read if isinstance(event, Ended)]) >= 2
                read.clear()

    run(main)


def test_a_loop_over_events_that_begins_in_the_second_run_has_those_of_both_and_ends_with_the_second() -> None:
    app, read = ElasticJob("embedded://"), list[JobEvent]()

    app.add(nothing, name="tick", cron="* * * * * ?")

    async def follow(events: EventReader) -> None:
        async for event in events:
            read.append(event)

    async def main() -> None:
        with app.events() as events, anyio.fail_after(60):
            async with app.running():
                await anyio.sleep(1.5)
            before = len(events)
            async with anyio.create_task_group() as tasks, app.running():
                tasks.start_soon(follow, events)
                await anyio.sleep(2.5)
                assert len([event for event in read[before:] if isinstance(event, Ended)]) >= 2

    run(main)


def test_the_loop_over_events_goes_on_if_the_application_could_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, over = ElasticJob("embedded://"), list[bool]()

    async def refuse(life: Life, *_: object) -> None:
        raise NotPermitted("/tick/config")

    app.add(nothing, name="tick", cron="* * * * * ?")

    async def follow(events: EventReader) -> None:
        async for _ in events:
            pass
        over.append(True)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            with app.events() as events:
                tasks.start_soon(follow, events)
                with monkeypatch.context() as patch:
                    patch.setattr(Life, "begin", refuse)
                    with pytest.raises(NotPermitted):
                        async with app.running():
                            pass
                await anyio.sleep(1)
                assert over == []
                async with app.running():
                    pass
        assert over == [True]

    run(main)
