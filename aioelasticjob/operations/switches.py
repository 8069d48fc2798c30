"""Switching off and on: operators pause and disable jobs, servers and items.

Pausing keeps the assignment, disabling gives the items away; for a whole job both come to the same.  Each action is one
conditional transaction, which writes or removes the node of what was asked for, and notes who acts, if ``by`` names
somebody: workers log it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal, TypeAlias

from aioelasticjob.core.layout import DECLARED, SWITCHES, Layout, server_switch
from aioelasticjob.core.pauses import MAX_NOTE, pause_data, pause_in
from aioelasticjob.core.view import JobView
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.times import time_text
from aioelasticjob.operations.queries import foreign_jobs, has_item, items_text, listed, names, no_such_item, view_of
from aioelasticjob.operations.results import NotPossible, OperationResult, commit, noted_for_all, signed
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.transaction import Create, Delete, Op, Set
from aioelasticjob.registry.tree import Node, Tree

Flag: TypeAlias = Literal["paused", "disabled"]
FLAGS: Final[tuple[Flag, ...]] = ("paused", "disabled")
SAME: Final = " (for a whole job disabling is the same as pausing)"
_UNDONE: Mapping[Flag, str] = {"paused": "resumed", "disabled": "enabled"}
_PATH: Mapping[Flag, Callable[[Layout, str], str]] = {
    "paused": Layout.server_paused,
    "disabled": Layout.server_disabled,
}


async def pause(
    session: Session,
    job: str,
    *,
    server: str | None = None,
    by: str = "",
    note: str = "",
    until: datetime | None = None,
) -> OperationResult:
    """Pause a job, or a job on one server: nothing is claimed until it is resumed, and all items stay where they are.

    ``note`` says why.  The pause of a whole job ends by itself at ``until``, by the registry's clock.  If the job is
    paused already, its pause gets this note and this end.

    Raises:
        InvalidSetting: no such job or server; the end is over, or that of one server in one job; the note is too long.
        ForeignData: the job is another program's.
        ChangedMeanwhile: somebody else was faster.
        RegistryError: the registry could not be read or written.
    """
    if server is None:
        return await _pause_job(session, job, PauseWish(by, note, until))
    if until is not None:
        expected = "no end for one server in one job: pause the whole job, or the server in all jobs"
        raise InvalidSetting("until", until, expected)
    return await _mark(session, job, "paused", server, by, _pause_data(session, PauseWish(by, note)))


async def resume(session: Session, job: str, *, server: str | None = None, by: str = "") -> OperationResult:
    """Undo ``pause``; raises the same errors, and NotPossible where nodes made by hand are in the way."""
    if server is None:
        return await _resume_job(session, job, by)
    return await _unmark(session, job, "paused", server, by)


async def disable(
    session: Session, job: str, *, server: str | None = None, item: int | None = None, by: str = ""
) -> OperationResult:
    """Disable a job on one server, so that its items move to others, or one item; for a whole job: as ``pause``.

    Raises: as ``pause`` does, and InvalidSetting where there is no such item.
    """
    if item is None and server is None:
        return await _pause_job(session, job, PauseWish(by), SAME)
    if item is None:
        return await _mark(session, job, "disabled", str(server), by)
    _either(server, item)
    view = await view_of(session, job)
    flag, already = _item_flag(view, item)
    if already:
        return await commit(session, (), f"{job}: item {item} is disabled already")
    item_node = view.layout.item(item).sharding
    parents = [path for path in (view.layout.sharding, item_node) if path not in view.tree]
    marks = [*map(Create, parents), Create(flag)]
    return await commit(session, signed(view, by, marks), f"{job}: item {item} is disabled")


async def enable(
    session: Session, job: str, *, server: str | None = None, item: int | None = None, by: str = ""
) -> OperationResult:
    """Undo ``disable``; raises the same errors, and NotPossible where nodes made by hand are in the way.

    A whole job whose setting ``disabled`` is on is enabled on all servers that started disabled for that reason, and
    the setting is switched off: otherwise the next server that joins would start disabled again.
    """
    if item is None and server is None:
        return await _enable_job(session, job, by)
    if item is None:
        return await _unmark(session, job, "disabled", str(server), by)
    _either(server, item)
    view = await view_of(session, job)
    flag, there = _item_flag(view, item)
    if not there:
        return await commit(session, (), f"{job}: item {item} is not disabled")
    return await commit(session, signed(view, by, _removal(view.tree, [flag])), f"{job}: item {item} is enabled")


async def pause_server(
    session: Session, ip: str, *, by: str = "", note: str = "", until: datetime | None = None
) -> OperationResult:
    """Pause a server in all jobs, also in those that start there later: its items stay there and are not run.

    ``note`` says why.  The pause ends by itself at ``until``, by the registry's clock.  If the server is paused
    already, its pause gets this note and this end.

    Raises:
        InvalidSetting: no job knows such a server; the end is over, or the note too long.
        ForeignData: only jobs of other programs know such a server.
        ChangedMeanwhile: somebody else was faster.
        RegistryError: the registry could not be read or written.
    """
    wish = PauseWish(by, note, until)
    data = _pause_data(session, wish)
    replaces = bool(note) or until is not None
    return await _mark_everywhere(session, ip, "paused", by, data, wish.end_in_words, replaces=replaces)


async def resume_server(session: Session, ip: str, *, by: str = "") -> OperationResult:
    """Undo ``pause_server``; raises the same errors, and NotPossible where nodes made by hand are in the way."""
    return await _unmark_everywhere(session, ip, "paused", by)


async def disable_server(session: Session, ip: str, *, by: str = "") -> OperationResult:
    """Disable a server in all jobs: its items move to others; raises the same errors as ``pause_server``."""
    return await _mark_everywhere(session, ip, "disabled", by)


async def enable_server(session: Session, ip: str, *, by: str = "") -> OperationResult:
    """Undo ``disable_server``; raises the same errors as ``resume_server``."""
    return await _unmark_everywhere(session, ip, "disabled", by)


async def knowing(session: Session, ip: str) -> list[Layout]:
    """Return the jobs that know a server, without those of other programs.

    Raises:
        InvalidSetting: none does.
        ForeignData: only jobs of other programs do.
    """
    await session.sync()
    layouts = [Layout(name) for name in await names(session)]
    servers = [found or () for found in await session.children_many([layout.servers for layout in layouts])]
    found = [layout for layout, known in zip(layouts, servers, strict=True) if ip in known]
    if not found:
        there = sorted({server for known in servers for server in known})
        raise InvalidSetting("server", ip, f"no job knows such a server; there are: {listed(there)}")
    others = await foreign_jobs(session, found)
    ours = [layout for layout in found if layout.job not in others]
    if not ours:
        raise next(iter(others.values()))
    return ours


@dataclass(frozen=True, slots=True)
class PauseWish:
    """A pause that somebody wants: who, why, and until when, if it shall end by itself."""

    by: str = ""
    note: str = ""
    until: datetime | None = None

    @property
    def end_in_words(self) -> str:
        """The end, for the end of a sentence; empty if the pause has none."""
        return "" if self.until is None else f" until {time_text(self.until)}"


def _pause_data(session: Session, wish: PauseWish) -> bytes:
    """Return the data of a pause's flag.

    Raises:
        InvalidSetting: the end is over, or the note is too long.
    """
    if len(wish.note) > MAX_NOTE:
        raise InvalidSetting("note", wish.note[:40], f"at most {MAX_NOTE:,} characters")
    if wish.until is None:
        return pause_data(wish.by, wish.note)
    if wish.until.timestamp() <= session.registry_time:
        raise InvalidSetting("until", wish.until, "a moment that is still to come, by the registry's clock")
    return pause_data(wish.by, wish.note, wish.until.timestamp())


async def _pause_job(session: Session, job: str, wish: PauseWish, same: str = "") -> OperationResult:
    view = await view_of(session, job)
    path = view.layout.paused
    data = _pause_data(session, wish)
    if view.paused:
        if not wish.note and wish.until is None:
            return await commit(session, (), f"{job}: is paused already{same}")
        changed = signed(view, wish.by, [Set(path, data, -1)])
        return await commit(session, changed, f"{job}: its pause was changed: paused{wish.end_in_words}")
    parents = [path for path in (view.layout.leader,) if path not in view.tree]
    operations = [*map(Create, parents), *_ended(view.tree, path), Create(path, data)]
    return await commit(session, signed(view, wish.by, operations), f"{job}: paused{wish.end_in_words}{same}")


def _ended(tree: Tree, flag: str) -> list[Op]:
    """Return the removal of the flag of a pause that has ended by itself, so that the next one begins anew."""
    return _removal(tree, [flag]) if flag in tree else []


async def _resume_job(session: Session, job: str, by: str) -> OperationResult:
    view = await view_of(session, job)
    left = _left(view)
    if not view.paused:
        return await commit(session, (), f"{job}: is not paused as a whole{left}")
    removal = _removal(view.tree, [view.layout.paused])
    return await commit(session, signed(view, by, removal), f"{job}: resumed{left}")


async def _enable_job(session: Session, job: str, by: str) -> OperationResult:
    view = await view_of(session, job)
    layout = view.layout
    started_disabled = [ip for ip in view.tree.children(layout.servers) if _has_started_disabled(view, ip)]
    flags = [layout.server_disabled(ip) for ip in started_disabled]
    if layout.paused in view.tree:
        flags.append(layout.paused)
    operations = _removal(view.tree, flags)
    after = replace(view, tree=view.tree.replace(dict.fromkeys(flags), view.tree.zxid))
    left = _left(after)
    later = ""
    if view.config.disabled and view.fault is None:
        config = view.config.changed(disabled=False)
        operations.append(Set(layout.config, config.to_json(), _config_version(view)))
        later = "; servers that join from now on start enabled"
    if not operations:
        return await commit(session, (), f"{job}: is neither paused nor disabled as a whole{left}")
    also = f", also on {listed(started_disabled)}" if started_disabled else ""
    return await commit(session, signed(view, by, operations), f"{job}: enabled{also}{later}{left}")


def _config_version(view: JobView) -> int:
    node = view.tree.get(view.layout.config)
    return -1 if node is None else node.stat.version


def _has_started_disabled(view: JobView, ip: str) -> bool:
    """Whether a server is disabled because the job's setting said so when it joined, and not by an operator."""
    flag = view.tree.get(view.layout.server_disabled(ip))
    return flag is not None and flag.data == DECLARED


def _left(view: JobView) -> str:
    """Return what stays switched off in a job whose pause has ended, for the end of a sentence."""
    known = view.tree.children(view.layout.servers)
    found = list[str]()
    for flag in FLAGS:
        here = [ip for ip in known if _PATH[flag](view.layout, ip) in view.tree]
        found += [f"{flag} on {listed(here)}"] if here else []
        everywhere = [ip for ip in known if view.flag(server_switch(ip, flag)) is not None]
        found += [f"{flag} in all jobs on {listed(everywhere)}"] if everywhere else []
    found += [f"disabled for the {items_text(view.disabled_items)}"] if view.disabled_items else []
    return f"; it is still {', '.join(found)}" if found else ""


def _server_flag(view: JobView, flag: Flag, server: str) -> tuple[str, Node | None]:
    """Return the path of a server's flag in a job, and its node if it is there."""
    known = view.tree.children(view.layout.servers)
    if server not in known:
        raise InvalidSetting("server", server, f"{view.layout.job} knows no such server; there are: {listed(known)}")
    path = _PATH[flag](view.layout, server)
    return path, view.tree.get(path)


async def _mark(session: Session, job: str, flag: Flag, server: str, by: str, data: bytes = b"") -> OperationResult:
    view = await view_of(session, job)
    path, node = _server_flag(view, flag, server)
    if node is not None:
        return await commit(session, (), f"{job}: is {flag} on {server} already")
    return await commit(session, signed(view, by, [Create(path, data)]), f"{job}: {flag} on {server}")


async def _unmark(session: Session, job: str, flag: Flag, server: str, by: str) -> OperationResult:
    view = await view_of(session, job)
    path, node = _server_flag(view, flag, server)
    whole = "; the whole job is paused" if view.paused else ""
    is_off_everywhere = view.flag(server_switch(server, flag)) is not None
    whole += f"; {server} is {flag} in all jobs" if is_off_everywhere else ""
    if node is None:
        return await commit(session, (), f"{job}: is not {flag} on {server} by itself{whole}")
    removal = signed(view, by, _removal(view.tree, [path]))
    return await commit(session, removal, f"{job}: {_UNDONE[flag]} on {server}{whole}")


async def _mark_everywhere(
    session: Session, ip: str, flag: Flag, by: str, data: bytes = b"", end: str = "", *, replaces: bool = False
) -> OperationResult:
    """Set the flag of a server in all jobs; one that holds already gets the new data, if that ``replaces`` it."""
    layouts = await knowing(session, ip)
    tree = await session.subtree([SWITCHES])
    path = server_switch(ip, flag)
    node = tree.get(path)
    if node is not None and not pause_in(node).is_over(session.registry_time):
        if not replaces:
            return await commit(session, (), f"server {ip}: is {flag} in all jobs already")
        change: list[Op] = [Set(path, data, -1)]
        noted = [*noted_for_all(tree, by, change), *change]
        return await commit(session, noted, f"server {ip}: its pause was changed: {flag} in all jobs{end}")
    parents = [above for above in (server_switch(ip),) if above not in tree]
    operations: list[Op] = [*map(Create, parents), *_ended(tree, path), Create(path, data)]
    known = listed(layout.job for layout in layouts)
    first = noted_for_all(tree, by, operations) or ([] if SWITCHES in tree else [Create(SWITCHES)])
    summary = f"server {ip}: {flag} in all jobs{end} (it is known to {known})"
    return await commit(session, [*first, *operations], summary)


async def _unmark_everywhere(session: Session, ip: str, flag: Flag, by: str) -> OperationResult:
    tree = await session.subtree([SWITCHES])
    layouts = [] if server_switch(ip) in tree and not await _is_known(session, ip) else await knowing(session, ip)
    paths = [_PATH[flag](layout, ip) for layout in layouts]
    found = dict(zip(paths, await session.get_many(paths), strict=True))
    own = [path for path, node in found.items() if node is not None]
    left = f"; it is still {flag} in {_jobs(own)}" if own else ""
    if server_switch(ip, flag) not in tree:
        return await commit(session, (), f"server {ip}: is not {flag} in all jobs{left}")
    removal = _removal(tree, [server_switch(ip, flag)])
    if tree.children(server_switch(ip)) == (flag,):
        removal.append(Delete(server_switch(ip)))
    removal = [*noted_for_all(tree, by, removal), *removal]
    return await commit(session, removal, f"server {ip}: {_UNDONE[flag]} in all jobs{left}")


async def _is_known(session: Session, ip: str) -> bool:
    try:
        return bool(await knowing(session, ip))
    except InvalidSetting:
        return False


def _removal(tree: Tree, flags: Sequence[str]) -> list[Op]:
    """Return the operations that remove flags; refuse if a person has made nodes below one of them."""
    for path in flags:
        node = tree.get(path)
        if node is not None and node.stat.num_children:
            raise NotPossible(
                f"{path} has nodes below it, so it cannot be removed: remove those first; nothing was written"
            )
    return [Delete(path) for path in flags]


def _either(server: str | None, item: int) -> None:
    if server is not None:
        raise InvalidSetting("item", item, f"give either an item or a server ({server!r}): an item is off everywhere")


def _item_flag(view: JobView, item: int) -> tuple[str, bool]:
    """Return the path of an item's flag, and whether it is there."""
    if not has_item(view, item):
        raise no_such_item("item", item, view.layout.job, view.config.sharding_total_count)
    flag = view.layout.item(item).disabled
    return flag, flag in view.tree


def _jobs(paths: Iterable[str]) -> str:
    """Return the jobs that paths are about, as one line."""
    return listed(sorted(path.split("/", 2)[1] for path in paths))
