"""Executors are found by name, and a name that leads nowhere is refused where a person gives it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aioelasticjob import ElasticJob, InvalidSetting, ItemContext
from aioelasticjob.config.job import JobConfig
from aioelasticjob.console.pages.fields import field_of
from aioelasticjob.jobs import executors
from aioelasticjob.operations.settings import _unknown_here
from aioelasticjob.settings import load
from tests.support.own_executors import added


def make(job: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, job)


def compute(context: ItemContext) -> None: ...


def test_an_executor_is_found_by_the_name_of_its_entry_point() -> None:
    with added(reports=make, thread=make):
        assert executors.names() == ("thread", "process", "reports")
        assert executors.find("reports") is make
        ElasticJob("embedded://").add(compute, executor="reports")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("report", "must be one of thread, process, broken, number, reports; did you mean reports?"),
        ("broken", "cannot be loaded: ImportError: no module named lib"),
        ("number", "its entry point leads to a int, not to a function"),
    ],
)
def test_a_name_that_leads_to_no_executor_is_refused_when_the_job_is_declared(name: str, expected: str) -> None:
    with (
        added(reports=make, broken=ImportError("no module named lib"), number=7),
        pytest.raises(InvalidSetting) as refused,
    ):
        ElasticJob("embedded://").add(compute, executor=name)
    assert (refused.value.setting, refused.value.value, refused.value.expected) == ("executor", name, expected)


def test_an_unknown_executor_in_a_settings_file_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("jobs:\n  compute:\n    executor: threads\n")
    with pytest.raises(InvalidSetting, match=r"did you mean thread\?"):
        load(path)


def test_the_console_suggests_the_executors_it_knows() -> None:
    with added(reports=make):
        field = field_of(JobConfig(job_name="job"), "executor")
        assert (field.kind, field.choices) == ("text", ("thread", "process", "reports"))


def test_an_operator_is_told_that_an_executor_is_unknown_here() -> None:
    config = JobConfig(job_name="job", executor="reports")
    (warning,) = _unknown_here(config, {"executor": "reports"})
    assert warning.startswith("as far as is known here, executor = 'reports'")
