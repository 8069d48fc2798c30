"""The rules that remove nodes which nothing needs any more, and make missing nodes again."""

from __future__ import annotations

from collections.abc import Iterator

from aioelasticjob.coordination.effects import (
    ClearRecords,
    RefreshServer,
    RemoveItems,
    RemoveMarks,
    RemoveServer,
    RestoreNodes,
)
from aioelasticjob.coordination.rules.rule_input import RuleInput
from aioelasticjob.coordination.view import JobView
from aioelasticjob.layout import child

REFRESHES_PER_RETENTION = 4
"""How often in ``server_retention`` the node of a server in use is touched."""
_GRACE = 1 + 1 / REFRESHES_PER_RETENTION
"""A factor of ``server_retention``: nodes are kept longer, because the node of a server in use may be older as well."""


def restore_nodes(now: RuleInput) -> Iterator[RestoreNodes]:
    """Every instance makes missing parent nodes and its server's node again: without them no leader can be elected."""
    view, layout = now.view, now.view.layout
    if not now.present:
        return
    mine = view.instances[now.me]
    missing = dict.fromkeys(view.missing_parents, b"")
    if (server := layout.server(mine.ip)) not in view.tree:
        missing[server] = now.host.encode()
    if missing:
        yield RestoreNodes(now.me, missing)


def remove_items(now: RuleInput) -> Iterator[RemoveItems]:
    """The leader removes items beyond the count, once no instance holds them.  Disabled items are kept."""
    view = now.view
    if not now.leading or not view.assignment_stands:
        return
    surplus = [item for item in view.items - view.assignment.keys() if item >= view.config.sharding_total_count]
    if removable := frozenset(item for item in surplus if _is_removable(view, item)):
        yield RemoveItems(removable)


def remove_requests(now: RuleInput) -> Iterator[RemoveMarks]:
    """On a tick the leader removes requests to instances that no longer exist."""
    if not (now.tick and now.leading):
        return
    view, layout, alive = now.view, now.view.layout, now.view.instances
    stale = [layout.shutdown(name) for name in view.tree.children(layout.shutdowns) if name not in alive]
    stale += [layout.trigger(name) for name in view.tree.children(layout.triggers) if name not in alive]
    if removable := tuple(path for path in stale if not view.obstructed(path)):
        yield RemoveMarks(removable)


def refresh_server(now: RuleInput) -> Iterator[RefreshServer]:
    """On a tick an instance touches its server's node, whose age says how long no instance has been on the server."""
    if not (now.tick and now.present and now.view.config.server_retention):
        return
    ip = now.view.instances[now.me].ip
    node = now.view.tree.get(now.view.layout.server(ip))
    if node is not None and now.time - node.stat.mtime > now.view.config.server_retention / REFRESHES_PER_RETENTION:
        yield RefreshServer(ip, node.stat.version)


def remove_servers(now: RuleInput) -> Iterator[RemoveServer]:
    """On a tick the leader removes servers that had no instance for ``server_retention`` and are not switched off."""
    if not (now.tick and now.leading):
        return
    view, layout = now.view, now.view.layout
    used = {one.ip for one in view.instances.values()}
    for ip in view.tree.children(layout.servers):
        node = view.tree.get(layout.server(ip))
        counts = {layout.success_count(ip), layout.failure_count(ip)}
        below = {child(layout.server(ip), name) for name in view.tree.children(layout.server(ip))}
        plain = below <= counts and not any(map(view.obstructed, below))
        if node and ip not in used and plain and now.time - node.stat.mtime > view.config.server_retention * _GRACE:
            yield RemoveServer(ip, node.stat.version)


def clear_records(now: RuleInput) -> Iterator[ClearRecords]:
    """The leader removes the records of a job that is not monitored any more, once no item runs."""
    if now.leading and now.records and not now.view.config.monitor_execution:
        yield ClearRecords(now.records)


def _is_removable(view: JobView, item: int) -> bool:
    paths = view.layout.item(item)
    below = {child(paths.sharding, name) for name in view.tree.children(paths.sharding)}
    return below <= {paths.instance, paths.failover} and not any(map(view.obstructed, below))
