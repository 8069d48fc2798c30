"""How a demonstration looks: a table that stays in its place on a terminal, plain lines anywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from aioelasticjob.demo.processes import ProcessState
from aioelasticjob.demo.snapshot import Item, Snapshot, Worker
from aioelasticjob.ground.plural import counted

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "bright_red", "bright_cyan", "bright_magenta")
LOG_LINES = 6
"""Lines of news that are kept on the screen."""
LINE_INTERVAL = 1.0
"""Seconds between two plain lines of progress."""


class Screen(Protocol):
    """Shows snapshots of the demonstration."""

    def show(self, snapshot: Snapshot) -> None:
        """Show one moment."""
        ...


@contextmanager
def screen(console: Console) -> Iterator[Screen]:
    """Yield the screen that suits the console."""
    if console.is_terminal and not console.is_dumb_terminal:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            yield LiveScreen(live)
    else:
        yield PlainScreen(console)


class LiveScreen:
    """Draws each snapshot at the same place of a terminal."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, snapshot: Snapshot) -> None:
        """Draw the scene."""
        self._live.update(rendered(snapshot), refresh=True)


class PlainScreen:
    """Writes only what is new, as lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed = 0
        self._next = 0.0
        self._last: tuple[int, int] | None = None

    def show(self, snapshot: Snapshot) -> None:
        """Write what is new."""
        if self._last is None:
            self._say(snapshot.title)
        for log_entries in snapshot.log_entries[self._printed :]:
            self._say(f"{log_entries.seconds:6.1f} s  {log_entries.text}")
        self._printed = len(snapshot.log_entries)
        progress = (snapshot.done, snapshot.total)
        if progress != self._last and (snapshot.seconds >= self._next or snapshot.complete):
            self._say(f"{snapshot.seconds:6.1f} s  {snapshot.done:,} of {counted(snapshot.total, 'file')}")
            self._last = progress
            self._next = snapshot.seconds + LINE_INTERVAL

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def rendered(snapshot: Snapshot) -> RenderableType:
    """Return the whole picture; it has the same height from the first scene to the last."""
    blank = Text()
    log_entries = [_news(line.seconds, line.text) for line in snapshot.log_entries[-LOG_LINES:]]
    title = Text(snapshot.title, style="bold", overflow="ellipsis", no_wrap=True)
    parts: list[RenderableType] = [
        title,
        blank,
        _items(snapshot),
        blank,
        _overall(snapshot),
        blank,
        _workers(snapshot),
        blank,
    ]
    parts += log_entries + [blank] * (LOG_LINES - len(log_entries))
    return Padding(Group(*parts), (1, 1))


def _items(snapshot: Snapshot) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim", expand=False)
    table.add_column("Item", justify="right")
    table.add_column("Held by", min_width=9)
    table.add_column("Running on", min_width=16)
    table.add_column("Files", width=20)
    table.add_column("", justify="right", min_width=13)
    for item in snapshot.items:
        style = "dim" if item.done >= item.total else ""
        table.add_row(
            str(item.item),
            _worker(snapshot, item.holder),
            _running(snapshot, item),
            _bar(item.done, item.total, 20),
            Text(f"{item.done:,} / {item.total:,}", style=style),
        )
    return table


def _bar(done: int, total: int, width: int) -> ProgressBar:
    if not total:  # without files, everything is done
        done = 1
        total = 1
    return ProgressBar(total, done, width, complete_style="blue", finished_style="green", style="grey30")


def _overall(snapshot: Snapshot) -> Table:
    row = Table.grid(padding=(0, 2))
    row.add_row(
        _bar(snapshot.done, snapshot.total, 40),
        Text(f"{snapshot.done:,} of {counted(snapshot.total, 'file')}"),
        Text(f"{snapshot.seconds:.0f} s", style="dim"),
    )
    return row


def _workers(snapshot: Snapshot) -> Text:
    said = Text(no_wrap=True, overflow="ellipsis")
    for worker in snapshot.workers:
        said.append_text(_one(snapshot, worker)).append("   ")
    return said


def _one(snapshot: Snapshot, worker: Worker) -> Text:
    if worker.state is not ProcessState.STARTED:
        style = "red" if worker.state is ProcessState.KILLED else "dim"
        return Text(f"✗ {worker.name} {worker.state.value}", style=style)
    said = _worker(snapshot, worker.name)
    if worker.leads:
        said.append(" leads", style="dim")
    elif not worker.joined:
        said.append(" starting", style="dim")
    return said


def _running(snapshot: Snapshot, item: Item) -> Text:
    if item.runner is None:
        return Text("·", style="dim")
    return _worker(snapshot, item.runner).append(f" {item.seconds:.1f} s", style="dim")


def _worker(snapshot: Snapshot, name: str | None) -> Text:
    if name is None:
        return Text("nobody", style="dim")
    for number, worker in enumerate(snapshot.workers):
        if worker.name != name:
            continue
        if worker.state is not ProcessState.STARTED:
            return Text(f"✗ {name}", style="red")
        return Text(f"● {name}", style=COLOURS[number % len(COLOURS)])
    return Text(f"? {name}", style="dim")


def _news(seconds: float, text: str) -> Text:
    line = Text(f"{seconds:5.1f} s  ", style="dim", no_wrap=True, overflow="ellipsis")
    return line.append(text, style="default not dim")
