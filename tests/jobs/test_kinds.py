from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from aioelasticjob import ElasticJob, InvalidSetting, ItemContext, JobConfig
from aioelasticjob.errors import ForeignData
from aioelasticjob.jobs import kinds
from aioelasticjob.jobs.base import Job
from aioelasticjob.jobs.kinds import Kind, Options, configured, fits
from aioelasticjob.registry.transaction import Set
from aioelasticjob.testing import VirtualClock
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

NOWHERE = "zk://127.0.0.1:1/shop"


class Query(Options):
    statement: str
    batch_rows: int = 100


Offer = Callable[..., None]


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Offer]:
    """Registers kinds as packages do."""
    offered: list[SimpleNamespace] = []
    monkeypatch.setattr(kinds, "entry_points", lambda group: offered)

    def offer(name: str, kind: object) -> None:
        def load() -> object:
            if isinstance(kind, Exception):
                raise kind
            return kind

        offered.append(SimpleNamespace(name=name, load=load))

    kinds.find.cache_clear()
    yield offer
    kinds.find.cache_clear()


def change(here: SimulatedJobs, **options: object) -> Any:
    text = json.dumps({"jobName": "job", "jobType": "SQL", "cron": "0/10 * * * * ?", "options": options})
    return here.write(Set(LAYOUT.config, text.encode(), -1))


@pytest.mark.parametrize(
    ("kind", "options", "setting"),
    [
        ("script", {"command": "true", "environment": {"A": b"1"}}, "environment"),
        ("script", {"command": "true", "shell": b"1"}, "shell"),
        ("script", {"command": "true", "grace": b"1"}, "grace"),
        ("http", {"url": b"http://127.0.0.1/"}, "url"),
    ],
)
def test_bytes_are_no_options(kind: str, options: dict[str, object], setting: str) -> None:
    with pytest.raises(InvalidSetting, match="must not be bytes") as wrong:
        kinds.find(kind).parse(options)
    assert wrong.value.setting == setting


def test_a_kind_may_have_options_that_are_bytes() -> None:
    class Upload(Options):
        content: bytes

    kind = kinds.Kind(Upload, lambda context, options: None)
    assert kind.parse({"content": b"x"}).content == b"x"


def test_a_packages_kind_runs_with_the_options_of_now(offer: Offer, caplog: pytest.LogCaptureFixture) -> None:
    ran: list[tuple[float, int, str, int]] = []

    async def scene(here: SimulatedJobs) -> None:
        async def run(context: ItemContext, options: Query) -> None:
            ran.append((round(here.now()), context.item, options.statement, options.batch_rows))

        offer("sql", Kind(Query, run))
        app = ElasticJob(here.address, clock=VirtualClock())
        app.kind("SQL", "job", statement="first", cron="0/10 * * * * ?", sharding_total_count=2)
        async with app.running():
            await here.until(11)
            await change(here, statement="second", batchRows=5)
            await here.until(21)
            await change(here, statment="third")
            await here.until(31)
            await change(here, statement="fourth")
            await here.until(41)

    with caplog.at_level(logging.WARNING):
        simulate(scene)
    assert sorted(ran[:2]) == [(10, 0, "first", 100), (10, 1, "first", 100)]
    assert ran[2:] == [(20, 0, "second", 5), (30, 0, "second", 5), (40, 0, "fourth", 100)]
    assert [record.getMessage() for record in caplog.records if "statment" in record.getMessage()]


def test_options_are_stored_as_they_were_given_and_in_the_registrys_spelling(offer: Offer) -> None:
    async def run(context: ItemContext, options: Query) -> None: ...

    offer("sql", Kind(Query, run, settings={"timeout": 5, "failover": True}))
    config = ElasticJob(NOWHERE).kind("sql", "job", statement="x", batch_rows="7", failover=False)
    assert (config.job_type, config.timeout, config.failover) == ("SQL", 5, False)
    assert json.loads(config.to_json())["options"] == {"statement": "x", "batchRows": 7}
    again = JobConfig.from_json(config.to_json(), "config")
    assert again.options == config.options
    changed = configured(again, {"batch_rows": 8, "cron": "@daily"})
    assert (changed.options, changed.cron) == ({"statement": "x", "batchRows": 8}, "@daily")
    assert configured(again, {"batchRows": 9}).options["batchRows"] == 9


def test_a_plain_run_goes_to_a_thread_like_a_plain_handler(offer: Offer) -> None:
    seen: list[object] = []

    def run(context: ItemContext, options: Query) -> None:
        seen.append(options)

    kind = Kind(Query, run)
    handler = kinds.handler(kind)
    assert Job.declare(JobConfig.build(job_name="job"), handler).blocking
    handler(SimpleNamespace(options={"statement": "x"}))
    assert seen == [Query(statement="x")]


def test_what_a_package_offers_may_be_no_kind_or_fail_to_load(offer: Offer) -> None:
    offer("broken", ImportError("no module named psycopg"))
    offer("other", Query)
    for name, says in (
        ("broken", "cannot be loaded: ImportError: no module named psycopg"),
        ("other", "leads to a ModelMetaclass, not to a Kind"),
        ("scirpt", "must be one of broken, http, other, script; did you mean script"),
        ("", "must be one of"),
        (None, "must be one of"),
    ):
        with pytest.raises(InvalidSetting, match=says) as caught:
            ElasticJob(NOWHERE).kind(name, "job")  # type: ignore[arg-type]
        assert caught.value.setting == "kind"


@pytest.mark.parametrize(
    ("settings", "setting", "says"),
    [
        ({}, "statement", "field required"),
        ({"statement": "x", "batch_rows": "many"}, "batch_rows", "whole number"),
        ({"statement": "x", "batch_row": 1}, "batch_row", "did you mean batch_rows"),
        ({"statement": "x", "failovr": True}, "failovr", "did you mean failover"),
        ({"statement": "x", "cron": "0 0 25 * * ?"}, "cron", "hour"),
        ({"statement": "x", "job_type": "SCRIPT"}, "job_type", "how the job is declared"),
    ],
)
def test_a_wrong_setting_of_a_kind_is_named(settings: dict[str, Any], setting: str, says: str, offer: Offer) -> None:
    async def run(context: ItemContext, options: Query) -> None: ...

    offer("sql", Kind(Query, run))
    with pytest.raises(InvalidSetting, match=says) as caught:
        ElasticJob(NOWHERE).kind("sql", "job", **settings)
    assert caught.value.setting == setting


def test_a_kind_may_not_take_the_name_of_a_setting_that_every_job_has() -> None:
    class Clash(BaseModel):
        timeout: float = 3

    with pytest.raises(InvalidSetting, match="timeout = 'Clash': every job has a setting of this name"):
        Kind(Clash, print)


def test_the_options_of_a_kind_are_a_pydantic_model() -> None:
    with pytest.raises(InvalidSetting, match=r"options = .*must be a pydantic model"):
        Kind(dict, print)  # type: ignore[type-var]


def test_who_only_looks_need_not_know_the_kind(offer: Offer) -> None:
    fits(JobConfig.build(job_name="job", job_type="COBOL", options={"anything": [1]}))
    with pytest.raises(InvalidSetting, match=r"options.command = .*field required"):
        fits(JobConfig.build(job_name="job", job_type="SCRIPT"))
    with pytest.raises(InvalidSetting, match="a SIMPLE job has none"):
        fits(JobConfig.build(job_name="job", options={"command": "true"}))
    with pytest.raises(ForeignData, match="must be a kind of job in capitals"):
        JobConfig.from_json(b'{"jobName": "job", "jobType": "no kind"}', "config")


def test_what_all_jobs_have_by_default_is_also_for_those_of_a_kind_in_code_except_processes(
    offer: Offer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offer("sql", Kind(Query, lambda context, options: None))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.yaml").write_text(f"registry: {NOWHERE}\ndefaults: {{executor: process, timeout: 7}}\n")
    declared = ElasticJob.from_settings("jobs.yaml").kind("sql", "report", statement="SELECT 1")
    assert (declared.executor, declared.timeout) == ("thread", 7)
