"""Jobs that follow others, as the registry holds them."""

from __future__ import annotations

from collections.abc import Iterable

from aioelasticjob.clock import SystemClock
from aioelasticjob.config.following import check_following
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.view import parse
from aioelasticjob.errors import ForeignData, InvalidSetting
from aioelasticjob.registry.session import Session


async def check_upstreams(session: Session, config: JobConfig) -> None:
    """Check the jobs that a job is to follow.

    Raises:
        InvalidSetting: there is no such job, or the job cannot follow it.
        RegistryError: the registry could not be read.
    """
    if not config.after:
        return
    found = await _upstreams(session, config)
    missing = [name for name in config.after if name not in found]
    if missing:
        raise InvalidSetting("after", missing[0], "must be jobs of this namespace: there is no such job")
    check_following(config, found, round(SystemClock().now() * 1000))


async def _upstreams(session: Session, config: JobConfig) -> dict[str, JobConfig]:
    """Return the configurations of all jobs that a job follows, also through others, as far as they can be used."""
    found = dict[str, JobConfig]()
    wanted = set(config.after)
    seen = {config.job_name}
    while wanted:
        seen |= wanted
        found |= await _configurations(session, sorted(wanted))
        wanted = {name for one in found.values() for name in one.after} - seen
    return found


async def _configurations(session: Session, names: Iterable[str]) -> dict[str, JobConfig]:
    """Return the configurations of some jobs, without those that nobody can use."""
    layouts = [Layout(name) for name in names]
    found = dict[str, JobConfig]()
    nodes = await session.get_many([layout.config for layout in layouts])
    for layout, node in zip(layouts, nodes, strict=True):
        if node is None:
            continue
        try:
            found[layout.job] = parse(node.data, layout)
        except ForeignData:
            continue
    return found
