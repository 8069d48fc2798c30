"""New Pythons find the package wherever this process has it from."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import zipapp
from collections.abc import Iterator
from pathlib import Path

import pytest

import aioelasticjob
from aioelasticjob.host.child_python import has_interpreter, python_command
from tests.support import shared
from tests.support.shared import SharedRegistry

BARE = getattr(sys, "_base_executable", sys.executable)
"""A Python whose environment has neither this package nor what that needs."""
NEEDED = [path for path in sys.path if path.endswith("site-packages")]
PACKAGE = Path(aioelasticjob.__file__).parent
TIMEOUT = 120.0
JOBS = """
import os
import anyio
from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.events import Ended

def compute(context: ItemContext) -> None:
    print("ran in another process:", os.getpid() != int(os.environ["STARTER"]), flush=True)

async def main(address: str) -> None:
    os.environ["STARTER"] = str(os.getpid())
    app = ElasticJob(address)
    app.add(compute, name="compute", executor="process", cron="* * * * * ?")
    with app.events() as events:
        async with app.running():
            async for event in events:
                if isinstance(event, Ended):
                    print(event.outcome, flush=True)
                    break
"""
MAIN = f"""
import sys
sys.path[1:1] = {NEEDED!r}
import anyio
import jobs
if __name__ == "__main__":
    anyio.run(jobs.main, sys.argv[1])
"""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[SharedRegistry]:
    with shared.shared_registry(tmp_path) as found:
        yield found


def run_jobs(program: str, directory: Path, registry: SharedRegistry) -> None:
    """Run a program in a Python that has nothing installed; it starts the registry and a worker process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    command = [BARE, program, registry.address]
    ended = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "ran in another process: True\n" in ended.stdout
    assert "completed\n" in ended.stdout
    assert registry.starts == 1


@pytest.mark.process
def test_a_program_that_adds_its_path_at_run_time_starts_registry_and_workers(
    tmp_path: Path, registry: SharedRegistry
) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "program.py").write_text(f"import sys\nsys.path.append({str(PACKAGE.parent)!r})\n{MAIN}")
    run_jobs("program.py", tmp_path, registry)


@pytest.mark.process
def test_a_zipapp_starts_registry_and_workers(tmp_path: Path, registry: SharedRegistry) -> None:
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source / "aioelasticjob", ignore=shutil.ignore_patterns("__pycache__"))
    (source / "jobs.py").write_text(JOBS)
    (source / "__main__.py").write_text(MAIN)
    zipapp.create_archive(source, tmp_path / "app.pyz")
    shutil.rmtree(source)
    run_jobs("app.pyz", tmp_path, registry)


@pytest.mark.process
def test_a_new_python_is_given_the_paths_of_this_one_and_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shown.py").write_text("import sys\nprint([__name__, sys.argv[1:], sys.path])")
    odd = tmp_path / "it's a: path"
    monkeypatch.setattr(sys, "path", [*sys.path, "", str(odd)])
    monkeypatch.chdir(tmp_path)
    command = python_command("shown", "--one", "two", unbuffered=True)
    assert command[1:3] == ["-P", "-u"]
    shown = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=TIMEOUT, check=True)
    name, arguments, path = ast.literal_eval(shown.stdout)
    assert (name, arguments) == ("__main__", ["--one", "two"])
    assert path[-2:] == [str(tmp_path), str(odd)]


def test_a_working_directory_that_is_gone_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(sys, "path", ["", "/lib"])
    assert "sys.path[:] = ['/lib']" in python_command("module")[-1]


@pytest.mark.parametrize(("name", "value"), [("executable", ""), ("executable", None), ("frozen", True)])
def test_a_program_without_an_interpreter_has_none_to_start(
    name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert has_interpreter()
    monkeypatch.setattr(sys, name, value, raising=False)
    assert not has_interpreter()
