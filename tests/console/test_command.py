"""`aioelasticjob console`: a process that serves the pages and ends in good order."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from aioelasticjob.cli.application import application
from aioelasticjob.cli.web import _announce, _is_loopback, _named
from aioelasticjob.console import Console, ConsoleSettings
from aioelasticjob.console.settings import RegistrySettings
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.observers.sql import open_store
from aioelasticjob.registry.tls import TlsSettings
from tests.support.embedded import EmbeddedServer


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_prints_the_link_serves_and_ends_on_a_signal(
    number: int, embedded: EmbeddedServer, tmp_path: Path
) -> None:
    registry = f"zk://{embedded.address}/billing"
    command = [sys.executable, "-m", "aioelasticjob", "console", "--registry", registry, "--port", "0"]
    environment = {**os.environ, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            link = re.search(r"http://127\.0\.0\.1:\d+/welcome/\S+", process.stdout.readline())
            assert link
            assert "The console is at" in process.stdout.readline()
            with urlopen(link[0], timeout=90) as page:
                assert page.status == 200
                assert "Welcome" in page.read().decode()
            process.send_signal(number)
            _, errors = process.communicate(timeout=90)
            assert "Traceback" not in errors
            assert process.returncode == 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--registry", "http://x"], "address"),
        (["--registry", "embedded://"], "private registry"),
        (["--registry", "a=zk://x:1/b", "--registry", "a=zk://y:1/b"], "two registries need two names"),
        (["--registry", "zk://x:1/b", "--event-store", "nonsense"], "event_store"),
        (["--profile", "nowhere"], "no such profile"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOELASTICJOB_PROFILES", str(tmp_path / "profiles.toml"))
    result = CliRunner().invoke(application, ["console", "--data-dir", str(tmp_path), *arguments])
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_no_wrong_setting_and_one_line_says_why(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        options = ["--registry", "zk://127.0.0.1:1/b", "--data-dir", str(tmp_path), "--port", str(port)]
        result = CliRunner().invoke(application, ["console", *options])
    assert (result.exit_code, result.stdout) == (1, "")
    why = "cannot be listened at on 127.0.0.1 (Address already in use): choose another port or host"
    assert result.stderr == f"error: port = {port}: {why}\n"


def test_a_host_that_is_not_ours_is_a_wrong_setting(tmp_path: Path) -> None:
    options = ["--registry", "zk://127.0.0.1:1/b", "--data-dir", str(tmp_path), "--port", "0", "--host", "192.0.2.1"]
    result = CliRunner().invoke(application, ["console", *options])
    assert result.exit_code == 2
    assert "cannot be listened at on 192.0.2.1 (Cannot assign requested address): choose" in result.stderr


def test_a_console_that_others_reach_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ConsoleSettings((RegistrySettings("b", "zk://127.0.0.1:1/b"),), tmp_path)
    _announce(Console(settings), "0.0.0.0", 8899)
    assert capsys.readouterr().err.startswith("warning: other machines can reach this console, unencrypted: ")


def test_an_event_store_whose_driver_rejects_an_option_of_the_url_is_refused_at_once() -> None:
    async def main() -> None:
        async with open_store("postgresql://me:s3cret@127.0.0.1/events?command_timeout=soon"):
            pytest.fail("it cannot be opened")

    with pytest.raises(InvalidSetting, match="asyncpg's option command_timeout = 'soon'") as refused:
        asyncio.run(main())
    assert str(refused.value).startswith("event_store = 'postgresql://me:…@127.0.0.1/events': ")
    assert "s3cret" not in str(refused.value)


def test_a_registry_has_the_name_given_else_that_of_its_namespace() -> None:
    assert _named("main=zk://a:2181/x/y") == ("main", "zk://a:2181/x/y")
    assert _named("zk://a:2181/x/y") == ("x-y", "zk://a:2181/x/y")
    assert _named("zk://a:2181") == ("a", "zk://a:2181")
    assert _named("embedded://127.0.0.1:2181/x?data_dir=d") == ("x", "embedded://127.0.0.1:2181/x?data_dir=d")


def test_other_machines_are_let_in_only_when_told_so() -> None:
    assert [_is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9")] == [True] * 4
    assert [_is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org")] == [False] * 4


@pytest.mark.process
def test_what_is_not_installed_is_named_with_the_extra_that_brings_it() -> None:
    code = """
import sys
sys.modules["argon2"] = None
sys.argv = ["aioelasticjob", "console"]
from aioelasticjob.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'aioelasticjob[console]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_registry_is_shown_over_an_encrypted_connection_and_no_secret_is_shown() -> None:
    settings = RegistrySettings(
        "shop", "zks://h/shop", tls={"ca": "ca.pem", "key_password": "hunter2"}, sasl="a:hunter2"
    )
    found = settings.parsed_address().settings
    assert (found.tls, found.sasl) == (TlsSettings("ca.pem", key_password="hunter2"), "a:hunter2")
    assert "hunter2" not in repr(settings) + repr(found)
