"""Who holds a port: what the server there answers, and what the lock of its directory says."""

from __future__ import annotations

import socket
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from aioelasticjob.zookeeper import port_holder
from aioelasticjob.zookeeper.lock import Holder, announce, locked
from aioelasticjob.zookeeper.port_holder import holder_of, served_directory, who_listens
from aioelasticjob.zookeeper.server import serve


def test_nobody_listens() -> None:
    with socket.socket() as silent:  # it has the port, so that no other test takes it, and does not listen
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        assert served_directory("127.0.0.1", port) is None
        assert who_listens("127.0.0.1", port) is None


def test_a_program_that_does_not_answer_is_no_server_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_holder, "ANSWER_TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert served_directory("127.0.0.1", port) == ""
        assert who_listens("127.0.0.1", port) is None


@pytest.mark.parametrize("linger", [None, 30.0])
def test_the_lock_says_who_serves_a_directory_and_how_long_it_stays(tmp_path: Path, linger: float | None) -> None:
    with locked(tmp_path) as lock:
        assert holder_of(str(tmp_path), "127.0.0.1:2181") is None, "it does not listen yet"
        announce(lock, "127.0.0.1:2181", linger)
        found = holder_of(str(tmp_path), "127.0.0.1:2181")
    assert found is not None
    assert found.linger == linger
    assert holder_of(str(tmp_path), "127.0.0.1:2182") is None


def test_a_directory_of_another_program_has_no_such_lock(tmp_path: Path) -> None:
    assert holder_of(str(tmp_path), "127.0.0.1:2181") is None
    (tmp_path / "server.lock").write_text("something else")
    assert holder_of(str(tmp_path), "127.0.0.1:2181") is None


def test_a_server_in_memory_has_no_directory() -> None:
    async def main() -> None:
        async with serve("127.0.0.1", 0) as server:
            host, _, port = server.address.rpartition(":")
            assert await to_thread.run_sync(served_directory, host, int(port)) == ""

    anyio.run(main)


def test_what_is_said_about_a_server_that_stays() -> None:
    holder = Holder(Path("/data"), "127.0.0.1:2181", 4711)
    assert str(holder) == "an embedded server (process 4711) that serves /data"
    assert holder.advice == "it runs until it is stopped: stop it (kill 4711)"


def test_what_is_said_about_a_server_that_waits_for_clients() -> None:
    advice = Holder(Path("/data"), "127.0.0.1:2181", 4711, 30).advice
    assert advice.startswith("it ends by itself 30 s after its last client has left: wait, or")
