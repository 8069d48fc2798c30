"""A process that is visibly one of several warns if its registry is private: each of them would run every job."""

from __future__ import annotations

import ast
import multiprocessing
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from aioelasticjob.host.web_workers import what_runs_several
from tests.docs.pages import ROOT, blocks, pages
from tests.support.ports import reserved_ports
from tests.support.processes import Workers

WARNING = "the registry is private, in memory, and this process is one of several"
PROGRAM = """
from fastapi import FastAPI

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.integrations.fastapi import elastic_job

jobs = ElasticJob("embedded://")


@jobs.job(cron="0 0 0 1 1 ?")
async def report(context: ItemContext) -> None: ...


app = FastAPI(lifespan=elastic_job(jobs))
"""


def children_of(config: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    child = SimpleNamespace(_kwargs={} if config is None else {"config": config})
    monkeypatch.setattr(multiprocessing, "current_process", lambda: child)


def test_a_program_that_is_started_alone_is_not_one_of_several() -> None:
    assert what_runs_several() is None


def test_a_worker_of_gunicorn_is_one_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gunicorn.arbiter", ModuleType("gunicorn.arbiter"))
    assert what_runs_several() == "gunicorn"


def test_a_child_of_multiprocessing_is_one_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    children_of(None, monkeypatch)
    assert what_runs_several() == "multiprocessing"


@pytest.mark.process
def test_a_real_child_of_multiprocessing_knows_that_it_is_one() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(what_runs_several) == "multiprocessing"


@pytest.mark.parametrize(
    ("workers", "reloads", "several"), [(1, False, None), (4, False, "uvicorn with 4 workers"), (4, True, None)]
)
def test_a_child_of_uvicorn_is_one_of_several_if_there_are_more_workers(
    workers: int, reloads: bool, several: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"__module__": "uvicorn.config", "workers": workers, "should_reload": reloads}
    children_of(type("Config", (), given)(), monkeypatch)
    assert what_runs_several() == several


@pytest.mark.process
def test_each_worker_of_uvicorn_warns_of_a_private_registry(tmp_path: Path, worker_processes: Workers) -> None:
    (tmp_path / "web.py").write_text(PROGRAM)
    with reserved_ports(1) as (port,):
        uvicorn = worker_processes.start(
            *("-m", "uvicorn", "--workers", "2", "--port", str(port), "--app-dir", str(tmp_path), "web:app"),
            environment={"PYTHONPATH": str(ROOT)},
        )
        while uvicorn.output.count("Application startup complete") < 2:  # the test's own timeout bounds it
            assert uvicorn.exit_code is None, uvicorn.output
            time.sleep(0.05)
        uvicorn.terminate()
    assert uvicorn.output.count(f"{WARNING}: uvicorn with 2 workers") == 2


@pytest.mark.process
def test_a_program_that_uvicorn_reloads_does_not_warn(tmp_path: Path, worker_processes: Workers) -> None:
    (tmp_path / "web.py").write_text(PROGRAM)
    with reserved_ports(1) as (port,):
        uvicorn = worker_processes.start(
            *("-m", "uvicorn", "--reload", "--reload-dir", str(tmp_path), "--port", str(port)),
            *("--app-dir", str(tmp_path), "web:app"),
            environment={"PYTHONPATH": str(ROOT), "WEB_CONCURRENCY": "4"},
        )
        uvicorn.wait_for_output("Application startup complete")
        uvicorn.terminate()
    assert "registry is private" not in uvicorn.output


def web_programs() -> Iterator[tuple[str, str]]:
    """Yield all programs of the documentation and the examples that run jobs inside a web application."""
    shown = [(str(block), block.text) for page in pages() for block in blocks(page, "python")]
    written = [(path.relative_to(ROOT).as_posix(), path.read_text()) for path in (ROOT / "examples").rglob("*.py")]
    for name, program in shown + written:
        modules = {one.module or "" for one in ast.walk(ast.parse(program)) if isinstance(one, ast.ImportFrom)}
        if any(module.startswith("aioelasticjob.integrations") for module in modules):
            yield name, program


def test_there_are_web_programs() -> None:
    places = {name.partition("/")[0].partition(":")[0] for name, _ in web_programs()}
    assert places >= {"README.md", "docs", "examples"}


@pytest.mark.parametrize(("name", "program"), [*web_programs()], ids=[name for name, _ in web_programs()])
def test_every_web_program_has_a_registry_that_its_workers_share(name: str, program: str) -> None:
    texts = {one.value for one in ast.walk(ast.parse(program)) if isinstance(one, ast.Constant)}
    assert "embedded://" not in texts, f"{name}: several workers of it would run every job"
