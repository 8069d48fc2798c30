"""The handler brings the database to what its item's files are, however often it was cut off."""

import logging
import os
import runpy
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from aioelasticjob import ItemContext
from aioelasticjob.demo import index_files
from aioelasticjob.demo.check import check
from aioelasticjob.demo.database import Index, Superseded, open_index
from aioelasticjob.demo.files import Facts, examine, share

ROOT = Path(__file__).parents[2]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a file for every item, known to the job."""
    directory = tmp_path / "files"
    for n in range(40):
        path = directory / f"d{n % 4}" / f"f{n}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def f{n}(): pass\n")
    monkeypatch.setattr(index_files, "DIRECTORY", str(directory))
    monkeypatch.setattr(index_files, "DATABASE", str(tmp_path / "index.db"))
    return directory


@dataclass(frozen=True)
class Context:
    """What the handler looks at of its context."""

    item: int
    fence: int
    sharding_total_count: int
    log: logging.Logger


def run(item: int, *, fence: int = 1, shares: int = 2) -> None:
    index_files.index_files(cast("ItemContext", Context(item, fence, shares, logging.getLogger())))


def files() -> set[str]:
    with open_index(index_files.DATABASE) as index:
        return set(index.files())


def is_right(directory: Path) -> bool:
    return check(str(directory), index_files.DATABASE).right


def test_all_items_together_index_every_file_once(directory: Path) -> None:
    run(0)
    assert {share(path, 2) for path in files()} == {0}
    run(1)
    assert is_right(directory)


def test_a_run_that_ends_at_its_limit_is_continued_by_the_next(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_files, "FILES_PER_RUN", 7)
    for done in (7, 14):
        run(0)
        assert len(files()) == done
    for _ in range(10):
        run(0)
        run(1)
    assert is_right(directory)


def test_what_an_earlier_run_has_written_is_not_read_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(0)
    run(1)
    (directory / "d0" / "f0.py").write_text("changed")
    read: list[str] = []

    def noted(path: str) -> Facts | None:
        read.append(path)
        return examine(path)

    monkeypatch.setattr(index_files, "examine", noted)
    run(0)
    run(1)
    assert read == [str(directory / "d0" / "f0.py")]
    assert is_right(directory)


def test_a_run_cut_off_between_two_batches_leaves_whole_batches(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_files, "BATCH", 3)
    stored: list[Mapping[str, Facts]] = []
    store = Index.store

    def cut_off(self: Index, item: int, fence: int, found: Mapping[str, Facts], gone: Iterable[str] = ()) -> None:
        if len(stored) == 2:
            raise KeyboardInterrupt
        stored.append(found)
        store(self, item, fence, found, gone)

    monkeypatch.setattr(Index, "store", cut_off)
    with pytest.raises(KeyboardInterrupt):
        run(0)
    assert len(files()) == 6
    monkeypatch.setattr(Index, "store", store)
    run(0, fence=2)
    run(1, fence=2)
    assert is_right(directory)


def test_a_run_that_lost_its_item_writes_nothing(directory: Path) -> None:
    ours = (f"new{n}" for n in range(1000) if share(f"new{n}", 2) == 0)
    (directory / next(ours)).write_text("")
    run(0, fence=5)
    before = files()
    (directory / next(ours)).write_text("")
    with pytest.raises(Superseded):
        run(0, fence=4)
    assert files() == before


def test_files_that_come_change_and_go_are_followed(directory: Path) -> None:
    run(0)
    run(1)
    (directory / "d1" / "f1.py").unlink()
    (directory / "d2" / "f2.py").write_text("x = 1\n")
    (directory / "new").write_text("")
    assert not is_right(directory)
    run(0)
    run(1)
    assert is_right(directory)


def test_another_number_of_items_splits_the_files_anew(directory: Path) -> None:
    run(0)
    run(1)
    (directory / "new").write_text("")
    for item in range(5):
        run(item, fence=2, shares=5)
    assert is_right(directory)


def test_odd_names_are_indexed_as_any_other(directory: Path) -> None:
    Path(os.fsdecode(os.fsencode(directory) + b"/caf\xe9.py")).write_text("def f(): pass\n")
    (directory / "a\nb ü").write_text("")
    run(0)
    run(1)
    assert os.fsdecode(b"caf\xe9.py") in files()
    assert is_right(directory)


def test_a_directory_that_has_gone_fails_and_forgets_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(0)
    before = files()
    monkeypatch.setattr(index_files, "DIRECTORY", str(directory) + "-unmounted")
    with pytest.raises(FileNotFoundError):
        run(0)
    assert files() == before


def test_the_example_is_the_same_job() -> None:
    example = runpy.run_path(str(ROOT / "examples" / "index_files" / "jobs.py"))
    assert example["app"] is index_files.app


def test_the_examples_check_says_whether_the_index_is_right(directory: Path) -> None:
    run(0)

    def checked() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(ROOT / "examples" / "index_files" / "check.py")],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "INDEX_DIRECTORY": str(directory),
                "INDEX_DATABASE": index_files.DATABASE,
            },
            capture_output=True,
            check=False,
            text=True,
        )

    assert checked().returncode == 1
    run(1)
    done = checked()
    assert done.returncode == 0, done.stdout
    assert "nothing missing, nothing extra" in done.stdout
