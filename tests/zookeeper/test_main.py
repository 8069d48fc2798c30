"""The server as a process: how it starts, ends, refuses, and what survives its death."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from struct import pack
from typing import IO

import pytest

from aioelasticjob.zookeeper.codes import OpCode
from tests.support.certificates import authority
from tests.support.processes import ChildProcess, Workers
from tests.zookeeper.raw_client import connect_frame, create_body, frame

pytestmark = pytest.mark.process

Start = Callable[..., ChildProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    workers = Workers(tmp_path)
    try:
        yield lambda *options: workers.start("-m", "aioelasticjob.zookeeper", *options)
    finally:
        for child in workers.children:
            child.kill()


def port_of(server: ChildProcess) -> int:
    found = re.fullmatch(r"zookeeper listening on 127\.0\.0\.1:(\d+)", server.wait_for_output("listening"))
    assert found, server.output
    return int(found[1])


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_ends_cleanly(start: Start, ending: signal.Signals) -> None:
    server = start("--port", "0")
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=90) as client:
        client.sendall(b"ruok")
        assert client.recv(10) == b"imok"
    os.kill(server.pid, ending)
    assert server.wait() == 0
    assert server.output.count("\n") == 1


def test_a_port_in_use_is_said_in_one_line(start: Start) -> None:
    port = port_of(start("--port", "0"))
    second = start("--port", str(port))
    assert second.wait() == 1
    assert second.output == f"error: cannot listen on 127.0.0.1:{port}: the port is in use\n"


def test_a_port_in_use_by_a_server_that_waits_for_clients_says_how_long(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = start("--port", "0", "--data-dir", str(data), "--linger", "90")
    port = port_of(first)
    second = start("--port", str(port))
    assert second.wait() == 1
    assert second.output == (
        f"error: cannot listen on 127.0.0.1:{port}: the port is in use by an embedded server (process {first.pid}) that"
        f" serves {data}; it ends by itself 90 s after its last client has left: wait, or stop its clients and then it"
        f" (kill {first.pid}), or choose another --port\n"
    )
    third = start("--port", "0", "--data-dir", str(data))
    assert third.wait() == 1
    assert third.output == (
        f"error: {data} is in use by the server at 127.0.0.1:{port} (process {first.pid}); it ends by itself 90 s after"
        f" its last client has left: wait, or stop its clients and then it (kill {first.pid}), or choose another"
        " data directory\n"
    )


def test_a_directory_in_use_is_said_in_one_line(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = start("--port", "0", "--data-dir", str(data))
    port = port_of(first)
    second = start("--port", "0", "--data-dir", str(data))
    assert second.wait() == 1
    assert second.output == (
        f"error: {data} is in use by the server at 127.0.0.1:{port} (process {first.pid}); it runs until it is stopped:"
        f" stop it (kill {first.pid}), or choose another data directory\n"
    )


def test_a_directory_that_cannot_be_written_is_not_taken_for_an_address(start: Start, tmp_path: Path) -> None:
    (tmp_path / "data" / "server.lock").mkdir(parents=True)  # nobody can write to it, not even root
    server = start("--port", "0", "--data-dir", str(tmp_path / "data"))
    assert server.wait() == 1
    why = "cannot be written (Is a directory): choose another --data-dir"
    assert server.output == f"error: the data directory {tmp_path / 'data'} {why}\n"


def test_a_directory_of_another_program_is_said_in_one_line(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with sqlite3.connect(data / "zookeeper.sqlite3") as foreign:
        foreign.execute("CREATE TABLE theirs (x)")
    foreign.close()
    second = start("--port", "0", "--data-dir", str(data))
    assert second.wait() == 1
    assert "is the database of another program" in second.output
    assert second.output.count("\n") == 1


def test_detached_it_stays_when_the_command_has_returned(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    options = ("--detach", "--data-dir", str(data))
    assert start("--port", "0", *options).wait() == 0
    address, pid = (data / "server.lock").read_text().split()
    host, port = address.split(":")
    try:
        with socket.create_connection((host, int(port)), timeout=90) as client:
            client.sendall(b"ruok")
            assert client.recv(10) == b"imok"
        second = start("--port", "0", *options)
        assert second.wait() == 1
        holder = f"the server at {address} (process {pid})"
        stop = f"it runs until it is stopped: stop it (kill {pid})"
        assert second.output == f"error: {data} is in use by {holder}; {stop}, or choose another data directory\n"
        third = start("--port", port, "--detach")
        assert third.wait() == 1
        assert third.output == (
            f"error: cannot listen on 127.0.0.1:{port}: the port is in use by an embedded server (process {pid}) that"
            f" serves {data}; {stop}, or choose another --port\n"
        )
    finally:
        os.kill(int(pid), signal.SIGTERM)


@pytest.mark.parametrize("command", ["aioelasticjob", "aioelasticjob.zookeeper"])
def test_detached_it_keeps_nobody_waiting_for_the_end_of_its_output(command: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    words = [sys.executable, "-m", command, *(["zookeeper"] if command == "aioelasticjob" else [])]
    options = ["--port", "0", "--detach", "--data-dir", str(data)]
    try:  # as $(...) does, this reads until nobody can write any more
        done = subprocess.run([*words, *options], capture_output=True, text=True, timeout=90, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        address, pid = (data / "server.lock").read_text().split()
        assert done.stdout == f"zookeeper listening on {address}\n"
        os.kill(int(pid), 0)
        assert [os.readlink(f"/proc/{pid}/fd/{number}") for number in (1, 2)] == [str(data / "server.log")] * 2
    finally:
        os.kill(int((data / "server.lock").read_text().split()[1]), signal.SIGTERM)


def test_detached_without_a_directory_it_writes_nowhere_but_to_a_file_that_was_given(tmp_path: Path) -> None:
    code = "from aioelasticjob.zookeeper.__main__ import _let_go_of_output as go; go(None); print('said', flush=True)"
    command, file = [sys.executable, "-c", code], tmp_path / "log"
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    with file.open("w") as given:
        subprocess.run(command, stdout=given, timeout=90, check=True)
    assert file.read_text() == "said\n"


def test_it_ends_when_nobody_has_been_there_for_a_while(start: Start) -> None:
    server = start("--port", "0", "--linger", "0.5", "--tick-time", "100")
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=90) as client:
        client.sendall(connect_frame())
        assert client.recv(1)
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(1)  # we are here
    assert server.wait() == 0  # once our session is over
    assert server.output.endswith("nobody has been here for 0.5 s\n")


def test_without_file_descriptors_it_says_so_once_and_goes_on(tmp_path: Path) -> None:
    command = ["sh", "-c", 'ulimit -n 30 && exec "$@"', "", sys.executable, "-u", "-m", "aioelasticjob.zookeeper"]
    server = ChildProcess([*command, "--port", "0", "--data-dir", str(tmp_path / "data")], tmp_path / "log")
    try:
        port = port_of(server)
        with ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(40)]
            server.wait_for_output("cannot accept connections", 60)
            clients[0].sendall(connect_frame())
            assert clients[0].recv(1)  # those who are there are served, and what they write is kept
            waiting = clients.pop()
            for client in clients:
                client.close()
            waiting.sendall(b"ruok")
            assert waiting.recv(10) == b"imok"
        assert len(server.output.splitlines()) == 2, server.output
    finally:
        server.kill()


def test_limits_are_options_with_the_names_that_operators_know(start: Start) -> None:
    server = start(
        *("--port", "0", "--max-client-cnxns", "3", "--jute-maxbuffer", "5000"),
        *("--max-unfinished", "6000", "--sessionless-timeout", "100"),
    )
    address = ("127.0.0.1", port_of(server))
    with socket.create_connection(address, timeout=60) as client:
        client.sendall(b"conf")
        assert b"maxClientCnxns=3\n" in b"".join(iter(lambda: client.recv(4096), b""))
    with socket.create_connection(address, timeout=60) as client:
        assert client.recv(1) == b""  # it has not asked for a session
    with socket.create_connection(address, timeout=60) as client:
        client.sendall(connect_frame())
        stream = client.makefile("rb")
        stream.read(41)
        client.sendall(frame(1, OpCode.CREATE, create_body("/a", bytes(4900))))
        assert stream.read(4)
        client.sendall(frame(2, OpCode.CREATE, create_body("/b", bytes(5000))))
        with suppress(ConnectionResetError):
            while stream.read(1):
                pass
        stream.close()


@pytest.mark.parametrize(
    "options",
    [
        ("--port", "99999"),
        ("--port", "x"),
        ("--tick-time", "0"),
        ("--linger", "0"),
        ("--nonsense",),
        ("--jute-maxbuffer", "9000", "--max-unfinished", "8999"),
        ("--tls-port", "0"),
        ("--tls-cert", "server.pem"),
        ("--tls-client-ca", "ca.pem"),
    ],
)
def test_what_cannot_be_meant_is_refused(start: Start, options: tuple[str, ...]) -> None:
    server = start(*options)
    assert server.wait() == 2
    assert "usage:" in server.output


def test_a_second_port_has_tls_and_users_log_in_with_sasl(tmp_path: Path, start: Start) -> None:
    ca = authority(tmp_path, "ca")
    ours, users = ca.issue("server"), tmp_path / "users"
    users.write_text("bob:secret\n")
    options = ("--port", "0", "--tls-port", "0", "--tls-cert", str(ours.certificate), "--tls-key", str(ours.key))
    server = start(*options, "--sasl-users", str(users))
    found = re.search(r", with TLS on 127\.0\.0\.1:(\d+)$", server.wait_for_output("listening"))
    assert found, server.output
    context = ssl.create_default_context(cafile=str(ca.certificate))
    address = ("127.0.0.1", int(found[1]))
    with (
        socket.create_connection(address, timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as client,
        client.makefile("rb") as stream,
    ):
        client.sendall(connect_frame())
        stream.read(41)
        client.sendall(frame(1, OpCode.SASL, pack(">i", 0)))
        assert b'realm="zk-sasl-md5"' in stream.read(int.from_bytes(stream.read(4), "big"))
    assert server.terminate() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--tls-port", "0", "--tls-cert", "/nowhere.pem"), "/nowhere.pem cannot be read: No such file or directory"),
        (("--sasl-users", "/nowhere"), "/nowhere cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_used_is_said_in_one_line(start: Start, options: tuple[str, ...], said: str) -> None:
    server = start("--port", "0", *options)
    assert (server.wait(), server.output) == (1, f"error: {said}\n")


def test_what_was_acknowledged_survives_kill_9(start: Start, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    acknowledged: set[str] = set()
    for generation in range(3):
        server = start("--port", "0", "--data-dir", data)
        with socket.create_connection(("127.0.0.1", port_of(server)), timeout=90) as client:
            client.sendall(connect_frame())
            stream = client.makefile("rb")
            stream.read(41)
            assert acknowledged <= _children(client, stream)
            paths = [f"/g{generation}-{number}" for number in range(4000)]
            client.sendall(b"".join(frame(xid, OpCode.CREATE, create_body(path)) for xid, path in enumerate(paths)))
            for path in paths[: 700 * (generation + 1)]:
                size = int.from_bytes(stream.read(4), "big")
                assert stream.read(size)[12:16] == bytes(4)
                acknowledged.add(path[1:])
            server.kill()  # in the middle of the rest
            stream.close()
    last = start("--port", "0", "--data-dir", data)
    with socket.create_connection(("127.0.0.1", port_of(last)), timeout=90) as client, client.makefile("rb") as stream:
        client.sendall(connect_frame())
        stream.read(41)
        assert acknowledged <= _children(client, stream)
    assert last.terminate() == 0


def _children(client: socket.socket, stream: IO[bytes]) -> set[str]:
    client.sendall(frame(1, OpCode.GET_CHILDREN, pack(">i", 1) + b"/\0"))
    body = stream.read(int.from_bytes(stream.read(4), "big"))[16:]
    names, position = set(), 4
    for _ in range(int.from_bytes(body[:4], "big")):
        size = int.from_bytes(body[position : position + 4], "big")
        names.add(body[position + 4 : position + 4 + size].decode())
        position += 4 + size
    return names
