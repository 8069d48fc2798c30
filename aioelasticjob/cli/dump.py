"""`aioelasticjob dump NAME`: everything the registry holds of a job, as text."""

from __future__ import annotations

from typing import Annotated

import typer

from aioelasticjob import operations
from aioelasticjob.cli.registry import DEFAULT, Digest, Patience, Registry, look


def dump(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    registry: Registry = DEFAULT,
    digest: Digest = None,
    timeout: Patience = 5,
    mask: Annotated[bool, typer.Option("--mask", help="Replace addresses and host names: ip1, host1, …")] = False,
) -> None:
    """Print every node of a job, one line each: path | data | version. To look at, or to send to somebody."""
    typer.echo(look(registry, digest, timeout, lambda session: operations.dump(session, name, masked=mask)))
