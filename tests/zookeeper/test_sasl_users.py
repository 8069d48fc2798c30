"""The file of users."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from anyio import sleep

from aioelasticjob.errors import AuthenticationFailed
from aioelasticjob.registry.session import open_session
from aioelasticjob.testing import run
from aioelasticjob.zookeeper.repeated_warning import QUIET_PERIOD, RepeatedWarning
from aioelasticjob.zookeeper.sasl_users import UsersError, UsersFile, read_users
from aioelasticjob.zookeeper.server import serve
from aioelasticjob.zookeeper.settings import Settings
from tests.support.simulated_registry import settings


def test_each_line_is_a_user(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# who may come in\n\nbob:a secret\r\ncarol: x:y \n", encoding="utf-8")
    assert read_users(file) == {"bob": "a secret", "carol": " x:y "}


@pytest.mark.parametrize("line", ["bob", "bob:", ":hunter2", "ann:hunter2"])
def test_a_wrong_line_is_named_and_not_shown(line: str, tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"ann:hunter2\n{line}\n")
    with pytest.raises(UsersError, match=r"users:2: write user:password") as refused:
        read_users(file)
    assert "hunter2" not in str(refused.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff")
    for file in (tmp_path / "none", binary):
        with pytest.raises(UsersError, match=file.name):
            UsersFile(file)


def test_changes_count_at_once_and_a_broken_file_lets_nobody_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "users"
    file.write_text("bob:old\n")
    users = UsersFile(file)
    file.write_text("bob:new\n")
    assert (users.get("bob"), users.get("eve")) == ("new", None)
    file.write_text("bob\n")

    async def main() -> None:
        for _ in range(50):
            assert users.get("bob") is None
        await sleep(QUIET_PERIOD)

    with caplog.at_level(logging.WARNING, "aioelasticjob.zookeeper"):
        run(main)
    assert caplog.messages == [
        f"{file}:1: write user:password, each user once: nobody can log in",
        "no client asks for a file of users that cannot be used any more; it had happened 50 times in 0 s",
    ]


def test_clients_that_fail_to_log_in_again_and_again_have_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serve("127.0.0.1", 2181, settings=Settings(sasl_users={"bob": "secret"})):
            for _ in range(20):
                with pytest.raises(AuthenticationFailed):
                    async with open_session(settings("zk://127.0.0.1:2181", sasl="bob:wrong")):
                        pass
            await sleep(QUIET_PERIOD)

    with caplog.at_level(logging.INFO, "aioelasticjob.zookeeper"):
        run(main)
    first, last = caplog.messages
    assert first.startswith("127.0.0.1 cannot log in: ")
    assert last.startswith("no client fails to log in any more; it had happened 20 times")


def test_what_happened_once_is_said_so(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        RepeatedWarning("it is over").happened("it is so")
        await sleep(QUIET_PERIOD + 1)

    run(main)
    assert caplog.messages == ["it is so", "it is over; it had happened once"]
