"""Signals that stop a process: process 1 of a container heeds them from its first moment, and SIGHUP is one of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from aioelasticjob.host.signals import end_process_1_on_signals
from tests.support.embedded import EmbeddedServer
from tests.support.pid_namespaces import process_1_of, start_as_process_1
from tests.support.processes import ROOT, ChildProcess, Workers

JOBS = """
from aioelasticjob import ElasticJob

app = ElasticJob("embedded://")

@app.job(cron="* * * * * ?")
async def report(context):
    context.log.info("did it")
"""
WITHOUT_END = """
import threading
print("importing", flush=True)
threading.Event().wait()
"""
COMMANDS = {"run": "did it", "alert": "following 0 jobs", "console": "The console is at", "zookeeper": "listening on"}
"""The long-running commands, and what each writes when it has begun its work."""


def jobs(directory: Path, source: str) -> dict[str, str]:
    """Write a module of jobs; return the environment in which it can be imported."""
    (directory / "user_jobs.py").write_text(source)
    return {"PYTHONPATH": f"{directory}:{ROOT}"}


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("command", [("run",), ("config", "check", "{directory}/jobs.yaml", "--app")])
def test_a_signal_ends_process_1_while_the_module_of_jobs_is_imported(
    tmp_path: Path, worker_processes: Workers, number: int, command: Sequence[str]
) -> None:
    environment = jobs(tmp_path, WITHOUT_END)
    (tmp_path / "jobs.yaml").write_text("")
    words = [word.format(directory=tmp_path) for word in (*command, "user_jobs:app")]
    child = start_as_process_1(worker_processes, "-m", "aioelasticjob", *words, environment=environment)
    child.wait_for_output("importing")
    os.kill(process_1_of(child), number)
    assert child.wait() == 128 + number
    assert "did it" not in child.output


@pytest.mark.process
def test_process_1_that_runs_jobs_leaves_gracefully(tmp_path: Path, worker_processes: Workers) -> None:
    command = ("-m", "aioelasticjob", "run", "user_jobs:app")
    child = start_as_process_1(worker_processes, *command, environment=jobs(tmp_path, JOBS))
    child.wait_for_output("did it")
    os.kill(process_1_of(child), signal.SIGTERM)
    assert child.wait() == 0
    assert "the job has left" in child.output


def test_other_processes_than_process_1_keep_their_handlers_of_signals() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    end_process_1_on_signals()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


@pytest.mark.process
@pytest.mark.parametrize("command", COMMANDS)
def test_sighup_ends_a_long_running_command_as_sigterm_does(
    tmp_path: Path, worker_processes: Workers, command: str, embedded: EmbeddedServer
) -> None:
    child = begun(worker_processes, tmp_path, command, embedded)
    os.kill(child.pid, signal.SIGHUP)
    assert child.wait() == 0, child.output


@pytest.mark.process
@pytest.mark.parametrize("command", COMMANDS)
def test_below_nohup_a_long_running_command_ignores_sighup(
    tmp_path: Path, worker_processes: Workers, command: str, embedded: EmbeddedServer
) -> None:
    child = begun(worker_processes, tmp_path, command, embedded, below=("nohup",))
    status = dict(line.split(":", 1) for line in Path(f"/proc/{child.pid}/status").read_text().splitlines())
    assert int(status["SigIgn"], 16) >> (signal.SIGHUP - 1) & 1
    assert child.terminate() == 0


def begun(
    workers: Workers, directory: Path, command: str, server: EmbeddedServer, below: Sequence[str] = ()
) -> ChildProcess:
    """Return a process of a long-running command that has begun its work."""
    options = {"run": ["user_jobs:app"], "alert": [], "console": ["--port", "0"], "zookeeper": ["--port", "0"]}
    if command == "console":
        options[command] += ["--data-dir", str(directory / "console")]
    environment = {**jobs(directory, JOBS), "AIOELASTICJOB_REGISTRY": f"zk://{server.address}/shop"}
    words = ["-m", "aioelasticjob", command, *options[command]]
    child = workers.start(*words, environment=environment, below=below)
    child.wait_for_output(COMMANDS[command])
    return child
