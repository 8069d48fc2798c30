"""`aioelasticjob doctor ADDRESS`: examines a registry, and says what is good and what to change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from aioelasticjob.cli.jobs import AsJson
from aioelasticjob.cli.registry import RegistryOptions, on_an_address
from aioelasticjob.cli.terminal import out, write_json
from aioelasticjob.doctor import Report, Verdict, examine

EXIT_CODES: Final[Mapping[Verdict, int]] = {Verdict.GOOD: 0, Verdict.BAD: 1, Verdict.WARNING: 3}
_STYLES: Final = {Verdict.GOOD: "green", Verdict.WARNING: "yellow", Verdict.BAD: "bold red", Verdict.UNKNOWN: "yellow"}


@on_an_address
def doctor(
    where: RegistryOptions,
    session_timeout: Annotated[str, typer.Option(help="The session_timeout of your jobs.")] = "30s",
    max_request: Annotated[int, typer.Option(min=1, help="The max_request of your jobs, in bytes.")] = 1_000_000,
    as_json: AsJson = False,
) -> None:
    """Examine a registry: what is seen, whether it is good, and what to change.  It leaves nothing behind."""
    address = where.parsed(session_timeout=session_timeout, max_request=max_request)
    report = asyncio.run(examine(address))
    if as_json:
        write_json(report.as_json())
    else:
        _print(report)
    raise typer.Exit(EXIT_CODES[report.verdict])


def _print(report: Report) -> None:
    table = Table.grid(padding=(0, 2))
    for finding in report.findings:
        table.add_row(Text(finding.verdict.value, style=_STYLES[finding.verdict]), finding.topic, Text(finding.seen))
        if finding.advice:
            table.add_row("", "", Text(f"→ {finding.advice}", style="bold"))
    out().print(table)
