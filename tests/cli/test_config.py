"""Settings files on the command line: `config check`, and `run --config`."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from aioelasticjob.app import ElasticJob
from tests.cli.conftest import Command, Write
from tests.support.processes import ROOT, Workers

GOOD = """\
registry: embedded:///shop
jobs:
  backup: {kind: script, command: echo done, cron: "* * * * * ?"}
  ping: {kind: http, url: "http://127.0.0.1:1/"}
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = Path("jobs.yaml")
    file.write_text(GOOD)
    return file


def test_a_file_that_is_right_is_shown_as_what_it_means(command: Command, jobs: Path) -> None:
    result = command("config", "check", "jobs.yaml")
    first, _, backup, ping = result.stdout.splitlines()
    assert (result.exit_code, result.stderr) == (0, "")
    assert first == "jobs.yaml is right; registry: embedded:///shop"
    assert backup.split()[:8] == ["backup", "script", "*", "*", "*", "*", "*", "?"]
    assert datetime.fromisoformat(backup.split()[8]).tzinfo is not None
    assert ping.split() == ["ping", "http", "when", "triggered"]


def test_a_file_has_each_kind_of_schedule_also_with_times_as_yaml_and_toml_write_them(
    command: Command, jobs: Path
) -> None:
    job = "kind: script, command: echo done, "
    jobs.write_text(
        "jobs:\n"
        f"  a: {{{job}every: 45s, jitter: 5s, start_at: 2190-01-01}}\n"
        f"  b: {{{job}at: [2190-01-01T18:00, 2190-02-01], time_zone: Asia/Tokyo}}\n"
        f'  c: {{{job}cron: ["0 9 * * *", "0 12 * * 6"], start_at: "2190-01-01"}}\n'
        f'  d: {{{job}cron: "@daily", calendar: [weekend, de-holidays], calendar_mode: next}}\n'
    )
    shown = command("config", "check", "jobs.yaml").stdout.splitlines()[2:]
    assert [" ".join(line.split()) for line in shown] == [
        "a script every 45s 2190-01-01T00:00:00+00:00",
        "b script at 2190-01-01T18:00, 2190-02-01 2190-01-01T18:00:00+09:00",
        "c script 0 9 * * *; 0 12 * * 6 2190-01-01T09:00:00+00:00",
        "d script @daily by weekend, de-holidays in the registry",
    ]
    Path("jobs.toml").write_text('[jobs.a]\nkind = "script"\ncommand = "echo"\nat = [2190-01-01T18:00:00]\n')
    assert "2190-01-01T18:00:00+00:00" in command("config", "check", "jobs.toml").stdout
    jobs.write_text(f'jobs:\n  a: {{{job}every: 45s, cron: "@daily"}}\n  b: {{{job}at: soon}}\n')
    first, second = command("config", "check", "jobs.yaml").stdout.splitlines()
    assert first.startswith("jobs.yaml:2: jobs.a.every = 45.0: there is cron as well")
    assert second.startswith("jobs.yaml:3: jobs.b.at = 'soon': must be a time such as")


def test_a_file_says_that_items_do_not_wait_for_each_other(command: Command, jobs: Path) -> None:
    job = "kind: script, command: echo done, sharding_total_count: 4, independent_items: true"
    jobs.write_text(f"jobs:\n  a: {{{job}}}\n")
    assert command("config", "check", "jobs.yaml").exit_code == 0
    jobs.write_text(f"jobs:\n  a: {{{job}, per: instance}}\n")
    refused = command("config", "check", "jobs.yaml")
    assert refused.exit_code != 0
    assert 'jobs.a.independent_items = True: is for per = "item"' in refused.stdout


def test_a_job_that_needs_code_is_said_to_be_unchecked(command: Command, jobs: Path) -> None:
    jobs.write_text(GOOD + "  report: {sharding_total_count: 6}\n")
    result = command("config", "check", "jobs.yaml")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == (
        "not checked: whether code declares report, which the file gives no kind, and whether the settings of both go"
        " together. Check that with --app MODULE:APP. Without code, `run` refuses the file."
    )
    Path("report_code.py").write_text(
        "from aioelasticjob import ElasticJob\n"
        "app = ElasticJob('embedded://')\n"
        "app.add(lambda context: None, name='report', cron='* * * * * ?')\n"
    )
    with_code = command("config", "check", "jobs.yaml", "--app", "report_code:app")
    assert with_code.exit_code == 0
    assert "not checked" not in with_code.stdout


def test_with_code_all_jobs_are_shown_as_they_will_run(command: Command, jobs: Path) -> None:
    jobs.write_text(GOOD.replace("registry: embedded:///shop\n", "") + "  report: {cron: '0 0 2 * * ? 2099'}\n")
    Path("report_jobs.py").write_text(
        "from aioelasticjob import ElasticJob\n"
        "app = ElasticJob('embedded:///mine')\n"
        "app.add(lambda context: None, name='report', cron='@daily')\n"
        "app.add(lambda context: None, name='over', cron='0 0 2 * * ? 2001')\n"
        "app.add(lambda context: None, name='by-hand')\n"
    )
    lines = command("config", "check", "jobs.yaml", "--app", "report_jobs:app").stdout.splitlines()
    assert lines[0] == "jobs.yaml is right; registry: embedded:///mine"
    shown = {line.split()[0]: " ".join(line.split()[1:]) for line in lines[1:]}
    assert shown["Job"] == "Kind From Schedule Next fire"
    assert shown["report"] == "simple code 0 0 2 * * ? 2099 2099-01-01T02:00:00+00:00"
    assert shown["over"] == "simple code 0 0 2 * * ? 2001 no further moment"
    assert shown["by-hand"] == "simple code when triggered"
    assert shown["backup"].startswith("script file * * * * * ?")
    assert shown["ping"] == "http file when triggered"


def test_every_mistake_is_a_line_and_the_exit_code_tells(command: Command, jobs: Path) -> None:
    jobs.write_text(GOOD.replace("registry", "registy").replace("command", "comand") + "  [odd\x1b]: {crn: '[red]'}\n")
    result = command("config", "check", "jobs.yaml")
    assert result.exit_code == 1
    assert result.stderr == "error: 1 mistake in jobs.yaml\n", "a control character is no YAML"
    assert result.stdout.startswith("jobs.yaml: is no YAML: unacceptable character")
    jobs.write_text(GOOD.replace("registry", "registy").replace("command", "comand") + "  other: {crn: '[red]'}\n")
    result = command("config", "check", "jobs.yaml")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "jobs.yaml:1: registy = 'embedded:///shop': there is no such setting; did you mean registry?",
        "jobs.yaml:3: jobs.backup.comand = 'echo done': there is no such setting; did you mean command?",
        "jobs.yaml:3: jobs.backup.command: is missing",
        "jobs.yaml:5: jobs.other.crn = '[red]': there is no such setting; did you mean cron?",
    ]
    assert result.stderr == "error: 4 mistakes in jobs.yaml\n"


def test_an_exception_that_a_retry_names_and_that_does_not_exist_is_a_mistake(command: Command, jobs: Path) -> None:
    jobs.write_text(GOOD.replace("echo done,", 'echo done, retry: {on: ["no_such_module:Busy"]},'))
    result = command("config", "check", "jobs.yaml")
    assert (result.exit_code, result.stderr) == (1, "error: 1 mistake in jobs.yaml\n")
    where = "jobs.yaml:3: jobs.backup.retry.on = 'no_such_module:Busy'"
    assert result.stdout == f"{where}: there is no module 'no_such_module'\n"
    assert command("config", "check", "--json", "jobs.yaml").exit_code == 1
    assert command("config", "check", "--elsewhere", "jobs.yaml").exit_code == 0


def test_programs_read_the_mistakes_as_json(command: Command, jobs: Path) -> None:
    jobs.write_text("jobs: {a: {crn: [1]}}")
    result = command("config", "check", "jobs.yaml", "--json")
    assert result.exit_code == 1
    (mistake,) = json.loads(result.stdout)
    assert (mistake["source"], mistake["line"], mistake["setting"]) == ("jobs.yaml", 1, "jobs.a.crn")
    jobs.write_text("")
    assert json.loads(command("config", "check", "jobs.yaml", "--json").stdout) == []


def test_scripts_of_other_hosts_are_not_looked_for(command: Command, jobs: Path) -> None:
    jobs.write_text(GOOD.replace("echo", "no-such-program"))
    assert command("config", "check", "jobs.yaml").exit_code == 1
    assert command("config", "check", "jobs.yaml", "--elsewhere").exit_code == 0


def test_a_file_is_checked_together_with_its_code(command: Command, write: Write) -> None:
    write("shop", "from aioelasticjob import ElasticJob\napp = ElasticJob('zk://x')\napp.add(print, name='report')\n")
    Path("jobs.yaml").write_text("jobs:\n  report: {cron: '@daily'}\n  reprot: {cron: '@daily'}\n")
    alone = command("config", "check", "jobs.yaml")
    assert alone.exit_code == 0
    assert alone.stdout.splitlines()[-2].split() == ["reprot", "in", "code"]
    both = command("config", "check", "jobs.yaml", "--app", "shop:app")
    assert both.exit_code == 1
    assert both.stdout == "jobs.yaml:3: jobs.reprot.cron: no job of this name is declared; did you mean report?\n"
    Path("jobs.yaml").write_text("jobs:\n  report: {sharding_item_parameters: {3: x}}\n")
    both = command("config", "check", "jobs.yaml", "--app", "shop:app")
    assert both.stdout.startswith(
        "jobs.yaml:2: jobs.report.sharding_item_parameters = {3: 'x'}: item 3 is out of range"
    )


@pytest.mark.usefixtures("root_log")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "write module:app, as jobs:app, or --config FILE, or both"),
        (("--config", "gone.yaml"), "gone.yaml: cannot be read: No such file or directory"),
        (("--config", "empty.yaml"), "write registry: zk://host:port/namespace, or set its variable"),
        (("--config", "none.yaml"), "the file declares no job: below jobs, give each a kind"),
        (("--config", "code.yaml"), "code.yaml:3: jobs.a.cron: no job of this name is declared; give it a kind"),
        (("--config", "wrong.yaml"), "registy = 1: there is no such setting; did you mean registry? (and 1 more: "),
    ],
)
def test_what_cannot_be_run_is_one_line(arguments: tuple[str, ...], says: str, command: Command, jobs: Path) -> None:
    for name, text in {
        "empty": "",
        "none": "registry: embedded://",
        "code": "registry: embedded://\njobs: \n  a: {cron: '@daily'}\n  b: {kind: script, command: 'true'}\n",
        "wrong": "registy: 1\njobs: 2",
    }.items():
        Path(f"{name}.yaml").write_text(text)
    result = command("run", *arguments)
    assert result.exit_code == 2
    assert says in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("root_log")
def test_code_and_file_make_one_application(command: Command, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[ElasticJob] = []
    monkeypatch.setattr(ElasticJob, "run", lambda app: ran.append(app))
    write("shop", "from aioelasticjob import ElasticJob\napp = ElasticJob('zk://x')\napp.add(print, name='report')\n")
    Path("jobs.yaml").write_text(GOOD + "  report: {cron: '@daily'}\n")
    assert command("run", "shop:app", "--config", "jobs.yaml").exit_code == 0
    (app,) = ran
    assert (app.address, [job.job_name for job in app.jobs]) == ("embedded:///shop", ["report", "backup", "ping"])
    assert app.jobs[0].cron == "@daily"


@pytest.mark.process
def test_the_jobs_of_a_file_run_without_any_python(tmp_path: Path, worker_processes: Workers) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(GOOD)
    worker = worker_processes.start(
        "-m", "aioelasticjob", "run", "--config", str(file), environment={"PYTHONPATH": str(ROOT)}
    )
    line = worker.wait_for_output("INFO    done {")
    assert "job=backup item=0" in line
    assert worker.terminate() == 0
    assert "Traceback" not in worker.output
