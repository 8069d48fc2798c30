"""Removing a job, or a server that will not come back, from the registry."""

from __future__ import annotations

from collections.abc import Iterator

from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.view import JobView
from aioelasticjob.layout import Layout
from aioelasticjob.operations.acting import knowing
from aioelasticjob.operations.outcome import ChangedMeanwhile, Done, Refusal, carry_out_groups
from aioelasticjob.operations.reading import can_be_a_job, listed, no_such
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.tree import Tree
from aioelasticjob.registry.txn import Delete, Op

ATTEMPTS = 10
"""Attempts to remove a running job by force: its instances go on writing until they learn of the removal."""


async def remove(session: Session, job: str, *, force: bool = False) -> Done:
    """Remove everything the registry holds of a job: settings, records, offsets.  Only an export can restore it.

    With ``force`` the job is removed even while instances are there.  They then leave, but finish their present runs
    without a lock, so that instances that are started later may run the same items at the same time.

    Raises:
        InvalidSetting: no such job.
        Refusal: instances are there.
        ChangedMeanwhile: something was written meanwhile, or an instance has come.
        RegistryError: the registry could not be read or written.
    """
    for _ in range(ATTEMPTS - 1 if force else 0):
        try:
            return await _remove(session, job, force)
        except ChangedMeanwhile:
            continue
    return await _remove(session, job, force)


async def remove_server(session: Session, ip: str) -> Done:
    """Remove a server from all jobs, together with its flags; if it comes back, it is a new server.

    Raises:
        InvalidSetting: no job knows such a server.
        Refusal: instances are there.
        ChangedMeanwhile: something was written meanwhile, or an instance has come.
        RegistryError: the registry could not be read or written.
    """
    layouts = await knowing(session, ip)
    tree = await session.subtree([path for layout in layouts for path in (layout.server(ip), layout.instances)])
    used = [layout.job for layout in layouts if ip in _addresses(tree, layout)]
    if used:
        raise Refusal(f"server {ip}: instances of {listed(used)} are there: shut them down first")
    groups = [list(_deletions(tree.below(layout.server(ip)))) for layout in layouts]
    jobs = listed(layout.job for layout in layouts)
    return await carry_out_groups(session, groups, f"server {ip}: forgotten by {jobs}", "jobs")


async def _remove(session: Session, job: str, force: bool) -> Done:
    await session.sync()
    layout = Layout(job)
    tree = await session.subtree([layout.root]) if can_be_a_job(job) else Tree()
    if layout.config not in tree:
        raise await no_such(session, job)
    there = JobView(layout, tree, JobConfig(job_name=job)).instances
    if there and not force:
        raise Refusal(f"{job}: {len(there):,} of its instances are there ({listed(sorted(there))}): shut it down first")
    groups = [[deletion] for deletion in _deletions(tree)]
    return await carry_out_groups(session, groups, f"{job}: removed, {len(groups):,} nodes in all", "nodes")


def _addresses(tree: Tree, layout: Layout) -> set[str]:
    return {one.ip for one in JobView(layout, tree, JobConfig(job_name=layout.job)).instances.values()}


def _deletions(tree: Tree) -> Iterator[Op]:
    """Yield the operations that remove a tree, deepest first; they fail if a node has got children meanwhile."""
    for path in sorted(tree, key=lambda path: path.count("/"), reverse=True):
        yield Delete(path)
