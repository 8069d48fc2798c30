"""Tables for people, fast also with thousands of rows; cells are folded only if the terminal is too narrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

GAP: Final = "  "
RICH_GAP: Final = 3
"""Characters between two columns of one of Rich's tables."""


class TextTable:
    """A table.  A column whose title begins with ``>`` holds numbers; one named in ``whole`` is not folded.

    If the terminal is too narrow, the columns named in ``spare`` are left out, the first ones first, as far as that
    helps; a line below the table names them.  A ``wide`` table is never changed: its lines may be longer than those of
    the terminal.

    Rich measures each cell several times in order to fold it well, which takes a second for a thousand rows.  If the
    terminal is wide enough, or the output goes to a file or a program, rows are written without Rich.
    """

    def __init__(
        self, *titles: str, whole: tuple[str, ...] = (), spare: tuple[str, ...] = (), wide: bool = False
    ) -> None:
        self._titles = tuple(title.removeprefix(">") for title in titles)
        self._right = tuple(title.startswith(">") for title in titles)
        self._whole = whole
        self._spare = spare
        self._wide = wide
        self._rows: list[tuple[Text, ...]] = []

    def add(self, *cells: str | Text) -> None:
        """Add a row; text is shown as it is, without markup, in one line."""
        self._rows.append(tuple(c if isinstance(c, Text) else Text(c.replace("\n", " ⏎ ")) for c in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = tuple(Text(title, style="dim") for title in self._titles)
        widths = [max(cell.cell_len for cell in column) for column in zip(head, *self._rows, strict=True)]
        is_narrow = console.is_terminal and not self._wide
        if is_narrow and sum(widths) + len(GAP) * len(widths) > options.max_width:
            yield from self._narrow(widths, options.max_width)
            return
        yield Segment.line()
        yield from self._line(console, head, widths)
        yield Segment(" " + "─" * (sum(widths) + len(GAP) * (len(widths) - 1)))
        yield Segment.line()
        for row in self._rows:
            yield from self._line(console, row, widths)
        yield Segment.line()

    def _narrow(self, widths: list[int], room: int) -> RenderResult:
        """Yield the table without spare columns, folded if it still needs more room."""
        kept, left_out = list(range(len(widths))), list[str]()
        for title in self._spare:
            if sum(widths[number] for number in kept) + RICH_GAP * len(kept) <= room:
                break
            kept.remove(self._titles.index(title))
            left_out.append(title)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
        for number in kept:
            title, right = self._titles[number], self._right[number]
            table.add_column(title, justify="right" if right else "left", overflow="fold", no_wrap=title in self._whole)
        for row in self._rows:
            table.add_row(*(row[number] for number in kept))
        yield table
        if left_out:
            yield Text(f"left out, for the terminal is narrow: {', '.join(left_out)}", style="dim")

    def _line(self, console: Console, row: tuple[Text, ...], widths: list[int]) -> Iterator[Segment]:
        yield Segment(" ")
        for number, (cell, width, right) in enumerate(zip(row, widths, self._right, strict=True)):
            blank = Segment(" " * (width - cell.cell_len))
            if number:
                yield Segment(GAP)
            if right:
                yield blank
            yield from cell.render(console)
            if not right and number + 1 < len(row):
                yield blank
        yield Segment.line()
