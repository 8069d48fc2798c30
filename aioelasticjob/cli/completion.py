"""The shell's completion: names from the registry, if it answers within a second; otherwise nothing, and no error."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import typer

from aioelasticjob import operations
from aioelasticjob.cli.registry import RegistryOptions
from aioelasticjob.config.job import JobConfig
from aioelasticjob.registry.session import Session

TIMEOUT = 1.0
"""Seconds that a person who pressed TAB waits at most."""


def jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs whose names begin so."""
    return _beginning(incomplete, _found(ctx, operations.names))


def instances(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the instances of the job that was typed before."""

    async def read(session: Session) -> Sequence[str]:
        return [one.id for one in (await operations.job(session, _name(ctx), now=0)).instances]

    return _beginning(incomplete, _found(ctx, read))


def servers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the servers of the job that was typed before, or of all jobs."""

    async def read(session: Session) -> Sequence[str]:
        if name := _name(ctx):
            return [one.ip for one in (await operations.job(session, name, now=0)).servers]
        return [one.ip for one in operations.by_server(await operations.jobs(session, now=0))]

    return _beginning(incomplete, _found(ctx, read))


def calendars(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the calendars whose names begin so."""

    async def read(session: Session) -> Sequence[str]:
        return [one.name for one in await operations.calendars(session)]

    return _beginning(incomplete, _found(ctx, read))


def settings(incomplete: str) -> list[str]:
    """Return the settings that can be changed, each followed by ``=``."""
    return _beginning(incomplete, [f"{name}=" for name in JobConfig.model_fields])


def _found(ctx: typer.Context, read: Callable[[Session], Awaitable[Sequence[str]]]) -> Sequence[str]:
    logging.disable()  # no error is printed into a line that is being typed
    try:
        where = RegistryOptions.of(ctx, ctx.params)
        return RegistryOptions(where.address, where.access, TIMEOUT).look(read)
    except Exception:
        return []
    finally:
        logging.disable(logging.NOTSET)


def _name(ctx: typer.Context) -> str:
    """Return the job that was typed before; it is not parsed yet while the value of an option is being typed."""
    name = ctx.params.get("name") or next((word for word in ctx.args if not word.startswith("-")), "")
    return name if isinstance(name, str) else ""


def _beginning(incomplete: str, found: Sequence[str]) -> list[str]:
    return [one for one in found if one.startswith(incomplete)]
