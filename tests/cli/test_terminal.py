"""What a demonstration shows: a picture that keeps its height, and plain lines that are written once."""

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from aioelasticjob.demo.database import open_index
from aioelasticjob.demo.files import Facts, share
from aioelasticjob.demo.processes import ProcessState
from aioelasticjob.demo.screen import LiveScreen, PlainScreen, rendered, screen
from aioelasticjob.demo.snapshot import FileProgress, Item, LogEntry, Snapshot, Worker, plural, shortened

START = Snapshot("60 files below files", 0.0, 0, 60, (), tuple(Item(n, None, None, 0, 0, 10) for n in range(6)), ())
WORKERS = (
    Worker("worker 1", 11, ProcessState.KILLED, joined=False, leads=False),
    Worker("worker 2", 12, ProcessState.STARTED, joined=True, leads=True),
    Worker("worker 3", 13, ProcessState.STARTED, joined=False, leads=False),
)
MIDWAY = replace(
    START,
    seconds=7.5,
    done=13,
    workers=WORKERS,
    items=(Item(0, "worker 1", None, 0, 3, 10), Item(1, "worker 2", "worker 2", 1.25, 10, 10), *START.items[2:]),
    log_entries=(LogEntry(1.0, "server started"), LogEntry(6.2, "worker 1 killed (kill -9) while it ran item 0")),
)


def drawn(scene: Snapshot, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    with console.capture() as said:
        console.print(rendered(scene))
    return [line.rstrip() for line in said.get().splitlines()]


def test_the_picture_says_who_holds_and_runs_what() -> None:
    lines = drawn(MIDWAY)
    (zero,) = (line for line in lines if line.split()[:1] == ["0"])
    (one,) = (line for line in lines if line.split()[:1] == ["1"])
    (two,) = (line for line in lines if line.split()[:1] == ["2"])
    assert "✗ worker 1" in zero
    assert "3 / 10" in zero
    assert one.count("● worker 2") == 2
    assert "1.2 s" in one
    assert "nobody" in two
    assert any("13 of 60 files" in line for line in lines)
    assert any("✗ worker 1 killed" in line and "● worker 2 leads" in line and "starting" in line for line in lines)
    assert any("6.2 s  worker 1 killed (kill -9) while it ran item 0" in line for line in lines)


def test_the_picture_keeps_its_height_so_that_nothing_jumps() -> None:
    much = replace(MIDWAY, log_entries=tuple(LogEntry(n, f"news {n}") for n in range(30)), done=60)
    heights = {len(drawn(scene, width)) for scene in (START, MIDWAY, much) for width in (80, 120)}
    assert len(heights) == 1


def test_of_no_files_everything_is_done() -> None:
    empty = replace(START, total=0, items=tuple(replace(item, total=0) for item in START.items))
    assert empty.complete
    assert any("0 of 0 files" in line for line in drawn(empty))


def test_plain_lines_are_written_once() -> None:
    said = io.StringIO()
    shown = PlainScreen(Console(file=said, width=60))
    for scene in (START, MIDWAY, MIDWAY, replace(MIDWAY, seconds=7.6, done=14), replace(MIDWAY, seconds=9, done=60)):
        shown.show(scene)
    assert said.getvalue().splitlines() == [
        "60 files below files",
        "   0.0 s  0 of 60 files",
        "   1.0 s  server started",
        "   6.2 s  worker 1 killed (kill -9) while it ran item 0",
        "   7.5 s  13 of 60 files",
        "   9.0 s  60 of 60 files",
    ]


@pytest.mark.parametrize(("terminal", "kind"), [(True, LiveScreen), (False, PlainScreen)])
def test_the_screen_suits_the_console(terminal: bool, kind: type) -> None:
    said = io.StringIO()
    console = Console(file=said, force_terminal=terminal, width=100, height=40, _environ={"TERM": "xterm"})
    with screen(console) as shown:
        assert isinstance(shown, kind)
        shown.show(MIDWAY)
    assert "13 of 60 files" in said.getvalue()


def test_progress_counts_the_files_of_each_item_as_they_come_in(tmp_path: Path) -> None:
    directory, database = tmp_path / "files", str(tmp_path / "index.db")
    directory.mkdir()
    names = [f"f{n}" for n in range(20)]
    for name in names:
        (directory / name).write_text("")
    progress = FileProgress(str(directory), (), database, 3)
    progress.list()
    assert progress.total == 20
    assert dict(progress.totals) == {item: sum(share(name, 3) == item for name in names) for item in range(3)}
    with open_index(database) as index:
        for batch in (names[:5], names[5:8]):
            index.store(0, 1, {name: Facts(0, 0) for name in (*batch, "gone meanwhile")})
            progress.measure()
    assert sum(progress.done.values()) == 8
    assert progress.done[share("f0", 3)] >= 1


def test_items_are_named_as_people_do() -> None:
    assert [plural({3}), plural({4, 1}), plural([2, 0, 1])] == ["item 3", "items 1 and 4", "items 0, 1 and 2"]


def test_a_long_path_is_shown_by_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert shortened("/home/ann/src", 20) == f"~{os.sep}src"
    assert shortened("/home/anna/src", 20) == "/home/anna/src"
    assert shortened("/usr/lib/python3.11", 10) == "…ython3.11"
