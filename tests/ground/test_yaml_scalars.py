"""Values in YAML are read as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from aioelasticjob.ground.yaml_scalars import reading_as_written
from aioelasticjob.operations.transfer import _LOADER
from aioelasticjob.settings import examine

TEXTS = ("010", "12:30:45", "1_000", "0x1F", "0o17", "+5", "1.10", "1e3", ".5", "5.", "-0", "00001", ".inf", ".nan")
WORDS = ("yes", "no", "on", "off", "Y", "n", "2026-01-31", "2026-01-31T08:00:00Z", "12:34", "190:20:30", "0b11")
LONG = ("123456789012345678901234567890", "0.00001", "3.14159265358979323846264338327950288")


@pytest.mark.parametrize("loader", [reading_as_written(yaml.SafeLoader), _LOADER])
def test_only_what_is_written_as_a_number_or_a_truth_value_is_one(loader: type[yaml.SafeLoader]) -> None:
    for text in TEXTS + WORDS + LONG:
        assert yaml.load(text, loader) == text
    numbers = {"0": 0, "-12": -12, "2026": 2026, "1.5": 1.5, "-0.25": -0.25}
    for text, value in {**numbers, "true": True, "False": False}.items():
        assert yaml.load(text, loader) == value
    assert [yaml.load(text, loader) for text in ("null", "~", "", "'5'")] == [None, None, None, "5"]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs.yaml"


def test_arguments_of_a_script_are_those_that_are_written(jobs: Path) -> None:
    jobs.write_text(
        "jobs:\n  a:\n    kind: script\n    command: [echo, 010, 12:30:45, 1.10, no, 7, 2.50, 2026-01-31]\n"
        "    environment: {MODE: 0755, AT: 12:30, RATE: 1.0, ON: off}\n"
    )
    settings, found = examine(jobs)
    assert not found
    options = settings.declared("a").options
    assert options["command"] == ["echo", "010", "12:30:45", "1.10", "no", "7", "2.50", "2026-01-31"]
    assert options["environment"] == {"MODE": "0755", "AT": "12:30", "RATE": "1.0", "ON": "off"}


def test_text_settings_take_numbers_as_they_are_written_and_others_take_their_values(jobs: Path) -> None:
    jobs.write_text(
        "registry: zks://h\ntls: {minimum_version: 1.3}\ndigest: 12:34\n"
        "threads: 5\nsession_timeout: 20\nmetrics: 9090\n"
        "jobs:\n  a: {job_parameter: 010, description: 2026, sharding_item_parameters: {0: 007, 1: 7},"
        " labels: {tier: 1},"
        " sharding_total_count: 2, failover: yes, misfire: false, timeout: 1.50, error_handler: email,"
        " error_handler_options: {host: 10, port: 025, sender: a@b.c, to: a@b.c}}\n"
    )
    settings, found = examine(jobs)
    assert [str(one) for one in found] == []
    application = settings.application
    assert (application.digest, application.threads, application.metrics) == ("12:34", 5, 9090)
    assert application.session_timeout == 20
    assert application.tls == {"minimum_version": "1.3"}
    values = settings._seen.jobs["a"].values
    assert (values["job_parameter"], values["description"]) == ("010", "2026")
    assert values["sharding_item_parameters"] == {"0": "007", "1": "7"}
    assert values["labels"] == {"tier": "1"}


def test_a_float_in_toml_is_text_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text('[jobs.a]\nkind = "script"\ncommand = ["echo", 1.10, 1e3]\ntimeout = 1.50\n')
    settings, found = examine(file)
    assert not found
    declared = settings.declared("a")
    assert (declared.options["command"], declared.timeout) == (["echo", "1.10", "1e3"], 1.5)


def test_a_number_that_no_setting_reads_is_a_mistake_with_the_text_as_written(jobs: Path) -> None:
    jobs.write_text("threads: 0x10\njobs: {a: {sharding_total_count: 1:30, job_parameter: true}}\n")
    said = [str(one).removeprefix(f"{jobs}:") for one in examine(jobs)[1]]
    assert said[0].startswith("1: threads = '0x10': ")
    assert "sharding_total_count = '1:30': " in said[1] + said[2]
    assert any("job_parameter = True: " in one and one.endswith("put it in quotes") for one in said)
