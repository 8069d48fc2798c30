"""``python -m benchmarks [NAME ...] [--quick] [--json FILE]``: measure, print a table, keep the figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks.report import Figure, save, show

BENCHMARKS: Final = (
    "web-console",
    "console-readers",
    "dataflow",
    "event-store",
    "fire-cost",
    "fire-walk",
    "schedule-cost",
    "load",
    "embedded-load",
    "overload",
    "operations",
    "operations-list",
    "takeover",
    "assignment",
    "failover",
    "followers",
    "handover",
    "watch-traffic",
    "at-rest",
    "rest",
    "many-at-rest",
    "created-jobs",
)
"""Names; the module of each has the same name, with underscores.  Only those that are asked for are imported."""
WIDTH: Final = 150
"""Of the table in a file or a pipe, in characters."""


def measure(name: str) -> Callable[..., Iterator[Figure]]:
    """Return the function that measures what the name says."""
    function: Callable[..., Iterator[Figure]] = import_module(f"benchmarks.{name.replace('-', '_')}").measure
    return function


def main() -> None:
    """Run the benchmarks that are named, or all of them."""
    parser = argparse.ArgumentParser("python -m benchmarks", description="Measures on this machine; takes minutes.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="see that everything works; the figures mean little")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    console, figures = Console(width=None if sys.stdout.isatty() else WIDTH), list[Figure]()
    for name in asked.names or BENCHMARKS:
        with console.status(name):
            figures += measure(name)(quick=asked.quick)
    show(figures, console)
    if asked.json:
        save(figures, asked.json, quick=asked.quick)


if __name__ == "__main__":
    main()
