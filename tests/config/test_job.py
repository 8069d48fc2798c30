from __future__ import annotations

import json
from datetime import UTC, timedelta
from functools import partial
from importlib import resources
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.config.job import JobConfig, required
from aioelasticjob.config.types import DURATION, parts_of
from aioelasticjob.errors import ForeignData, InvalidSetting


@pytest.mark.parametrize(
    ("settings", "setting", "says"),
    [
        ({"sharding_total": 3}, "sharding_total", "did you mean sharding_total_count"),
        ({"colour": "red"}, "colour", "known are"),
        ({"sharding_total_count": 0}, "sharding_total_count", "greater than or equal to 1"),
        ({"sharding_item_parameters": ["a", "b"]}, "sharding_item_parameters", "write {0: 'a', 1: 'b'}"),
        ({"failover": "perhaps"}, "failover", "must be true or false"),
        ({"sharding_total_count": "many"}, "sharding_total_count", "must be a whole number, such as 3"),
        ({"cron": "0 0 25 * * ?"}, "cron", "hour"),
        ({"cron": "0 0 2 * * *"}, "cron", r"\?"),
        ({"cron": "nonsense"}, "cron", "field"),
        ({"cron": "0 0 2 * * ?", "time_zone": "Mars/Olympus"}, "time_zone", "Mars/Olympus"),
        (
            {"sharding_item_parameters": {3: "x"}, "sharding_total_count": 3},
            "sharding_item_parameters",
            "allows 0 to 2",
        ),
        ({"sharding_item_parameters": {-1: "x"}}, "sharding_item_parameters", "item -1 is out of range"),
        ({"sharding_item_parameters": "0:Beijing"}, "sharding_item_parameters", "no pair like 0=Beijing"),
        ({"sharding_item_parameters": "0=a,0=b"}, "sharding_item_parameters", "given twice"),
        ({"sharding_item_parameters": "a=b"}, "sharding_item_parameters", "'a=b' is no pair like 0=Beijing"),
        ({"labels": "team"}, "labels", "'team' is no pair like team=billing"),
        ({"labels": "team=a,team=b"}, "labels", "'team' is given twice"),
        ({"labels": {"my team": "billing"}}, "labels", "the name 'my team' must be 1 to 100 letters"),
        ({"labels": {"": "billing"}}, "labels", "must be 1 to 100 letters"),
        ({"labels": {"team": ""}}, "labels", "the value of team must be 1 to 200 characters"),
        ({"labels": {"team": "a,b"}}, "labels", "without a comma"),
        ({"labels": {"team": "a\nb"}}, "labels", "the value of team"),
        ({"labels": {"team": "x" * 201}}, "labels", "1 to 200 characters"),
        ({"labels": {"tier": 1}}, "labels.tier", "string"),
        ({"failover": True, "monitor_execution": False}, "failover", "needs monitor_execution"),
        ({"catch_up": 60, "monitor_execution": False}, "catch_up", "needs monitor_execution"),
        ({"timeout": 0}, "timeout", "greater than or equal to 0.001"),
        ({"timeout": 1e-9}, "timeout", "greater than or equal to 0.001"),
        ({"job_type": "DATAFLOW", "record_timeout": 1e-9}, "record_timeout", "greater than or equal to 0.001"),
        ({"job_type": "DATAFLOW", "batch_size": 10**30}, "batch_size", "less than or equal to 1000000"),
        ({"job_type": "DATAFLOW", "max_failures": 10**30}, "max_failures", "less than or equal to"),
        ({"reconcile_interval": 1e-9}, "reconcile_interval", "greater than or equal to 1"),
        ({"reconcile_interval": float("nan")}, "reconcile_interval", "finite"),
        ({"sharding_quiet": float("nan")}, "sharding_quiet", "finite"),
        ({"max_time_diff_seconds": 10**30}, "max_time_diff_seconds", "less than or equal to"),
        ({"timeout": float("nan")}, "timeout", "finite"),
        ({"job_name": "a/b"}, "job_name", "letters"),
        ({"job_name": "* * * * * ?"}, "job_name", "is a schedule: give it as cron"),
        ({"job_name": "@daily"}, "job_name", "is a schedule: give it as cron"),
        ({"interval": 5}, "interval", "write every='5s'"),
        ({"timezone": "UTC"}, "timezone", "write time_zone="),
        ({"max_retries": 3}, "max_retries", "write retry="),  # max_rescues is something else
        ({"cron": "@daily", "time_zone": "CEST"}, "time_zone", "expected a name such as 'Europe/Berlin'"),
        ({"time_zone": UTC}, "time_zone", "utc: expected a name such as 'Europe/Berlin'"),
        ({"time_zone": "Mars/Olympus"}, "time_zone", "Mars/Olympus"),  # a triggered run has a fire time in it, too
        ({"job_name": ".."}, "job_name", "letters"),
        ({"job_name": ""}, "job_name", "letters"),
        ({"job_name": "zookeeper"}, "job_name", "not 'zookeeper'"),
        ({"per": "galaxy"}, "per", "'item' or 'instance'"),
        ({"description": "a\ud800"}, "description", "UTF-8"),
        ({"sharding_item_parameters": {0: "\ud800"}}, "sharding_item_parameters", "UTF-8"),
        ({"dst": "never"}, "dst", "'cron' or 'quartz'"),
        ({"cron": "0 0 0 30 2 ?"}, "cron", "names no moment of any year"),
        ({"cron": "0 0 31 4,6 *"}, "cron", "names no moment of any year"),
        ({"sharding_total_count": True}, "sharding_total_count", "must be a number, not True or False"),
        ({"timeout": True}, "timeout", "must be a number, not True or False"),
        ({"sharding_total_count": b"1"}, "sharding_total_count", "must not be bytes"),
        ({"timeout": b"1"}, "timeout", "must not be bytes"),
        ({"misfire": b"1"}, "misfire", "must not be bytes"),
        ({"job_parameter": b"1"}, "job_parameter", "must not be bytes"),
        ({"labels": {"team": b"billing"}}, "labels", "must not be bytes"),
        ({"timeout": "5 apples"}, "timeout", 'text such as "90s"'),
        ({"timeout": "0.1ms"}, "timeout", "greater than or equal to 0.001"),
    ],
)
def test_a_mistake_is_named_with_its_value_and_what_would_be_right(
    settings: dict[str, Any], setting: str, says: str
) -> None:
    with pytest.raises(InvalidSetting, match=says) as caught:
        JobConfig.build(**{"job_name": "job", **settings})
    assert caught.value.setting == setting
    assert isinstance(caught.value, ValueError)


def test_a_stored_schedule_without_moments_is_read_and_cannot_be_set() -> None:
    stored = JobConfig.from_json(b'{"jobName": "job", "cron": "0 0 0 30 2 ?"}', "/job/config")
    assert stored.changed(description="kept").cron == "0 0 0 30 2 ?"
    with pytest.raises(InvalidSetting, match="names no moment of any year"):
        stored.changed(cron="0 0 0 31 2 ?")


def test_a_schedule_whose_moments_are_over_may_be_declared() -> None:
    assert JobConfig.build(job_name="job", cron="0 0 0 1 1 ? 1999").schedule is not None


def test_every_duration_may_be_text_or_a_timedelta() -> None:
    durations = [name for name, field in JobConfig.model_fields.items() if DURATION in parts_of(field)]
    assert {"timeout", "shutdown_timeout", "catch_up", "server_retention", "record_timeout"} < set(durations)
    for name in durations:
        for written in ("30s", "0.5m", timedelta(seconds=30), 30):
            kind = "SIMPLE" if name == "attempt_timeout" else "DATAFLOW"
            config = JobConfig.build(job_name="job", job_type=kind, **{name: written})
            assert getattr(config, name) == 30
            assert JobConfig.from_json(config.to_json(), "/job/config") == config


def test_labels_are_a_mapping_or_text_and_are_stored_as_an_object() -> None:
    config = JobConfig.build(job_name="job", labels="team=billing, k8s.io/tier = gold,")
    assert config == JobConfig.build(job_name="job", labels={"team": "billing", "k8s.io/tier": "gold"})
    assert json.loads(config.to_json())["labels"] == {"team": "billing", "k8s.io/tier": "gold"}
    assert JobConfig.from_json(config.to_json(), "/job/config") == config
    assert JobConfig.build(job_name="job", labels=None) == JobConfig.build(job_name="job", labels="")
    assert JobConfig.build(job_name="job", labels="").labels == {}


def test_item_parameters_may_be_elastic_jobs_text() -> None:
    config = JobConfig.build(job_name="job", sharding_total_count=3, sharding_item_parameters="0=Beijing, 2=a=b")
    assert config.sharding_item_parameters == {0: "Beijing", 2: "a=b"}


@given(
    count=st.integers(1, 50),
    parameter=st.text(),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "GMT+8"]),
    misfire=st.booleans(),
    description=st.text(),
)
def test_json_and_back(count: int, parameter: str, zone: str, misfire: bool, description: str) -> None:
    config = JobConfig.build(
        job_name="任务-1",
        cron="0 0 2 * * ?",
        time_zone=zone,
        sharding_total_count=count,
        sharding_item_parameters={count - 1: parameter},
        misfire=misfire,
        description=description,
    )
    assert JobConfig.from_json(config.to_json(), "/job/config") == config


def test_the_keys_are_elastic_jobs() -> None:
    stored = json.loads(JobConfig.build(job_name="job", cron="0 0 2 * * ?", overwrite=True).to_json())
    expected = {
        "jobName",
        "cron",
        "shardingTotalCount",
        "shardingItemParameters",
        "jobParameter",
        "failover",
        "misfire",
    }
    assert expected | {"monitorExecution", "maxTimeDiffSeconds", "jobShardingStrategyType", "timeZone"} <= stored.keys()
    assert "overwrite" not in stored


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"[]", b"\xff\xfe", b"{", b'{"jobName": 3}', b'{"cron": "* * *"}', b"[" * 100_000, b"hello: world"],
)
def test_foreign_data_is_called_so(data: bytes) -> None:
    with pytest.raises(ForeignData, match="no job configuration") as caught:
        JobConfig.from_json(data, "/job/config")
    assert caught.value.setting.partition(": ")[0] == "/job/config"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            b'{"jobName": "job", "streaming": false, "streamingProcess": false}',
            "streamingProcess = False: .*other name",
        ),
        (b'{"jobName": "job", "requires": 7}', "/job/config: requires = 7: "),
        (b'{"jobName": "job", "requires": [""]}', "/job/config: requires.0 = '': "),
        (b'{"jobName": "job", "shardingTotalCount": 0}', "/job/config: shardingTotalCount = 0: "),
        (b'{"jobName": "job", "description": "\\ud800"}', "/job/config: description = .* UTF-8"),
        (b'{"jobName": "job", "description": "\xed\xa0\x80"}', "/job/config: description = .* UTF-8"),
        (b'{"jobName": "job", "options": {"a": ["\\udc00"]}}', "/job/config: options = .* UTF-8"),
        (b'{"jobName": "job", "errorHandlerOptions": {"\\ud800": ""}}', "UTF-8"),
        (b'{"jobName": "job", "\\ud800": 1}', "unicode"),
    ],
)
def test_what_is_wrong_in_the_registry_is_named_by_its_key(data: bytes, said: str) -> None:
    with pytest.raises(ForeignData, match=said) as caught:
        JobConfig.from_json(data, "/job/config")
    assert str(caught.value).isprintable()


def test_a_change_is_validated_like_a_new_one() -> None:
    config = JobConfig.build(job_name="job", sharding_total_count=2, sharding_item_parameters={1: "b"})
    assert config.changed(job_parameter="x").sharding_item_parameters == {1: "b"}
    with pytest.raises(InvalidSetting, match="out of range"):
        config.changed(sharding_total_count=1)


def test_a_job_without_cron_has_no_schedule() -> None:
    assert JobConfig.build(job_name="job").schedule is None


NEWER = (
    b'{"jobName": "job", "cron": "@daily", "requires": ["x", "y", "x"],'
    b' "corn": {"a": [1]}, "schedule": 7, "a\\nb": null}'
)


def test_keys_that_are_not_known_have_no_effect_and_are_kept() -> None:
    config = JobConfig.from_json(NEWER, "/job/config")
    changed = config.changed(cron=None)
    assert changed.requires == ("x", "y")
    for one in (config, changed, config.model_copy(update={"cron": None})):
        assert one.unknown == {"corn": {"a": [1]}, "schedule": 7, "a\nb": None}
        assert JobConfig.from_json(one.to_json(), "") == one
    assert config.schedule == JobConfig.build(job_name="job", cron="@daily").schedule


def test_each_key_that_is_not_known_is_said_with_the_nearest_that_is() -> None:
    first, second, third = JobConfig.from_json(NEWER, "/job/config").ignored
    assert first == "the key 'corn' is not known here (did you mean cron?): it is kept and has no effect"
    assert "'schedule'" in second
    assert "\n" not in third


def test_a_setting_in_the_code_has_to_be_known() -> None:
    config = JobConfig.from_json(NEWER, "/job/config")
    for call in (JobConfig.build, config.changed, partial(JobConfig, job_name="job")):
        with pytest.raises(ValueError, match="corn = 1: there is no such setting; did you mean cron"):
            call(corn=1)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("max_instances", "no two runs of an item overlap; see misfire for moments that come meanwhile"),
        ("max_active_runs", "no two runs of an item overlap"),
        ("overlap", "no two runs of an item overlap"),
        ("time_limit", "write timeout=1"),
        ("execution_timeout", "write timeout=1"),
        ("max_runtime", "write timeout=1"),
        ("params", "see job_parameter"),
        ("tags", "see labels"),
        ("start_date", "write start_at="),
        ("end_date", "write end_at="),
        ("run_date", "write at="),
        ("shards", "write sharding_total_count=3"),
    ],
)
def test_who_writes_the_word_of_another_scheduler_is_told_what_it_is_called_here(name: str, says: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} = 1: there is no such setting; {says}"):
        JobConfig.build(job_name="job", **{name: 1})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("interval", "5m", "write every='5m'"),
        ("interval", 7200, "write every='2h'"),
        ("interval", timedelta(minutes=7), "write every='7m'"),
        ("interval", 0.5, "the shortest interval is 1 second: write every=1"),
        ("interval", "nonsense", "for every 5 minutes write every='5m'"),
        ("interval", 10**400, "for every 5 minutes write every='5m'"),
        ("seconds", 30, "write every='30s'"),
        ("minutes", "15", "write every='15m'"),
        ("days", 1, "write every='1d'"),
        ("weeks", 2, "write every='14d'"),
        ("max_runtime", "90s", "write timeout='90s'"),
        ("max_runtime", "90x", "write timeout='5m'"),
    ],
)
def test_the_advice_is_for_exactly_the_value_that_was_given(name: str, value: object, says: str) -> None:
    with pytest.raises(InvalidSetting) as raised:
        JobConfig.build(job_name="job", **{name: value})
    assert raised.value.expected.startswith(f"there is no such setting; {says}")


def test_of_a_long_value_an_error_shows_the_beginning_and_keeps_the_whole() -> None:
    for settings in (
        {"labels": "x" * 100_000},
        {"retry": "x" * 100_000},
        {"x" * 100_000: 1},
        {"log_runs": "x" * 100_000},
    ):
        with pytest.raises(InvalidSetting, match=r"xxx… \(100,00[0-9] characters\)") as wrong:
            JobConfig.build(job_name="job", **settings)
        assert len(str(wrong.value)) < 4_000
        assert len(wrong.value.setting + str(wrong.value.value)) > 100_000


def test_a_time_zone_has_to_exist_without_a_schedule_too_unless_the_registry_holds_it() -> None:
    stored = JobConfig.from_json(b'{"jobName": "job", "timeZone": "CEST"}', "/job/config")
    assert stored.changed(description="for people").time_zone == "CEST"
    with pytest.raises(InvalidSetting, match="time_zone = 'CEST': there is no such time zone"):
        stored.changed(time_zone="CEST")


def test_a_time_zone_may_be_a_zone_info_that_has_a_name() -> None:
    config = JobConfig.build(job_name="job", time_zone=ZoneInfo("Europe/Berlin"))
    assert config.time_zone == "Europe/Berlin"
    assert config.changed(time_zone=ZoneInfo("Asia/Shanghai")).time_zone == "Asia/Shanghai"


def test_a_zone_info_without_a_name_is_refused() -> None:
    with (resources.files("tzdata.zoneinfo.Europe") / "Berlin").open("rb") as file:
        nameless = ZoneInfo.from_file(file)
    with pytest.raises(InvalidSetting, match=r"time_zone = .*: expected a name such as 'Europe/Berlin'"):
        JobConfig.build(job_name="job", time_zone=nameless)


def test_what_takes_the_place_of_a_configuration_keeps_what_it_does_not_know() -> None:
    own = JobConfig.build(job_name="job", cron="@hourly")
    over = own.in_place_of(NEWER)
    assert (over.cron, over.requires) == ("@hourly", ("x", "y"))
    assert over.unknown == {"corn": {"a": [1]}, "schedule": 7, "a\nb": None}
    assert over.in_place_of(NEWER) is over
    assert own.changed(requires="z").in_place_of(NEWER).requires == ("z",)
    assert JobConfig.from_json(b'{"jobName": "job", "schedule": 8}', "").in_place_of(NEWER).unknown["schedule"] == 8


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b"\xff", b"{", b"[" * 100_000, b'{"\\ud800": 1}', b'{"requires": 7}']
)
def test_nonsense_has_nothing_to_keep(data: bytes) -> None:
    own = JobConfig.build(job_name="job")
    assert own.in_place_of(data) is own


def test_what_is_required_is_read_where_the_rest_makes_no_sense() -> None:
    assert required(b'{"jobName": 7, "cron": "never", "requires": ["x"]}') == ("x",)
    assert required(b'{"jobName": "job"}') == ()
    assert [required(data) for data in (b"", b"[]", b"null", b'{"requires": 7}', b"[" * 100_000)] == [None] * 5


def test_a_configuration_that_requires_nothing_does_not_say_so() -> None:
    assert b"requires" not in JobConfig.build(job_name="job").to_json()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cron": "0 0 2 * * ?", "description": 'Wärme "für" alle\n', "requires": ("a",), "timeout": 0.25},
        {"sharding_total_count": 2, "sharding_item_parameters": {0: "北京", 1: ""}, "shutdown_timeout": 12},
    ],
)
def test_the_stored_text_is_json_with_a_line_for_each_setting(settings: dict[str, Any]) -> None:
    config = JobConfig.build(job_name="job", **settings)
    assert config.to_json().decode() == json.dumps(config.as_json(), ensure_ascii=False, indent=1)
