"""The demonstration with real processes: a worker is killed, the index comes out right, and nobody is left behind."""

import os
import re
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.support.processes import ChildProcess, Workers

pytestmark = pytest.mark.timeout(240)
FILES = 60


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A small directory with something of everything."""
    directory = tmp_path / "files"
    for n in range(FILES - 4):
        path = directory / f"d{n % 5}" / f"f{n}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def f{n}(): pass\n" * (n + 1))
    (directory / "empty").mkdir()
    (directory / "broken.py").write_text("def f(:\n")
    (directory / "binary").write_bytes(bytes(range(256)) * 100)
    (directory / "nothing").write_text("")
    Path(os.fsdecode(os.fsencode(directory) + b"/caf\xe9")).write_text("x")
    (directory / "link").symlink_to("nothing")
    return directory


def start(workers: Workers, *options: str) -> ChildProcess:
    return workers.start("-m", "aioelasticjob", "demo", *options)


def children(said: str) -> list[int]:
    """Return the process ids of the workers that the demonstration has printed."""
    return [int(pid) for pid in re.findall(r"started, process (\d+)", said)]


def server_port(said: str) -> str:
    found = re.search(r"zk://127\.0\.0\.1:(\d+)/", said)
    assert found is not None, said
    return found[1]


def processes_with(text: str) -> list[int]:
    """Return the living processes whose command line or environment has ``text`` in it."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdigit() and (
                text.encode() in (place / "cmdline").read_bytes() or text.encode() in (place / "environ").read_bytes()
            ):
                found.append(int(place.name))
        except OSError:  # gone, or not ours to look into
            continue
    return found


def wait_until_gone(text: str, patience: float = 90) -> None:
    deadline = time.monotonic() + patience
    while left := processes_with(text):
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)


@pytest.mark.process
def test_a_worker_is_killed_and_every_file_is_indexed_once(
    worker_processes: Workers, directory: Path, tmp_path: Path
) -> None:
    database = tmp_path / "index.db"
    demo = start(worker_processes, "--kill", "--directory", str(directory), "--database", str(database))
    code = demo.wait(120)
    said = demo.output
    assert code == 0, said
    assert len(children(said)) == 4
    assert re.search(r"worker \d killed \(kill -9\)", said)
    killed = re.search(r"(worker \d) killed", said)
    assert killed is not None
    assert re.search(rf"items? [\d, and]+: {killed[1]} → worker \d", said)
    assert re.search(r"items? [\d, and]+: worker \d → worker 4", said)
    assert f"✓ the index is right: {FILES} files" in said
    with sqlite3.connect(database) as index:
        rows = index.execute("SELECT count(*), count(DISTINCT path), count(sha256) FROM files").fetchone()
        functions = dict(index.execute("SELECT path, functions FROM files WHERE path IN ('d4/f9.py', 'broken.py')"))
    index.close()
    assert functions == {"d4/f9.py": 10, "broken.py": None}
    assert rows == (FILES, FILES, FILES)
    assert processes_with(str(directory)) == []


@pytest.mark.process
def test_ctrl_c_ends_everything(worker_processes: Workers, directory: Path, tmp_path: Path) -> None:
    demo = start(worker_processes, "--directory", str(directory), "--database", str(tmp_path / "index.db"))
    demo.wait_for_output("worker 3 joined", 60)
    os.kill(demo.pid, signal.SIGINT)
    assert demo.wait(90) == 128 + signal.SIGINT
    assert "Traceback" not in demo.output
    assert processes_with(str(directory)) == []


@pytest.mark.process
def test_when_the_demonstration_itself_is_killed_its_processes_end(
    worker_processes: Workers, directory: Path, tmp_path: Path
) -> None:
    demo = start(worker_processes, "--directory", str(directory), "--database", str(tmp_path / "index.db"))
    demo.wait_for_output("worker 1 joined", 60)
    workers = children(demo.output)
    assert set(workers) <= set(processes_with(str(directory)))
    demo.kill()
    wait_until_gone(str(directory))


@pytest.mark.process
def test_a_worker_that_ends_by_itself_fails_the_demonstration_and_says_why(
    worker_processes: Workers, directory: Path, tmp_path: Path
) -> None:
    demo = start(worker_processes, "--directory", str(directory), "--database", str(tmp_path / "index.db"))
    demo.wait_for_output("worker 2 joined", 60)
    os.kill(children(demo.output)[1], signal.SIGKILL)
    assert demo.wait(90) == 1
    last = demo.output.rstrip().splitlines()[-1]
    assert last.startswith("error: worker 2 ended by itself with exit code -9")
    assert processes_with(str(directory)) == []
    log = Path(last.rpartition("log: ")[2].removesuffix(") (docs: errors/ProcessEnded)"))
    assert log.exists()
    for path in log.parent.iterdir():
        path.unlink()
    log.parent.rmdir()


@pytest.mark.process
def test_an_empty_directory_has_nothing_to_index_and_that_is_right(worker_processes: Workers, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    demo = start(worker_processes, "--directory", str(tmp_path / "empty"), "--workers", "1", "--items", "1")
    assert demo.wait(60) == 0, demo.output
    assert "✓ the index is right: 0 files" in demo.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--directory", "nowhere"), "is no directory"),
        (("--directory", "notes.txt"), "is no directory"),
        (("--directory", "files", "--database", "nowhere/index.db"), "lies in a directory that does not exist"),
        (("--directory", "files", "--database", "files/index.db"), "lies below the directory that is indexed"),
        (("--directory", "files", "--database", "notes.txt"), "is no SQLite database: name another file"),
        (("--directory", "files", "--database", "theirs.db"), "is the database of another program"),
        (("--directory", "/"), "lies below the directory that is indexed"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_before_anything_starts(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    (tmp_path / "notes.txt").write_text("these are my notes and no database whatsoever " * 20)
    with sqlite3.connect(tmp_path / "theirs.db") as theirs:
        theirs.execute("CREATE TABLE files (x)")
    theirs.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    result = command("demo", *options)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
