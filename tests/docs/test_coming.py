"""The page for those who come from Elastic-Job: keys of a configuration, and defaults that differ."""

from __future__ import annotations

import json
import re

import pytest

from aioelasticjob import ElasticJob
from aioelasticjob.config.job import JobConfig
from tests.docs.pages import read, table

PAGE = "docs/coming-from-elastic-job.md"
VALUES: dict[str, object] = {
    "jobType": "DATAFLOW",
    "cron": "0/10 * * * * ?",
    "timeZone": "Asia/Shanghai",
    "shardingTotalCount": 3,
    "shardingItemParameters": "0=A,1=B,2=C",
    "maxTimeDiffSeconds": 60,
    "monitorPort": -1,
    "concurrentDataProcessThreadCount": 5,
    "jobShardingStrategyType": "odevity",
    "jobErrorHandlerType": "ignore",
    "jobParameter": "100",
    "processCountIntervalSeconds": 300,
    "description": "for people",
    **dict.fromkeys(("failover", "misfire", "monitorExecution", "disabled", "streamingProcess"), True),
}
KEYS = [
    (key, meaning)
    for keys, meaning in table(PAGE, "| key | here |")
    for key in re.findall(r"`(\w+)`", keys)
    if key != "jobName"
]


@pytest.mark.parametrize(("key", "meaning"), KEYS)
def test_a_key_of_elastic_jobs_configuration_is_read_or_kept_as_the_page_says(key: str, meaning: str) -> None:
    stored = {"jobName": "job", "jobType": "DATAFLOW", "shardingTotalCount": 3, key: VALUES.get(key, "x")}
    config = JobConfig.from_json(json.dumps(stored).encode(), "/job/config")
    assert meaning.startswith("not known" if config.unknown else "read")
    if config.unknown:
        assert config.as_json()[key] == "x"
    else:
        assert JobConfig.from_json(config.to_json(), "/job/config") == config


def test_every_value_that_is_read_is_one_that_was_tried() -> None:
    assert VALUES.keys() <= {key for key, meaning in KEYS if meaning.startswith("read")}


def test_the_defaults_that_differ_are_those_of_this_release() -> None:
    text = read(PAGE)
    assert JobConfig.model_fields["concurrency"].default == 16
    assert "1 there, 16 here" in text
    assert ElasticJob("zk://registry:2181/shop").settings.session_timeout == 30
    assert "60 s there and 30 s here" in text
    assert JobConfig.model_fields["statistics_interval"].default == 60
    assert "every 300 s there, every 60 s here" in text
