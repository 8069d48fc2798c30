"""The links of a job: how they are written, what is refused, and how their blanks are filled in."""

from __future__ import annotations

from typing import Any

import pytest

from aioelasticjob import JobConfig
from aioelasticjob.config.links import filled_links
from aioelasticjob.errors import InvalidSetting

RUNBOOK = "https://wiki.example.org/runbooks/{job}"
TRACE = "http://traces.example.org/?q={run_id},{task_id}&x=1"


def test_links_are_written_as_an_object_or_as_text() -> None:
    written = {"runbook": RUNBOOK, "all traces": TRACE}
    as_object = JobConfig.build(job_name="job", links=written)
    as_text = JobConfig.build(job_name="job", links=f"runbook={RUNBOOK}, all traces={TRACE}")
    assert as_object.links == as_text.links == written
    assert JobConfig.from_json(as_object.to_json(), "/job/config").links == written
    assert JobConfig.build(job_name="job", links="").links == {}
    assert JobConfig.build(job_name="job", links=None).links == {}


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ({"x": "javascript:alert(1)"}, "must begin with http:// or https://"),
        ({"x": "data:text/html,hi"}, "must begin with http:// or https://"),
        ({"x": "//wiki.example.org"}, "must begin with http:// or https://"),
        ({"x": 'https://a"b'}, "have no spaces"),
        ({"x": "https://a b"}, "have no spaces"),
        ({"x": "https://a/{host}"}, "only job, run_id, task_id, not 'host'"),
        ({"x": "https://a/{}"}, "not ''"),
        ({"": "https://a"}, "must be 1 to 100 letters"),
        ({"x" * 101: "https://a"}, "must be 1 to 100 letters"),
        ("runbook", "is no pair like runbook=https://"),
        ("a=https://a, a=https://b", "'a' is given twice"),
    ],
)
def test_what_is_no_link_is_refused(links: Any, said: str) -> None:
    with pytest.raises(InvalidSetting, match="links") as caught:
        JobConfig.build(job_name="job", links=links)
    assert said in str(caught.value)


def test_blanks_are_filled_in_and_a_link_that_needs_more_is_left_out() -> None:
    links = {"runbook": RUNBOOK, "trace": TRACE}
    assert filled_links(links, job="a/b c") == {"runbook": "https://wiki.example.org/runbooks/a%2Fb%20c"}
    filled = filled_links(links, job="job", run_id="7", task_id="t&1")
    assert filled["trace"] == "http://traces.example.org/?q=7,t%261&x=1"
    assert "trace" not in filled_links(links, job="job", run_id="7", task_id="")
