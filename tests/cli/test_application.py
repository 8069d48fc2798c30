"""The commands as a whole."""

import subprocess
import sys

import pytest

from tests.cli.conftest import Command


def test_without_a_command_there_is_help_in_panels(command: Command) -> None:
    result = command()
    for word in ("Start", "Look", "run", "zookeeper", "demo", "jobs", "job", "cron", "--install-completion"):
        assert word in result.output


@pytest.mark.parametrize("name", ["run", "zookeeper", "demo", "jobs", "job", "cron"])
def test_every_command_has_help(command: Command, name: str) -> None:
    for option in ("--help", "-h"):
        result = command(name, option)
        assert result.exit_code == 0
        assert "Usage:" in result.stdout


def test_the_version_is_told(command: Command) -> None:
    result = command("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("aioelasticjob ")


@pytest.mark.parametrize(
    "arguments", [("runn",), ("run",), ("demo", "--workers", "0"), ("cron", "@daily", "--dst", "x")]
)
def test_a_wrong_use_is_exit_code_2(command: Command, arguments: tuple[str, ...]) -> None:
    result = command(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_whoever_only_looks_does_not_wait_for_what_runs_jobs() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "import sys, aioelasticjob.cli; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    heavy = ("aioelasticjob.app", "aioelasticjob.running", "aioelasticjob.settings", "aioelasticjob.demo", "sqlalchemy")
    assert not {name for name in told if name.startswith(heavy)}
    assert "aioelasticjob.operations" in told
