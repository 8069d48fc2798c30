"""What commands write with ``--json``: times in ISO 8601, and null for what there is not."""

from __future__ import annotations

from aioelasticjob import JobConfig
from aioelasticjob.cli.describe import job_as_json
from aioelasticjob.model import Record
from aioelasticjob.operations import ItemStatus, JobStatus


def test_a_record_shows_null_for_what_has_yet_to_come() -> None:
    under_way = Record(1_767_258_000_000, "SCHEDULE", begun=1_767_258_000_250, completed=False)
    items = tuple(
        ItemStatus(n, None, None, None, None, False, False, False, record) for n, record in enumerate((under_way, None))
    )
    shown = job_as_json(JobStatus(JobConfig(job_name="job"), None, None, True, None, (), (), items))["items"]
    assert isinstance(shown, list)
    assert [item["record"] for item in shown if isinstance(item, dict)] == [
        {
            "slot": "2026-01-01T09:00:00.000+00:00",
            "source": "SCHEDULE",
            "instance": None,
            "lastBeginTime": "2026-01-01T09:00:00.250+00:00",
            "lastCompleteTime": None,
            "nextFireTime": None,
            "completed": False,
            "outcome": None,
        },
        None,
    ]
