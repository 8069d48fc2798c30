"""`aioelasticjob run` as a new user meets it: it runs, it stops, and what is wrong is one line."""

import asyncio
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from aioelasticjob import ElasticJob
from aioelasticjob.core.layout import Layout
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.registry.session import ConnectionSettings, open_session
from aioelasticjob.registry.transaction import Create
from tests.cli.conftest import Command, Write
from tests.support.embedded import EmbeddedServer
from tests.support.processes import ROOT, Workers

JOBS = """
from aioelasticjob import ElasticJob

app = ElasticJob({address!r}, connection_timeout=2, **{options!r})

@app.job(cron="* * * * * ?", sharding_total_count=2)
async def report(context):
    context.log.info("did it", extra={{"rows": 3}})
"""


def jobs(address: str, **options: object) -> str:
    return JOBS.format(address=address, options=options)


def message(command: Command) -> tuple[int, str]:
    """Return exit code and last line of ``run``, before which there may be log lines but no traceback."""
    result = command("run", "user_jobs:app")
    assert "Traceback" not in result.stderr
    return result.exit_code, result.stderr.rstrip().splitlines()[-1]


@pytest.mark.usefixtures("root_log")
def test_a_registry_that_is_down(command: Command, write: Write) -> None:
    write("user_jobs", jobs("zk://127.0.0.1:1/shop"))
    code, said = message(command)
    assert code == 1
    assert said.startswith("error: no registry at 127.0.0.1:1 within 2 s")
    assert said.endswith("check the address, or start one (docs: errors/RegistryUnreachable)")


@pytest.mark.usefixtures("root_log")
def test_an_address_for_metrics_that_this_host_does_not_have(command: Command, write: Write) -> None:
    write("user_jobs", jobs("embedded://"))
    result = command("run", "user_jobs:app", "--metrics", "192.0.2.1:9464")
    assert result.exit_code == 2
    errors = [line for line in result.stderr.splitlines() if " INFO " not in line]
    assert errors == ["error: metrics = '192.0.2.1:9464': cannot listen there: Cannot assign requested address"]


def test_the_usage_of_the_server_is_that_of_the_command_that_was_typed(command: Command) -> None:
    result = command("zookeeper", "--tls-port", "0")
    assert result.exit_code == 2
    assert result.stderr.startswith("usage: aioelasticjob zookeeper [")
    assert "aioelasticjob zookeeper: error: give --tls-port and --tls-cert together" in result.stderr


@pytest.mark.usefixtures("root_log")
def test_a_wrong_password(command: Command, write: Write, embedded: EmbeddedServer) -> None:
    address = f"zk://{embedded.address}/shop"
    asyncio.run(make(address, digest="alice:right"))
    write("user_jobs", jobs(address, digest="alice:wrong"))
    code, said = message(command)
    assert code == 1
    refused = "the digest does not open /shop: check user and password"
    assert said == f"error: {refused} (docs: errors/AuthenticationFailed)"


@pytest.mark.usefixtures("root_log")
def test_a_name_used_by_another_kind_of_job(command: Command, write: Write, embedded: EmbeddedServer) -> None:
    address = f"zk://{embedded.address}/shop"
    script = b'{"jobName": "report", "jobType": "SCRIPT", "cron": "0 0 2 * * ?", "options": {"command": "true"}}'
    asyncio.run(make(address, config=script))
    write("user_jobs", jobs(address))
    code, said = message(command)
    assert code == 2
    assert said.endswith(
        "'report': is already a SCRIPT job in this namespace: choose another name (docs: errors/JobConflict)"
    )


@pytest.mark.usefixtures("root_log")
@pytest.mark.process
def test_a_job_in_whose_place_is_data_of_another_program_waits_and_the_process_says_so(
    tmp_path: Path, worker_processes: Workers, embedded: EmbeddedServer
) -> None:
    address = f"zk://{embedded.address}/shop"
    asyncio.run(make(address, config=b"timeout=3"))
    (tmp_path / "user_jobs.py").write_text(jobs(address))
    paths = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    worker = worker_processes.start("-m", "aioelasticjob", "run", "user_jobs:app", environment=paths)
    assert (
        "report: the job cannot run in this process at present: /report/config = b'timeout=3': no job configuration"
        in worker.wait_for_output("at present")
    )
    worker.wait_for_output("running")
    assert worker.terminate() == 0


@pytest.mark.process
def test_a_job_that_ends_the_process_is_named_and_the_way_through_the_command_is_not(
    tmp_path: Path, worker_processes: Workers
) -> None:
    failing = jobs("embedded://").replace("sharding_total_count=2", 'error_handler="raise"')
    (tmp_path / "user_jobs.py").write_text(failing + '    raise ValueError("on fire")\n')
    paths = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    worker = worker_processes.start("-m", "aioelasticjob", "run", "user_jobs:app", environment=paths)
    assert worker.wait() == 1
    errors = [line for line in worker.output.splitlines() if " ERROR " in line]
    (line,) = (line for line in errors if "the event loop has been blocked" not in line)  # on a busy machine
    assert re.search(
        r"report: item 0 failed on .*: ValueError: on fire; the application ends \(error handler raise\)", line
    )
    assert worker.output.count("Traceback") == 1
    assert "typer" not in worker.output


@pytest.mark.parametrize("options", [(), ("--progress",)])
def test_an_error_that_the_log_does_not_have_keeps_its_traceback(
    command: Command, write: Write, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    write("user_jobs", jobs("embedded://"))

    def run(app: ElasticJob) -> None:
        app._here.ended_by = ended_by
        raise error

    monkeypatch.setattr(ElasticJob, "run", run)
    error = ended_by = ValueError("on fire")
    known = command("run", "user_jobs:app", *options)
    assert (known.exit_code, type(known.exception)) == (1, SystemExit)
    error = ValueError("a defect")
    assert command("run", "user_jobs:app", *options).exception is error


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[ElasticJob]:
    """The applications that the command has run; their jobs have not begun."""
    applications: list[ElasticJob] = []
    monkeypatch.setattr(ElasticJob, "run", lambda app: applications.append(app))
    return applications


IN_CODE = "zk://127.0.0.1:1/in-code"


@pytest.mark.usefixtures("root_log")
def test_the_variable_and_the_option_for_the_registry_override_the_code_and_the_log_says_so(
    command: Command, write: Write, monkeypatch: pytest.MonkeyPatch, ran: list[ElasticJob]
) -> None:
    for name in ("plain_jobs", "user_jobs", "other_jobs"):  # each run imports a module of its own
        write(name, jobs(IN_CODE))
    assert " INFO " not in command("run", "plain_jobs:app").stderr
    monkeypatch.setenv("AIOELASTICJOB_REGISTRY", "zk://127.0.0.1:1/variable")
    by_variable = command("run", "user_jobs:app").stderr
    by_option = command("run", "other_jobs:app", "--registry", "zk://127.0.0.1:1/option").stderr
    assert [app.address.rpartition("/")[2] for app in ran] == ["in-code", "variable", "option"]
    in_code = f"and not {IN_CODE}, which is in the code of user_jobs:app"
    assert f"the registry is zk://127.0.0.1:1/variable, by AIOELASTICJOB_REGISTRY, {in_code}" in by_variable
    assert "the registry is zk://127.0.0.1:1/option, by --registry, and not " in by_option


@pytest.mark.usefixtures("root_log")
def test_the_option_for_the_registry_overrides_variable_and_file(
    command: Command, write: Write, monkeypatch: pytest.MonkeyPatch, ran: list[ElasticJob]
) -> None:
    write("user_jobs", jobs(IN_CODE))
    file = write("settings", "").with_name("jobs.yaml")
    file.write_text("registry: zk://127.0.0.1:1/file\njobs: {clean: {kind: script, command: 'true', cron: '@daily'}}\n")
    by_file = command("run", "user_jobs:app", "--config", str(file)).stderr
    assert f"the registry is zk://127.0.0.1:1/file, by {file}, and not {IN_CODE}" in by_file
    monkeypatch.setenv("AIOELASTICJOB_REGISTRY", "zk://127.0.0.1:1/variable")
    assert command("run", "--config", str(file)).exit_code == 0
    assert command("run", "--config", str(file), "-r", "zk://127.0.0.1:1/option").exit_code == 0
    assert [app.address.rpartition("/")[2] for app in ran] == ["file", "variable", "option"]


@pytest.mark.usefixtures("root_log")
def test_an_application_whose_code_reads_a_file_keeps_it_and_gets_the_registry_of_the_option(
    command: Command, write: Write, ran: list[ElasticJob]
) -> None:
    source = """
    from aioelasticjob import ElasticJob

    app = ElasticJob.from_settings("jobs.yaml")

    @app.job(cron="* * * * * ?")
    async def report(context): ...
    """
    file = write("user_jobs", source).with_name("jobs.yaml")
    file.write_text("registry: zk://127.0.0.1:1/file\njobs: {report: {cron: '@daily'}, missing: {cron: '@daily'}}\n")
    assert command("run", "user_jobs:app", "-r", "zk://127.0.0.1:1/option").exit_code == 0
    (app,) = ran
    assert (app.address, app.jobs[0].cron) == ("zk://127.0.0.1:1/option", "@daily")
    with pytest.raises(InvalidSetting, match="no job of this name is declared"):
        asyncio.run(_enter(app))


async def _enter(app: ElasticJob) -> None:
    async with app.running():
        raise AssertionError


@pytest.mark.usefixtures("root_log")
def test_a_mistyped_variable_is_refused_by_run_and_settings_of_jobs_are_obeyed(
    command: Command, write: Write, monkeypatch: pytest.MonkeyPatch, ran: list[ElasticJob]
) -> None:
    write("other_jobs", jobs(IN_CODE))
    write("user_jobs", jobs(IN_CODE))
    monkeypatch.setenv("AIOELASTICJOB_JOBS__REPORT__CRON", "@daily")
    assert command("run", "other_jobs:app").exit_code == 0
    assert ran[0].jobs[0].cron == "@daily"
    monkeypatch.setenv("AIOELASTICJOB_REGISTRYY", "zk://127.0.0.1:1/variable")
    code, said = message(command)
    assert (code, len(ran)) == (2, 1)
    assert said == "error: AIOELASTICJOB_REGISTRYY: sets nothing; did you mean AIOELASTICJOB_REGISTRY?"


@pytest.mark.usefixtures("root_log")
def test_certificates_of_the_environment_are_those_of_the_encrypted_registry_in_the_code(
    command: Command, write: Write, monkeypatch: pytest.MonkeyPatch, ran: list[ElasticJob]
) -> None:
    write("user_jobs", jobs("zks://127.0.0.1:1/in-code"))
    monkeypatch.setenv("AIOELASTICJOB_TLS__SERVER_NAME", "registry.test")
    result = command("run", "user_jobs:app")
    assert result.exit_code == 0, result.stderr
    assert ran[0].settings.tls is not None
    assert ran[0].settings.tls.server_name == "registry.test"


async def make(address: str, *, digest: str | None = None, config: bytes | None = None) -> None:
    """Leave a namespace behind, made with a digest or with somebody's configuration in it."""
    async with open_session(ConnectionSettings.parse(address, digest=digest)) as session:
        if config is not None:
            nodes = [Create(Layout("report").root), Create(Layout("report").config, config)]
            await session.commit(nodes, incarnation=session.incarnation)


@pytest.mark.process
def test_a_process_runs_its_jobs_and_stops_on_sigterm(tmp_path: Path, worker_processes: Workers) -> None:
    (tmp_path / "user_jobs.py").write_text(jobs("embedded://"))
    paths = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    worker = worker_processes.start("-m", "aioelasticjob", "run", "user_jobs:app", environment=paths)
    line = worker.wait_for_output("did it")
    time, rest = line.split(" ", 1)
    assert datetime.fromisoformat(time).utcoffset() is not None
    assert re.search(r"^INFO    did it  job=report item=\d run_id=\S+ task_id=\S+ rows=3$", rest)
    assert worker.terminate() == 0
    assert "Traceback" not in worker.output


@pytest.mark.process
def test_a_process_whose_registry_went_down_says_so_and_still_stops(tmp_path: Path, worker_processes: Workers) -> None:
    server = worker_processes.start("-m", "aioelasticjob", "zookeeper", "--port", "0")
    address = server.wait_for_output("listening on").split()[-1]
    (tmp_path / "user_jobs.py").write_text(jobs(f"zk://{address}/shop"))
    paths = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    worker = worker_processes.start("-m", "aioelasticjob", "run", "user_jobs:app", environment=paths)
    worker.wait_for_output("did it")
    server.kill()
    worker.wait_for_output("connection to the registry was lost")
    worker.terminate()
    assert "Traceback" not in worker.output


@pytest.mark.process
def test_the_server_is_a_command_with_the_options_of_its_module(worker_processes: Workers, tmp_path: Path) -> None:
    theirs = _help("aioelasticjob.zookeeper")
    assert theirs <= _help("aioelasticjob", "zookeeper")
    server = worker_processes.start(
        "-m", "aioelasticjob", "zookeeper", "--port", "0", "--data-dir", str(tmp_path / "data"), "--tick-time", "100"
    )
    address = server.wait_for_output("listening on").split()[-1]
    second = worker_processes.start("-m", "aioelasticjob", "zookeeper", "--port", address.rpartition(":")[2])
    assert second.wait() == 1
    assert second.output.startswith(
        f"error: cannot listen on {address}: the port is in use by an embedded server (process "
    )
    assert second.output.count("\n") == 1
    assert server.terminate() == 0


@pytest.mark.process
def test_a_data_directory_of_another_program_is_refused(worker_processes: Workers, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "notes.txt").write_text("mine")
    server = worker_processes.start(
        "-m", "aioelasticjob", "zookeeper", "--port", "0", "--data-dir", str(tmp_path / "theirs")
    )
    assert server.wait() == 1
    assert server.output.count("\n") == 1
    assert "another program" in server.output
    assert [path.name for path in (tmp_path / "theirs").iterdir()] == ["notes.txt"]


def _help(*command: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-m", *command, "--help"], capture_output=True, check=True, text=True, cwd=ROOT
    )
    return set(re.findall(r"--[a-z-]+", result.stdout))
