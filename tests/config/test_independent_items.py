"""The setting with which items do not wait for each other: where it is set, and with what it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from aioelasticjob.config.job import JobConfig
from aioelasticjob.console.pages.fields import Field, sections
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.operations.settings import settings_from


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"per": "instance"}, 'is for per = "item": one call for all items cannot end for some of them'),
        ({"streaming": True, "job_type": "DATAFLOW"}, "a streaming job has one run for all its items"),
    ],
)
def test_items_of_one_call_and_of_streams_cannot_be_independent(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        JobConfig.build(job_name="job", independent_items=True, **settings)
    assert (refused.value.setting, refused.value.value) == ("independent_items", True)
    assert refused.value.expected.startswith(expected)


def test_a_command_and_the_form_of_the_console_make_items_independent() -> None:
    config = JobConfig.build(job_name="job")
    assert not config.independent_items
    changed = config.changed(**settings_from({"independentItems": "true"}))
    assert changed.independent_items
    ((section, field),) = switches(changed)
    assert section == "Items"
    assert (field.kind, field.value) == ("switch", "true")
    typed = settings_from({field.name: "false"})
    assert not changed.changed(**typed).independent_items


def switches(config: JobConfig) -> list[tuple[str, Field]]:
    """Return the field of the setting in the form of a job, with its section."""
    found = list[tuple[str, Field]]()
    for section, fields in sections(config):
        found += [(section, field) for field in fields if field.name == "independent_items"]
    return found
