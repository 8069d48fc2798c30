"""Which files there are, whose they are, and what is said of them."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aioelasticjob.demo import files
from aioelasticjob.demo.files import examine, share, stamp, walk


def test_every_regular_file_is_met_once_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "a" / "b" / "deep.txt").write_text("x")
    (tmp_path / "top.txt").write_text("x")
    (tmp_path / "link.txt").symlink_to("top.txt")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "a" / "round").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert sorted(walk(str(tmp_path))) == ["a/b/deep.txt", "top.txt"]


def test_excluded_directories_are_left_out_at_any_depth_but_files_of_that_name_are_not(tmp_path: Path) -> None:
    (tmp_path / "a" / "skip").mkdir(parents=True)
    (tmp_path / "a" / "skip" / "x").write_text("")
    (tmp_path / "skip").write_text("")
    assert list(walk(str(tmp_path), {"skip"})) == ["skip"]


def test_a_directory_that_is_not_there_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(walk(str(tmp_path / "gone")))


def test_a_directory_that_vanishes_meanwhile_is_left_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("")
    walking = walk(str(tmp_path))
    first = next(walking)
    other = "a" if first.startswith("b") else "b"
    (tmp_path / other / "file").unlink()
    (tmp_path / other).rmdir()
    assert list(walking) == []


def test_a_share_is_the_same_in_every_process() -> None:
    paths = ["a.py", "b/c.txt", "b/\udcff.bin", "ünï.py"]
    script = f"from aioelasticjob.demo.files import share; print([share(p, 6) for p in {paths!r}])"
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(files.__file__).parents[2])},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert printed == {str([share(path, 6) for path in paths])}


def test_shares_are_about_equal() -> None:
    shares = [share(f"package/module_{n}.py", 6) for n in range(6000)]
    assert all(800 < shares.count(item) < 1200 for item in range(6))


@pytest.mark.parametrize(
    ("name", "content", "lines", "functions"),
    [
        ("a.py", b"def f(): pass\nasync def g():\n    def h(): pass\n", 3, 3),
        ("latin.py", b"# coding: latin-1\nx = '\xe4'\n", 2, 0),
        ("no_newline.py", b"x = 1", 1, 0),
        ("empty.py", b"", 0, 0),
        ("python2.py", b"print 'x'\n", 1, None),
        ("nul.py", b"x = 1\0\n", None, None),
        ("deep.py", b"(" * 20_000 + b")" * 20_000, 1, None),
        ("bad_coding.py", b"# coding: no-such\n", 1, None),
        ("invalid_escape.py", b"x = '\\d'\n", 1, 0),
        ("text.txt", b"def f(): pass\n", 1, None),
        ("binary.bin", b"\0\1\n\2", None, None),
    ],
)
def test_what_is_said_of_a_file(
    tmp_path: Path, name: str, content: bytes, lines: int | None, functions: int | None
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    facts = examine(str(path))
    assert facts is not None
    assert (facts.size, facts.lines, facts.functions) == (len(content), lines, functions)
    assert facts.sha256 == hashlib.sha256(content).hexdigest()
    assert facts.problem is None
    assert (facts.size, facts.changed) == stamp(str(path))


def test_a_large_file_is_read_in_parts_and_not_parsed(tmp_path: Path) -> None:
    content = b"x = 1\n" * 500_000
    (tmp_path / "large.py").write_bytes(content)
    facts = examine(str(tmp_path / "large.py"))
    assert facts is not None
    assert (facts.lines, facts.functions) == (500_000, None)
    assert facts.sha256 == hashlib.sha256(content).hexdigest()


def test_what_is_gone_or_no_file_any_more_has_no_facts(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    (tmp_path / "link").symlink_to("there")
    os.mkfifo(tmp_path / "pipe")
    assert [examine(str(tmp_path / name)) for name in ("gone", "there/below", "link", "pipe")] == [None] * 4
    assert examine(str(tmp_path)) is None


def test_a_file_that_may_not_be_read_has_its_problem_in_place_of_a_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    path.write_text("x")

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)  # the superuser may read everything
    facts = examine(str(path))
    assert facts is not None
    assert (facts.size, facts.sha256, facts.problem) == (1, None, "Permission denied")


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_text("old")
    monkeypatch.setattr(files, "stamp", _changing(path, times=1))
    facts = examine(str(path))
    assert facts is not None
    assert facts.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert path.read_bytes() == b"oldx"


def test_a_file_that_never_stands_still_has_that_as_its_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_text("old")
    monkeypatch.setattr(files, "stamp", _changing(path, times=100))
    facts = examine(str(path))
    assert facts is not None
    assert facts.sha256 is None
    assert facts.problem == "it changes while it is read"


def _changing(path: Path, times: int) -> object:
    """Return a ``stamp`` that finds the file changed since it was opened, ``times`` times."""
    left = [times]

    def changed(_: str) -> tuple[int, int] | None:
        if left[0]:
            left[0] -= 1
            with path.open("a") as file:
                file.write("x")
        return stamp(str(path))

    return changed
