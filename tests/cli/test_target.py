"""Every way to get ``module:app`` wrong has one line that helps, and an exit code."""

import logging
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from aioelasticjob.cli.target import ImportFailed, load
from tests.cli.conftest import Command, Write
from tests.support.processes import ROOT, Workers

GOOD = """
from aioelasticjob import ElasticJob

app = ElasticJob("embedded://")

@app.job(cron="@daily")
async def report(context): ...
"""


def line(command: Command, target: str) -> tuple[int, str]:
    """Return exit code and message of ``run``, which writes nothing else."""
    result = command("run", target)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.exit_code, result.stderr.removeprefix("error: ").rstrip()


def test_an_application_is_found_in_the_current_directory(write: Write) -> None:
    write("good_jobs", GOOD)
    assert [job.job_name for job in load("good_jobs:app").jobs] == ["report"]


def test_an_application_is_found_in_a_package_and_as_an_attribute_of_something(write: Write, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("")
    (tmp_path / "shop" / "jobs.py").write_text(GOOD + "\nclass Settings:\n    inner = app\n")
    assert load("shop.jobs:app") is load("shop.jobs:Settings.inner")


@pytest.mark.usefixtures("write", "root_log")
@pytest.mark.parametrize(
    ("target", "suggestion"),
    [
        ("jobs", "jobs:app"),
        ("jobs:", "jobs:app"),
        (":app", "jobs:app"),
        ("", "jobs:app"),
        ("./shop/jobs.py:app", "shop.jobs:app"),
        ("my jobs:app", "jobs:app"),
        ("jobs:1st", "jobs:app"),
    ],
)
def test_what_is_no_module_and_name_is_answered_with_one_that_is(
    command: Command, target: str, suggestion: str
) -> None:
    code, said = line(command, target)
    assert code == 2
    assert said == f"app = {target!r}: write module:app, as {suggestion}"


@pytest.mark.usefixtures("root_log")
def test_a_module_that_is_not_there(command: Command, write: Write) -> None:
    write("good_jobs", GOOD)
    code, said = line(command, "god_jobs:app")
    assert code == 2
    assert "there is no module 'god_jobs', neither in " in said
    assert line(command, "good_jobs.py:app")[1].endswith("did you mean good_jobs:app?")


@pytest.mark.usefixtures("root_log")
@pytest.mark.parametrize(
    ("source", "name", "said"),
    [
        (GOOD, "ap", "wrong_jobs has no 'ap'; there is wrong_jobs:app"),
        (GOOD, "report", "report is no ElasticJob but of type function; there is wrong_jobs:app"),
        ("app = 1", "app", "app is no ElasticJob but of type int; wrong_jobs declares none: write app = ElasticJob("),
        (
            "from aioelasticjob import ElasticJob\napp = ElasticJob('embedded://')",
            "app",
            "declares no job: decorate a function with @app.job(cron=…)",
        ),
    ],
)
def test_a_name_that_is_no_application_with_jobs(
    command: Command, write: Write, source: str, name: str, said: str
) -> None:
    write("wrong_jobs", source)
    code, message = line(command, f"wrong_jobs:{name}")
    assert code == 2
    assert message.startswith(f"app = 'wrong_jobs:{name}': {said}")


@pytest.mark.usefixtures("root_log")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("cron='@daily', sharding_totl_count=3", "sharding_totl_count = 3: there is no such setting; did you mean"),
        ("cron='0 0 25 * * ?'", "cron = '0 0 25 * * ?': hour '25'"),
        ("cron='0 0 2 ? * MON-FRX'", "did you mean FRI?"),
        ("cron='@daily', time_zone='Europe/Berln'", "did you mean 'Europe/Berlin'?"),
        ("cron='@daily', sharding_total_count=0", "sharding_total_count = 0"),
        ("sharding_item_parameters={3: 'x'}", "item 3 is out of range: sharding_total_count = 1 allows 0 to 0"),
        ("sharding_item_parameters='0:x'", "'0:x' is no pair like 0=Beijing"),
        ("failover=True, monitor_execution=False", "failover = True: needs monitor_execution"),
        ("sharding_strategy='averge'", "averge"),
        ("name='a/b'", "a/b"),
    ],
)
def test_a_wrong_setting_is_named_together_with_its_line(
    command: Command, write: Write, settings: str, said: str
) -> None:
    write("wrong_jobs", GOOD.replace('cron="@daily"', settings))
    code, message = line(command, "wrong_jobs:app")
    assert code == 2
    assert message.startswith("wrong_jobs.py:6: ")
    assert said in message


@pytest.mark.usefixtures("root_log")
@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("app = ElasticJob('http://x')", 2, "wrong_jobs.py:2: address = 'http://x': write zk://"),
        ("app = ElasticJob('zk://h', session_timeout=-1)", 2, "wrong_jobs.py:2: session_timeout = -1: a number"),
        ("app = ElasticJob('zk://h', digest='secret')", 2, "wrong_jobs.py:2: digest = '…': write user:password"),
        ("ElasticJob('zk://h').add('hello', name='x')", 2, "wrong_jobs.py:2: handler = 'hello': must be a function"),
        ("ElasticJob('zk://h').add(lambda: 1, name='x')", 2, "must take one context and nothing else"),
        ("import no_such_thing", 1, "wrong_jobs.py:2: No module named 'no_such_thing'"),
        ("def f(:", 1, "wrong_jobs.py:2: SyntaxError: "),
        ("import ast; ast.literal_eval('(')", 1, "wrong_jobs.py:2: SyntaxError: "),
        ("import json; json.loads('{')", 1, "wrong_jobs.py:2: JSONDecodeError: "),
        ("import pathlib; pathlib.Path('none').read_text()", 1, "wrong_jobs.py:2: FileNotFoundError: "),
        ("import yaml; yaml.safe_load('[')", 1, "wrong_jobs.py:2: ParserError: "),
        ("1 / 0", 1, "wrong_jobs.py:2: ZeroDivisionError: division by zero"),
        ("raise SystemExit(0)", 1, "wrong_jobs.py:2: the module ends the process (SystemExit 0)"),
        ("raise ValueError('a\\nb')", 1, "wrong_jobs.py:2: ValueError: a b"),
    ],
)
def test_a_module_that_cannot_be_imported(command: Command, write: Write, source: str, code: int, said: str) -> None:
    write("wrong_jobs", f"from aioelasticjob import ElasticJob\n{source}\n")
    exit_code, message = line(command, "wrong_jobs:app")
    assert exit_code == code
    assert said in message
    says_all = any(one in said for one in ("No module named", "SystemExit"))
    assert message.endswith('(the whole stack: python -c "import wrong_jobs")') == (code == 1 and not says_all)


def test_what_a_message_names_for_the_whole_stack_shows_it(write: Write, tmp_path: Path) -> None:
    write("wrong_jobs", "import json\njson.loads('{')\n")
    with pytest.raises(ImportFailed) as failed:
        load("wrong_jobs:app")
    (words,) = re.findall(r"the whole stack: python (.*)\)$", str(failed.value))
    shown = subprocess.run([sys.executable, *shlex.split(words)], capture_output=True, text=True, cwd=tmp_path)
    assert "Traceback" in shown.stderr
    assert "decoder.py" in shown.stderr


def test_the_traceback_is_there_for_those_who_ask_for_it(
    command: Command, write: Write, root_log: logging.Logger
) -> None:
    write("wrong_jobs", "1 / 0\n")
    result = command("run", "wrong_jobs:app", "--log-level", "debug")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "error: wrong_jobs.py:1: ZeroDivisionError: division by zero" in result.stderr.rstrip().splitlines()[-1]


EAGER = {
    "run": "\napp.run()\n",
    "running": """
import asyncio

async def main():
    async with app.running():
        print("started")

asyncio.run(main())
""",
}


@pytest.mark.usefixtures("root_log")
@pytest.mark.parametrize("end", EAGER)
@pytest.mark.parametrize("options", [("run",), ("config", "check", "jobs.yaml", "--app")])
def test_a_module_that_runs_its_jobs_when_it_is_imported_is_refused_with_the_line_to_write(
    command: Command, write: Write, end: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    write("eager_jobs", GOOD + EAGER[end])
    (tmp_path / "jobs.yaml").write_text("")
    result = command(*options, "eager_jobs:app")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: eager_jobs.py:")
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith(': write if __name__ == "__main__": app.run()\n')


@pytest.mark.process
def test_a_process_for_plain_functions_does_not_run_the_jobs_of_the_module_that_it_imports(
    tmp_path: Path, worker_processes: Workers
) -> None:
    source = GOOD.replace('"@daily"', '"* * * * * ?", executor="process"').replace("async def", "def")
    (tmp_path / "eager_jobs.py").write_text(source + "\napp.run()\n")
    worker = worker_processes.start(str(tmp_path / "eager_jobs.py"), environment={"PYTHONPATH": str(ROOT)})
    worker.wait_for_output("ProcessDied")
    assert "imports the main module of its parent" in worker.output
    assert 'write if __name__ == "__main__": app.run()' in worker.output
