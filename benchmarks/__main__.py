"""``python -m benchmarks [NAME ...] [--quick] [--json FILE]``: measure, print a table, keep the figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks import (
    assignment,
    at_rest,
    console_readers,
    dataflow,
    embedded_load,
    event_store,
    failover,
    fire_cost,
    fire_walk,
    handover,
    load,
    many_at_rest,
    operations,
    operations_list,
    overload,
    rest,
    takeover,
    watch_traffic,
    web_console,
)
from benchmarks.report import Figure, save, show

BENCHMARKS: Final[Mapping[str, Callable[..., Iterator[Figure]]]] = {
    "web-console": web_console.measure,
    "console-readers": console_readers.measure,
    "dataflow": dataflow.measure,
    "event-store": event_store.measure,
    "fire-cost": fire_cost.measure,
    "fire-walk": fire_walk.measure,
    "load": load.measure,
    "embedded-load": embedded_load.measure,
    "overload": overload.measure,
    "operations": operations.measure,
    "operations-list": operations_list.measure,
    "takeover": takeover.measure,
    "assignment": assignment.measure,
    "failover": failover.measure,
    "handover": handover.measure,
    "watch-traffic": watch_traffic.measure,
    "at-rest": at_rest.measure,
    "rest": rest.measure,
    "many-at-rest": many_at_rest.measure,
}
WIDTH: Final = 150
"""Of the table in a file or a pipe, in characters."""


def main() -> None:
    """Run the benchmarks that are named, or all of them."""
    parser = argparse.ArgumentParser("python -m benchmarks", description="Measures on this machine; takes minutes.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="see that everything works; the figures mean little")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    asked = parser.parse_args()
    if unknown := set(asked.names) - BENCHMARKS.keys():
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    console, figures = Console(width=None if sys.stdout.isatty() else WIDTH), list[Figure]()
    for name in asked.names or BENCHMARKS:
        with console.status(name):
            figures += BENCHMARKS[name](quick=asked.quick)
    show(figures, console)
    if asked.json:
        save(figures, asked.json, quick=asked.quick)


if __name__ == "__main__":
    main()
