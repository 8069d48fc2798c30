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

from aioelasticjob.demo.processes import Fate
from aioelasticjob.demo.scene import Item, Scene, Worker

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "bright_red", "bright_cyan", "bright_magenta")
NEWS = 6
"""Lines of news that are kept on the screen."""
BETWEEN = 1.0
"""Seconds between two plain lines of progress."""


class Screen(Protocol):
    """Shows snapshots of the demonstration."""

    def show(self, scene: Scene) -> None:
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

    def show(self, scene: Scene) -> None:
        """Draw the scene."""
        self._live.update(picture(scene), refresh=True)


class PlainScreen:
    """Writes only what is new, as lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = 0
        self._next = 0.0
        self._last: tuple[int, int] | None = None

    def show(self, scene: Scene) -> None:
        """Write what is new."""
        if self._last is None:
            self._say(scene.title)
        for news in scene.news[self._told :]:
            self._say(f"{news.seconds:6.1f} s  {news.text}")
        self._told = len(scene.news)
        progress = (scene.done, scene.total)
        if progress != self._last and (scene.seconds >= self._next or scene.complete):
            self._say(f"{scene.seconds:6.1f} s  {scene.done:,} of {scene.total:,} files")
            self._last, self._next = progress, scene.seconds + BETWEEN

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def picture(scene: Scene) -> RenderableType:
    """Return the whole picture; it has the same height from the first scene to the last."""
    blank = Text()
    news = [_news(line.seconds, line.text) for line in scene.news[-NEWS:]]
    title = Text(scene.title, style="bold", overflow="ellipsis", no_wrap=True)
    parts: list[RenderableType] = [title, blank, _items(scene), blank, _overall(scene), blank, _workers(scene), blank]
    parts += news + [blank] * (NEWS - len(news))
    return Padding(Group(*parts), (1, 1))


def _items(scene: Scene) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim", expand=False)
    table.add_column("Item", justify="right")
    table.add_column("Held by", min_width=9)
    table.add_column("Running on", min_width=16)
    table.add_column("Files", width=20)
    table.add_column("", justify="right", min_width=13)
    for item in scene.items:
        table.add_row(
            str(item.item),
            _worker(scene, item.holder),
            _running(scene, item),
            _bar(item.done, item.total, 20),
            Text(f"{item.done:,} / {item.total:,}", style="dim" if item.done >= item.total else ""),
        )
    return table


def _bar(done: int, total: int, width: int) -> ProgressBar:
    part = (done, total) if total else (1, 1)  # without files, everything is done
    return ProgressBar(part[1], part[0], width, complete_style="blue", finished_style="green", style="grey30")


def _overall(scene: Scene) -> Table:
    row = Table.grid(padding=(0, 2))
    row.add_row(
        _bar(scene.done, scene.total, 40),
        Text(f"{scene.done:,} of {scene.total:,} files"),
        Text(f"{scene.seconds:.0f} s", style="dim"),
    )
    return row


def _workers(scene: Scene) -> Text:
    said = Text(no_wrap=True, overflow="ellipsis")
    for worker in scene.workers:
        said.append_text(_one(scene, worker)).append("   ")
    return said


def _one(scene: Scene, worker: Worker) -> Text:
    if worker.fate is not Fate.STARTED:
        return Text(f"✗ {worker.name} {worker.fate.value}", style="red" if worker.fate is Fate.KILLED else "dim")
    said = _worker(scene, worker.name)
    if worker.leads:
        said.append(" leads", style="dim")
    elif not worker.joined:
        said.append(" starting", style="dim")
    return said


def _running(scene: Scene, item: Item) -> Text:
    if item.runner is None:
        return Text("·", style="dim")
    return _worker(scene, item.runner).append(f" {item.seconds:.1f} s", style="dim")


def _worker(scene: Scene, name: str | None) -> Text:
    if name is None:
        return Text("nobody", style="dim")
    for number, worker in enumerate(scene.workers):
        if worker.name == name:
            if worker.fate is not Fate.STARTED:
                return Text(f"✗ {name}", style="red")
            return Text(f"● {name}", style=COLOURS[number % len(COLOURS)])
    return Text(f"? {name}", style="dim")


def _news(seconds: float, text: str) -> Text:
    line = Text(f"{seconds:5.1f} s  ", style="dim", no_wrap=True, overflow="ellipsis")
    return line.append(text, style="default not dim")
