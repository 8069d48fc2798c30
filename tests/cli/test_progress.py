"""How `run --progress` looks, on a terminal and elsewhere."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from aioelasticjob.cli import progress as module
from aioelasticjob.cli.progress import lines, picture, progress, total
from aioelasticjob.ground.rates import Rate

ONE = Rate("orders", 0, 1200, 30, 5, 88.6, 16, 40, 0.5)
OTHER = Rate("orders", 1, 800, 0, 0, 11.0, 0, 0, 0.0)


def shown(rates: dict[str, tuple[Rate, ...]]) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(picture(rates))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_items_add_up_and_lag_as_far_as_the_last_of_them() -> None:
    assert total((ONE, OTHER)) == Rate("orders", None, 2000, 30, 5, 99.6, 16, 40, 0.5)


def test_a_table_has_a_row_for_each_job_and_each_of_its_items() -> None:
    rows = [line.split() for line in shown({"orders": (ONE, OTHER)}).splitlines()]
    assert ["orders", "2,030", "30", "100", "16", "40", "0.5", "s"] in rows
    assert ["0", "1,230", "30", "89", "16", "40", "0.5", "s"] in rows
    assert ["1", "800", "0", "11", "0", "0", "·"] in rows


def test_of_many_items_the_busiest_are_shown() -> None:
    items = tuple(Rate("orders", n, 0, 0, 0, float(n), 1, 0, 0.1) for n in range(40))
    text = shown({"orders": items})
    assert "and 28 more" in text
    assert [line.split()[0] for line in text.splitlines()[4:-1]] == [*map(str, range(28, 40)), "and"]


def test_before_the_first_run_there_is_nothing_to_show() -> None:
    assert "no records yet" in shown({})


def test_without_a_terminal_it_is_a_line_for_each_job() -> None:
    assert list(lines({"orders": (ONE, OTHER)})) == [
        "orders: 2,030 done, 30 failed, 100 per second, 16 in process, 40 waiting, lag 0.5 s"
    ]


def test_the_lines_come_again_and_again_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_INTERVAL", 0.001)
    console, asked, thrice = Console(file=io.StringIO(), width=200), list[int](), threading.Event()

    def rates() -> dict[str, tuple[Rate, ...]]:
        asked.append(1)
        if len(asked) == 3:
            thrice.set()
        return {"orders": (ONE,)}

    with progress(rates, console):
        assert thrice.wait(90)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("1,230 done") >= 2
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_on_a_terminal_it_is_a_table_in_its_place() -> None:
    console = Console(
        file=io.StringIO(), width=120, force_terminal=True, legacy_windows=False, _environ={"TERM": "xterm"}
    )
    with progress(lambda: {"orders": (ONE, OTHER)}, console):
        pass
    assert isinstance(console.file, io.StringIO)
    assert "2,030" in console.file.getvalue()
