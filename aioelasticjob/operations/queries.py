"""Queries of operators: the registry's jobs as values.  They need only a session, and write nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from aioelasticjob.config.job import JobConfig, is_handler_name
from aioelasticjob.core.foreign import evidence, foreign, leave_alone
from aioelasticjob.core.handlers import HandlerProcess, processes_with
from aioelasticjob.core.layout import COMMON, HANDLERS, HandlerPaths, Layout, child
from aioelasticjob.core.records import is_cut_off
from aioelasticjob.core.requests import is_id
from aioelasticjob.core.view import JobView, read
from aioelasticjob.engine.dump import render
from aioelasticjob.errors import ForeignData, InvalidSetting
from aioelasticjob.operations.following import with_upstreams
from aioelasticjob.operations.status import JobStatus, status_of
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.tree import UNREAD_NODE, Node, Tree

READINGS: Final = 3
"""How often a job is read if its runs seem to be cut off.

The record and the lock of an item are read one after the other.  If the run ends meanwhile, they do not fit together.
"""


async def job(session: Session, name: str, *, now: float) -> JobStatus:
    """Read one job; its next fire is the first after ``now`` (seconds since the epoch).

    Raises:
        InvalidSetting: there is no such job.
        RegistryError: the registry could not be read.
    """
    await session.sync()
    if can_be_a_job(name):
        layout = Layout(name)
        for _ in range(READINGS):
            status = status_of(await session.subtree((*shown(layout), layout.offsets, *COMMON)), layout, now)
            if status is None or not _seems_cut_off(status):
                break
        if status is not None:
            upstreams = await _statuses(session, status.config.after, now)
            whole = with_upstreams(status, upstreams, now)
            return whole if status.config.handler is None else whole.knowing(await handlers(session))
    raise await no_such(session, name)


async def jobs(session: Session, *, now: float) -> tuple[JobStatus, ...]:
    """Read all jobs of the namespace, in the order of their names, without their offsets.

    Raises:
        RegistryError: the registry could not be read.
    """
    await session.sync()
    found = await _statuses(session, await names(session), now)
    there = await handlers(session)
    return tuple(with_upstreams(status, found, now).knowing(there) for status in found.values())


async def _statuses(session: Session, wanted: Sequence[str], now: float) -> dict[str, JobStatus]:
    """Return the statuses of those of some jobs that are there, by name, without what their upstreams are to them."""
    layouts = [Layout(name) for name in wanted]
    found = dict[str, JobStatus]()
    doubtful = layouts
    for _ in range(READINGS if layouts else 0):
        trees = await forest(session, doubtful)
        common = await session.subtree(COMMON)
        statuses = [status_of(tree, layout, now, common) for layout, tree in zip(doubtful, trees, strict=True)]
        found |= {status.name: status for status in statuses if status is not None}
        doubtful = [layout for layout in doubtful if layout.job in found and _seems_cut_off(found[layout.job])]
        if not doubtful:
            break
    return found


def _seems_cut_off(status: JobStatus) -> bool:
    """Whether a run of a job has begun and not ended, and nobody has its lock."""
    return any(one.run is None and one.record is not None and is_cut_off(one.record) for one in status.items)


async def handlers(session: Session) -> tuple[str, ...]:
    """Return the handlers that created jobs may name and that at least one process has, sorted.

    Raises:
        RegistryError: the registry could not be read.
    """
    (known,) = await session.children_many([HANDLERS])
    found = known or ()
    processes = await session.children_many([HandlerPaths(name).processes for name in found])
    return tuple(name for name, there in zip(found, processes, strict=True) if there)


async def handler_processes(session: Session, handler: str) -> tuple[HandlerProcess, ...]:
    """Return the processes that have a handler, each with the schema of the parameter that it takes.

    Raises:
        InvalidSetting: no handler can have this name.
        RegistryError: the registry could not be read.
    """
    if not is_handler_name(handler):
        raise InvalidSetting("handler", handler, "must be 1 to 200 letters, digits, '_', '-' or '.'")
    paths = HandlerPaths(handler)
    return processes_with(await session.subtree([paths.processes]), paths)


async def names(session: Session) -> tuple[str, ...]:
    """Return the names of the namespace's jobs, sorted; a node without ``config`` is no job.

    Raises:
        RegistryError: the registry could not be read.
    """
    (children,) = await session.children_many(["/"])
    candidates = [name for name in children or () if can_be_a_job(name)]
    configs = await session.get_many([Layout(name).config for name in candidates])
    return tuple(name for name, config in zip(candidates, configs, strict=True) if config is not None)


async def dump(session: Session, name: str, *, masked: bool = False) -> str:
    """Return every node of a job as text; with ``masked`` without addresses, host names and credentials.

    Raises:
        InvalidSetting: there is no such job.
        RegistryError: the registry could not be read.
    """
    await session.sync()
    layout = Layout(name)
    tree = await session.subtree([layout.root]) if can_be_a_job(name) else Tree()
    if not len(tree):
        raise await no_such(session, name)
    return await render(tree, layout, masked=masked)


async def view_of(session: Session, name: str, *, busy: bool = False, request: str | None = None) -> JobView:
    """Read the rarely changing nodes of a job, as rules see them; with ``busy`` also its execution.

    With ``request`` no other requests are read than this one, if there is one: a job may keep many.

    Raises:
        InvalidSetting: there is no such job.
        ForeignData: it is another program's.
        RegistryError: the registry could not be read.
    """
    await session.sync()
    if can_be_a_job(name):
        layout = Layout(name)
        roots = [*(shown(layout) if busy else layout.mirrored), *COMMON]
        if request is not None:
            roots.remove(layout.requests)
            roots += [layout.request(request)] if is_id(request) else []
        tree = await session.subtree(roots)
        leave_alone(tree, layout)
        if layout.config in tree:
            return read(tree, layout, JobConfig(job_name=name), time=session.registry_time)
    raise await no_such(session, name)


async def requests_view(session: Session, name: str, id: str = "") -> JobView:
    """Read a job's configuration and its requests, and which nodes its leader has, which the note of an action needs.

    Of the requests only the one with this ``id`` is read, if there is one: a job may keep many.

    Raises:
        InvalidSetting: there is no such job.
        ForeignData: it is another program's.
        RegistryError: the registry could not be read.
    """
    await session.sync()
    layout = Layout(name)
    chosen = layout.request(id) if is_id(id) else layout.requests
    names_of = (layout.leader, layout.election)
    tree = await session.subtree((layout.config, chosen), names_of) if can_be_a_job(name) else Tree()
    leave_alone(tree, layout)
    if layout.config not in tree:
        raise await no_such(session, name)
    view = read(tree, layout, JobConfig(job_name=name))
    return await requests_view(session, name) if id and not view.requests else view


async def foreign_jobs(session: Session, layouts: Sequence[Layout]) -> dict[str, ForeignData]:
    """Return those of some jobs that are another program's, by name, each with the error that says so.

    Raises:
        RegistryError: the registry could not be read.
    """
    tree = await session.subtree([root for layout in layouts for root in evidence(layout)])
    found = {layout.job: foreign(tree, layout) for layout in layouts}
    return {job: error for job, error in found.items() if error is not None}


async def forest(session: Session, layouts: Sequence[Layout]) -> list[Tree]:
    """Read the nodes that a status shows, of many jobs at once: each request asks for as many nodes as it can carry.

    Unlike ``Session.subtree`` it asks for children's names only where a node says that it has children; most have none.
    An item's node below ``sharding`` has no data of its own, so only its children are read.
    """
    zxid = session.zxid
    found = dict[str, Node]()
    level = [root for layout in layouts for root in shown(layout)]
    named = list[str]()
    holders = {layout.sharding for layout in layouts}
    while level or named:
        nodes = zip(level, await session.get_many(level), strict=True)
        present = {path: node for path, node in nodes if node is not None}
        found |= present
        parents = [*named, *(path for path, node in present.items() if node.stat.num_children)]
        children = zip(parents, await session.children_many(parents), strict=True)
        found |= dict.fromkeys(named, UNREAD_NODE)
        level = []
        named = []
        for path, below in children:
            (named if path in holders else level).extend(child(path, name) for name in below or ())
    return _parted(found, layouts, zxid)


def shown(layout: Layout) -> tuple[str, ...]:
    """Return the roots of the nodes that a status shows, except the offsets."""
    return layout.config, layout.servers, layout.instances, layout.leader, layout.sharding, layout.execution


def can_be_a_job(name: str) -> bool:
    """Whether a job can have that name; only such names are made part of a path."""
    try:
        JobConfig(job_name=name)
    except ValueError:
        return False
    return True


async def no_such(session: Session, name: str) -> InvalidSetting:
    """Return the error for a job that does not exist; it lists those that do."""
    return InvalidSetting(
        "job", name, f"there is no such job in {session.settings.address}; there are: {listed(await names(session))}"
    )


def listed(things: Iterable[object], most: int = 20) -> str:
    """Return texts as one line for people; of many, only the first are named."""
    shown = [str(thing) for thing in things]
    more = f" and {len(shown) - most:,} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more or "none"


def items_text(items: Iterable[int]) -> str:
    """Return items by their numbers, as a part of a sentence: ``item 3``, ``items 0, 1``."""
    found = sorted(items)
    noun = "items" if len(found) > 1 else "item"
    return f"{noun} {listed(found)}"


def _parted(found: dict[str, Node], layouts: Sequence[Layout], zxid: int) -> list[Tree]:
    parts: dict[str, dict[str, Node]] = {layout.job: {} for layout in layouts}
    for path, node in found.items():
        parts[path.split("/", 2)[1]][path] = node
    return [Tree(parts[layout.job], zxid) for layout in layouts]


def has_item(view: JobView, item: object) -> bool:
    """Whether a job has an item, or had it before the count was lowered.  ``True`` is no item, though it equals 1."""
    if not isinstance(item, int) or isinstance(item, bool):
        return False
    return 0 <= item < view.config.sharding_total_count or item in view.items


def no_such_item(setting: str, given: object, job: str, count: int, beyond: Sequence[int] = ()) -> InvalidSetting:
    """Return the error that says which items a job has; ``beyond``: those of several that it does not have."""
    if count == 1 and beyond:
        return InvalidSetting(setting, given, f"{job} has only the item 0, not {listed(beyond)}")
    if count == 1:
        return InvalidSetting(setting, given, f"{job} has only the item 0")
    last = count - 1
    if beyond:
        return InvalidSetting(setting, given, f"{job} has the items 0 to {last}, not {listed(beyond)}")
    return InvalidSetting(setting, given, f"{job} has the items 0 to {last}")
