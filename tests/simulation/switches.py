"""Where operators switch off what runs, for those who do it and those who judge what comes of it."""

from __future__ import annotations

from aioelasticjob.core.layout import SWITCHES, Layout, server_switch
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create
from aioelasticjob.registry.tree import parent


async def set_flag(session: Session, flag: str) -> None:
    """Make a flag, and above a server's flag for all jobs what is missing."""
    above = (SWITCHES, parent(flag)) if flag.startswith(SWITCHES) else ()
    missing = [path for path, node in zip(above, await session.get_many(above), strict=True) if node is None]
    await session.commit([*map(Create, missing), Create(flag)], incarnation=session.incarnation)


def closing(job: str, host: str) -> tuple[str, ...]:
    """Return the nodes each of which keeps a server from running a job."""
    return (*pausing(job, host), *disabling(job, host))


def pausing(job: str, host: str) -> tuple[str, ...]:
    """Return the nodes each of which lets a job rest on a server that keeps its items."""
    layout = Layout(job)
    return (layout.paused, layout.server_paused(host), server_switch(host, "paused"))


def disabling(job: str, host: str) -> tuple[str, ...]:
    """Return the nodes each of which gives the items of a job on a server away."""
    return (Layout(job).server_disabled(host), server_switch(host, "disabled"))
