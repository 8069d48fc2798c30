"""New job: the form follows from the schema of the handler that was chosen, and creates the job."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel, Field

from aioelasticjob import ElasticJob, InvalidSetting, ItemContext, operations
from aioelasticjob.console.pages.schema_fields import fields_of, typed_value
from aioelasticjob.console.users.permissions import Role
from aioelasticjob.jobs.parameters import schema_of
from tests.console.conftest import Play, Scene

NEW = "/r/billing/jobs/new"


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Report(BaseModel):
    tenant: int = Field(description="Who it is for")
    recipient: str = "office@example.org"
    is_long: bool = False
    factor: float | None = None
    colour: Colour = Colour.RED
    pages: list[int] = []


async def with_handlers(scene: Scene, act: Any) -> None:
    """Let a process with handlers run while ``act`` does."""
    app = ElasticJob(scene.address, allow_created=["http"])

    @app.handler("report", parameter=Report)
    async def report(context: ItemContext) -> None: ...

    @app.handler("plain")
    async def plain(context: ItemContext) -> None: ...

    async with app.running() as session:
        await act(session)


def test_the_form_has_a_field_for_each_property_of_the_schema() -> None:
    fields = fields_of(schema_of(Report) or {})
    assert [(one.key, one.kind, one.required, one.shown) for one in fields] == [
        ("tenant", "number", True, ""),
        ("recipient", "text", False, "office@example.org"),
        ("is_long", "switch", False, "false"),
        ("factor", "number", False, ""),
        ("colour", "choice", False, "red"),
        ("pages", "json", False, "[]"),
    ]
    assert fields[4].choices == ("red", "blue")
    assert fields[0].help == "Who it is for"
    typed = {"value:tenant": "17", "value:factor": "0.5", "value:is_long": "true", "value:pages": "[1, 2]"}
    assert typed_value(typed, fields) == {"tenant": 17, "factor": 0.5, "is_long": True, "pages": [1, 2]}
    with pytest.raises(InvalidSetting, match="tenant = 'many': must be a number"):
        typed_value({"value:tenant": "many"}, fields)


@pytest.mark.parametrize("schema", [{}, {"properties": 7}, {"properties": {"a": 1}}, {"type": "string"}])
def test_a_schema_that_describes_no_object_has_no_fields(schema: dict[str, Any]) -> None:
    assert fields_of(schema) == []


def test_a_job_is_created_from_the_form_and_what_is_wrong_is_said_there(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator()

        async def typing(session: Any) -> None:
            assert ">report</a>" in (await browser.get(NEW)).text
            page = await browser.get(f"{NEW}?handler=report")
            assert 'name="value:tenant"' in page.text
            assert "Who it is for" in page.text
            form = {"handler": "report", "name": "report-17", "cron": "0 0 6 * * ?", "value:tenant": "x"}
            refused = await browser.submit(f"{NEW}?handler=report", form, to=NEW)
            assert refused.status == 400
            assert "must be a number" in refused.text
            assert 'value="0 0 6 * * ?"' in refused.text  # what was typed stays
            wrong = await browser.submit(f"{NEW}?handler=report", {**form, "value:tenant": "0.5"}, to=NEW)
            assert "no process with the handler report takes it" in wrong.text
            done = await browser.submit(f"{NEW}?handler=report", {**form, "value:tenant": "17"}, to=NEW)
            assert (done.status, done.location) == (303, "/r/billing/job/report-17")
            job = await operations.job(session, "report-17", now=0)
            assert job.config.handler == "report"
            assert job.config.cron == "0 0 6 * * ?"
            assert '"tenant": 17' in job.config.job_parameter
            page = "/r/billing/job/report-17"
            removed = await browser.submit(page, {"typed": "report-17"}, to=f"{page}/do/remove")
            assert removed.status == 303, removed.text
            assert "report-17" not in await operations.names(session)

        await with_handlers(scene, typing)
        entries = await scene.console.state.storage.audit.entries()
        assert "create" in [one.entry.action for one in entries]

    play(act)


def test_a_request_and_a_job_with_any_parameter_are_created_from_the_form(play: Play) -> None:
    async def act(scene: Scene) -> None:
        browser = await scene.operator()

        async def typing(session: Any) -> None:
            form = {
                "handler": "http",
                "name": "page",
                "value:url": "https://shop.example/close",
                "value:method": "POST",
            }
            assert (await browser.submit(f"{NEW}?handler=http", form, to=NEW)).status == 303
            job = await operations.job(session, "page", now=0)
            assert job.config.job_type == "HTTP"
            assert job.config.options["url"] == "https://shop.example/close"
            form = {"handler": "plain", "name": "other", "job_parameter": "any text"}
            assert (await browser.submit(f"{NEW}?handler=plain", form, to=NEW)).status == 303
            assert (await operations.job(session, "other", now=0)).config.job_parameter == "any text"

        await with_handlers(scene, typing)

    play(act)


def test_only_who_may_define_what_runs_creates_jobs(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.operator()
        operator = await scene.person("olga", Role.OPERATOR)
        assert (await operator.get(NEW)).status == 403
        assert "New job" not in (await operator.get("/r/billing/jobs")).text
        developer = await scene.person("dave", Role.DEVELOPER)
        assert "No process that is there has a handler" in (await developer.get(NEW)).text
        assert "New job" in (await developer.get("/r/billing/jobs")).text
        assert (await developer.get(f"{NEW}?handler=a b")).status == 409

    play(act)
