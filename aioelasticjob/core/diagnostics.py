"""Finds mistakes that a person has made in a job's nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

from aioelasticjob.core import zone_rules
from aioelasticjob.core.instances import is_host
from aioelasticjob.core.layout import child
from aioelasticjob.core.nodes import is_item
from aioelasticjob.core.view import JobView
from aioelasticjob.ground.encoding import json_object

OBSTRUCTED = "has nodes below it, so no instance can remove it"


def diagnose(view: JobView, me: str) -> Mapping[str, str]:
    """Return the findings by path; empty if there is none.

    What keeps an instance from running anything is reported only by that instance itself, ``me``.
    """
    config = view.layout.config
    found = {} if view.fault is None else {config: view.fault.removeprefix(f"{config}: ")}
    if view.config.ignored and view.fault is None:
        found[config] = "; ".join(view.config.ignored)
    if me in view.lacking:
        found[view.layout.instance(me)] = missing_features_text(view.lacking[me])
    if me in view.unable:
        found[view.layout.instance(me)] = unusable_text(view.unusable)
    for findings in (_parents(view), _instances(view), _items(view), _requests(view), _obstructed(view)):
        for path, why in findings:
            found.setdefault(path, why)
    mine = view.instances.get(me)
    leaders = view.instances.get(view.leader or "")
    if mine and leaders and zone_rules.differ(mine.zone_rules, leaders.zone_rules):
        assert mine.zone_rules is not None
        assert leaders.zone_rules is not None
        text = zone_rules.difference_text(mine.zone_rules, leaders.zone_rules)
        found.setdefault(view.layout.instance(me), text)
    return found


def missing_features_text(features: Collection[str]) -> str:
    """Return the warning for an instance that lacks these features, which the job requires."""
    named = ", ".join(f"{one!r:.80}" for one in features)
    return (
        f"the job requires {named}, which this release does not know: this instance runs nothing until it is upgraded"
    )


def unusable_text(why: str | None) -> str:
    """Return the warning for an instance whose process cannot use the configuration, which others can use."""
    text = "others can use the job's configuration, but this process cannot, so this instance runs nothing"
    return f"{text}: {why}" if why else text


def _parents(view: JobView) -> Iterator[tuple[str, str]]:
    for path in view.missing_parents:
        yield path, "is missing"
    if view.layout.epoch not in view.tree and view.leader is not None:
        yield view.layout.epoch, "is missing"


def _instances(view: JobView) -> Iterator[tuple[str, str]]:
    layout = view.layout
    tree = view.tree
    for name in tree.children(layout.instances):
        if name not in view.instances:
            yield layout.instance(name), "is not ephemeral, so it does not count as an instance"
        elif (node := tree.get(layout.instance(name))) is not None and (why := _wrong_data(name, node.data)):
            yield layout.instance(name), why
    if view.leader is not None and view.leader not in view.instances and layout.host in tree:
        yield layout.host, f"names {view.leader[:80]!r}, which is not a registered instance of the job"


@lru_cache(maxsize=1024)
def _wrong_data(name: str, data: bytes) -> str | None:
    """Return what is wrong with the data of an instance's node; None if nothing is.  Empty data is allowed."""
    fields = json_object(data)
    if data and not fields:
        return f"holds {data[:80]!r}, which is not a JSON object, so it is ignored"
    ip, named, _ = name.partition("@-@")
    if named and fields.get("ip", ip) != ip:
        return f"ip = {fields['ip']!r:.80}: is ignored, because the instance's name says {ip}"
    for key in ("ip", "host"):
        if fields.get(key, "") != "" and not is_host(fields[key]):
            return f"{key} = {fields[key]!r:.80}: is ignored, because it must be an address or the name of a host"
    return None


def _items(view: JobView) -> Iterator[tuple[str, str]]:
    layout = view.layout
    tree = view.tree
    wrong = [child(layout.sharding, name) for name in view.item_nodes.wrong]
    wrong += [child(layout.orphans, name) for name in tree.children(layout.orphans) if not is_item(name)]
    for path in wrong:
        yield path, "is not the number of an item, and has no effect"
    for item in view.item_nodes.special:
        paths = layout.item(item)
        above = paths.sharding
        for name in tree.children(above):
            path = child(above, name)
            if path == paths.failover:
                mark = tree.get(path)
                if mark is not None and not mark.stat.ephemeral_owner:
                    yield path, "is not ephemeral, so the item is not rescued until this node is removed"
            elif path not in (paths.instance, paths.disabled):
                yield path, "does not belong to an item, and has no effect"
                continue
            if view.obstructed(path):
                yield path, OBSTRUCTED


def _requests(view: JobView) -> Iterator[tuple[str, str]]:
    nodes = view.request_nodes
    for name in sorted(nodes.wrong | nodes.begun.keys()):
        path = child(view.layout.requests, name)
        if name in nodes.wrong:
            yield path, "is not a request, so it is not answered: correct it, or remove it"
        for item in sorted(nodes.begun_by(name).wrong):
            yield child(path, item), "is not the number of an item, and has no effect"


def _obstructed(view: JobView) -> Iterator[tuple[str, str]]:
    layout = view.layout
    tree = view.tree
    marks = [layout.host, layout.epoch, layout.necessary, layout.processing, layout.config, layout.paused]
    for parent in (layout.orphans, layout.shutdowns):
        marks += [child(parent, name) for name in tree.children(parent)]
    for path in marks:
        if view.obstructed(path):
            yield path, OBSTRUCTED
