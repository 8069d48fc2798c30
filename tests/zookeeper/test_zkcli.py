"""Debian's zkCli.sh, the Java client, on the embedded server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.embedded import EmbeddedServer

ZKCLI = Path("/usr/share/zookeeper/bin/zkCli.sh")

pytestmark = [
    pytest.mark.zookeeper,
    pytest.mark.process,
    pytest.mark.skipif(not ZKCLI.exists(), reason="Debian's zookeeper is not installed"),
]


def shell(server: EmbeddedServer, *commands: str) -> str:
    """Run commands in one session and return what the shell prints."""
    done = subprocess.run(
        [str(ZKCLI), "-server", server.address, "-timeout", "2000"],
        input="\n".join([*commands, "quit", ""]),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    return done.stdout + done.stderr


def test_the_java_client_does_its_daily_work(embedded: EmbeddedServer) -> None:
    output = shell(
        embedded,
        "create /a one",
        "create -s /a/n- x",
        "create -c /box",
        "create -e /mine",
        "set -v 0 /a two",
        "set -v 0 /a three",
        "get -s /a",
        "ls -R /",
        "getAcl /a",
        "addauth digest bob:secret",
        "whoami",
        "create /secret x auth::cdrwa",
        "getAcl /secret",
        "getEphemerals",
        "getAllChildrenNumber /",
        "setquota -n 5 /a",
        "listquota /a",
        "delete /a",
        "deleteall /a",
        "stat /a",
        "sync /",
        "config",
    )
    for expected in (
        "Created /a\n",
        "Created /a/n-0000000000",
        "Created /box",
        "version No is not valid : /a",
        "dataVersion = 1",
        "cversion = 1",
        "/a/n-0000000000\n",
        "/zookeeper/quota",
        "'world,'anyone",
        "digest: bob",
        "'digest,'bob:",
        "[/mine]",
        "Output quota for /a count=5",
        "Output stat for /a count=2,bytes=4",
        "Node not empty: /a",
        "Node does not exist: /a",
        "Sync is OK",
    ):
        assert expected in output, f"{expected!r} is missing in:\n{output}"


def test_the_java_client_hears_watches(embedded: EmbeddedServer) -> None:
    output = shell(embedded, "create /w 1", "get -w /w", "set /w 2", "addWatch /w", "create /w/x", "removewatches /w")
    assert "type:NodeDataChanged path:/w" in output
    assert "type:NodeCreated path:/w/x" in output


def test_the_java_client_keeps_time_to_live(embedded: EmbeddedServer) -> None:
    output = shell(embedded, "create -t 5000 /ttl x", "get /ttl")
    assert "Created /ttl" in output
