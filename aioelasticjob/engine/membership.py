"""Joining and leaving a job: each is one transaction; and why to leave.

Who joins a job without a leader becomes its leader in the same transaction; who makes the job also notes its schedule.
A new assignment is required by the leader, who sees who has come or gone, or by the next instance that becomes leader.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from math import inf

from anyio import move_on_after

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core import zone_rules
from aioelasticjob.core.declaration import declared_otherwise, with_known_names
from aioelasticjob.core.effects import BecomeLeader, to_transactions, unkept_contents
from aioelasticjob.core.foreign import leave_alone
from aioelasticjob.core.instances import UNUSABLE, departure_note, instance, unusable_note
from aioelasticjob.core.layout import DECLARED, SWITCHES, Layout
from aioelasticjob.core.schedules import scheduling
from aioelasticjob.core.stored_config import replaced_by, see_same_kind
from aioelasticjob.core.view import JobView, parse, read
from aioelasticjob.engine.commit import MAX_CONFLICTS, write, write_anew
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.operator_log import log_overwritten, who_acted
from aioelasticjob.errors import Conflict, ForeignData, InvalidSetting, RegistryError, SessionEnded
from aioelasticjob.ground.latest import Latest
from aioelasticjob.jobs.kinds import fits
from aioelasticjob.logging import logger
from aioelasticjob.registry.transaction import Check, Create, Delete, Op, Set
from aioelasticjob.registry.tree import Tree

LEAVE = "to leave"
"""The purpose of the requests with which an instance leaves, for the log line if the registry refuses one."""

log = logger(__name__)


async def restore_parent(member: Member, parent: str) -> bool:
    """Make a parent node again that was removed by hand; False if that is impossible, say because the job was removed.

    Raises:
        RegistryError: the registry refuses it.
    """
    operations: list[Op] = [Check(member.layout.instance(member.id)), Create(parent)]
    try:
        await write(member, operations, f"to make {parent} again")
    except Conflict as conflict:
        return conflict.reason == "exists"
    return True


async def join(
    member: Member,
    config: JobConfig,
    trees: Latest[Tree],
    last: JobConfig | None = None,
    up_since: float = inf,
    common: Tree | None = None,
    *,
    year: int = 0,
) -> JobConfig:
    """Register the instance and return the configuration in force: the registry's, or with ``overwrite`` the declared.

    If the instance joins again, ``last`` is the configuration used before: it stays in force if the registry's is
    invalid, and nothing is overwritten.  ``up_since`` is when this process first joined.
    ``common`` has the nodes that all jobs have in common: an instance whose server is disabled there does not lead.
    ``year`` is the present one: the instance says from then on which rules it has for the job's time zone.

    Raises:
        InvalidSetting: the job was created, and has been removed: no process writes the configuration of such a job.
        JobConflict: the name belongs to another kind of job.
        ForeignData: the job is another program's, or its ``config`` is no configuration; nothing is changed.  With
            ``overwrite``, it is another program's or another job's.
        SessionEnded: the session was lost meanwhile.
    """
    for _ in range(MAX_CONFLICTS):
        tree = trees.value
        leave_alone(tree, member.layout)
        stored, holds = _agreed(tree, member.layout, config, last)
        parents = await _missing_parents(member, tree)
        view = read(tree, member.layout, holds, config.job_type, common)
        differing = [one.setting for one in declared_otherwise(config, holds)]
        unusable = None if view.unusable is None else unusable_note(view.configured_by, view.unusable)
        rules = zone_rules.note(zone_rules.present(holds, year)) if year else None
        notes = {"differs": differing or None, UNUSABLE: unusable, zone_rules.KEY: rules}
        description = member.describe(min(up_since, view.up_since), notes=notes)
        try:
            operations = _joining(member, view, stored, holds, parents, description)
            written = await write(member, operations, "to join")
            break
        except Conflict as conflict:
            await _overtaken(member, trees, tree, conflict)
    else:
        why = f"could not join within {MAX_CONFLICTS} attempts: something keeps changing it"
        raise ForeignData(member.layout.root, "", why)
    if last is None and config.overwrite and _is_configured(tree, member.layout):
        log_overwritten(member, stored, holds)
    with move_on_after(5):  # without its own node in the tree, the instance would believe it was removed
        await trees.until(lambda newer: newer.zxid >= written.zxid)
    return holds


async def _missing_parents(member: Member, tree: Tree) -> list[str]:
    """Return the nodes of the skeleton that do not exist, outermost first.  Nodes that are not mirrored are read."""
    unseen = member.layout.unseen_parents
    nodes = zip(unseen, await member.session.get_many(unseen), strict=True)
    there = {path for path, node in nodes if node is not None}
    return [path for path in tree.missing(member.layout.skeleton) if path not in there]


async def _overtaken(member: Member, trees: Latest[Tree], seen: Tree, conflict: Conflict) -> None:
    """Wait for a newer tree after a conflict; if the namespace is gone, make it again."""
    if (conflict.path, conflict.reason) == (member.layout.root, "missing"):
        await member.session.create_namespace()  # the registry has come back empty
        return
    with move_on_after(1):
        await trees.until(lambda newer: newer is not seen)


async def announce_leaving(member: Member) -> None:
    """Announce that the instance leaves, and stop being the leader, so that its idle items move to others at once.

    The instance's node stays until all items are settled.  Without a connection this waits for one, until the session
    ends.

    Raises:
        RegistryError: the registry refuses it.
    """
    with suppress(SessionEnded):
        await write_anew(member, lambda: _announcement(member), "to announce that it leaves", wait=True)


async def leave(member: Member) -> None:
    """Remove the instance's node, so that its items move at once rather than after a session timeout.

    Raises:
        RegistryError: the registry refuses it, or there is no connection.  Then the session's end removes the node.
    """
    await write_anew(member, lambda: _removal(member), LEAVE)


async def dismissed(member: Member, view: JobView, seen: int | None = None) -> str:
    """Return why this instance has to leave: an operator asks for it, or has removed the job or the instance's node.

    The result is empty if the instance stays.  ``seen`` is the zxid up to which it has seen the job: the result, and
    the log, name who has removed the job since then.
    """
    if member.id not in view.instances:
        if not await _is_removed(member):
            return ""
        what = "the instance's node was removed by hand"
        if member.layout.config not in view.tree:
            note = None
            with suppress(RegistryError):  # then it is not known who has acted
                note = None if seen is None else await member.session.get(SWITCHES)
            who = who_acted(member.layout.config, note, seen or 0)
            what = f"{who} has removed the job from the registry" if who else "the job was removed from the registry"
        kind = "instances leave, because their nodes were removed"
        member.log_limited(log, kind, f"this instance leaves, because {what}")
        return what
    asked = member.layout.shutdown(member.id)
    if asked not in view.tree:
        return ""
    with suppress(RegistryError):  # or the leader removes it on a tick
        await write(member, [Delete(asked)], "to take a request")
    return "an operator has asked this instance to leave"


async def _is_removed(member: Member) -> bool:
    """Whether somebody has removed this instance's node.

    The view alone does not show that: it may be older than the node, or this instance's session may be over.
    """
    try:
        mine = await member.session.exists(member.layout.instance(member.id))
    except RegistryError:
        return False
    if member.session.incarnation != member.incarnation:  # the session is over: the job joins again under the next
        return False
    return mine is None or mine.ephemeral_owner != member.incarnation


async def _announcement(member: Member) -> list[Op]:
    """Return the operations that announce the leaving, without those that are not needed any more."""
    layout = member.layout
    operations = list[Op]()
    paths = (layout.epoch, layout.host, layout.instance(member.id))  # each election raises the epoch
    epoch, leader_node, mine = await member.session.get_many(paths)
    if member.owns(mine):
        here = instance(member.id, mine)
        data = member.describe(here.up_since, leaving=True, before=mine.data)
        if not here.leaving:
            operations.append(Set(layout.instance(member.id), data, mine.stat.version))
    if member.owns(leader_node):
        if epoch is not None:
            operations.append(Check(layout.epoch, epoch.stat.version))
        operations.append(Delete(layout.host, leader_node.stat.version))
    return operations


async def _removal(member: Member) -> list[Op]:
    """Return the operations that remove the instance's nodes, and note that it has left gracefully."""
    layout = member.layout
    request = layout.shutdown(member.id)
    paths = (layout.instance(member.id), layout.host, request, layout.instances)
    mine, leader_node, asked, parent = await member.session.get_many(paths)
    operations: list[Op] = [Delete(layout.instance(member.id))] if mine else []
    if member.owns(leader_node):
        operations.append(Delete(layout.host, leader_node.stat.version))
    if operations and asked and not asked.stat.num_children:  # there may be no leader to remove it
        operations.append(Delete(request))
    if mine and parent is not None:
        operations.append(Set(layout.instances, departure_note(member.id), -1))
    return operations


def _agreed(tree: Tree, layout: Layout, given: JobConfig, last: JobConfig | None) -> tuple[JobConfig | None, JobConfig]:
    """Return the configuration in the registry, if there is one, and the one that is to be in force."""
    if given.is_created and not _is_configured(tree, layout):
        raise InvalidSetting("job", layout.job, "was removed from the registry")
    if last is not None:
        kept = read(tree, layout, last, last.job_type).config
        return kept, kept
    node = tree.get(layout.config)
    if node is None or not _is_configured(tree, layout):
        return None, given
    if given.overwrite:
        return replaced_by(given, node.data, layout), given.in_place_of(node.data)
    stored = parse(node.data, layout)
    see_same_kind(given, stored.job_type, stored.handler)
    try:
        fits(stored)
    except InvalidSetting as mistake:
        raise ForeignData(f"{layout.config}: {mistake.setting}", mistake.value, mistake.expected) from None
    return stored, with_known_names(stored, given).config  # a wrong one is logged once there is a view


def _is_configured(tree: Tree, layout: Layout) -> bool:
    """Whether anything has been written that is meant to be the job's configuration."""
    node = tree.get(layout.config)
    return node is not None and node.data != b""


def _joining(
    member: Member,
    view: JobView,
    stored: JobConfig | None,
    holds: JobConfig,
    parents: Sequence[str],
    description: bytes,
) -> list[Op]:
    layout = view.layout
    tree = view.tree
    operations: list[Op] = [Create(path) for path in parents]
    node = tree.get(layout.config)
    if holds.is_created:
        operations.insert(0, Check(layout.config))
    if node is None:
        operations.append(Create(layout.config, holds.to_json()))
        if layout.schedule not in tree:
            operations.append(Create(layout.schedule, json.dumps(scheduling(view.config)).encode()))
            operations += unkept_contents(view)
    elif stored is None or (holds.overwrite and stored is not holds and holds.to_json() != node.data):
        operations.append(Set(layout.config, holds.to_json(), node.stat.version))
    server = layout.server(member.ip)
    if server in tree:
        operations.append(Set(server, member.host.encode(), -1))  # its age says since when no instance was on it
    else:
        operations.append(Create(server, member.host.encode()))
        if holds.disabled:
            operations.append(Create(layout.server_disabled(member.ip), DECLARED))
    if layout.instance(member.id) not in tree:  # it exists if the job joins again in the same session
        operations.append(Create(layout.instance(member.id), description, ephemeral=True))
    is_disabled = view.is_disabled(member.ip) or (server not in tree and holds.disabled)
    cannot_use = view.unusable is not None and view.is_accepted
    if view.leader is None and member.features.issuperset(holds.requires) and not (is_disabled or cannot_use):
        operations += to_transactions(BecomeLeader(member.id), view)[0]
    return operations
