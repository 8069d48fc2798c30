"""Durations as options of commands."""

from __future__ import annotations

import pytest
import typer

from aioelasticjob.cli.seconds import seconds_from
from tests.cli.conftest import Command


@pytest.mark.parametrize(("given", "seconds"), [("5", 5), ("0.5", 0.5), ("500ms", 0.5), ("1h 30m", 5400), (60.0, 60)])
def test_a_duration_is_seconds_or_text_with_units(given: str | float, seconds: float) -> None:
    assert seconds_from(0.5)(given) == seconds


@pytest.mark.parametrize("given", ["", "soon", "nan", "inf", "-5", "0.4", "5 parsecs"])
def test_what_is_no_duration_or_too_short_is_refused_with_what_would_be_right(given: str) -> None:
    with pytest.raises(typer.BadParameter, match=r'text such as "90s", "5m" or "1h 30m", at least 0.5 s'):
        seconds_from(0.5)(given)


def test_the_timeout_of_a_command_is_a_duration(command: Command) -> None:
    assert "within 0.2 s" in command("jobs", "-r", "zk://127.0.0.1:1", "--timeout", "200ms").stderr
    assert command("alert", "-r", "zk://127.0.0.1:1", "--after", "soon").exit_code == 2
