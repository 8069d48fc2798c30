"""One port for the metrics of several processes: who answers, what is answered, and who has the port afterwards."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import anyio
import pytest
from anyio.abc import TaskStatus
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.observers import answers, endpoint
from aioelasticjob.observers.endpoint import MAX_SILENT, PROBES, serving
from aioelasticjob.observers.exposition import together
from aioelasticjob.observers.siblings import Siblings
from tests.support.embedded import EmbeddedServer
from tests.support.ports import reserved_ports
from tests.support.processes import ROOT, TIMEOUT, Workers

T = TypeVar("T")
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
WEB = """
from fastapi import FastAPI

from aioelasticjob import ElasticJob
from aioelasticjob.integrations.fastapi import elastic_job

jobs = ElasticJob({address!r}, metrics={port})

@jobs.job(cron="* * * * * ?", sharding_total_count=4)
async def report(context):
    context.log.info("did it")

app = FastAPI(lifespan=elastic_job(jobs))
"""


async def ask(port: int, path: str, accept: str = "") -> tuple[int, str]:
    """Return status and body of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nAccept: {accept}\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def until(look: Callable[[], T | None]) -> T:
    with anyio.fail_after(TIMEOUT):
        while (found := look()) is None:
            await anyio.sleep(0.05)
        return found


class Fixed:
    """An application whose health is given."""

    def __init__(self, status: str = "up", *, ready: bool = True) -> None:
        self.status, self.ready = status, ready

    @property
    def health(self) -> Fixed:
        return self

    def status_code(self, asked: str) -> int:
        return 200 if asked == "live" or self.ready else 503

    def as_json(self) -> dict[str, object]:
        return {"status": self.status, "alive": True, "ready": self.ready}


async def render(accept: str) -> tuple[bytes, str]:
    return b"# HELP a_metric A.\n# TYPE a_metric gauge\na_metric 1\n", "text/plain"


def test_the_metrics_of_processes_become_one_text_in_which_each_metric_is_once() -> None:
    texts = {
        0: b'# HELP a A.\n# TYPE a counter\na_total{job="x"} 1.0 # {id="{7}"} 1.0\n# HELP b B.\n# TYPE b gauge\n'
        b"b 2\n# EOF\n",
        3: '# HELP a A.\n# TYPE a counter\na_total{job="y\u2028"} 4.0\n# HELP c C.\n# TYPE c gauge\n'.encode()
        + b"c{} 5\n# EOF\n",
    }
    assert together(texts).decode() == (
        '# HELP a A.\n# TYPE a counter\na_total{process="0",job="x"} 1.0 # {id="{7}"} 1.0\n'
        'a_total{process="3",job="y\u2028"} 4.0\n'
        '# HELP b B.\n# TYPE b gauge\nb{process="0"} 2\n'
        '# HELP c C.\n# TYPE c gauge\nc{process="3"} 5\n# EOF\n'
    )


@pytest.mark.parametrize(("accept", "parse"), [("", plain), (OPENMETRICS, openmetrics)])
def test_applications_with_the_same_port_are_answered_for_together(accept: str, parse: Any) -> None:
    async def main() -> str:
        with reserved_ports(1) as (port,):
            first, second = (ElasticJob("embedded://", metrics=port) for _ in range(2))
            for app in (first, second):
                app.add(_nothing, name="job", cron="@daily")
            async with first.running(), second.running():
                return (await ask(port, "/metrics", accept))[1]

    families = {family.name: family for family in parse(asyncio.run(main()))}
    samples = families["aioelasticjob_running"].samples
    assert [(sample.labels, sample.value) for sample in samples] == [({"process": "0"}, 1), ({"process": "1"}, 1)]


async def _nothing(context: ItemContext) -> None: ...


@pytest.mark.parametrize(
    ("second", "codes", "summary"),
    [
        (Fixed(), [200, 200, 200], ("up", True, True)),
        (Fixed("suspended", ready=False), [503, 200, 503], ("suspended", True, False)),
    ],
)
def test_a_probe_is_answered_for_all_processes_and_the_worst_of_them_decides(
    second: Fixed, codes: list[int], summary: tuple[object, ...]
) -> None:
    async def main() -> None:
        with reserved_ports(1) as (port,):
            async with serving(render, "127.0.0.1", port, Fixed()), serving(render, "127.0.0.1", port, second):
                found = [await ask(port, path) for path in PROBES]
        assert [status for status, _ in found] == codes
        health = json.loads(found[0][1])
        assert (health["status"], health["alive"], health["ready"]) == summary
        assert health["processes"] == {"0": Fixed().as_json(), "1": second.as_json()}

    asyncio.run(main())


def test_a_process_that_does_not_answer_is_not_alive_and_its_metrics_are_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(answers, "PROBE_TIMEOUT", 0.01)
    monkeypatch.setattr(answers, "METRICS_TIMEOUT", 0.01)

    async def main() -> None:
        with reserved_ports(1) as (port,):
            async with serving(render, "127.0.0.1", port, Fixed()):
                stuck = Siblings("127.0.0.1", port).listen()
                assert stuck is not None
                with stuck:
                    status, health = await ask(port, "/health/live")
                    assert (status, json.loads(health)["processes"]) == (503, {"0": Fixed().as_json(), "1": None})
                    assert 'a_metric{process="0"} 1' in (await ask(port, "/metrics"))[1]
                assert (await ask(port, "/health/live"))[0] == 200

    asyncio.run(main())
    assert "process 1 has not answered with its metrics, so they are left out" in caplog.messages


def test_what_another_user_says_under_our_names_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioelasticjob.observers.siblings._user_of", lambda connection: os.getuid() + 1)
    first, second = Siblings("127.0.0.1", 1), Siblings("127.0.0.1", 1)
    with first.listen() as one, second.listen() as another:  # type: ignore[union-attr]
        assert (one.fileno() >= 0, another.fileno() >= 0, first.own, second.own) == (True, True, 0, 1)
        assert not first.are_there


def test_a_busy_port_ends_nothing_and_is_had_once_it_is_free(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(endpoint, "RETRY_PAUSE", 0.01)
    caplog.set_level(logging.INFO, "aioelasticjob.observers.endpoint")

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            app = ElasticJob("embedded://", metrics=port)
            app.add(_nothing, name="job", cron="@daily")
            running = app.running()
            await running.__aenter__()
            assert "another process has" in caplog.text
        await until(lambda: True if "metrics are at" in caplog.text else None)
        assert (await ask(port, "/health/ready"))[0] == 200
        await running.__aexit__(None, None, None)

    asyncio.run(main())
    (warning,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert f"127.0.0.1:{port_in(warning)}" in warning.getMessage()


def port_in(record: logging.LogRecord) -> int:
    return int(record.__dict__["port"])


def test_another_process_takes_the_port_when_its_holder_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "RETRY_PAUSE", 0.01)

    leave, has_left = anyio.Event(), anyio.Event()

    async def hold(port: int, *, task_status: TaskStatus[None]) -> None:
        async with serving(render, "127.0.0.1", port, Fixed()):
            task_status.started()
            await leave.wait()
        has_left.set()

    async def main() -> None:
        with reserved_ports(1) as (port,):
            async with anyio.create_task_group() as tasks:
                await tasks.start(hold, port)
                async with serving(render, "127.0.0.1", port, Fixed("suspended")):
                    assert set(json.loads((await ask(port, "/health"))[1])["processes"]) == {"0", "1"}
                    leave.set()
                    await has_left.wait()
                    with anyio.fail_after(TIMEOUT):
                        while "processes" in (text := await _answer_if_any(port)) or not text:
                            await anyio.sleep(0.01)
                    assert json.loads(text)["status"] == "suspended"

    asyncio.run(main())


async def _answer_if_any(port: int) -> str:
    try:
        return (await ask(port, "/health"))[1]
    except (OSError, IndexError):
        return ""


def test_probes_are_answered_while_more_clients_are_silent_than_are_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "REQUEST_TIMEOUT", 3600.0)  # silent clients stay as long as they may

    async def main() -> None:
        async with serving(render, "127.0.0.1", 0, Fixed()) as port:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(400)]
            with anyio.fail_after(TIMEOUT):
                assert (await ask(port, "/health/ready"))[0] == 200
                assert (await ask(port, "/metrics"))[0] == 200
                gone = [reader for reader, _ in silent[: 400 - MAX_SILENT]]
                assert [await reader.read() for reader in gone] == [b""] * len(gone)
            assert not any(reader.at_eof() for reader, _ in silent[410 - MAX_SILENT :])
            for _, writer in silent:
                writer.close()

    asyncio.run(main())


def test_probes_do_not_wait_for_clients_that_do_not_read_their_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "REQUEST_TIMEOUT", 3600.0)

    async def long(accept: str) -> tuple[bytes, str]:
        return b"a_metric 1\n" * 5_000_000, "text/plain"

    async def main() -> None:
        monkeypatch.setattr(answers, "together", lambda texts: next(iter(texts.values())))
        async with serving(long, "127.0.0.1", 0, Fixed()) as port:
            slow = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(endpoint.MAX_REQUESTS_AT_ONCE)]
            for stream in slow:
                await stream.send(b"GET /metrics HTTP/1.1\r\n\r\n")
            await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(TIMEOUT):
                assert (await ask(port, "/health/ready"))[0] == 200
            for stream in slow:
                await stream.aclose()

    asyncio.run(main())


def read(port: int, path: str) -> tuple[int, str] | None:
    """Return what the port answers; None if nothing listens there."""
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}{path}"), timeout=TIMEOUT) as found:
            return found.status, found.read().decode()
    except HTTPError as error:
        with error:  # since Python 3.14 one that is left open is warned of
            return error.code, error.read().decode()
    except OSError:
        return None


def health_of(port: int, processes: int) -> dict[str, Any] | None:
    """Return the health of the processes behind a port by their number, once there are so many and all are ready."""
    found = read(port, "/health/ready")
    if found is None or found[0] != 200:
        return None
    health = json.loads(found[1]).get("processes", {})
    return health if len(health) == processes else None


def wait(look: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + TIMEOUT
    while (found := look()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@pytest.mark.process
def test_two_workers_of_uvicorn_are_measured_at_one_port_also_after_the_death_of_the_one_that_has_it(
    tmp_path: Path, worker_processes: Workers, embedded: EmbeddedServer
) -> None:
    with reserved_ports(2) as (web, port):
        (tmp_path / "web.py").write_text(WEB.format(address=f"zk://{embedded.address}/shop", port=port))
        command = ("-m", "uvicorn", "web:app", "--workers", "2", "--port", str(web))
        server = worker_processes.start(*command, environment={"PYTHONPATH": f"{tmp_path}:{ROOT}"})

        def shared() -> dict[str, Any] | None:
            found = health_of(port, 2)
            held = sorted(item for one in (found or {}).values() for item in one["jobs"][0]["holds"])
            return found if held == [0, 1, 2, 3] else None

        health = wait(shared)
        _, text = wait(lambda: read(port, "/metrics"))
        held = next(family for family in plain(text) if family.name == "aioelasticjob_items_held")
        assert {sample.labels["process"] for sample in held.samples} == {"0", "1"}
        os.kill(health["0"]["pid"], signal.SIGKILL)  # uvicorn starts another worker in its place

        def replaced() -> dict[str, Any] | None:
            found = health_of(port, 2)
            return found if found and found["0"]["pid"] != health["0"]["pid"] else None

        later = wait(replaced)
        assert {one["pid"] for one in later.values()} > {health["1"]["pid"]}
        assert server.exit_code is None
        server.terminate()
