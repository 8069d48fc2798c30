"""The final check finds every kind of fault and says so in words."""

import os
from pathlib import Path

import pytest

from aioelasticjob.demo.check import check
from aioelasticjob.demo.database import open_index
from aioelasticjob.demo.files import Facts, examine, walk


@pytest.fixture
def indexed(tmp_path: Path) -> tuple[Path, Path]:
    """A directory of three files and its index."""
    directory, database = tmp_path / "files", tmp_path / "index.db"
    directory.mkdir()
    for name in ("a.py", "b.txt", "c.bin"):
        (directory / name).write_text(name)
    store(directory, database)
    return directory, database


def store(directory: Path, database: Path) -> None:
    found = {path: examine(os.path.join(directory, path)) for path in walk(str(directory))}
    with open_index(str(database)) as index:
        index.store(0, 1, {path: facts for path, facts in found.items() if facts is not None})


def test_a_right_index_is_said_to_be_right(indexed: tuple[Path, Path]) -> None:
    verdict = check(str(indexed[0]), str(indexed[1]))
    assert verdict.right
    assert (verdict.files, verdict.bytes) == (3, 14)
    assert list(verdict.lines()) == [
        "the index is right: 3 files, 14 bytes, checked against the directory",
        "each file exactly once, every hash right, nothing missing, nothing extra",
    ]


def test_every_kind_of_fault_is_found(indexed: tuple[Path, Path]) -> None:
    directory, database = indexed
    (directory / "new.txt").write_text("")
    (directory / "a.py").unlink()
    (directory / "b.txt").write_text("B.TXT")
    verdict = check(str(directory), str(database))
    assert (verdict.missing, verdict.extra, verdict.wrong) == (("new.txt",), ("a.py",), ("b.txt",))
    assert not verdict.right
    assert list(verdict.lines()) == [
        "the index is wrong about 3 of 3 files",
        "missing: 1: new.txt",
        "extra: 1: a.py",
        "wrong: 1: b.txt",
    ]


def test_a_wrong_hash_of_the_right_length_is_found(indexed: tuple[Path, Path]) -> None:
    directory, database = indexed
    with open_index(str(database)) as index:
        index.store(0, 1, {"c.bin": Facts(5, 0, 1, None, "0" * 64)})
    assert check(str(directory), str(database)).wrong == ("c.bin",)


def test_a_file_that_nobody_can_read_is_no_fault_but_one_that_only_the_job_could_not_is(
    indexed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, database = indexed
    with open_index(str(database)) as index:
        index.store(0, 1, {"c.bin": Facts(5, 0, problem="Permission denied")})
    assert check(str(directory), str(database)).wrong == ("c.bin",)
    monkeypatch.setattr(
        "aioelasticjob.demo.check.examine",
        lambda path, **_: Facts(5, 0, problem="Permission denied") if path.endswith("c.bin") else examine(path),
    )
    verdict = check(str(directory), str(database))
    assert verdict.right
    assert verdict.unreadable == ("c.bin",)
    assert "unreadable: 1: c.bin" in list(verdict.lines())


def test_an_empty_directory_has_a_right_index(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    verdict = check(str(tmp_path / "files"), str(tmp_path / "index.db"))
    assert verdict.right
    assert verdict.files == 0


def test_many_faults_are_counted_and_the_first_named_even_if_their_names_cannot_be_printed(tmp_path: Path) -> None:
    directory = tmp_path / "files"
    directory.mkdir()
    for n in range(5):
        Path(os.fsdecode(os.fsencode(directory) + b"/%d\xff" % n)).write_text("")
    lines = list(check(str(directory), str(tmp_path / "index.db")).lines())
    assert lines[1] == "missing: 5: 0?, 1?, 2?, …"
