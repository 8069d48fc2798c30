"""The plugin as its users meet it: in a pytest of their own, with their own application."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

pytest_plugins = "pytester"

PLUGIN = "aioelasticjob.testing.pytest_plugin"
JOBS = """
from typing import Annotated

import anyio

from aioelasticjob import Depends, ElasticJob, ItemContext

app = ElasticJob("zk://nowhere.example:2181/shop")
ran = []


def greeting():
    return "hello"


@app.job(cron="0 0 7 * * ?", sharding_total_count=3, failover=True)
async def greet(context: ItemContext, word: Annotated[str, Depends(greeting)]):
    await anyio.sleep(60)
    ran.append((context.item, word, context.job_parameter))


@app.job(name="plain", cron="30 * * * * ?")
def plain(context: ItemContext):
    ran.append(context.fire_time.isoformat())
"""


@pytest.fixture
def theirs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory with an application, and a pytest that has our plugin whether or not we are installed."""
    pytester.makepyfile(jobs=JOBS)
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    pytester.syspathinsert()
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return pytester


def run(pytester: pytest.Pytester, test: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=test)
    return pytester.runpytest_subprocess("-p", PLUGIN, "-p", "no:cacheprovider", *options)


def test_the_package_announces_it() -> None:
    found = {point.value for point in entry_points(group="pytest11") if point.name == "aioelasticjob"}
    assert found == {PLUGIN}


def test_a_run_that_does_not_use_it_is_not_disturbed(theirs: pytest.Pytester) -> None:
    result = run(
        theirs,
        """
        import sys
        import time

        def test_nothing_of_ours_is_loaded():
            heavy = ("aioelasticjob", "anyio", "aiozk", "pydantic", "asyncio")
            ours = {name for name in sys.modules if name.split(".")[0] in heavy}
            assert ours == {"aioelasticjob", "aioelasticjob.testing", "aioelasticjob.testing.pytest_plugin"}
            assert time.time() > 1_767_225_600 + 1000
        """,
        "--strict-markers",
    )
    result.assert_outcomes(passed=1)


def test_an_async_test_of_nobodys_is_left_to_pytest(theirs: pytest.Pytester) -> None:
    result = run(theirs, "async def test_it():\n    assert False")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*async def functions are not natively supported*"])


def test_an_application_runs_days_in_a_moment(theirs: pytest.Pytester) -> None:
    result = run(
        theirs,
        """
        from datetime import UTC, datetime, timedelta

        import pytest

        import jobs
        from aioelasticjob import Outcome
        from aioelasticjob.errors import InvalidSetting

        @pytest.mark.virtual_time(start=datetime(2030, 5, 1, 6, 50, tzinfo=UTC), seed=3)
        async def test_it(virtual_cluster):
            instance = await virtual_cluster.start(jobs.app, overrides={jobs.greeting: lambda: "bonjour"})
            first = await virtual_cluster.next_fire("greet")
            assert [(end.item, end.outcome) for end in first] == [(item, Outcome.COMPLETED) for item in range(3)]
            assert virtual_cluster.now - datetime(2030, 5, 1, 7, 1, tzinfo=UTC) < timedelta(seconds=1)
            assert sorted(one for one in jobs.ran if isinstance(one, tuple)) == [(n, "bonjour", "") for n in range(3)]
            assert jobs.ran[0] == "2030-05-01T06:50:30+00:00"
            await virtual_cluster.trigger("greet", parameter="again")
            assert jobs.ran[-1][1:] == ("bonjour", "again")
            assert await instance.holds("greet") == (0, 1, 2)
            with pytest.raises(InvalidSetting, match="name one of greet, plain"):
                await virtual_cluster.next_fire()
            assert jobs.app.dependency_overrides == {}

        async def test_nothing_is_left_of_the_one_before(virtual_cluster, monkeypatch):
            monkeypatch.setitem(jobs.app.dependency_overrides, jobs.greeting, lambda: "ciao")
            instance = await virtual_cluster.start(jobs.app)
            assert not jobs.app.counts
            ended = await virtual_cluster.trigger("greet")
            assert len(ended) == 3 and jobs.ran[-1][1] == "ciao"
        """,
    )
    result.assert_outcomes(passed=2)


def test_an_instance_is_killed_and_another_takes_over(theirs: pytest.Pytester) -> None:
    result = run(
        theirs,
        """
        from datetime import UTC, datetime

        import anyio
        import pytest
        import jobs
        from aioelasticjob import FireSource
        from aioelasticjob.events import Began, Ended

        @pytest.mark.virtual_time(start=datetime(2030, 5, 1, 6, 50, tzinfo=UTC))
        async def test_it(virtual_cluster):
            one, other, third = [await virtual_cluster.start(jobs.app) for _ in range(3)]
            await virtual_cluster.settled("greet")
            (item,) = await one.holds("greet")
            await virtual_cluster.event(Began, job="greet")
            await anyio.sleep(30)
            one.kill()
            assert not one.alive
            rescue = await virtual_cluster.event(Ended, job="greet", item=item, source=FireSource.FAILOVER)
            assert not rescue.instance.startswith(one.host)
            other.pause()
            await anyio.sleep(300)
            status = await virtual_cluster.status("greet")
            assert [found.ip for found in status.instances] == [third.host]
            other.resume()
            status = await virtual_cluster.settled("greet")
            assert {found.ip for found in status.instances} == {other.host, third.host}
            await other.stop()
            assert not other.alive
            await virtual_cluster.settled("greet")
            assert await third.holds("greet") == (0, 1, 2)
        """,
    )
    result.assert_outcomes(passed=1)


def test_what_an_application_tells_the_real_world_is_left_out(theirs: pytest.Pytester) -> None:
    result = run(
        theirs,
        """
        from pathlib import Path

        from aioelasticjob import ElasticJob

        app = ElasticJob("embedded://", event_store="sqlite:///events.db", metrics=0)
        app.add(lambda context: None, name="tick", cron="* * * * * ?", executor="thread")

        async def test_it(virtual_cluster):
            await virtual_cluster.start(app)
            await virtual_cluster.next_fire()
            assert not Path("events.db").exists()
        """,
    )
    result.assert_outcomes(passed=1)


def test_what_does_not_happen_fails_the_test_and_says_what_did(theirs: pytest.Pytester) -> None:
    result = run(
        theirs,
        """
        import jobs
        from aioelasticjob.events import Ended

        async def test_it(virtual_cluster):
            await virtual_cluster.start(jobs.app)
            await virtual_cluster.event(Ended, job="greet", within=100)
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*no Ended(job='greet') within 100 simulated seconds*", "*Ended(job='plain'*"])


def test_what_keeps_an_instance_from_running_fails_the_test(theirs: pytest.Pytester) -> None:
    result = run(
        theirs,
        """
        import pytest
        from aioelasticjob import ElasticJob
        from aioelasticjob.errors import JobConflict

        one, other = ElasticJob("embedded://"), ElasticJob("embedded://")
        one.add(lambda context: None, name="same", cron="* * * * * ?")
        other.add(lambda context: None, name="same", cron="* * * * * ?", per="instance", job_parameter="x")
        other.kind("script", "other", command="true")
        one.add(lambda context: None, name="other", cron="* * * * * ?")

        async def test_it(virtual_cluster):
            await virtual_cluster.start(one)
            await virtual_cluster.start(other)
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*JobConflict*"])


def test_time_alone_is_simulated_by_the_marker(theirs: pytest.Pytester) -> None:
    result = run(
        theirs,
        """
        import time
        import anyio
        import pytest
        from aioelasticjob.testing import VirtualClock

        pytestmark = pytest.mark.virtual_time(seed=1)

        class TestThem:
            async def test_it(self, tmp_path):
                before = time.monotonic()
                await anyio.sleep(1e6)
                assert time.monotonic() - before == 1e6
                assert VirtualClock().now() == time.time()
        """,
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("test", "says"),
    [
        ("def test_it(virtual_cluster):\n    pass", "*make it `async def`*"),
        (
            "@pytest.mark.virtual_time(begin=3)\nasync def test_it():\n    pass",
            "*takes start=* and seed=*, not 'begin'*",
        ),
        ("@pytest.mark.virtual_time(3)\nasync def test_it():\n    pass", "*takes start=* and seed=*, not 3*"),
        (
            "import datetime\n@pytest.mark.virtual_time(start=datetime.datetime(2026, 1, 1))\n"
            "async def test_it():\n    pass",
            "*has no time zone*",
        ),
        (
            "@pytest.mark.virtual_time(start='2026-01-01T00:00:00Z')\nasync def test_it():\n    pass",
            "*start='2026-01-01T00:00:00Z' is neither a datetime with a time zone nor seconds since the epoch",
        ),
        ("@pytest.mark.virtual_time(seed='x')\nasync def test_it():\n    pass", "*seed='x' is no whole number"),
    ],
)
def test_what_cannot_be_meant_is_said(theirs: pytest.Pytester, test: str, says: str) -> None:
    theirs.makepyfile(test_it=f"import pytest\n{test}")
    result = theirs.runpytest_inprocess("-p", PLUGIN, "-p", "no:cacheprovider")  # it loads nothing that could be left
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([says])


def test_anyios_plugin_has_its_tests_and_we_have_ours(theirs: pytest.Pytester) -> None:
    result = run(
        theirs,
        """
        import asyncio
        import anyio
        import pytest
        import jobs
        from aioelasticjob import ElasticJob
        from aioelasticjob.testing import VirtualLoop

        pytestmark = pytest.mark.anyio

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        async def test_theirs(embedded_registry):
            assert not isinstance(asyncio.get_running_loop(), VirtualLoop)
            app, ran = ElasticJob(embedded_registry, session_timeout=2), anyio.Event()

            @app.job(cron="* * * * * ?")
            async def tick(context):
                ran.set()

            async with app.running():
                with anyio.fail_after(90):
                    await ran.wait()

        async def test_ours(virtual_cluster):
            assert isinstance(asyncio.get_running_loop(), VirtualLoop)
            await virtual_cluster.start(jobs.app)
            await virtual_cluster.trigger("greet")
        """,
        "-p",
        "anyio",
    )
    result.assert_outcomes(passed=2)


def test_a_test_that_another_plugin_has_wrapped_is_found(theirs: pytest.Pytester) -> None:
    theirs.makeconftest(
        """
        import asyncio, functools, inspect

        def pytest_collection_modifyitems(items):
            for item in items:  # as pytest-asyncio does in its automatic mode
                test = item.obj
                item.obj = functools.wraps(test)(lambda *a, **k: asyncio.run(test(*a, **k)))
        """
    )
    result = run(
        theirs,
        """
        import asyncio
        from aioelasticjob.testing import VirtualLoop

        async def test_it(virtual_cluster):
            assert isinstance(asyncio.get_running_loop(), VirtualLoop)
        """,
    )
    result.assert_outcomes(passed=1)


def test_each_test_has_a_registry_of_its_own_on_one_server(theirs: pytest.Pytester) -> None:
    result = run(
        theirs,
        """
        from aioelasticjob.registry.settings import ConnectionSettings

        seen = []

        def test_one(embedded_registry):
            seen.append(ConnectionSettings.parse(embedded_registry))

        def test_other(embedded_registry):
            seen.append(ConnectionSettings.parse(embedded_registry))
            assert seen[0].hosts == seen[1].hosts
            assert seen[0].namespace != seen[1].namespace
        """,
    )
    result.assert_outcomes(passed=2)


def test_it_costs_next_to_nothing_to_load() -> None:
    program = f"import sys, pytest; before = {{*sys.modules}}; import {PLUGIN}; print(*{{*sys.modules}} - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in done.stdout.split()} <= {"aioelasticjob", *sys.stdlib_module_names}


@pytest.mark.parametrize("end", ["assert jobs.app is None", "first.kill()", "first.kill(); assert jobs.app is None"])
def test_what_is_cut_off_at_the_end_of_a_test_logs_nothing(theirs: pytest.Pytester, end: str) -> None:
    result = run(
        theirs,
        f"""
        import anyio
        import jobs

        @jobs.app.job(cron="* * * * * ?")
        async def long(context):
            await anyio.sleep(100)

        async def test_it(virtual_cluster):
            first = await virtual_cluster.start(jobs.app)
            await anyio.sleep(3)
            {end}
        """,
        "--log-level=INFO",
        "-rP",
    )
    result.stdout.fnmatch_lines(["*connected to the registry*"])
    result.stdout.no_fnmatch_line("*connection to the registry*")
    result.stdout.no_fnmatch_line("*no running event loop*")
