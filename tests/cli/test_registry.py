"""Which registry a command is about, what the shell completes from it, and how a command stays and watches it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from typer.testing import CliRunner

from aioelasticjob import operations
from aioelasticjob.cli import completion
from aioelasticjob.cli import registry as registry_options
from aioelasticjob.cli.application import application
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.processes import Author, ProcessProblems, renewal
from aioelasticjob.operations import OperationResult
from aioelasticjob.registry.session import ConnectionSettings, Session, open_session
from aioelasticjob.registry.transaction import Create
from tests.cli.conftest import Command
from tests.support.embedded import EmbeddedServer
from tests.support.processes import TIMEOUT

T = TypeVar("T")


@pytest.fixture
def address(embedded: EmbeddedServer) -> str:
    return f"zk://{embedded.address}/shop"


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> Callable[[str], Path]:
    """Writes the profiles."""
    file = tmp_path / "profiles.toml"
    monkeypatch.setenv("AIOELASTICJOB_PROFILES", str(file))

    def write(text: str) -> Path:
        file.write_text(text)
        return file

    return write


def act(address: str, what: Callable[[Session], Awaitable[T]]) -> T:
    async def main() -> T:
        async with open_session(ConnectionSettings.parse(address)) as session:
            return await what(session)

    return asyncio.run(main())


def make(address: str, *names: str) -> None:
    text = json.dumps({"jobs": [{"jobName": name, "cron": "0 0 2 * * ?"} for name in names]})
    act(address, lambda session: operations.import_jobs(session, text))


@pytest.mark.parametrize("asked", ["jobs", "job report", "servers", "export", "dump report", "pause report"])
def test_a_command_does_not_create_the_namespace_in_which_it_looks(asked: str, command: Command, address: str) -> None:
    server, _, _ = address.rpartition("/")
    command(*asked.split(), "--registry", f"{server}/misspelt/shop")
    assert "misspelt" not in act(server, lambda session: session.children("/"))


def test_an_import_creates_the_namespace(command: Command, address: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    file.write_text('{"jobs": [{"jobName": "report", "cron": "0 0 2 * * ?", "shardingTotalCount": 1}]}')
    elsewhere = address.replace("/shop", "/new/shop")
    assert command("import", str(file), "--registry", elsewhere).exit_code == 0
    assert " report " in command("jobs", "--registry", elsewhere).stdout


def test_a_registry_goes_by_its_name(
    profiles: Callable[[str], Path], command: Command, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = address.replace("/shop", "/other")
    make(address, "report")
    profiles(
        f'default = "mine"\n[mine]\nregistry = "{address}"\ntimeout = 3\n[other]\nregistry = "{elsewhere}"\n'
        '[down]\nregistry = "zk://127.0.0.1:1"\ntimeout = 0.2\n'
    )

    def listed(*options: str) -> str:
        result = command("jobs", *options)
        return "mine" if " report " in result.stdout else result.stdout.strip() or result.stderr.strip()

    nothing = f"no jobs in {elsewhere}"
    assert listed() == "mine"
    assert listed("--profile", "other") == nothing
    assert listed("-p", "mine") == "mine"
    assert "within 0.2 s" in listed("-p", "down")
    assert "within 0.3 s" in listed("-p", "down", "--timeout", "0.3")
    assert listed("--registry", elsewhere) == nothing
    monkeypatch.setenv("AIOELASTICJOB_PROFILE", "other")
    assert listed() == nothing
    assert listed("-r", address) == "mine"
    assert listed("-p", "mine") == "mine"
    monkeypatch.setenv("AIOELASTICJOB_REGISTRY", address)
    assert listed() == "mine"
    assert listed("-p", "other") == nothing


@pytest.mark.parametrize(
    ("typed", "near"),
    [("REGISTERY", "REGISTRY"), ("PROFIL", "PROFILE"), ("DIGESST", "DIGEST"), ("MAX_RETRYS", "MAX_RETRIES")],
)
def test_a_mistyped_variable_is_refused_before_another_registry_is_used(
    command: Command, address: str, monkeypatch: pytest.MonkeyPatch, typed: str, near: str
) -> None:
    monkeypatch.setenv(f"AIOELASTICJOB_{typed}", "secret")
    result = command("jobs", "-r", address)
    said = f"error: environment = 'AIOELASTICJOB_{typed}': sets nothing; did you mean AIOELASTICJOB_{near}?"
    assert (result.exit_code, result.stderr.strip()) == (2, said)


def test_a_mistyped_variable_is_refused_by_the_console_as_well(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOELASTICJOB_REGISTERY", "zk://127.0.0.1:1/shop")
    result = command("console", "--host", "256.0.0.1")
    said = "error: environment = 'AIOELASTICJOB_REGISTERY': sets nothing; did you mean AIOELASTICJOB_REGISTRY?"
    assert (result.exit_code, result.stderr.strip()) == (2, said)


def test_a_mistyped_variable_for_a_certificate_is_refused(
    command: Command, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOELASTICJOB_TLS__CAFILE", "ca.pem")
    result = command("jobs", "-r", address)
    said = "error: environment = 'AIOELASTICJOB_TLS__CAFILE': sets nothing; known are AIOELASTICJOB_TLS__CA, "
    assert result.exit_code == 2
    assert result.stderr.startswith(said)


@pytest.mark.parametrize("name", ["ITEM", "SESSION_TIMEOUT", "EVENT_STORE", "JOBS__BACKUP__CRON", "OUR_OWN"])
def test_variables_that_others_read_are_left_alone(
    command: Command, address: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(f"AIOELASTICJOB_{name}", "5")
    assert command("jobs", "-r", address).exit_code == 0


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("", ("-p", "nosuch"), "profile = 'nosuch': {file} has no such profile; there are: none"),
        ('[a]\nregistry = "zk://h"\n[b]\nregistry = "zk://h"', ("-p", "c"), "there are: a, b"),
        ('default = "c"', (), "profile = 'c': {file} has no such profile"),
        ("default = 7", (), "has no such profile"),
        ("[a", (), "profiles = '{file}': cannot be read: "),
        ("[a]", (), "a.registry: Field required"),
        (
            '[a]\nregistry = "zk://h"\ndigets = "user:secret"',
            (),
            "a.digets: there is no such setting; did you mean digest?",
        ),
        (
            '[a]\nregistry = "zk://h"\nx = "secret"',
            (),
            "a.x: there is no such setting; known are digest, digest_file, ",
        ),
        ('[a]\nregistry = "zk://h"\ntimeout = "secret"', (), "a.timeout: "),
        ('a = "secret"', (), "profiles = '{file}': a: "),
        ('[a]\nregistry = "nonsense"', ("-p", "a"), "address = 'nonsense'"),
        ('[a]\nregistry = "embedded://"', ("-p", "a"), "exists only inside its own process"),
        ('[a]\nregistry = "zk://h"', ("-p", "a", "-r", "zk://g"), "give either a profile or a registry"),
    ],
)
def test_wrong_profiles_are_named_and_no_secret_is_shown(
    profiles: Callable[[str], Path], command: Command, text: str, options: tuple[str, ...], said: str
) -> None:
    file = profiles(text)
    result = command("jobs", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said.format(file=file) in result.stderr
    assert "secret" not in result.stderr
    assert result.stderr.count("\n") == 1


def test_profiles_that_cannot_be_read_are_said_to_be_so(
    profiles: Callable[[str], Path], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOELASTICJOB_PROFILES", str(tmp_path))
    result = command("jobs")
    assert (result.exit_code, "cannot be read" in result.stderr) == (2, True)


def completed(words: str, **environment: str) -> list[str]:
    """Return what bash would be offered for a line."""
    given = {
        "_AIOELASTICJOB_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        **environment,
    }
    result = CliRunner().invoke(application, [], env=given, prog_name="aioelasticjob")
    assert result.stderr == ""
    return result.stdout.split()


def test_the_shell_completes_names_from_the_registry(
    profiles: Callable[[str], Path], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(address, "report", "reports-daily", "other")
    me, layout = "10.0.0.5@-@1-a", Layout("report")

    async def join_and_complete() -> None:
        async with open_session(ConnectionSettings.parse(address)) as session:
            nodes = [Create(layout.servers), Create(layout.server("10.0.0.5")), Create(layout.instances)]
            nodes.append(Create(layout.instance(me), b'{"ip": "10.0.0.5"}', ephemeral=True))
            await session.commit(nodes, incarnation=session.incarnation)
            await asyncio.to_thread(complete)

    def complete() -> None:
        assert completed(f"aioelasticjob job -r {address} rep") == ["report", "reports-daily"]
        assert completed("aioelasticjob job oth", AIOELASTICJOB_REGISTRY=address) == ["other"]
        assert completed("aioelasticjob pause report --server 10", AIOELASTICJOB_REGISTRY=address) == ["10.0.0.5"]
        assert completed("aioelasticjob pause --server 10", AIOELASTICJOB_REGISTRY=address) == ["10.0.0.5"]
        assert completed("aioelasticjob trigger report --instance ", AIOELASTICJOB_REGISTRY=address) == [me]
        profiles(f'[mine]\nregistry = "{address}"\n[more]\nregistry = "zk://h"\n')
        assert completed("aioelasticjob job -p mine oth") == ["other"]
        assert completed("aioelasticjob jobs -p m") == ["mine", "more"]
        assert completed("aioelasticjob set report cr") == ["cron="]

    asyncio.run(join_and_complete())


def test_a_registry_that_is_gone_completes_nothing_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "TIMEOUT", 0.2)
    monkeypatch.setattr(registry_options, "DEFAULT_TIMEOUT", 10 * TIMEOUT)  # who presses TAB does not wait so long
    assert completed("aioelasticjob job re", AIOELASTICJOB_REGISTRY="zk://127.0.0.1:1") == []
    assert completed("aioelasticjob job re", AIOELASTICJOB_REGISTRY="nonsense") == []


@pytest.fixture
def watching(address: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command as a process of its own, and ends it if it has not ended by itself."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", "aioelasticjob", *words, "-r", address]
        environment = {**os.environ, "AIOELASTICJOB_PROFILES": os.devnull, "PYTHONUNBUFFERED": "1"}
        started.append(
            subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=TIMEOUT)


@pytest.mark.process
def test_a_process_watches_until_it_is_interrupted(
    watching: Callable[..., subprocess.Popen[str]], address: str
) -> None:
    make(address, "report")
    process = watching("watch", "--json")
    assert process.stdout is not None
    (report,) = json.loads(process.stdout.readline())
    assert (report["jobName"], report["cron"]) == ("report", "0 0 2 * * ?")

    async def change(session: Session) -> OperationResult:
        return await operations.configure(session, "report", {"cron": "0 0 3 * * ?"})

    act(address, change)
    (report,) = json.loads(process.stdout.readline())
    assert (report["cron"], report["configVersion"]) == ("0 0 3 * * ?", 1)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, rest, errors) == (0, "", "")


@pytest.mark.process
def test_watching_one_job_ends_when_it_is_removed(watching: Callable[..., subprocess.Popen[str]], address: str) -> None:
    make(address, "report")
    process = watching("job", "report", "--watch", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["jobName"] == "report"
    act(address, lambda session: operations.remove(session, "report"))
    rest, errors = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, rest, errors) == (0, "", "")


@pytest.mark.process
def test_on_a_terminal_the_picture_is_drawn_anew(address: str) -> None:
    make(address, "report")
    master, slave = os.openpty()
    line = [sys.executable, "-m", "aioelasticjob", "jobs", "--watch", "-r", address]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40", "AIOELASTICJOB_PROFILES": os.devnull}
    process = subprocess.Popen(line, stdout=slave, stderr=slave, stdin=slave, env=environment)
    os.close(slave)
    try:
        seen = until(master, "report")
        assert "Ctrl-C ends this" in seen
        make(address, "second")
        assert "0 0 2" in until(master, "second")

        async def says_on_terminal(session: Session) -> None:
            author = Author("10.0.0.5", "web-1", 4711, session.incarnation)
            problems = ProcessProblems(clock_differs=300.0)
            await session.commit(renewal(author, None, None, problems), incarnation=session.incarnation)
            await asyncio.to_thread(until, master, "its clock is 300 s ahead")

        act(address, says_on_terminal)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=TIMEOUT) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)


def until(terminal: int, word: str) -> str:
    """Read a terminal until a word is on it."""
    assert stat.S_ISCHR(os.fstat(terminal).st_mode)
    seen, end = "", time.monotonic() + TIMEOUT
    os.set_blocking(terminal, False)
    while word not in seen and time.monotonic() < end:
        try:
            seen += os.read(terminal, 65536).decode(errors="replace")
        except BlockingIOError:
            time.sleep(0.02)
    assert word in seen, seen
    return seen
