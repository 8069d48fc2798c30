"""Every public error has its section on the page of errors, with a cause, what to do, and what it looks like."""

from __future__ import annotations

import re
from datetime import timedelta
from importlib import import_module

import pytest

from aioelasticjob.config import JobConfig
from aioelasticjob.errors import (
    ClockSkew,
    Conflict,
    ElasticJobError,
    Fenced,
    GivenUp,
    InvalidSetting,
    NodeMissing,
    NodeTooLarge,
    NotAnException,
    NotPermitted,
    RegistryError,
    RegistryUnreachable,
)
from aioelasticjob.jobs.dataflow import RecordFailed, TooManyFailures
from aioelasticjob.jobs.dependencies import ProviderFailed
from aioelasticjob.observers.sql.store import EventStoreUnreachable
from aioelasticjob.operations.results import ChangedMeanwhile
from aioelasticjob.running.executors import ProcessDied
from tests.docs.pages import ROOT, read

PAGE = "docs/reference/errors.md"
OTHERS = ("aioelasticjob/console", "aioelasticjob/demo")
"""Their pages and screens say what their errors mean; no caller meets them."""
BASES = (ElasticJobError, RegistryError)
"""They are only caught, never raised."""


def refused_count() -> InvalidSetting:
    """Return the error of a job with 0 items."""
    with pytest.raises(InvalidSetting) as refused:
        JobConfig.build(job_name="report", cron="* * * * * ?", sharding_total_count=0)
    return refused.value


EXAMPLES = [
    refused_count(),
    RegistryUnreachable("zk1:2181", 15, "connection refused"),
    NotPermitted("/report/config"),
    Fenced(2),
    NodeMissing("/report/config"),
    NodeTooLarge("/report/config", 2_000_000, 1_048_575),
    Conflict(0, "/report/config", "version"),
    ClockSkew(timedelta(seconds=7.2), timedelta(seconds=5)),
    NotAnException("the handler", SystemExit(3), is_cancelled=False),
    GivenUp(3, "10.0.0.5@-@7-0a1b2c3d"),
    ProcessDied("shop.report", -9),
    ProviderFailed("database", ConnectionRefusedError(111, "Connection refused")),
    RecordFailed(),
    TooManyFailures(11, 10),
    EventStoreUnreachable("sqlite+aiosqlite:///runs.db", "database is locked"),
    ChangedMeanwhile("/report/config", "was changed"),
]


def errors() -> set[type[ElasticJobError]]:
    """Return the public errors, from all modules that define one."""
    for path in sorted((ROOT / "aioelasticjob").rglob("*.py")):
        name = path.relative_to(ROOT).with_suffix("").as_posix()
        if not name.startswith(OTHERS) and re.search(r"^class \w+\(.*(Error|Setting|Failed)\b", path.read_text(), re.M):
            import_module(name.replace("/", ".").removesuffix(".__init__"))
    found, left = set[type[ElasticJobError]](), [ElasticJobError]
    while left:
        one = left.pop()
        left += one.__subclasses__()
        if one.__module__.startswith("aioelasticjob.") and not one.__module__.replace(".", "/").startswith(OTHERS):
            found.add(one)
    return found


def sections() -> dict[str, str]:
    """Return what the page says of each error, by name."""
    pieces = re.split(r"^##+ (.+)$", read(PAGE), flags=re.MULTILINE)
    return {name: text for name, text in zip(pieces[1::2], pieces[2::2], strict=True) if "**Cause.**" in text}


def test_every_public_error_has_its_section_and_no_other_has_one() -> None:
    assert sections().keys() == {error.__name__ for error in errors()}


@pytest.mark.parametrize("name", sorted(sections()))
def test_a_section_says_what_to_do_and_shows_the_error(name: str) -> None:
    text = sections()[name]
    assert "**What to do.**" in text
    assert re.search(rf"^```text\n(except {name} as|{name}: )", text, re.MULTILINE)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_the_text_shown_is_the_text_of_the_error(error: ElasticJobError) -> None:
    assert f"```text\n{type(error).__name__}: {error}\n```" in sections()[type(error).__name__]


def test_only_bases_are_without_a_text() -> None:
    caught = [name for name, text in sections().items() if "```text\nexcept" in text]
    assert caught == [base.__name__ for base in BASES]
