"""`aioelasticjob doctor`: what it prints, for people and for programs, and its exit codes."""

from __future__ import annotations

import json
from math import inf

import pytest

from aioelasticjob.zookeeper import fourletter
from tests.cli.conftest import Command
from tests.support.embedded import EmbeddedServer
from tests.support.ports import reserved_ports


@pytest.fixture(autouse=True)
def any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no verdict depend on how fast this machine is."""
    monkeypatch.setattr("aioelasticjob.doctor.judgement.SLOW", inf)
    monkeypatch.setattr("aioelasticjob.doctor.members.WORDS_TIMEOUT", 60.0)


TOPICS = [
    *("connection", "TLS", "version", "permissions", "session timeout", "clock", "write latency", "quotas"),
    *("request size", "four-letter words"),
]


def test_a_good_registry_is_exit_code_0(command: Command, embedded: EmbeddedServer) -> None:
    result = command("doctor", f"zk://{embedded.address}/shop", "--session-timeout", "2s", "--timeout", "60")
    assert result.exit_code == 0, result.output
    assert [line.split("  ")[0].strip() for line in result.stdout.splitlines()] == ["good"] * len(TOPICS)


def test_something_bad_is_exit_code_1_and_is_said_with_what_to_change(
    command: Command, embedded: EmbeddedServer
) -> None:
    result = command("doctor", f"zk://{embedded.address}/shop", "--timeout", "60")
    assert result.exit_code == 1
    assert "bad   session timeout    The servers grant 2 to 20 s; jobs ask for 30 s and get 20 s." in result.stdout
    assert "→ Set maxSessionTimeout=30000 in zoo.cfg of all servers, or session_timeout=20." in result.stdout


def test_a_registry_that_cannot_be_reached_is_exit_code_1(command: Command) -> None:
    with reserved_ports(1) as (port,):
        result = command("doctor", f"zk://127.0.0.1:{port}", "--timeout", "1")
    assert result.exit_code == 1
    assert f"127.0.0.1:{port}: Connection refused." in result.stdout
    assert "unknown  clock" in result.stdout


def test_something_that_only_deserves_a_look_is_exit_code_3(
    command: Command, embedded: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fourletter, "_REFUSED", frozenset(fourletter._WORDS))
    monkeypatch.setenv("AIOELASTICJOB_REGISTRY", f"zk://{embedded.address}/shop")
    result = command("doctor", "--session-timeout", "2s", "--timeout", "60", "--json")
    assert result.exit_code == 3
    printed = json.loads(result.stdout)
    assert (printed["registry"], printed["verdict"]) == (f"zk://{embedded.address}/shop", "warning")
    assert [finding["topic"] for finding in printed["findings"]] == TOPICS
    (worst,) = (finding for finding in printed["findings"] if finding["verdict"] != "good")
    assert worst["topic"] == "four-letter words"
    assert worst["advice"].startswith("Write 4lw.commands.whitelist=")


def test_a_small_max_request_is_enough_for_small_jobs(command: Command, embedded: EmbeddedServer) -> None:
    result = command("doctor", f"zk://{embedded.address}", "--max-request", "5000", "--timeout", "60")
    assert "Requests of 5,000 bytes are taken" in result.stdout


@pytest.mark.parametrize("address", ["nonsense", "embedded://"])
def test_an_address_that_makes_no_sense_is_exit_code_2(command: Command, address: str) -> None:
    result = command("doctor", address)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: address = ")
