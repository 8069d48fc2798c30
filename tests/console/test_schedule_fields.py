"""The form of a job's settings has a field for each setting of its schedule, and what is typed there is understood."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from aioelasticjob.config.job import SCHEDULING, JobConfig
from aioelasticjob.console.pages.fields import sections
from aioelasticjob.operations.settings import settings_from

KINDS: list[dict[str, Any]] = [
    {"cron": ["0 9 * * *", "0 12 * * SAT"], "time_zone": "Europe/Berlin"},
    {"every": "1h 30m", "jitter": 30, "start_at": datetime(2027, 1, 1, tzinfo=UTC)},
    {"at": ["2027-01-01T10:00", "2027-02-01"], "end_at": "2028-01-01"},
]


def typed(config: JobConfig) -> dict[str, str]:
    """Return what the form of a job shows in the fields of its schedule."""
    ((_, fields), *_) = sections(config)
    found = {field.name: field.value for field in fields if field.name in SCHEDULING}
    assert found.keys() == SCHEDULING
    return found


@pytest.mark.parametrize("settings", KINDS)
def test_what_the_form_shows_of_a_schedule_is_that_schedule_when_it_is_typed(settings: dict[str, Any]) -> None:
    config = JobConfig.build(job_name="job", **settings)
    other = JobConfig.build(job_name="job", cron="@daily")
    changed = other.changed(**settings_from({name: text or None for name, text in typed(config).items()}))
    assert changed.schedule_settings == config.schedule_settings
