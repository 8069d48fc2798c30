"""The file of users."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from aioelasticjob.zookeeper.sasl_users import UsersError, UsersFile, read_users


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
    with caplog.at_level(logging.WARNING, "aioelasticjob.zookeeper"):
        assert users.get("bob") is None
    assert caplog.messages == [f"{file}:1: write user:password, each user once: nobody can log in"]
