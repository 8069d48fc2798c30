"""What follows from the settings of jobs is written as they are now: types for editors, and tables of settings."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import pytest
from pydantic import BaseModel, JsonValue

from aioelasticjob import JobConfig, Retry
from aioelasticjob.config.durations import Duration
from aioelasticjob.config.meanings import meanings, without_links
from aioelasticjob.config.types import Alert
from aioelasticjob.jobs.listeners import Listener
from aioelasticjob.jobs.settings import DataflowSettings, JobSettings, RequestSettings, ScriptSettings
from tests import generate


@pytest.mark.parametrize("path", generate.FILES)
def test_a_file_is_what_follows_from_the_settings(path: str) -> None:
    assert (generate.ROOT / path).read_text() == generate.up_to_date(path), "run: python -m tests.generate"


def test_every_part_has_its_place() -> None:
    found = [part[2] for path in generate.FILES for part in generate.PART.finditer((generate.ROOT / path).read_text())]
    assert sorted(found) == sorted(generate.parts())


class Silent(BaseModel):
    volume: int = 0
    """How loud it is."""
    patience: int = 0


def test_a_setting_without_a_text_is_named() -> None:
    with pytest.raises(ValueError, match=r"Silent\.patience: write below it"):
        meanings(Silent)


def test_each_setting_of_a_job_is_a_keyword_of_its_kind() -> None:
    hints = {**typing.get_type_hints(JobSettings), **typing.get_type_hints(DataflowSettings)}
    assert hints.keys() == JobConfig.model_fields.keys() - generate.NO_KEYWORDS
    assert "streaming" not in typing.get_type_hints(JobSettings)
    assert "retry" not in typing.get_type_hints(DataflowSettings)


@pytest.mark.parametrize(
    ("settings", "name", "expected"),
    [
        (JobSettings, "failover", bool),
        (JobSettings, "cron", str | Sequence[str] | None),
        (JobSettings, "items_at_once", int | None),
        (JobSettings, "per", Literal["item", "instance"]),
        (JobSettings, "catch_up", Duration),
        (JobSettings, "max_time_diff_seconds", Duration),
        (JobSettings, "timeout", Duration | None),
        (JobSettings, "retry", Retry | None),
        (JobSettings, "error_handler_options", Mapping[str, str]),
        (JobSettings, "sharding_item_parameters", Mapping[int, str] | str),
        (JobSettings, "alert_on", Sequence[Alert] | str),
        (JobSettings, "requires", Sequence[str] | str),
        (DataflowSettings, "batch_size", int | None),
        (ScriptSettings, "exit_codes", Sequence[int]),
        (ScriptSettings, "listeners", Iterable[Listener]),
        (RequestSettings, "body", JsonValue),
        (RequestSettings, "expected_status", int | str | Sequence[int | str]),
    ],
)
def test_a_setting_has_the_type_that_its_model_allows(settings: type, name: str, expected: Any) -> None:
    assert typing.get_type_hints(settings)[name] == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A number, 1 to 9 ([why](../why/running.md)).", "A number, 1 to 9."),
        ("Log, or [your own](../how-to/own.md); [not](a.md) (so).", "Log, or your own; not (so)."),
    ],
)
def test_an_editor_shows_a_text_without_links(text: str, shown: str) -> None:
    assert without_links(text) == shown
