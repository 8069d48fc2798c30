"""Error handlers in a job that runs: nonsense written into its configuration silences nobody."""

from __future__ import annotations

import logging

import pytest

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.error_handlers import Failure, Options
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.registry.transaction import Set
from tests.error_handlers.failures import delivered_by
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

NONSENSE = [
    ("no-such", {}, "error_handler = 'no-such': must be one of"),
    ("email", {}, "error_handler_options.host = None: this error handler needs it"),
    ("webhook", {"url": "s3cret"}, "error_handler_options.url = '…': must be an address"),
]


@pytest.mark.parametrize(("name", "options", "fault"), NONSENSE)
def test_an_error_handler_that_does_not_work_leaves_the_last_good_one_and_is_named_once(
    name: str, options: Options, fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[tuple[int, str]] = []

    async def mine(failed: Failure, options: Options) -> None:
        handled.append((round(here_now()), options["to"]))

    delivered_by(monkeypatch, mine=mine)

    async def scene(here: SimulatedJobs) -> None:
        nonlocal here_now
        here_now = here.now

        async def handler(context: ItemContext) -> None:
            raise ValueError("no luck")

        app = here.app(handler, cron="0/10 * * * * ?", error_handler="mine", error_handler_options={"to": "ops"})
        config = app.jobs[0]
        async with app.running():
            await here.until(15)
            wrong = config.changed(cron="0/5 * * * * ?", error_handler=name, error_handler_options=options)
            await here.write(Set(LAYOUT.config, wrong.to_json(), -1))
            await here.until(22)
        async with app.running():  # joins while the registry's makes no sense: what it was declared with holds
            await here.until(27)
            right = config.changed(error_handler_options={"to": "others"})
            await here.write(Set(LAYOUT.config, right.to_json(), -1))
            await here.until(35)

    here_now = float
    with caplog.at_level(logging.WARNING):
        simulate(scene)
    assert handled == [(10, "ops"), (20, "ops"), (25, "ops"), (30, "others")]
    said = [one.getMessage() for one in caplog.records if one.name.endswith("coordinator")]
    assert len(said) == 3  # once in each life, and that it was mended
    assert said[0] == said[1]
    assert said[0].startswith(f"/job/config: {fault}")
    assert said[0].endswith("; the error handler mine stays in use")
    assert said[2] == "/job/config: is correct now"


def test_an_alert_names_the_namespace_and_the_run_as_the_log_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[Failure] = []
    runs: list[str] = []

    async def mine(failed: Failure, options: Options) -> None:
        handled.append(failed)

    delivered_by(monkeypatch, mine=mine)

    async def scene(here: SimulatedJobs) -> None:
        async def handler(context: ItemContext) -> None:
            runs.append(context.run_id)
            raise ValueError("no luck")

        async with here.app(handler, cron="0/10 * * * * ?", error_handler="mine").running():
            await here.until(15)

    simulate(scene)
    (failure,) = handled
    assert ["office", *runs] == [failure.namespace, failure.run_id]
    assert f"\n\nnamespace office\nfire time {failure.fire_time}\n" in failure.text
    assert f"\nrun {failure.run_id}\n\nTraceback" in failure.text
    assert failure.run_id in [vars(one).get("run_id") for one in caplog.records]


def test_a_job_s_error_handler_is_given_the_console_s_page_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    links: list[str] = []

    async def mine(failed: Failure, options: Options) -> None:
        links.append(failed.link)

    async def handler(context: ItemContext) -> None:
        raise ValueError("no luck")

    delivered_by(monkeypatch, mine=mine)
    monkeypatch.setenv("AIOELASTICJOB_CONSOLE_URL", "https://jobs.example.org/r/office/")

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(handler, cron="0/10 * * * * ?", error_handler="mine")
        app.configure(registry=here.address)
        async with app.running():
            await here.until(15)

    simulate(scene)
    (link,) = links
    assert link.startswith("https://jobs.example.org/r/office/history?job=job&run=job%40")


def test_where_the_console_is_has_to_be_an_address_that_pages_can_be_appended_to() -> None:
    with pytest.raises(InvalidSetting, match=r"console_url = 'jobs\.example\.org': an address such as"):
        ElasticJob("embedded://", console_url="jobs.example.org")
