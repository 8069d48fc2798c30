"""Removing a job, or a server that will not come back, from the registry."""

from __future__ import annotations

from collections.abc import Iterator

from aioelasticjob.config.job import JobConfig, is_handler_name
from aioelasticjob.core.foreign import leave_alone
from aioelasticjob.core.layout import SWITCHES, HandlerPaths, Layout, server_switch
from aioelasticjob.core.view import JobView
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.ground.plural import counted
from aioelasticjob.operations.following import marks_of
from aioelasticjob.operations.queries import can_be_a_job, listed, no_such
from aioelasticjob.operations.results import (
    ChangedMeanwhile,
    NotPossible,
    OperationResult,
    commit_groups,
    noted_for_all,
)
from aioelasticjob.operations.switches import knowing
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Delete, Op
from aioelasticjob.registry.tree import Tree

MAX_ATTEMPTS = 10
"""Attempts to remove a running job by force: its instances go on writing until they learn of the removal."""


async def remove(session: Session, job: str, *, force: bool = False, by: str = "") -> OperationResult:
    """Remove everything the registry holds of a job: settings, records, offsets.  Only an export can restore it.

    With ``force`` the job is removed even while instances are there.  They then leave, but finish their present runs
    without a lock, so that instances that are started later may run the same items at the same time.  They log who has
    removed the job, if ``by`` names somebody.

    Raises:
        InvalidSetting: no such job.
        ForeignData: the job is another program's.
        NotPossible: instances are there.
        ChangedMeanwhile: something was written meanwhile, or an instance has come.
        RegistryError: the registry could not be read or written.
    """
    for _ in range(MAX_ATTEMPTS - 1 if force else 0):
        try:
            return await _remove(session, job, force, by)
        except ChangedMeanwhile:
            continue
    return await _remove(session, job, force, by)


async def remove_server(session: Session, ip: str) -> OperationResult:
    """Remove a server from all jobs, together with its flags; if it comes back, it is a new server.

    Jobs of other programs are left alone.

    Raises:
        InvalidSetting: no job knows such a server.
        ForeignData: only jobs of other programs know such a server.
        NotPossible: instances are there.
        ChangedMeanwhile: something was written meanwhile, or an instance has come.
        RegistryError: the registry could not be read or written.
    """
    layouts = await knowing(session, ip)
    roots = [path for layout in layouts for path in (layout.server(ip), layout.instances)]
    tree = await session.subtree([*roots, server_switch(ip)])
    used = [layout.job for layout in layouts if ip in _addresses(tree, layout)]
    if used:
        raise NotPossible(f"server {ip}: instances of {listed(used)} are there: shut them down first")
    groups = [list(_deletions(tree.below(layout.server(ip)))) for layout in layouts]
    groups += [said] if (said := list(_deletions(tree.below(server_switch(ip))))) else []
    jobs = listed(layout.job for layout in layouts)
    return await commit_groups(session, groups, f"server {ip}: removed from {jobs}", "jobs")


async def _remove(session: Session, job: str, force: bool, by: str) -> OperationResult:
    await session.sync()
    layout = Layout(job)
    tree = await session.subtree([layout.root, SWITCHES]) if can_be_a_job(job) else Tree()
    leave_alone(tree, layout)
    if layout.config not in tree:
        raise await no_such(session, job)
    there = JobView(layout, tree, JobConfig(job_name=job)).instances
    if there and not force:
        raise NotPossible(
            f"{job}: {len(there):,} of its instances are there ({listed(sorted(there))}): shut it down first"
        )
    deletions = list(_deletions(tree.below(layout.root)))
    index = await _in_index(session, tree, layout)
    if index is not None:  # what is left if the removal is cut off is a job that is being removed
        last = [op for op in deletions if op.path in (layout.config, layout.root)]
        groups = [[one] for one in deletions if one not in last]
        groups.append([*last, index])
    else:
        groups = [[one] for one in deletions]
    groups[:0] = [[Delete(mark)] for mark in await marks_of(session, tree, layout)]
    summary = f"{job}: removed, {counted(len(deletions), 'node')} in all"
    if there and (first := noted_for_all(tree, by, [Delete(layout.config)])):
        groups.insert(0, first)
    return await commit_groups(session, groups, summary, "nodes")


async def _in_index(session: Session, tree: Tree, layout: Layout) -> Delete | None:
    """Return the operation that removes a created job from the index of its handler; None if it is in none."""
    config = tree.get(layout.config)
    handler = None if config is None else json_object(config.data).get("handler")
    if not isinstance(handler, str) or not is_handler_name(handler):
        return None
    path = HandlerPaths(handler).job(layout.job)
    (node,) = await session.get_many([path])
    return None if node is None else Delete(path, node.stat.version)


def _addresses(tree: Tree, layout: Layout) -> set[str]:
    return {one.ip for one in JobView(layout, tree, JobConfig(job_name=layout.job)).instances.values()}


def _deletions(tree: Tree) -> Iterator[Op]:
    """Yield the operations that remove a tree, deepest first; they fail if a node has got children meanwhile."""
    for path in sorted(tree, key=lambda path: path.count("/"), reverse=True):
        yield Delete(path)
