"""What users write is checked with mypy and pyright, both strict: README, examples, and mistakes that they find."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks

CHECKERS = ("mypy", "pyright")
MISTAKES = """
from aioelasticjob import ElasticJob, ItemContext

app = ElasticJob("embedded://")


@app.job(crn="0 0 2 * * ?")  # wrong
async def misspelt(context: ItemContext) -> None: ...


@app.job(cron="0 0 2 * * ?", sharding_total_count="3")  # wrong
async def text_for_a_number(context: ItemContext) -> None: ...


@app.job(cron="0 0 2 * * ?", streaming=True)  # wrong
async def of_another_kind(context: ItemContext) -> None: ...


@app.job(cron="0 0 2 * * ?")  # wrong
async def without_a_context() -> None: ...


@app.job(cron="0 0 2 * * ?")  # wrong
async def of_an_item(item: int) -> None: ...


@app.dataflow(cron="0 0 2 * * ?")
async def orders(context: ItemContext) -> list[int]:
    return []


@orders.process  # wrong
async def ship(context: ItemContext, order: str) -> None: ...


@orders.dead  # wrong
async def bury(context: ItemContext, order: str, error: Exception) -> None: ...


app.script("backup", command="tar", exit_code=[0])  # wrong
app.http("ping", url="http://x", timeout=object())  # wrong
"""
RIGHT = """
from collections.abc import AsyncIterator
from datetime import timedelta

from aioelasticjob import ElasticJob, InstanceContext, ItemContext

app = ElasticJob("embedded://", session_timeout="20s")


@app.job(cron="0 0 2 * * ?", timeout="5m", catch_up=timedelta(hours=1), sharding_item_parameters={0: "Beijing"})
def plain(context: ItemContext) -> None: ...


@app.job()
async def of_either_kind(context: ItemContext | InstanceContext, limit: int = 5) -> None: ...


@app.job(per="instance", sharding_total_count=3, log_runs="ends")
async def together(context: InstanceContext) -> None: ...


@app.dataflow(streaming=True, batch_size=10)
async def batches(context: ItemContext) -> AsyncIterator[list[str]]:
    yield ["a"]


@batches.process
async def load(context: ItemContext, records: list[str]) -> None: ...


@batches.dead
async def drop(context: ItemContext, records: list[str], error: Exception) -> None: ...


@app.dataflow(cron="@daily", record_timeout="1s")
def rows(context: ItemContext) -> list[dict[str, int]] | None:
    return None


@rows.process
def store(context: ItemContext, row: dict[str, int]) -> bool:
    return True


@rows.dead
def note(context: ItemContext, row: dict[str, int], error: BaseException) -> None: ...


app.script("backup", command=["tar"], exit_codes=[0, 24], cron="@daily", grace="5s")
app.http("ping", url="http://x", expected_status=204, timeout="5s")
"""


def found(checker: str, directory: Path, *files: Path) -> set[tuple[str, int]]:
    """Return file and line of each error that a checker finds in files of a directory."""
    if checker == "pyright":
        return _found_by_pyright(directory, *files)
    path = ":".join(map(str, {ROOT, *(file.parent for file in files)}))
    (directory / "mypy.ini").write_text(f"[mypy]\nstrict = True\nmypy_path = {path}\ncache_dir = {ROOT}/.mypy_cache\n")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--show-absolute-path", "--hide-error-context"]
    done = subprocess.run(
        [*command, *map(str, files)], cwd=directory, capture_output=True, text=True, check=False, timeout=230
    )
    errors = [re.fullmatch(r"(.*?):(\d+): error: .*", line) for line in done.stdout.splitlines()]
    assert done.returncode == (1 if any(errors) else 0), done.stdout + done.stderr
    print(done.stdout)
    return {(Path(one[1]).name, int(one[2])) for one in errors if one is not None}


def _found_by_pyright(directory: Path, *files: Path) -> set[tuple[str, int]]:
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT), *{str(file.parent) for file in files}]}
    (directory / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    try:
        done = subprocess.run(
            [*command, *map(str, files)], cwd=directory, capture_output=True, text=True, check=False, timeout=230
        )
        report = json.loads(done.stdout)
    except (ValueError, subprocess.TimeoutExpired):  # a skip is a failure in continuous integration
        pytest.skip("pyright cannot run here: it needs node, and its package from npm's registry")
    errors = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    print(*(f"{one['file']}:{one['range']['start']['line'] + 1}: {one['message']}" for one in errors), sep="\n")
    return {(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in errors}


def written(directory: Path, **programs: str) -> list[Path]:
    paths = [directory / f"{name}.py" for name in programs]
    for path, text in zip(paths, programs.values(), strict=True):
        path.write_text(text)
    return paths


@pytest.mark.parametrize("checker", CHECKERS)
def test_mistakes_are_found_where_they_are_and_nothing_else(checker: str, tmp_path: Path) -> None:
    files = written(tmp_path, mistakes=MISTAKES, right=RIGHT)
    wrong = {n for n, line in enumerate(MISTAKES.splitlines(), 1) if line.endswith("# wrong")}
    assert found(checker, tmp_path, *files) == {("mistakes.py", line) for line in wrong}


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("page", ["README.md", "docs/how-to/recipes.md"])
def test_the_programs_of_a_page_are_right(checker: str, page: str, tmp_path: Path) -> None:
    programs = {f"{Path(page).stem.lower()}_{number}": one.text for number, one in enumerate(blocks(page, "python"))}
    assert found(checker, tmp_path, *written(tmp_path, **programs)) == set()


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("example", sorted({path.parent.name for path in ROOT.glob("examples/*/*.py")}))
def test_the_examples_are_right(checker: str, example: str, tmp_path: Path) -> None:
    assert found(checker, tmp_path, *sorted((ROOT / "examples" / example).glob("*.py"))) == set()
