"""`aioelasticjob dump NAME`: everything the registry holds of a job, as text."""

from __future__ import annotations

from typing import Annotated

import typer

from aioelasticjob import operations
from aioelasticjob.cli import stdout
from aioelasticjob.cli.jobs import Name
from aioelasticjob.cli.registry import RegistryOptions, on_a_registry


@on_a_registry
def dump(
    where: RegistryOptions,
    name: Name,
    mask: Annotated[
        bool, typer.Option("--mask", help="Replace addresses and host names (ip1, host1, …) and credentials.")
    ] = False,
) -> None:
    """Print every node of a job, one line each: path | data | version. To look at, or to send to somebody."""
    print(where.look(lambda session: operations.dump(session, name, masked=mask)), file=stdout())
