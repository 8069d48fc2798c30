"""The registry that nobody has to start: who does, that nobody does twice, how it ends, what can be in its way."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from typer.testing import CliRunner

from aioelasticjob import ElasticJob, InvalidSetting
from aioelasticjob.cli.application import application as commands
from aioelasticjob.engine.health import Health
from aioelasticjob.errors import RegistryUnreachable
from aioelasticjob.registry import addresses
from aioelasticjob.registry import shared as shared_registry
from aioelasticjob.registry.addresses import Address, open_registry
from aioelasticjob.registry.session import Session, SessionState
from aioelasticjob.registry.shared import ServerLog, SharedServer, ensure_server
from aioelasticjob.registry.transaction import Create
from aioelasticjob.zookeeper import port_holder, store
from aioelasticjob.zookeeper.lock import announce, locked
from tests.support import shared
from tests.support.loops import LoopKind, run_async
from tests.support.ports import reserved_ports
from tests.support.processes import TIMEOUT
from tests.support.shared import SharedRegistry


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[SharedRegistry]:
    with shared.shared_registry(tmp_path) as found:
        yield found


@contextmanager
def listener(port: int, says: bytes = b"") -> Iterator[None]:
    """Another program on that port: it says something to whoever connects, or nothing at all."""
    with socket.create_server(("127.0.0.1", port)) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                if says:
                    connection.sendall(says)
                    connection.close()
                else:
                    held.append(connection)

        held: list[socket.socket] = []
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in held:
                connection.close()


async def back(session: Session) -> None:
    """Wait until a connection that was lost is there again."""
    with anyio.fail_after(TIMEOUT):
        await session.status.until(lambda status: status.state is not SessionState.CONNECTED)
        await session.connected()


# -- addresses


def test_an_address_names_host_port_namespace_directory_and_time() -> None:
    address = Address.parse("embedded://localhost:2182/a/b?data_dir=/tmp/x%26y&linger=1.5", session_timeout=7)
    assert address.shared == SharedServer("127.0.0.1", 2182, Path("/tmp/x&y"), 1.5)
    assert (address.settings.hosts, address.settings.namespace) == ((("127.0.0.1", 2182),), "a/b")
    assert address.settings.session_timeout == 7
    with_units = Address.parse("embedded://localhost:2182/a?data_dir=/tmp/x&linger=1m").shared
    assert with_units is not None
    assert with_units.linger == 60


def test_without_a_directory_each_user_has_one_for_each_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/home/ann/state")
    assert Address.parse("embedded://127.0.0.1/shop").shared == SharedServer(
        "127.0.0.1", 2181, Path("/home/ann/state/aioelasticjob/127.0.0.1-2181")
    )
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ann")
    shared = Address.parse("embedded://[::1]:2190").shared
    assert shared is not None
    assert (shared.data_dir, shared.address) == (Path("/home/ann/.local/state/aioelasticjob/::1-2190"), "[::1]:2190")


def test_a_relative_directory_is_that_of_the_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shared = Address.parse("embedded://127.0.0.1:2181?data_dir=here").shared
    assert shared is not None
    assert shared.data_dir == tmp_path / "here"


@pytest.mark.parametrize(
    ("address", "setting"),
    [
        ("embedded://127.0.0.1:0/x", "address"),
        ("embedded://127.0.0.1:99999/x", "address"),
        ("embedded://127.0.0.1:1,127.0.0.1:2/x", "address"),
        ("embedded://10.0.0.1:2181/x", "address"),
        ("embedded://0.0.0.0:2181/x", "address"),
        ("embedded://zk.example.org:2181/x", "address"),
        ("embedded://127.0.0.1:2181/x?datadir=/x", "address"),
        ("embedded://127.0.0.1:2181/x?linger=1&linger=2", "address"),
        ("embedded:///x?data_dir=/x", "address"),
        ("embedded://127.0.0.1:2181/a//b", "namespace"),
        ("embedded://127.0.0.1:2181/x?data_dir=", "data_dir"),
        ("embedded://127.0.0.1:2181/x?data_dir=/a%0ab", "data_dir"),
        ("embedded://127.0.0.1:2181/x?data_dir=~nobody-of-that-name/x", "data_dir"),
        ("embedded://127.0.0.1:2181/x?linger=0", "linger"),
        ("embedded://127.0.0.1:2181/x?linger=nan", "linger"),
        ("embedded://127.0.0.1:2181/x?linger=soon", "linger"),
    ],
)
def test_what_cannot_be_meant_names_the_setting(address: str, setting: str) -> None:
    with pytest.raises(InvalidSetting) as found:
        ElasticJob(address)
    assert found.value.setting == setting


@pytest.mark.parametrize(
    ("place", "namespace"), [("shop", "shop"), ("my_shop/", "my_shop"), ("shop/north", "shop/north")]
)
def test_a_namespace_in_the_place_of_the_host_is_understood(place: str, namespace: str) -> None:
    with pytest.raises(InvalidSetting) as found:
        Address.parse(f"embedded://{place}")
    assert found.value.expected.endswith(
        f"write embedded:///{namespace} for a registry in this process,"
        f" or embedded://127.0.0.1:2181/{namespace} for one that this machine's processes share"
    )


def test_a_wrong_option_beside_the_address_keeps_its_name() -> None:
    with pytest.raises(InvalidSetting, match="session_timeout"):
        Address.parse("embedded://127.0.0.1:2181/x", session_timeout=-1)


@pytest.mark.parametrize(
    ("text", "private", "host"), [("zk://zk1:2182/shop", False, ("zk1", 2182)), ("embedded:///shop", True, None)]
)
def test_other_addresses_have_no_server_to_start(text: str, private: bool, host: tuple[str, int] | None) -> None:
    address = Address.parse(text)
    assert (address.private, address.shared, address.settings.namespace) == (private, None, "shop")
    assert host is None or address.settings.hosts == (host,)


def test_no_text_is_no_address() -> None:
    with pytest.raises(InvalidSetting, match="embedded://"):
        Address.parse(2181)  # type: ignore[arg-type]


# -- starting


@pytest.mark.process
def test_five_processes_of_one_instant_share_one_server(registry: SharedRegistry) -> None:
    program = (
        "import sys, anyio\n"
        "from aioelasticjob.registry.addresses import open_registry\n"
        "async def main():\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.readline()\n"
        f"    async with open_registry({registry.address!r}) as session:\n"
        "        print('in', session.incarnation, flush=True)\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(5)
    ]
    try:
        for child in started:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in started:  # the pistol: all of them have done their imports
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        sessions = {child.stdout.readline().split()[1] for child in started if child.stdout}
        assert len(sessions) == 5
        assert registry.starts == 1
        assert registry.log.count("\n") == 1
    finally:
        for child in started:
            child.kill()
            child.communicate()


@pytest.mark.process
def test_the_server_outlives_its_starter_and_its_process_group(registry: SharedRegistry) -> None:
    program = (
        f"import anyio; from aioelasticjob.registry.shared import *; from aioelasticjob.registry.addresses import *\n"
        f"anyio.run(ensure_server, Address.parse({registry.address!r}).shared); print('up', flush=True); input()"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"up\n"
        pid = registry.pid
        assert pid is not None
        status = Path(f"/proc/{pid}/status").read_text()
        assert f"PPid:\t{starter.pid}\n" not in status
        assert os.getpgid(pid) != os.getpgid(starter.pid)
        os.killpg(starter.pid, signal.SIGINT)
        os.killpg(starter.pid, signal.SIGKILL)
    assert registry.pid == pid
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")


@pytest.mark.process
def test_killed_it_is_started_again_with_sessions_and_data(registry: SharedRegistry, real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with (
            open_registry(registry.address, session_timeout=10) as one,
            open_registry(registry.address, session_timeout=10) as other,
        ):
            incarnation = one.incarnation
            await one.commit([Create("/lock", b"mine", ephemeral=True), Create("/data")], incarnation=incarnation)
            before = await one.exists("/lock")
            for starts in (2, 3):
                registry.kill()
                await back(one)
                await other.connected()
                assert one.incarnation == incarnation
                assert await other.exists("/lock") == before
                assert registry.starts == starts
            assert (await other.get("/lock")).data == b"mine"
        async with open_registry(registry.address) as third:
            assert set(await third.children("/")) == {"data"}

    run_async(real_loop_kind, main)


@pytest.mark.process
def test_the_ephemerals_of_the_dead_end_though_the_server_was_killed_too(registry: SharedRegistry) -> None:
    program = (
        "import anyio\n"
        "from aioelasticjob.registry.addresses import open_registry\n"
        "from aioelasticjob.registry.transaction import Create\n"
        "async def main():\n"
        f"    async with open_registry({registry.address!r}, session_timeout=4) as session:\n"
        "        await session.commit([Create('/lock', ephemeral=True)], incarnation=session.incarnation)\n"
        "        print('held', flush=True)\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )

    async def main() -> None:
        async with open_registry(registry.address) as session:
            with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
                assert child.stdout is not None
                assert child.stdout.readline() == b"held\n"
                child.kill()
            registry.kill()
            await back(session)
            assert await session.exists("/lock") is not None
            with anyio.fail_after(TIMEOUT):  # its whole timeout again, to the next tick
                await session.wait_deleted("/lock")

    anyio.run(main)


@pytest.mark.process
def test_it_ends_a_while_after_its_last_client_and_keeps_everything(tmp_path: Path) -> None:
    with shared.shared_registry(tmp_path, linger=2) as registry:

        async def leave_something() -> None:
            async with open_registry(registry.address) as session:
                await session.commit([Create("/kept")], incarnation=session.incarnation)
                await anyio.sleep(2.5)  # the server's own time: it must not end while we are here
                assert registry.starts == 1

        async def look_again() -> None:
            async with open_registry(registry.address) as session:
                assert set(await session.children("/")) == {"kept"}

        anyio.run(leave_something)
        registry.until_gone()
        assert "nobody has been here for 2 s" in registry.log
        anyio.run(look_again)
        assert registry.starts == 2


@pytest.mark.process
def test_jobs_run_on_it_and_commands_see_them(registry: SharedRegistry) -> None:
    ran = anyio.Event()
    app = ElasticJob(registry.address)

    @app.job(cron="* * * * * ?")
    async def tick(context: object) -> None:
        ran.set()

    async def main() -> str:
        async with app.running():
            with anyio.fail_after(TIMEOUT):
                await ran.wait()
            see = partial(CliRunner().invoke, commands, ["jobs", "--registry", registry.address, "--json"])
            return (await to_thread.run_sync(see)).output

    assert '"jobName": "tick"' in anyio.run(main)


def test_a_command_has_nothing_to_see_in_a_private_registry() -> None:
    result = CliRunner().invoke(commands, ["jobs", "--registry", "embedded://"])
    assert result.exit_code != 0
    assert isinstance(result.exception, InvalidSetting | SystemExit)


@pytest.mark.process
def test_two_namespaces_share_a_server(registry: SharedRegistry) -> None:
    async def main() -> None:
        second = registry.address.replace("/test?", "/other?")
        async with open_registry(registry.address) as one, open_registry(second) as other:
            await one.commit([Create("/x")], incarnation=one.incarnation)
            assert await other.children("/") == ()
        assert registry.starts == 1

    anyio.run(main)


# -- what can be in its way


def refused(address: str) -> InvalidSetting:
    shared = Address.parse(address).shared
    assert shared is not None
    with pytest.raises(InvalidSetting) as found:
        anyio.run(ensure_server, shared)
    return found.value


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_that_another_program_holds(
    registry: SharedRegistry, says: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_holder, "ANSWER_TIMEOUT", 0.2)
    with listener(registry.port, says):
        error = refused(registry.address)
    assert (error.setting, error.value) == ("address", f"127.0.0.1:{registry.port}")
    assert "held by another program" in str(error)
    assert not registry.data_dir.exists()


def test_a_port_that_is_taken_and_not_listened_at(registry: SharedRegistry) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # its own choice: without SO_REUSEADDR, a port used of late cannot be had
        port = taken.getsockname()[1]
        error = refused(f"embedded://127.0.0.1:{port}/x?data_dir={registry.data_dir}")
    assert (error.setting, error.value) == ("address", f"127.0.0.1:{port}")
    assert str(error).startswith(f"address = '127.0.0.1:{port}': cannot listen on 127.0.0.1:{port}: the port is in use")


def test_a_program_that_has_taken_the_port_since(registry: SharedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_holder, "ANSWER_TIMEOUT", 0.2)
    registry.data_dir.mkdir()
    (registry.data_dir / "server.lock").write_text(f"127.0.0.1:{registry.port} 4711\n")  # of one that is no more
    with listener(registry.port):
        assert "held by another program" in str(refused(registry.address))


@pytest.mark.process
def test_a_port_that_serves_another_directory(registry: SharedRegistry, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_registry(registry.address):
            lingers = "it ends by itself .* s after its last client has left: wait, or stop its clients and then it"
            with pytest.raises(InvalidSetting, match=f"serves {registry.data_dir}, not .*elsewhere; {lingers}"):
                await ensure_server(SharedServer("127.0.0.1", registry.port, tmp_path / "elsewhere"))

    anyio.run(main)


@pytest.mark.process
def test_a_directory_that_is_served_at_another_port(registry: SharedRegistry) -> None:
    async def main() -> None:
        async with open_registry(registry.address):
            at = f"is served at 127.0.0.1:{registry.port}"
            with reserved_ports(1) as (port,), pytest.raises(InvalidSetting, match=at):
                await ensure_server(SharedServer("127.0.0.1", port, registry.data_dir))

    anyio.run(main)


def test_a_directory_of_another_program_is_left_as_it_is(registry: SharedRegistry) -> None:
    registry.data_dir.mkdir()
    (registry.data_dir / "diary.txt").write_text("Dear diary")
    error = refused(registry.address)
    assert error.setting == "data_dir"
    assert str(error).endswith("another program (diary.txt): choose an empty directory")
    assert [path.name for path in registry.data_dir.iterdir()] == ["diary.txt"]


def test_a_database_of_another_program_is_named_by_the_server_that_found_it(registry: SharedRegistry) -> None:
    registry.data_dir.mkdir()
    (registry.data_dir / "zookeeper.sqlite3").write_bytes(b"no database" * 100)
    assert "is not a database of this server" in str(refused(registry.address))


def test_a_directory_that_cannot_be(registry: SharedRegistry) -> None:
    registry.data_dir.write_text("a file")
    error = refused(registry.address)
    assert (error.setting, error.value) == ("data_dir", str(registry.data_dir))


def test_a_directory_that_may_not_be_written_by_anybody(registry: SharedRegistry) -> None:
    assert refused(f"embedded://127.0.0.1:{registry.port}/x?data_dir=/proc/registry").setting == "data_dir"


def test_no_interpreter(registry: SharedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    assert "no Python interpreter" in str(refused(registry.address))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert "cannot start /nowhere/python" in str(refused(registry.address))


def test_a_server_that_cannot_even_begin_is_not_blamed_on_its_directory(
    registry: SharedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_registry, "python_command", lambda *_: [sys.executable, "-c", "import nothing_at_all"])
    error = refused(registry.address)
    assert error.setting == "address"
    assert "could not run its server (ModuleNotFoundError: No module named 'nothing_at_all'), see" in str(error)


def test_a_system_without_locks(registry: SharedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    error = refused(registry.address)
    monkeypatch.undo()
    assert "no flock: start `aioelasticjob zookeeper` yourself" in str(error)


def test_a_start_that_takes_too_long(registry: SharedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_registry, "START_TIMEOUT", 0.001)
    with pytest.raises(RegistryUnreachable, match="it was started and does not listen"):
        anyio.run(ensure_server, registry.server)


def test_a_long_log_is_begun_anew_and_last_words_are_found_in_it(
    registry: SharedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_registry, "MAX_LOG_BYTES", 10)
    registry.data_dir.mkdir()
    (registry.data_dir / "server.log").write_text("zookeeper listening on 127.0.0.1:1\n")
    (registry.data_dir / "zookeeper.sqlite3").write_bytes(b"no database" * 100)
    error = refused(registry.address)
    assert error.setting == "data_dir"
    assert registry.log.splitlines() == [f"error: {error.expected}"]


def test_somebody_who_holds_the_lock_and_never_serves(
    registry: SharedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_registry, "START_TIMEOUT", 0.2)
    registry.data_dir.mkdir()
    with locked(registry.data_dir), pytest.raises(RegistryUnreachable, match="its server does not answer"):
        anyio.run(ensure_server, SharedServer("127.0.0.1", registry.port, registry.data_dir))


def test_a_server_that_is_stopped_in_its_tracks_is_waited_for(
    registry: SharedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_registry, "START_TIMEOUT", 0.5)
    monkeypatch.setattr(port_holder, "ANSWER_TIMEOUT", 0.2)
    registry.data_dir.mkdir()
    with locked(registry.data_dir) as lock, listener(registry.port):
        announce(lock, f"127.0.0.1:{registry.port}")
        with pytest.raises(RegistryUnreachable):
            anyio.run(ensure_server, SharedServer("127.0.0.1", registry.port, registry.data_dir))


@pytest.mark.process
def test_what_stands_in_the_way_later_is_logged_once_and_ends_nothing(
    registry: SharedRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "aioelasticjob.registry.addresses")

    def reasons() -> list[str]:
        return [record.reason for record in caplog.records if record.name == "aioelasticjob.registry.addresses"]  # type: ignore[attr-defined]

    async def main() -> None:
        async with open_registry(registry.address, session_timeout=20, base_sleep_time=0.1) as session:
            incarnation = session.incarnation
            foreign = registry.data_dir / "diary.txt"
            foreign.write_text("Dear diary")
            registry.kill()
            with anyio.fail_after(TIMEOUT):
                while not reasons():
                    await anyio.sleep(0.02)  # the keeper logs, and tells nobody else
            await anyio.sleep(0.5)
            foreign.unlink()
            with anyio.fail_after(TIMEOUT):
                await session.connected()
            assert session.incarnation == incarnation

    anyio.run(main)
    (reason,) = reasons()
    assert "another program (diary.txt)" in reason


DISK_FULL = "cannot write registry/zookeeper.sqlite3: database or disk is full"


def log_as_server(registry: SharedRegistry, line: str) -> None:
    """Write a line into the server's log."""
    registry.data_dir.mkdir(exist_ok=True)
    with (registry.data_dir / "server.log").open("a") as log:
        log.write(f"{line}\n")


FULL = Path("/dev/full")
"""A device that refuses to be written as a full disk does."""


def fill_disk(patch: pytest.MonkeyPatch) -> None:
    """Let the room on the disk be looked for on a device that has none."""
    patch.setattr(store, "TemporaryFile", lambda **_: FULL.open("wb", buffering=0))


def test_on_a_full_disk_the_start_ends_with_an_error_that_says_so(
    registry: SharedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch)
    error = refused(registry.address)
    assert error.setting == "data_dir"
    assert "the disk is full: 1,024 KiB cannot be written in" in str(error)
    assert registry.starts == 0


@pytest.mark.process
def test_a_server_that_starts_where_files_may_not_become_large_says_so_and_ends(registry: SharedRegistry) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))"
    server = "from aioelasticjob.zookeeper.__main__ import main; sys.exit(main())"
    options = ["--port", str(registry.port), "--data-dir", str(registry.data_dir)]
    command = [sys.executable, "-c", f"import sys; {limit}; {server}", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: the disk is full: 1,024 KiB cannot be written in")


@pytest.mark.process
def test_a_disk_that_is_full_when_the_server_is_to_start_again_is_named_by_health(
    registry: SharedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with open_registry(registry.address, session_timeout=20, base_sleep_time=0.1) as session:
            fill_disk(monkeypatch)
            registry.kill()
            with anyio.fail_after(TIMEOUT):
                while "the disk is full" not in (Health.of(session, []).reason or ""):
                    await anyio.sleep(0.02)
            monkeypatch.undo()
            with anyio.fail_after(TIMEOUT):
                await session.connected()
            assert Health.of(session, []).reason is None

    anyio.run(main)


def test_the_newest_error_is_one_that_the_server_has_logged_since_the_last_call(registry: SharedRegistry) -> None:
    assert ServerLog(registry.server).newest_error() == ""  # there is no log
    log_as_server(registry, "error: an old one")
    log = ServerLog(registry.server)
    assert log.newest_error() == ""
    for line in ("error: the disk is slow", f"error: {DISK_FULL}", "zookeeper listening on 127.0.0.1:2181"):
        log_as_server(registry, line)
    assert log.newest_error() == DISK_FULL
    assert log.newest_error() == ""
    (registry.data_dir / "server.log").write_text("error: of a new log\n")
    assert log.newest_error() == "of a new log"


@pytest.mark.process
def test_a_client_that_starts_the_server_again_logs_why_the_server_had_ended(
    registry: SharedRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "aioelasticjob.registry.addresses")

    async def main() -> None:
        async with open_registry(registry.address, session_timeout=20, base_sleep_time=0.1) as session:
            log_as_server(registry, f"error: {DISK_FULL}")
            registry.kill()
            await back(session)

    anyio.run(main)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "aioelasticjob.registry.addresses"]
    assert line == f"the embedded registry was started again after it had ended: {DISK_FULL}"


@pytest.mark.parametrize(
    ("last_words", "reason"), [(f"error: {DISK_FULL}", f"its server has ended: {DISK_FULL}"), ("bye", "Connect call")]
)
def test_if_a_server_ends_each_time_it_is_started_the_error_says_why(
    registry: SharedRegistry, monkeypatch: pytest.MonkeyPatch, last_words: str, reason: str
) -> None:
    async def ends_at_once(server: SharedServer) -> None:
        log_as_server(registry, last_words)

    async def main() -> None:
        with pytest.raises(RegistryUnreachable) as found:
            async with open_registry(registry.address, connection_timeout=0.3):
                pass
        assert reason in found.value.reason

    monkeypatch.setattr(addresses, "ensure_server", ends_at_once)
    anyio.run(main)
