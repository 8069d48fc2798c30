"""`aioelasticjob run --progress`: shows how fast records flow, as a table on a terminal, otherwise as lines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aioelasticjob.ground.rates import Rate

REFRESHES_PER_SECOND = 4
"""The table is drawn so many times a second."""
LINE_INTERVAL = 5.0
"""Seconds between two lines of a job if there is no terminal."""
MAX_ITEMS_SHOWN = 12
"""At most so many items of a job have a row of their own, the busiest first."""

Rates = Mapping[str, Sequence[Rate]]


@contextmanager
def progress(rates: Callable[[], Rates], console: Console) -> Iterator[None]:
    """Show the rates while the block is open; on a terminal, output to stderr appears above the table."""
    if console.is_terminal and not console.is_dumb_terminal:
        with Live(
            get_renderable=lambda: picture(rates()),
            console=console,
            refresh_per_second=REFRESHES_PER_SECOND,
            vertical_overflow="visible",
        ):
            yield
        return
    over = threading.Event()

    def tell() -> None:
        while not over.wait(LINE_INTERVAL):
            for line in lines(rates()):
                console.print(line, markup=False)

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def picture(rates: Rates) -> Table:
    """Return the table with the present rates."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for title in ("Job", "Item"):
        table.add_column(title)
    for title in ("Done", "Failed", "Per second", "In process", "Waiting", "Lag"):
        table.add_column(title, justify="right")
    if not rates:
        table.add_row(Text("no records yet", style="dim"))
    for job, items in rates.items():
        _row(table, Text(job, style="bold"), Text(""), total(items))
        if len(items) > 1:
            busiest = sorted(items, key=lambda one: -one.per_second)[:MAX_ITEMS_SHOWN]
            for one in sorted(busiest, key=lambda one: one.item or 0):
                _row(table, Text(""), Text(str(one.item)), one)
            if len(items) > MAX_ITEMS_SHOWN:
                table.add_row("", Text(f"and {len(items) - MAX_ITEMS_SHOWN:,} more", style="dim"))
    return table


def lines(rates: Rates) -> Iterator[str]:
    """Return a line for each job."""
    for job, items in rates.items():
        one = total(items)
        yield (
            f"{job}: {one.succeeded + one.failed:,} done, {one.failed:,} failed, {one.per_second:,.0f} per second,"
            f" {one.in_flight:,} in process, {one.waiting:,} waiting, lag {one.lag:.1f} s"
        )


def total(items: Sequence[Rate]) -> Rate:
    """Return the rate of all items of a job together; its lag is the largest of theirs."""

    def together(name: str) -> int:
        return sum(getattr(one, name) for one in items)

    return Rate(
        job=items[0].job,
        item=None,
        succeeded=together("succeeded"),
        failed=together("failed"),
        dead=together("dead"),
        per_second=sum(one.per_second for one in items),
        in_flight=together("in_flight"),
        waiting=together("waiting"),
        lag=max(one.lag for one in items),
    )


def _row(table: Table, job: Text, item: Text, one: Rate) -> None:
    busy = one.in_flight or one.waiting
    table.add_row(
        job,
        item,
        f"{one.succeeded + one.failed:,}",
        Text(f"{one.failed:,}", style="red" if one.failed else "dim"),
        Text(f"{one.per_second:,.0f}", style="green" if busy else "dim"),
        f"{one.in_flight:,}",
        f"{one.waiting:,}",
        f"{one.lag:.1f} s" if busy else "·",
    )
