"""Each row about names and contexts on the page for those who come from Elastic-Job is tried."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

import anyio
import pytest
import typer

from aioelasticjob import (
    Cron,
    ElasticJob,
    FireSource,
    InstanceContext,
    InvalidSetting,
    ItemContext,
    JobConfig,
    JobListener,
    OnceListener,
    operations,
)
from aioelasticjob.cli.application import application
from aioelasticjob.core import strategies
from aioelasticjob.error_handlers import lookup
from aioelasticjob.events import Began, Ended
from aioelasticjob.jobs import executors
from aioelasticjob.settings import load
from aioelasticjob.testing import VirtualCluster, simulated
from tests.docs.pages import table
from tests.support.own_executors import added

PAGE = "docs/coming-from-elastic-job.md"
EVERY_TEN = "0/10 * * * * ?"
Check = Callable[[str], None]
"""Tries a row, given its second cell."""
C = TypeVar("C", bound=Check)
TRIED: dict[str, Check] = {}
ROWS = [
    (cells[0], cells[1])
    for header in ("| Elastic-Job | here |", "| of a `ShardingContext` | of an `ItemContext` |")
    for cells in table(PAGE, header)
]


def tries(*beginnings: str) -> Callable[[C], C]:
    """Return a decorator for the check of the rows that begin so."""

    def register(check: C) -> C:
        TRIED.update(dict.fromkeys(beginnings, check))
        return check

    return register


@pytest.mark.parametrize(("there", "here"), ROWS)
def test_a_row_holds(there: str, here: str) -> None:
    beginnings = [beginning for beginning in TRIED if there.startswith(beginning)]
    TRIED[max(beginnings, key=len)](here)


def test_there_is_no_check_without_a_row() -> None:
    assert [one for one in TRIED if not any(there.startswith(one) for there, _ in ROWS)] == []


def application_of(handler: Callable[..., object], **settings: Any) -> ElasticJob:
    app = ElasticJob("zk://registry:2181/shop")
    app.add(handler, name="job", **{"cron": EVERY_TEN, **settings})
    return app


def play(app: ElasticJob, scene: Callable[[VirtualCluster], Awaitable[object]] | None = None, hosts: int = 1) -> None:
    """Run an application on some hosts until its first moment has passed, or through a scene."""

    async def main(cluster: VirtualCluster) -> None:
        for _ in range(hosts):
            await cluster.start(app)
        await (cluster.next_fire("job") if scene is None else scene(cluster))

    simulated(main)(VirtualCluster())


async def nothing(context: Any) -> None: ...


# Names


@tries("`SimpleJob.execute(ShardingContext)`", "`JobExecutionSingleShardingContext`")
def simple(here: str) -> None:
    given: list[ItemContext] = []
    app = ElasticJob("zk://registry:2181/shop")

    @app.job(cron=EVERY_TEN)
    async def job(context: ItemContext) -> None:
        given.append(context)

    play(app)
    assert isinstance(given[0], ItemContext)


def records(**settings: Any) -> list[int]:
    """Return the records that the first run of a dataflow with a hundred of them has processed, ten at a time."""
    app, waiting, done = ElasticJob("zk://registry:2181/shop"), list(range(100)), list[int]()

    @app.dataflow("job", cron="0 0/10 * * * ?", job_parameter="10", **settings)
    async def fetched(context: ItemContext) -> list[int]:
        batch = waiting[: int(context.job_parameter)]
        del waiting[: len(batch)]
        return batch

    @fetched.process
    async def process(context: ItemContext, record: int) -> None:
        await anyio.sleep(0.1 if record == 0 else 0)
        done.append(record)

    play(app)
    return done


@tries("`DataflowJob.fetchData`", "`fetchDataCount`")
def dataflow(here: str) -> None:
    assert sorted(records()) == list(range(10))


@tries("`AbstractPerpetualElasticJob`")
def perpetual(here: str) -> None:
    assert sorted(records(streaming=True)) == list(range(100))
    assert records(streaming=True) != list(range(100))  # records overtake each other


@tries("`AbstractSequencePerpetualElasticJob`")
def in_sequence(here: str) -> None:
    assert records(streaming=True, ordered=True) == list(range(100))
    assert records(ordered=True) == list(range(10))


@tries("`streamingProcess`", "`concurrentDataProcessThreadCount`", "`processCountIntervalSeconds`", "`monitorRuntime`")
def settings_of_other_names(here: str) -> None:
    name = re.findall(r"`(\w+)`", here)[0]
    assert name in JobConfig.model_fields


@tries("`reconcileIntervalMinutes`")
def reconcile(here: str) -> None:
    assert JobConfig(job_name="job", reconcile_interval="5m").reconcile_interval == 300


@tries("`jobName`, `cron`")
def same_names(here: str) -> None:
    (row,) = (there for there, _ in ROWS if there.startswith("`jobName`, `cron`"))
    fields = JobConfig.model_fields
    for key in re.findall(r"`(\w+)`", row):
        name = re.sub(r"[A-Z]", lambda capital: f"_{capital[0].lower()}", key)
        assert key == (fields[name].serialization_alias or fields[name].alias), key


@tries("`ScriptJob`, `HttpJob`")
def declared(here: str) -> None:
    app = ElasticJob("zk://registry:2181/shop")
    assert app.script("a", command="true").job_type == "SCRIPT"
    assert app.http("b", url="https://example.org").job_type == "HTTP"


@tries("`AbstractOneOffElasticJob`")
def one_off_of_the_first_release(here: str) -> None:
    given: list[InstanceContext] = []

    async def handler(context: InstanceContext) -> None:
        given.append(context)

    async def scene(cluster: VirtualCluster) -> None:
        for _ in range(2):
            await cluster.next_fire("job")

    play(application_of(handler, per="instance", sharding_total_count=3), scene)
    assert [context.items for context in given] == [(0, 1, 2)] * 2


@tries("`JobExecutionMultipleShardingContext`")
def one_call_for_all_items(here: str) -> None:
    given: list[InstanceContext] = []

    async def handler(context: InstanceContext) -> None:
        given.append(context)

    play(application_of(handler, per="instance", sharding_total_count=3))
    assert [context.items for context in given] == [(0, 1, 2)]


@tries("`CoordinatorRegistryCenter`", "`baseSleepTimeMilliseconds`")
def connection(here: str) -> None:
    names = set(re.findall(r"`(\w+)`", here)) - {"ElasticJob"}
    app = ElasticJob("zk://host:2181/namespace", **dict.fromkeys(names - {"digest"}, "30s") | {"max_retries": 3})
    assert {name: getattr(app.settings, name) for name in names - {"digest", "max_retries"}} == dict.fromkeys(
        names - {"digest", "max_retries"}, 30
    )
    ElasticJob("zk://host:2181/namespace", digest="user:secret")


@tries("`JobScheduler(…).init()`", "Console", "Dump", "REST")
def commands(here: str) -> None:
    """Look up the commands.  That a program runs is tried in test_snippets; the monitor port in test_monitor_port."""
    known: Any = typer.main.get_command(application)
    for named in re.findall(r"`aioelasticjob ([^`]+)`", here):
        assert known.get_command(None, named.split()[0]) is not None


@tries("`OneOffJobBootstrap`")
def one_off(here: str) -> None:
    ran: list[str] = []

    async def handler(context: ItemContext) -> None:
        ran.append(context.source.value)

    async def scene(cluster: VirtualCluster) -> None:
        await anyio.sleep(3600)
        await cluster.trigger("job")

    play(application_of(handler, cron=None), scene)
    assert ran == ["TRIGGER"]


@tries("`jobShardingStrategyType`", "`JobShardingStrategy` (SPI)")
def sharding(here: str) -> None:
    for name in set(re.findall(r"`([\w-]+)`", here)) - {"sharding_strategy"}:
        assert callable(strategies.find(name))
    point = SimpleNamespace(name="mine", load=lambda: strategies.average)
    with mock.patch.object(strategies, "entry_points", return_value=[point]):
        assert strategies.find("mine") is strategies.average
    strategies.find.cache_clear()


@tries("`ElasticJobListener`", "`AbstractDistributeOnceElasticJobListener`")
def listeners(here: str) -> None:
    said: list[str] = []

    def note(what: str) -> Callable[[InstanceContext], Awaitable[None]]:
        async def listener(context: InstanceContext) -> None:
            said.append(what)

        return listener

    once = OnceListener(before=note("first"), after=note("last"))
    around = [once, JobListener(before=note("before"), after=note("after"))]
    play(application_of(nothing, sharding_total_count=2, listeners=around), hosts=2)
    assert (said[0], said[-1], sorted(said)) == (
        "first",
        "last",
        ["after", "after", "before", "before", "first", "last"],
    )


@tries("offsets of 1.x (")
def offsets(here: str) -> None:
    seen: list[str | None] = []

    async def handler(context: ItemContext) -> None:
        seen.append(context.offset)
        await context.save_offset(str(len(seen)))

    async def scene(cluster: VirtualCluster) -> None:
        for _ in range(2):
            await cluster.next_fire()

    play(application_of(handler), scene)
    assert seen == [None, "1"]


@tries("`DistributedQuartz`")
def quartz(here: str) -> None:
    assert Cron.parse("0 0/5 14,18 ? * 6L", "Europe/Berlin", "quartz")


@tries("`jobErrorHandlerType`", "`job_exception_handler`")
def error_handlers(here: str) -> None:
    for name in set(re.findall(r"`([\w-]+)`", here)) - {"error_handler"}:
        assert callable(lookup.find(name))
    with mock.patch.object(lookup, "_others", return_value={"mine": SimpleNamespace(load=lambda: print)}):
        assert lookup.find("mine") is print
    lookup.find.cache_clear()


@tries("`props` of error handlers")
def options_of_error_handlers(here: str) -> None:
    mail = {"host": "127.0.0.1", "port": "25", "to": "ops@example.org", "sender": "jobs@example.org"}
    application_of(nothing, error_handler="email", error_handler_options={**mail, "use_tls": "true", "subject": "jobs"})
    robot = {"webhook": "https://127.0.0.1/robot", "keyword": "jobs", "secret": "s"}
    application_of(nothing, error_handler="dingtalk", error_handler_options=robot)
    for name in ("from", "useSsl", "ssl.trust", "cc", "bcc", "debug", "connectTimeoutMilliseconds"):
        with pytest.raises(InvalidSetting, match=re.escape(name)):
            application_of(nothing, error_handler="email", error_handler_options={**mail, name: "x"})


@tries("`jobExecutorServiceHandlerType`")
def executor_of_ones_own(here: str) -> None:
    with added(mine=ThreadPoolExecutor):
        application_of(lambda context: None, executor="mine")
        assert set(re.findall(r'executor="(\w+)"', here)) < set(executors.names())
    ElasticJob("zk://registry:2181/shop", threads=3, processes=2)


@tries("`JobEventConfiguration`")
def tracing(here: str) -> None:
    ElasticJob("zk://registry:2181/shop", event_store="sqlite:///runs.db")

    async def scene(cluster: VirtualCluster) -> None:
        await cluster.event(Began)
        await cluster.event(Ended)

    play(application_of(nothing), scene)


@tries("`jobEventConfigs` `log`")
def runs_in_the_log(here: str) -> None:
    lines: list[str] = []
    shown = logging.Handler()
    shown.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("aioelasticjob.engine.stats")
    level = log.level
    log.addHandler(shown)
    log.setLevel(logging.INFO)
    try:
        for kind in re.findall(r'"(\w+)"', here):
            play(application_of(nothing, log_runs=kind))
    finally:
        log.removeHandler(shown)
        log.setLevel(level)
    assert [re.sub(r"(begins|completed).*", r"\1", line) for line in lines] == [
        "job: item 0 completed",  # with "ends"
        "job: item 0 begins",  # with "all"
        "job: item 0 completed",
    ]


@tries("`logLevel`")
def messages_of_the_log(here: str) -> None:
    (level,) = re.findall(r'logging.getLogger\("aioelasticjob"\).setLevel\("(\w+)"\)', here)
    package = logging.getLogger("aioelasticjob")
    seen: list[int] = []
    kept: list[type] = []
    lowest: dict[str, int] = {}
    shown = logging.Handler()
    shown.emit = lambda record: seen.append(record.levelno)  # type: ignore[method-assign]
    before = package.level
    package.addHandler(shown)

    async def scene(cluster: VirtualCluster) -> None:
        kept.append(type(await cluster.event(Began)))
        kept.append(type(await cluster.event(Ended)))

    async def fails(context: ItemContext) -> None:
        raise ValueError("no luck")

    try:
        for chosen in ("INFO", level):
            seen.clear()
            package.setLevel(chosen)
            play(application_of(fails, log_runs="all"), scene)
            lowest[chosen] = min(seen)
    finally:
        package.removeHandler(shown)
        package.setLevel(before)
    assert lowest["INFO"] == logging.INFO
    assert lowest[level] >= getattr(logging, level)
    assert kept == [Began, Ended] * 2  # what the event store writes


@tries("`JobOperateAPI`")
def programs(here: str) -> None:
    async def scene(cluster: VirtualCluster) -> None:
        session = cluster._session
        assert (await operations.job(session, "job", now=0)).config.job_name == "job"
        await operations.configure(session, "job", {"description": "for people"})
        assert (await operations.job(session, "job", now=0)).config.description == "for people"
        assert " | " in await operations.dump(session, "job")
        await operations.ask(session, "job")
        assert (await cluster.event(Began)).source is FireSource.TRIGGER
        ip = (await operations.job(session, "job", now=0)).servers[0].ip
        switches: list[tuple[Callable[[], Awaitable[object]], list[str]]] = [
            (partial(operations.disable, session, "job", server=ip), ["disabled"]),
            (partial(operations.enable, session, "job", server=ip), []),
            (partial(operations.disable_server, session, ip), ["disabled in all jobs"]),
            (partial(operations.enable_server, session, ip), []),
        ]
        for switch, flags in switches:
            await switch()
            assert [*(await operations.job(session, "job", now=0)).servers[0].flags] == flags
        with pytest.raises(operations.NotPossible):
            await operations.remove(session, "job")
        await operations.shut_down(session, "job")
        while (await operations.job(session, "job", now=0)).instances:
            await anyio.sleep(1)
        await operations.remove(session, "job")
        assert await operations.names(session) == ()

    play(application_of(nothing), scene)


@tries("Spring namespace and placeholders")
def placeholders(here: str) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "jobs.yaml"
        path.write_text("jobs:\n  job:\n    kind: script\n    command: 'true'\n    cron: ${NOBODY_SETS_IT:@daily}\n")
        settings = load(path)
    assert settings.declared("job").cron == "@daily"


# Contexts


@cache
def contexts() -> tuple[ItemContext, InstanceContext]:
    found: dict[str, Any] = {}

    async def handler(context: Any) -> None:
        found[type(context).__name__] = context

    settings = {"job_parameter": "daily", "sharding_total_count": 2, "sharding_item_parameters": "0=A,1=B"}
    for per in ("item", "instance"):
        play(application_of(handler, per=per, **settings))
    return found["ItemContext"], found["InstanceContext"]


@tries("`jobName`, `jobParameter`", "`shardingItem`,", "`monitorExecution` of 1.x", "`fetchDataCount` of 1.x")
def fields_of_the_context(here: str) -> None:
    values = {
        "job_name": "job",
        "job_parameter": "daily",
        "sharding_total_count": 2,
        "item": contexts()[0].item,
        "parameter": "AB"[contexts()[0].item],
        "items": (0, 1),
        "item_parameters": {0: "A", 1: "B"},
        "monitor_execution": True,
    }
    for name in re.findall(r"`(\w+)`", here):
        assert values[name] in [getattr(one, name, None) for one in contexts()]


@tries("`taskId`")
def task_id(here: str) -> None:
    one, all_items = contexts()
    assert one.task_id.startswith(f"job@-@{one.item}@-@READY@-@10.")
    assert all_items.task_id.startswith("job@-@0,1@-@READY@-@10.")
    assert one.run_id.startswith("job@")


@tries("`offsets` of 1.x")
def offsets_of_the_context(here: str) -> None:
    assert (contexts()[0].offset, contexts()[1].offsets) == (None, {0: None, 1: None})


@tries("`jobEventSamplingCount`")
def is_not_there(here: str) -> None:
    assert here == "nothing"
    assert not hasattr(contexts()[0], "job_event_sampling_count")
