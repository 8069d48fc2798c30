"""Every Python block of the documentation is run; those that are programs do what the page says."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext, JobConfig, operations
from aioelasticjob.core import records, requests, strategies
from aioelasticjob.core.strategies import AssignmentInput
from aioelasticjob.events import Ended, EventReader
from aioelasticjob.model import Outcome
from aioelasticjob.registry.session import ConnectionSettings, open_session
from aioelasticjob.registry.transaction import Set
from aioelasticjob.registry.tree import UNREAD_NODE, Node
from aioelasticjob.testing import Faults, VirtualClock, run
from aioelasticjob.zookeeper.server import serve
from tests.docs.pages import ROOT, Block, blocks, execute, pages
from tests.support.processes import Workers

pytest_plugins = "pytester"

EXCERPTS = {page for page in pages() if page.startswith("docs/why/")}
"""Their blocks show pieces of the code and are no programs."""


@pytest.fixture
def first_takes_all(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[AssignmentInput], dict[int, str]]]:
    """The strategy of the how-to page, registered as the page says."""
    strategy = execute(*blocks("docs/how-to/strategy.md", "python")[:1])["first_takes_all"]
    point = SimpleNamespace(name="first-takes-all", load=lambda: strategy)
    monkeypatch.setattr(strategies, "entry_points", lambda group: [point])
    strategies.find.cache_clear()
    yield strategy
    strategies.find.cache_clear()


@pytest.mark.parametrize("page", [page for page in pages() if page not in EXCERPTS and blocks(page, "python")])
@pytest.mark.usefixtures("first_takes_all")
@pytest.mark.filterwarnings("ignore:Using `httpx`")  # Starlette's TestClient says that httpx2 is coming
def test_a_pages_blocks_run_one_after_another(page: str) -> None:
    execute(*blocks(page, "python"))


@pytest.mark.parametrize("block", [block for page in sorted(EXCERPTS) for block in blocks(page, "python")], ids=str)
def test_an_excerpt_is_python(block: Block) -> None:
    compile(block.text, str(block), "exec")


def test_the_rule_shown_is_the_rule() -> None:
    (block,) = blocks("docs/why/rules.md", "python")
    assert block.text in (ROOT / "aioelasticjob/core/rules.py").read_text()


@pytest.mark.process
@pytest.mark.parametrize("page", ["README.md", "docs/tutorial/first-job.md"])
def test_the_smallest_program_runs_and_ends_on_sigterm(page: str, tmp_path: Path, worker_processes: Workers) -> None:
    program = tmp_path / "tick.py"
    program.write_text(blocks(page, "python")[0].text)
    child = worker_processes.start(str(program), environment={"PYTHONPATH": str(ROOT)})
    for item in (0, 1):
        child.wait_for_output(f"item {item}: ")
    assert child.terminate() == 0
    assert "Traceback" not in child.output  # on a busy machine it may say that it was too slow


@pytest.mark.process
def test_the_program_that_moves_data_does_so_as_printed(tmp_path: Path, worker_processes: Workers) -> None:
    program = tmp_path / "orders.py"
    program.write_text(blocks("docs/how-to/dataflow.md", "python")[0].text)
    child = worker_processes.start(str(program), environment={"PYTHONPATH": str(ROOT)})
    for order in range(997, 1001):
        child.wait_for_output(f"item {order % 4} ships order {order}")
    assert child.terminate() == 0
    shipped = [int(line.rsplit(" ", 1)[1]) for line in child.output.splitlines() if " ships order " in line]
    assert sorted(shipped) == list(range(1, 1001))


async def _ends(events: EventReader) -> AsyncIterator[Ended]:
    async for event in events:
        if isinstance(event, Ended):
            yield event


async def _first_end(app: ElasticJob) -> Ended:
    with app.events() as events:
        return await anext(_ends(events))


@asynccontextmanager
async def _registry() -> AsyncIterator[None]:
    """A registry in the simulated world, at the address that the pages use."""
    async with serve("0.0.0.0", 2181, clock=VirtualClock().now):
        yield


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial/several-processes.md"])
def test_three_cities_are_shared_by_two_processes_and_survive_a_kill(page: str) -> None:
    (program,) = (block for block in blocks(page, "python") if "Beijing" in block.text)
    ended: list[tuple[int, str]] = []

    async def process() -> None:
        app: ElasticJob = execute(program, address="zk://10.0.0.1:2181/billing")["app"]
        with app.events() as events:
            async with app.running():
                async for end in _ends(events):
                    ended.append((end.item, end.instance))  # noqa: PERF401  # it never ends, and is looked at meanwhile

    async def registry() -> None:
        async with _registry():
            await anyio.sleep_forever()

    async def main() -> None:
        faults = Faults()
        faults.start("registry", "10.0.0.1", registry)
        await anyio.sleep(0.1)
        first, second = (faults.start(f"worker {n}", f"10.0.0.1{n}", process) for n in (1, 2))
        await anyio.sleep(14)
        assert sorted(item for item, _ in ended) == [0, 1, 2]
        assert len({instance for _, instance in ended}) == 2
        faults.crash(first)
        ended.clear()
        await anyio.sleep(60)
        assert {item for item, _ in ended} == {0, 1, 2}
        assert {instance.partition("@")[0] for _, instance in ended} == {second.address}

    run(main)


@pytest.mark.parametrize(
    ("page", "framework"),
    [("README.md", "fastapi"), ("docs/how-to/embed.md", "fastapi"), ("docs/how-to/embed.md", "aiohttp")],
)
def test_jobs_run_while_the_web_application_does(page: str, framework: str) -> None:
    program = next(block for block in blocks(page, "python") if f"from {framework} import" in block.text)
    names = execute(program, address="embedded://")
    app, jobs = names["app"], names["jobs"]
    lifespan = app.router.lifespan_context if framework == "fastapi" else asynccontextmanager(app.cleanup_ctx[-1])

    async def main() -> Ended:
        async with lifespan(app):
            return await _first_end(jobs)

    two_in_berlin = datetime(2026, 1, 15, 1, tzinfo=UTC).timestamp()
    assert run(main, start=two_in_berlin - 5).slot == two_in_berlin * 1000


@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
@pytest.mark.filterwarnings("ignore:Using `httpx`")
def test_metrics_are_answered_by_an_asgi_application(framework: str) -> None:
    from starlette.testclient import TestClient

    (block,) = (one for one in blocks("docs/how-to/metrics.md", "python") if f"from {framework}" in one.text)
    with TestClient(execute(block, address="embedded://")["app"]) as client:
        answer = client.get("/metrics")
    assert answer.status_code == 200
    assert "aioelasticjob_running 1.0" in answer.text


@pytest.mark.anyio
async def test_metrics_are_answered_by_aiohttp() -> None:
    from aiohttp.test_utils import TestClient, TestServer

    (block,) = (one for one in blocks("docs/how-to/metrics.md", "python") if "from aiohttp" in one.text)
    async with TestClient(TestServer(execute(block, address="embedded://")["app"])) as client:
        answer = await client.get("/metrics")
        assert answer.status == 200
        assert "aioelasticjob_running 1.0" in await answer.text()


def test_a_program_may_have_a_loop_of_its_own() -> None:
    (program,) = (
        block for block in blocks("docs/how-to/embed.md", "python") if "the rest of your program" in block.text
    )
    names = execute(program)
    ended: list[Ended] = []

    async def main() -> None:
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                ended.append(await _first_end(names["jobs"]))

            tasks.start_soon(listen)
            await names["main"]()
            tasks.cancel_scope.cancel()

    run(main)
    assert [(end.job, end.outcome) for end in ended] == [("tick", Outcome.COMPLETED)]


def test_the_pages_tests_pass(pytester: pytest.Pytester) -> None:
    tests = [block for block in blocks("docs/how-to/test.md", "python") if "def test_" in block.text]
    assert len(tests) == 5
    pytester.makepyfile(**{f"test_{number}": block.text for number, block in enumerate(tests)})
    result = pytester.runpytest_subprocess("-p", "aioelasticjob", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=5)


def test_the_store_refuses_a_zombie() -> None:
    names = execute(blocks("docs/how-to/fence.md", "python")[0])
    database = sqlite3.connect(":memory:")
    try:
        database.executescript(names["SCHEMA"])
        store = names["store"]
        store(database, 3, 17, "a", 1)
        store(database, 3, 17, "b", 2)
        store(database, 4, 5, "c", 3)
        store(database, 3, 20, "a", 4)
        with pytest.raises(names["Fenced"]):
            store(database, 3, 19, "a", 5)
        assert database.execute("SELECT * FROM balance ORDER BY account").fetchall() == [("a", 4), ("b", 2), ("c", 3)]
    finally:
        database.close()


def test_pages_are_counted_on_from_the_offset() -> None:
    (program,) = (block for block in blocks("docs/how-to/fence.md", "python") if "save_offset" in block.text)
    names = execute(program)
    saved: list[str] = []

    class Context:
        offset = "97"

        async def save_offset(self, value: str) -> None:
            saved.append(value)

    asyncio.run(names["pages"](Context()))
    assert saved == ["98", "99", "100"]


def test_the_strategy_keeps_its_three_rules(first_takes_all: Callable[[AssignmentInput], dict[int, str]]) -> None:
    given = AssignmentInput("report", ("a", "b"), 4, {0: "b", 1: "b", 2: "a", 3: "dead"})
    answer = first_takes_all(given)
    assert answer == dict.fromkeys(range(4), "b")
    assert first_takes_all(AssignmentInput("report", ("a", "b"), 4, answer)) == answer


def test_the_table_of_strategies_is_right() -> None:
    assert strategies.average(AssignmentInput("x", ("a", "b", "c"), 4)) == {0: "a", 3: "a", 1: "b", 2: "c"}


def test_settings_are_changed_while_the_job_runs() -> None:
    change = execute(*blocks("docs/how-to/change-settings.md", "python"))["every_five_minutes"]

    async def main() -> JobConfig:
        async with _registry():
            address = "zk://127.0.0.1:2181/billing"
            app = ElasticJob(address)
            app.add(lambda context: None, name="report", cron="0/10 * * * * ?")
            async with app.running():
                await anyio.sleep(1)
                await change()
                await anyio.sleep(2)
                async with open_session(ConnectionSettings.parse(address)) as session:
                    assert len(await session.children("/report/sharding")) == 6
                    return JobConfig.from_json((await session.get("/report/config")).data, "/report/config")

    config = run(main)
    assert (config.cron, config.sharding_total_count) == ("0 0/5 * * * ?", 6)


def test_a_program_follows_who_is_there_what_is_configured_who_leads_and_what_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    follow = execute(*blocks("docs/how-to/watch.md", "python"))["follow"]

    async def main() -> None:
        address = "zk://127.0.0.1:2181/billing"
        app = ElasticJob(address)

        @app.job(cron="0/10 * * * * ?")
        async def report(context: ItemContext) -> None:
            await anyio.sleep(2)

        async with (
            _registry(),
            open_session(ConnectionSettings.parse(address)) as operator,
            anyio.create_task_group() as tasks,
            app.running(),
        ):
            tasks.start_soon(follow, address, "report")
            await anyio.sleep(13)
            await operations.pause(operator, "report", server="127.0.0.1")
            await anyio.sleep(1)
            await operator.commit([Set("/report/config", b"nonsense", -1)], incarnation=operator.incarnation)
            await anyio.sleep(1)
            tasks.cancel_scope.cancel()

    run(main)
    printed = [re.sub(r"127.0.0.1@-@[\w-]+", "ME", line) for line in capsys.readouterr().out.splitlines()]
    assert set(printed[:3]) == {
        "joined: ['ME'], left: [], switched off: []",
        "the schedule is now 0/10 * * * * ?",
        "election 0: ME",
    }
    assert printed[3:6] == [
        "item 0 is run by ME",
        "item 0: completed",
        "joined: [], left: [], switched off: ['127.0.0.1']",
    ]
    (nonsense,) = printed[6:]
    assert nonsense.startswith("not in force: /report/config = b'nonsense': no job configuration")


def test_the_configuration_written_by_hand_is_one() -> None:
    shell = "".join(block.text for block in blocks("docs/how-to/change-settings.md", "text"))
    text = shell.partition("set /billing/report/config ")[2].splitlines()[0]
    assert JobConfig.from_json(text.encode(), "config").sharding_total_count == 6


def test_the_record_shown_is_one() -> None:
    block, request = blocks("docs/reference/znodes.md", "json")
    read = requests.decode("r", Node.of(request.text.encode(), UNREAD_NODE.stat))
    assert read is not None
    assert json.loads(requests.encode(read)) == json.loads(request.text)
    record = records.decode(block.text.encode())
    assert record is not None
    assert json.loads(records.encode(record)) == json.loads(block.text)


def test_a_program_asks_for_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks("docs/how-to/requests.md", "python")

    async def main() -> None:
        names = execute(program, address="zk://127.0.0.1:2181/billing")
        async with _registry(), names["app"].running():
            await names["ask"]()
            await anyio.sleep(5)
            states = {one.request.items: one.state for one in await names["app"].requests("report")}
            assert states == {(2, 3): "done", None: "planned"}

    run(main)
    assert capsys.readouterr().out.count("item") == 2


def test_the_embedded_server_is_started_within_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks("docs/reference/embedded-server.md", "python")
    run(execute(program)["main"])
    assert capsys.readouterr().out.startswith("zk://127.0.0.1:")


def test_the_schedules_of_the_reference_print_what_they_mean(capsys: pytest.CaptureFixture[str]) -> None:
    execute(*blocks("docs/reference/schedules.md", "python"))
    assert capsys.readouterr().out.splitlines()[:2] == ["2026-11-23T02:00:00+01:00", "2026-11-24T02:00:00+01:00"]
