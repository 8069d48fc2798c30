"""The commands as a whole."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aioelasticjob.cli.application import COMMANDS
from tests.cli.conftest import Command
from tests.support.embedded import EmbeddedServer


def test_without_a_command_there_is_a_list_of_all_commands_under_headings(command: Command) -> None:
    result = command()
    lines = result.stdout.splitlines()
    assert result.exit_code == 2
    assert [line for line in lines if line.endswith(":") and line[0] != " "] == ["Options:", "Start:", "Look:", "Act:"]
    for name, source in COMMANDS.items():
        line = lines[next(n for n, line in enumerate(lines) if line.startswith(f"  {name} "))]
        assert source.help.startswith(line.split(maxsplit=1)[1])
    assert any(line.startswith("  --install-completion ") for line in lines)


@pytest.mark.parametrize("name", ["run", "zookeeper", "demo", "jobs", "job", "cron", "config", "events", "requests"])
def test_every_command_has_help(command: Command, name: str) -> None:
    for option in ("--help", "-h"):
        result = command(name, option)
        assert result.exit_code == 0
        assert "Usage:" in result.stdout
        assert "--install-completion" not in result.stdout, "it is an option of the whole program"


def test_the_version_is_printed(command: Command) -> None:
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("cron", "@daily", "--dst", "bla"), "Invalid value for '--dst': 'bla' is not one of 'cron', 'quartz'."),
        (("alert", "--log-level", "loud"), "Invalid value for '--log-level': 'loud' is not one of 'debug', "),
        (("events", "list", "--limit", "many"), "Invalid value for '--limit': Input should be a valid integer"),
    ],
)
def test_a_wrong_value_of_an_option_is_named_without_words_of_a_library(
    command: Command, arguments: tuple[str, ...], said: str
) -> None:
    assert said in command(*arguments).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pausee", "report"), "No such command 'pausee'. Did you mean 'pause'?"),
        (("jobz",), "No such command 'jobz'. Did you mean 'job', 'jobs'?"),
        (("requests", "pausee", "night", "--job", "report"), "No such command 'pausee'. Did you mean 'pause'?"),
        (("nothing-like-it",), "No such command 'nothing-like-it'."),
        (("requests", "report", "night"), "Got unexpected extra argument"),
    ],
)
def test_for_a_mistyped_command_the_near_ones_are_named(
    command: Command, arguments: tuple[str, ...], said: str
) -> None:
    result = command(*arguments)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def modules_after(program: str) -> set[str]:
    """Return the modules that a program of its own process has imported."""
    script = f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n{program}"
    command = [sys.executable, "-c", script]
    # a variable of the tests looks like a mistyped setting, and the search for the right name imports all settings
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIOELASTICJOB_")}
    return set(subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stderr.split())


def test_whoever_only_looks_does_not_wait_for_what_runs_jobs() -> None:
    modules = modules_after("from aioelasticjob.cli.application import COMMANDS; COMMANDS['jobs'].load('jobs')")
    heavy = (
        "aioelasticjob.app",
        "aioelasticjob.engine.local_jobs",
        "aioelasticjob.settings",
        "aioelasticjob.demo",
        "sqlalchemy",
    )
    assert not {name for name in modules if name.startswith(heavy)}
    assert "aioelasticjob.operations" in modules


SPEAKS = {"aiohttp", "aioelasticjob.config.job", "aioelasticjob.operations", "aioelasticjob.registry", "aiozk", "anyio"}
"""Modules that speak to a registry or to other servers, or that a job needs."""
SLOW = {*SPEAKS, "asyncio", "attr", "markdown_it", "pygments", "sqlalchemy", "ssl", "typer.rich_utils", "yaml"}
"""Modules that take long to import, and that neither the list of commands nor a schedule needs."""


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        ([], {*SLOW, "croniter", "rich"}),
        (["--help"], {*SLOW, "croniter", "pydantic", "rich"}),
        (["cron", "@daily"], {*SLOW, "rich"}),  # Typer imports pydantic when it reads options
    ],
)
def test_help_and_schedules_import_nothing_that_they_do_not_need(arguments: list[str], unneeded: set[str]) -> None:
    imported = modules_after(f"sys.argv[1:] = {arguments}; import aioelasticjob.cli; aioelasticjob.cli.main()")
    assert sorted(imported & unneeded) == []
    assert "aioelasticjob.cli.application" in imported


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    own = COMMANDS[name].load(name).help.split("\n\n")[0].replace("\n", " ")
    assert COMMANDS[name].help == own


def test_ctrl_c_while_modules_are_imported_leaves_no_traceback() -> None:
    program = """
import sys

class Interrupting:
    def find_spec(self, name, *more):
        if name == "aioelasticjob.cli.application":
            raise KeyboardInterrupt

import aioelasticjob.cli
sys.meta_path.insert(0, Interrupting())
aioelasticjob.cli.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["cron", "@daily"], ["cron", "@daily", "--json"], ["--version"], ["-h"]])
def test_a_stdout_that_cannot_be_written_is_one_line_on_stderr(arguments: list[str], unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "aioelasticjob", *arguments],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "error: the output could not be written: No space left on device\n")


@pytest.mark.parametrize("words", [("cron", "@daily", "--json"), ("jobs",), ("watch",), ("watch", "--json")])
def test_a_reader_that_ends_early_ends_a_command_without_a_word(
    words: tuple[str, ...], embedded: EmbeddedServer
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    where = () if words[0] == "cron" else ("-r", f"zk://{embedded.address}")
    command = [sys.executable, "-m", "aioelasticjob", *words, *where]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("words", [("cron", "@daily"), ("cron", "@daily", "--json"), ("export",), ("dump", "report")])
def test_a_result_for_which_stdout_is_closed_is_one_line_on_stderr(
    words: tuple[str, ...], embedded: EmbeddedServer, command: Command, tmp_path: Path
) -> None:
    arguments, address = [sys.executable, "-m", "aioelasticjob", *words], f"zk://{embedded.address}/shop"
    if words[0] != "cron":
        (tmp_path / "jobs.yaml").write_text("jobs: [{jobName: report}]")
        assert command("import", str(tmp_path / "jobs.yaml"), "-r", address).exit_code == 0
        arguments += ["-r", address]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *arguments]
    done = subprocess.run(closed, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: the output could not be written: stdout is closed\n"


def test_what_the_terminals_encoding_lacks_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text("jobs: {täglich: {kind: script, command: 'true'}}", "utf-8")
    for arguments in (["config", "check", "jobs.yaml"], ["run", "m·x"]):
        done = subprocess.run(
            [sys.executable, "-m", "aioelasticjob", *arguments],
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr
        assert "t\\xe4glich" in done.stdout or "m\\xb7x" in done.stderr


def test_text_between_colons_becomes_no_emoji(command: Command) -> None:
    said = command("run", "m:x:y").stderr
    assert "'m:x:y'" in said
