"""The log of a process that a command runs."""

import json
import logging

import pytest

from aioelasticjob.cli import logs


def test_less_than_the_level_asked_for_is_not_logged(
    root_log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.set_up(logs.LogLevel.WARNING)
    logging.getLogger("aioelasticjob.x").info("quiet")
    logging.getLogger("aioelasticjob.x").warning("loud", extra={"job": "a"})
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.endswith("loud  job=a\n")


def test_lines_may_be_for_programs(root_log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(logs.LogLevel.INFO, logs.LogFormat.JSON)
    logging.getLogger("aioelasticjob.x").info("loud", extra={"job": "a"})
    assert json.loads(capsys.readouterr().err)["job"] == "a"
