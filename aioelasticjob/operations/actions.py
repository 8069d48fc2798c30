"""The actions of operators on jobs, servers, instances and items.

Each action is one conditional transaction.  If everything is already as the operator wants it, the action writes
nothing and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from aioelasticjob.coordination.records import too_large
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.layout import Layout
from aioelasticjob.operations.queries import listed, names, view_of
from aioelasticjob.operations.results import NotPossible, OperationResult, commit
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Check, Create, Delete, Op
from aioelasticjob.registry.tree import Node

Flag: TypeAlias = Literal["paused", "disabled"]
_UNDONE: Mapping[Flag, str] = {"paused": "resumed", "disabled": "enabled"}
_PATH: Mapping[Flag, Callable[[Layout, str], str]] = {
    "paused": Layout.server_paused,
    "disabled": Layout.server_disabled,
}


async def trigger(
    session: Session, job: str, *, instance: str | None = None, parameter: str | None = None
) -> OperationResult:
    """Ask one instance, or all that may, to run the items they hold now, once; ``parameter`` is for that run alone.

    Raises:
        InvalidSetting: no such job or instance, or the parameter is no text, or too large for a record.
        Refusal: no instance is there to run it, all instances are switched off or hold no item that may run, or
            a trigger with another parameter waits.
        ChangedMeanwhile: an instance has gone.
        RegistryError: the registry could not be read or written.
    """
    data = _data(parameter)
    view = await view_of(session, job)
    asked = _asked(view, instance)
    _see_what_runs(view, asked)
    layout, requests = view.layout, list[Op]()
    for one in asked:
        waiting = view.tree.get(layout.trigger(one))
        if waiting is None:
            requests += [Check(layout.instance(one)), Create(layout.trigger(one), data)]
        elif waiting.data != data:
            raise NotPossible(_waits(job, one, waiting.data))
    with_it = f" with the parameter {parameter!r}" if parameter else ""
    if not requests:
        return await commit(session, (), f"{job}: a trigger{with_it} waits already for {_named(asked)}")
    requests = [*_stands(view), *requests]
    return await commit(session, requests, f"{job}: asked {_named(asked)} to run its items now{with_it}")


async def pause(session: Session, job: str, *, server: str | None = None) -> OperationResult:
    """Pause a job on one server, or on all servers that it knows: it claims nothing there until it is resumed.

    Raises:
        InvalidSetting: no such job or server.
        Refusal: no server of the job is known yet.
        ChangedMeanwhile: somebody else was faster.
        RegistryError: the registry could not be read or written.
    """
    return await _mark(session, job, "paused", server)


async def resume(session: Session, job: str, *, server: str | None = None) -> OperationResult:
    """Undo ``pause``; raises the same errors."""
    return await _unmark(session, job, "paused", server)


async def disable(session: Session, job: str, *, server: str | None = None, item: int | None = None) -> OperationResult:
    """Disable a job on one server, or on all servers that it knows, or disable one item, until it is enabled again.

    Raises: as ``pause`` does, and InvalidSetting where there is no such item.
    """
    if item is None:
        return await _mark(session, job, "disabled", server)
    _either(server, item)
    view = await view_of(session, job)
    flag, already = _item_flag(view, item)
    if already:
        return await commit(session, (), f"{job}: item {item} is disabled already")
    item_node = view.layout.item(item).sharding
    parents = [path for path in (view.layout.sharding, item_node) if path not in view.tree]
    operations = [*_stands(view), *map(Create, parents), Create(flag)]
    return await commit(session, operations, f"{job}: item {item} is disabled")


async def enable(session: Session, job: str, *, server: str | None = None, item: int | None = None) -> OperationResult:
    """Undo ``disable``; raises the same errors."""
    if item is None:
        return await _unmark(session, job, "disabled", server)
    _either(server, item)
    view = await view_of(session, job)
    flag, there = _item_flag(view, item)
    if not there:
        return await commit(session, (), f"{job}: item {item} is not disabled")
    removal = _removal([(flag, view.obstructed(flag))])
    return await commit(session, [*_stands(view), *removal], f"{job}: item {item} is enabled")


async def pause_server(session: Session, ip: str) -> OperationResult:
    """Pause a server in all jobs that know it, at once.

    Raises:
        InvalidSetting: no job knows such a server.
        ChangedMeanwhile: somebody else was faster.
        RegistryError: the registry could not be read or written.
    """
    return await _mark_everywhere(session, ip, "paused")


async def resume_server(session: Session, ip: str) -> OperationResult:
    """Undo ``pause_server``; raises the same errors."""
    return await _unmark_everywhere(session, ip, "paused")


async def disable_server(session: Session, ip: str) -> OperationResult:
    """Disable a server in all jobs that know it, at once; raises the same errors as ``pause_server``."""
    return await _mark_everywhere(session, ip, "disabled")


async def enable_server(session: Session, ip: str) -> OperationResult:
    """Undo ``disable_server``; raises the same errors."""
    return await _unmark_everywhere(session, ip, "disabled")


async def shut_down(session: Session, job: str, *, instance: str | None = None) -> OperationResult:
    """Ask one instance of a job, or all, to finish their runs and leave the job; their processes and other jobs go on.

    Raises:
        InvalidSetting: no such job or instance.
        Refusal: nobody is there.
        ChangedMeanwhile: an instance has gone.
        RegistryError: the registry could not be read or written.
    """
    view = await view_of(session, job)
    layout, leaving = view.layout, _there(view, instance)
    new = [one for one in leaving if layout.shutdown(one) not in view.tree]
    if not new:
        return await commit(session, (), f"{job}: {_named(leaving)} was asked to leave already")
    requests = [op for one in new for op in (Check(layout.instance(one)), Create(layout.shutdown(one)))]
    return await commit(session, [*_stands(view), *requests], f"{job}: asked {_named(new)} to leave")


def see_who_runs(view: JobView) -> None:
    """Refuse a run that nobody could make now.

    Raises:
        NotPossible: no instance is there, or all are switched off, or all items are disabled.
    """
    _see_what_runs(view, _asked(view, None))


def _data(parameter: str | None) -> bytes:
    if parameter is not None and not isinstance(parameter, str):
        raise InvalidSetting("parameter", parameter, "must be text")
    try:
        data = (parameter or "").encode()
    except UnicodeEncodeError:
        raise InvalidSetting("parameter", parameter, "must be text that UTF-8 can spell") from None
    if mistake := too_large(data):
        raise mistake
    return data


def _there(view: JobView, instance: str | None) -> Sequence[str]:
    """Return the registered instances that an action is for: the named one, or all."""
    present = sorted(view.instances)
    if instance is not None and instance not in present:
        raise InvalidSetting(
            "instance", instance, f"{view.layout.job} has no such instance; there are: {listed(present)}"
        )
    if not present:
        raise NotPossible(f"{view.layout.job}: no instance is there: start a process that runs it first")
    return present if instance is None else [instance]


def _asked(view: JobView, instance: str | None) -> Sequence[str]:
    """Return the instances that an action is for and that would run something if they were asked to."""
    present = _there(view, instance)
    able = [one for one in present if one in view.staying]
    if all(view.instances[one].leaving for one in present):
        who = "all its instances are" if instance is None else f"{instance} is"
        raise NotPossible(f"{view.layout.job}: {who} leaving: start a process that runs it, or ask one that stays")
    if all(one in view.lacking for one in present):
        who = "its instances do" if instance is None else f"{instance} does"
        needed = listed(list(view.config.requires))
        raise NotPossible(f"{view.layout.job}: {who} not know all that the job requires ({needed}): upgrade first")
    if not able:
        who = "its servers are" if instance is None else f"the server of {instance} is"
        raise NotPossible(f"{view.layout.job}: {who} switched off: resume or enable first")
    return able


def _see_what_runs(view: JobView, asked: Sequence[str]) -> None:
    """Refuse a trigger that would run no item, unless an assignment is under way, which may change that."""
    held = [item for item, holder in view.assignment.items() if holder in asked]
    if not (view.settled and view.assignment) or any(item not in view.disabled_items for item in held):
        return
    if held:
        raise NotPossible(f"{view.layout.job}: all items of {_named(asked)} are disabled: enable one first")
    raise NotPossible(f"{view.layout.job}: {_named(asked)} holds no item: ask without naming an instance")


def _waits(job: str, instance: str, data: bytes) -> str:
    parameter = f"with the parameter {data.decode('utf-8', 'replace')!r:.80}" if data else "without a parameter"
    return (
        f"{job}: a trigger {parameter} waits already for {instance}, which takes it when its run ends: "
        "ask again after that, nothing was written"
    )


def _removal(flags: Sequence[tuple[str, bool]]) -> list[Op]:
    """Return the operations that remove flags; refuse if a person has made nodes below one of them."""
    for path, obstructed in flags:
        if obstructed:
            raise NotPossible(
                f"{path} has nodes below it, so it cannot be removed: remove those first; nothing was written"
            )
    return [Delete(path) for path, _ in flags]


def _stands(view: JobView) -> list[Op]:
    """Return the condition of every action on a job: the job still exists."""
    return [Check(view.layout.config)]


def _servers(view: JobView, server: str | None) -> Sequence[str]:
    known = view.tree.children(view.layout.servers)
    if server is not None and server not in known:
        raise InvalidSetting("server", server, f"{view.layout.job} knows no such server; there are: {listed(known)}")
    if not known:
        raise NotPossible(f"{view.layout.job}: knows no server yet: start a process that runs it first")
    return known if server is None else [server]


async def _mark(session: Session, job: str, flag: Flag, server: str | None) -> OperationResult:
    view = await view_of(session, job)
    servers = _servers(view, server)
    new = [ip for ip in servers if _PATH[flag](view.layout, ip) not in view.tree]
    if not new:
        return await commit(session, (), f"{job}: is {flag} on {listed(servers)} already")
    flags: list[Op] = [Create(_PATH[flag](view.layout, ip)) for ip in new]
    return await commit(session, [*_stands(view), *flags], f"{job}: {flag} on {listed(new)}")


async def _unmark(session: Session, job: str, flag: Flag, server: str | None) -> OperationResult:
    view = await view_of(session, job)
    servers = _servers(view, server)
    marked = [ip for ip in servers if _PATH[flag](view.layout, ip) in view.tree]
    if not marked:
        return await commit(session, (), f"{job}: is not {flag} on {listed(servers)}")
    paths = [_PATH[flag](view.layout, ip) for ip in marked]
    flags = _removal([(path, view.obstructed(path)) for path in paths])
    return await commit(session, [*_stands(view), *flags], f"{job}: {_UNDONE[flag]} on {listed(marked)}")


def _either(server: str | None, item: int) -> None:
    if server is not None:
        raise InvalidSetting("item", item, f"give either an item or a server ({server!r}): an item is off everywhere")


def _item_flag(view: JobView, item: int) -> tuple[str, bool]:
    """Return the path of an item's flag, and whether it is there."""
    count = view.config.sharding_total_count
    wanted = isinstance(item, int) and not isinstance(item, bool) and (0 <= item < count or item in view.items)
    if not wanted:
        raise InvalidSetting("item", item, f"{view.layout.job} has the items 0 to {count - 1}")
    flag = view.layout.item(item).disabled
    return flag, flag in view.tree


async def _mark_everywhere(session: Session, ip: str, flag: Flag) -> OperationResult:
    marks = await _marks(session, ip, flag)
    new = [path for path, node in marks.items() if node is None]
    if not new:
        return await commit(session, (), f"server {ip}: is {flag} in {_counted(marks)} already")
    return await commit(session, [Create(path) for path in new], f"server {ip}: {flag} in {_counted(new)}")


async def _unmark_everywhere(session: Session, ip: str, flag: Flag) -> OperationResult:
    marks = await _marks(session, ip, flag)
    marked = {path: node for path, node in marks.items() if node is not None}
    if not marked:
        return await commit(session, (), f"server {ip}: is not {flag} in any of {_counted(marks)}")
    removal = _removal([(path, node.stat.num_children > 0) for path, node in marked.items()])
    return await commit(session, removal, f"server {ip}: {_UNDONE[flag]} in {_counted(marked)}")


async def _marks(session: Session, ip: str, flag: Flag) -> Mapping[str, Node | None]:
    """Return a server's flags by path, in the jobs that know it; a flag is a child of the server's node in a job."""
    paths = [_PATH[flag](layout, ip) for layout in await knowing(session, ip)]
    return dict(zip(paths, await session.get_many(paths), strict=True))


async def knowing(session: Session, ip: str) -> list[Layout]:
    """Return the jobs that know a server.

    Raises:
        InvalidSetting: none does.
    """
    await session.sync()
    layouts = [Layout(name) for name in await names(session)]
    servers = [found or () for found in await session.children_many([layout.servers for layout in layouts])]
    found = [layout for layout, known in zip(layouts, servers, strict=True) if ip in known]
    if not found:
        there = sorted({server for known in servers for server in known})
        raise InvalidSetting("server", ip, f"no job knows such a server; there are: {listed(there)}")
    return found


def _counted(paths: Sequence[str] | Mapping[str, object]) -> str:
    """Return the jobs that paths are about, as one line."""
    return f"{len(paths):,} job{'s' if len(paths) != 1 else ''} ({listed(path.split('/', 2)[1] for path in paths)})"


def _named(instances: Sequence[str]) -> str:
    return instances[0] if len(instances) == 1 else f"{len(instances):,} instances"
