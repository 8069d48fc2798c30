"""What was measured, as values, and how people and programs read it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value."""

    benchmark: str
    case: str
    measure: str
    value: float
    unit: str
    goal: str = ""
    """What it has to be, in words."""
    java: str = ""
    """What Elastic-Job (Java) needs for the same, measured on a machine like this."""


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value that ``part`` of all values do not exceed; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def show(figures: Sequence[Figure], console: Console) -> None:
    """Print a table."""
    table = Table("case", "measure", title="aioelasticjob: what it costs, how fast it is")
    table.add_column("value", justify="right")
    for name in ("", "goal", "Elastic-Job (Java)"):
        table.add_column(name)
    benchmark = ""
    for one in figures:
        if one.benchmark != benchmark:
            benchmark = one.benchmark
            table.add_section()
            table.add_row(f"[bold]{benchmark}")
        table.add_row(one.case, one.measure, text(one.value), one.unit, one.goal, one.java)
    console.print(table)


def save(figures: Sequence[Figure], file: Path, *, quick: bool) -> None:
    """Write JSON: when, whether it was a quick run, and every figure."""
    taken = datetime.now(UTC).isoformat(timespec="seconds")
    content = {"taken": taken, "quick": quick, "figures": [asdict(one) for one in figures]}
    file.write_text(json.dumps(content, indent=1) + "\n")


def text(value: float) -> str:
    """Write a number with three significant digits, whole ones in full."""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"
