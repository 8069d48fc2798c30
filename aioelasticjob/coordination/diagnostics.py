"""Finds mistakes that a person has made in a job's nodes, and logs each once, and once more when it is corrected."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

from aioelasticjob.coordination.view import JobView, instance_data, is_host, is_item
from aioelasticjob.layout import child

MAX_WARNINGS = 100
"""How many findings are logged at a time: a thousand wrong nodes shall not cause a thousand lines."""

log = logging.getLogger(__name__)


def diagnose(view: JobView, me: str | None = None) -> Mapping[str, str]:
    """Return the findings by path; empty if there is none.

    The features that an instance lacks are reported only by that instance itself, ``me``.
    """
    config = view.layout.config
    found = {} if view.fault is None else {config: view.fault.removeprefix(f"{config}: ")}
    if view.config.ignored and view.fault is None:
        found[config] = "; ".join(view.config.ignored)
    if me is not None and me in view.lacking:
        found[view.layout.instance(me)] = missing_features_text(view.lacking[me])
    for path, why in (*_parents(view), *_instances(view), *_items(view), *_obstructed(view)):
        found.setdefault(path, why)
    return found


def missing_features_text(features: Collection[str]) -> str:
    """Return the warning for an instance that lacks these features, which the job requires."""
    named = ", ".join(f"{one!r:.80}" for one in features)
    return f"the job requires {named}, which this worker does not know: it runs nothing here until it is upgraded"


def _parents(view: JobView) -> Iterator[tuple[str, str]]:
    for path in view.layout.mirrored_parents:
        if path not in view.tree:
            yield path, "is missing"
    if view.epoch is None and view.leader is not None:
        yield view.layout.epoch, "is missing"


def _instances(view: JobView) -> Iterator[tuple[str, str]]:
    layout, tree = view.layout, view.tree
    for name in tree.children(layout.instances):
        if name not in view.instances:
            yield layout.instance(name), "is not ephemeral, so it is no instance"
        elif (node := tree.get(layout.instance(name))) is not None and (why := _untrue(name, node.data)):
            yield layout.instance(name), why
    if view.leader is not None and view.leader not in view.instances and layout.host in tree:
        yield layout.host, f"names nobody who is there: {view.leader[:80]!r}"


@lru_cache(maxsize=65536)
def _untrue(name: str, data: bytes) -> str | None:
    """Return what is wrong with the data of an instance's node; None if nothing is.  Empty data is allowed."""
    told = instance_data(data)
    if data and not told:
        return f"holds {data[:80]!r}: what an instance says of itself is a JSON object, and nothing of this is heeded"
    ip, named, _ = name.partition("@-@")
    if named and told.get("ip", ip) != ip:
        return f"ip = {told['ip']!r:.80}: by its name the instance is on {ip}, and that holds"
    for key in ("ip", "host"):
        if told.get(key, "") != "" and not is_host(told[key]):
            return f"{key} = {told[key]!r:.80}: is not heeded; it must be an address or the name of a host"
    return None


def _items(view: JobView) -> Iterator[tuple[str, str]]:
    layout, tree = view.layout, view.tree
    for parent in (layout.sharding, layout.orphans):
        for name in tree.children(parent):
            if not is_item(name):
                yield child(parent, name), "is no item"
    for item in view.items:
        paths = layout.item(item)
        mark = tree.get(paths.failover)
        if mark is not None and not mark.stat.ephemeral_owner:
            yield paths.failover, "is not ephemeral, so nobody rescues the item"
        below = {child(paths.sharding, name) for name in tree.children(paths.sharding)}
        for path in sorted(below - {paths.instance, paths.disabled, paths.failover}):
            yield path, "is nothing that an item has"


def _obstructed(view: JobView) -> Iterator[tuple[str, str]]:
    layout, tree = view.layout, view.tree
    marks = [layout.host, layout.epoch, layout.necessary, layout.processing, layout.config]
    for item in view.items:
        paths = layout.item(item)
        marks += [paths.instance, paths.disabled, paths.failover]
    for parent in (layout.orphans, layout.shutdowns, layout.triggers):
        marks += [child(parent, name) for name in tree.children(parent)]
    for path in marks:
        if view.obstructed(path):
            yield path, "has nodes below it, so nobody can remove it"


class ConfigWarnings:
    """Logs every finding once, and once more when it has been corrected."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._known: Mapping[str, str] = {}

    def log_changes(self, found: Mapping[str, str]) -> None:
        """Log what has changed since the last call."""
        self._say([(path, why) for path, why in found.items() if self._known.get(path) != why])
        self._say([(path, "mended") for path in self._known if path not in found])
        self._known = found

    def _say(self, news: Collection[tuple[str, str]]) -> None:
        for path, why in list(news)[:MAX_WARNINGS]:
            log.warning("%s: %s", path, why, extra={"job": self._job})
        if len(news) > MAX_WARNINGS:
            log.warning("and %d more", len(news) - MAX_WARNINGS, extra={"job": self._job})
