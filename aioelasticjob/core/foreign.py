"""Recognises jobs of Elastic-Job for Java, whose nodes have the names of ours: nothing is written to these.

One node that somebody has edited by hand does not make a job of ours foreign: that needs two that agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import Layout, child
from aioelasticjob.errors import ForeignData
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.registry.tree import Tree

JAVA_KEYS: Final = frozenset(
    (
        *("jobName", "jobClass", "jobType", "cron", "timeZone", "shardingTotalCount", "shardingItemParameters"),
        *("jobParameter", "failover", "misfire", "monitorExecution", "monitorRuntime", "maxTimeDiffSeconds"),
        *("monitorPort", "description", "disabled", "overwrite", "streamingProcess", "scriptCommandLine"),
        *("processCountIntervalSeconds", "concurrentDataProcessThreadCount", "fetchDataCount"),
        *("jobShardingStrategyClass", "jobShardingStrategyType", "jobErrorHandlerType", "jobProperties"),
        *("jobEventConfigs", "jobExecutorServiceHandlerType", "reconcileIntervalMinutes", "jobListenerTypes"),
        *("jobExtraConfigurations", "props", "staticSharding", "label"),
    )
)
"""Keys of a job's configuration in some release for Java: nodes below ``config`` in 1.x, keys in 2.x and 3.x."""
OWN_KEYS: Final = (
    frozenset(field.serialization_alias or field.alias or name for name, field in JobConfig.model_fields.items())
    - JAVA_KEYS
)
"""Keys that only we write.  An import may give our configuration keys of Java besides, which have no effect."""
YAML_KEYS: Final = frozenset((b"jobName", b"shardingTotalCount"))
"""Keys that each configuration of 3.x has."""
SERVER_NODES: Final = frozenset(("status", "hostName", "sharding"))
"""Nodes that 1.x and 2.0 make below a server."""
ITEM_NODES: Final = frozenset(("running", "misfire", "failovering"))
"""Nodes that 2.1 and 3.x make below an item of ``sharding``; ours are below ``execution``."""
SERVER_STATES: Final = frozenset((b"ENABLED", b"DISABLED"))
"""The data of a server's node in 2.1 and 3.x; ours is the host's name."""
ENOUGH: Final = 2
"""So many nodes below ``config``, or of several kinds, are not the work of a person who has edited one node."""
_TOP_KEY: Final = re.compile(rb"^(\w+):(?:\s|$)", re.MULTILINE)
_JAVA_INSTANCE: Final = re.compile(r".+@-@\d+")
"""The id of an instance for Java, which ends with the number of its process; ours has a suffix."""


def evidence(layout: Layout) -> tuple[str, ...]:
    """Return the roots of the nodes that show whose job it is."""
    return layout.config, layout.servers, layout.instances, layout.leader, layout.sharding


def foreign(tree: Tree, layout: Layout) -> ForeignData | None:
    """Return the error for a job that is one of Elastic-Job for Java; None if it is ours, or not there.

    The tree has to show ``config`` with the names below it, and the names below ``leader`` and ``leader/election``.
    What else it shows of the ``evidence`` is looked at as well.
    """
    keys = JAVA_KEYS.intersection(tree.children(layout.config))
    if len(keys) >= ENOUGH:
        return _error(layout.config, ", ".join(sorted(keys)), "1.x")
    node = tree.get(layout.config)
    version, has_own_keys = (None, False) if node is None else _format(node.data)
    is_ours = layout.schedule in tree or layout.epoch in tree
    if version is None and is_ours:  # nearly all jobs are such
        return None
    if version is None or has_own_keys:
        enough = ENOUGH
    else:
        enough = 1 if is_ours else 0
    java = sorted(_java_nodes(tree, layout))
    if len(java) < enough:
        return None
    if version is None:
        return _error(layout.root, ", ".join(java), "1.x, 2.x or 3.x")
    evidence = "jobClass" if version == "2.x" else "YAML"
    return _error(layout.config, evidence, version)


def leave_alone(tree: Tree, layout: Layout) -> None:
    """Refuse to go on with a job that is not ours.

    Raises:
        ForeignData: it is a job of Elastic-Job for Java.
    """
    if (error := foreign(tree, layout)) is not None:
        raise error


def _error(path: str, evidence: str, version: str) -> ForeignData:
    return ForeignData(
        path,
        evidence,
        f"is of Elastic-Job {version} for Java, so nothing is written to this job: take another namespace or name, "
        "or remove the job's nodes once Java runs it no more",
    )


@lru_cache(maxsize=4096)
def _format(data: bytes) -> tuple[str | None, bool]:
    """Return the release for Java that a configuration is of, None if it is of none; and whether it has keys of ours.

    It has both if it was imported with keys of Java, or if an older release of this package has changed Java's.
    """
    fields = json_object(data)
    if "jobClass" in fields:
        return "2.x", not OWN_KEYS.isdisjoint(fields)
    is_yaml = YAML_KEYS.issubset(_TOP_KEY.findall(data))
    return ("3.x" if is_yaml else None), False


def _java_nodes(tree: Tree, layout: Layout) -> Iterator[str]:
    """Yield an example of each kind of nodes that only Java makes, by its path below the job."""
    for path in _examples(tree, layout):
        yield path.removeprefix(f"{layout.root}/")


def _examples(tree: Tree, layout: Layout) -> Iterator[str]:
    single = [child(layout.election, "instance"), child(layout.leader, "execution")]
    single += [child(parent, "latch") for parent in (layout.election, layout.failover, layout.orphans)]
    yield from (path for path in single if path in tree)
    yield from _first_below(tree, layout.servers, SERVER_NODES)
    yield from _first_below(tree, layout.sharding, ITEM_NODES)
    for name in tree.children(layout.instances):
        if _JAVA_INSTANCE.fullmatch(name):
            yield layout.instance(name)
            break
    for ip in tree.children(layout.servers):
        node = tree.get(layout.server(ip))
        if node is not None and node.data in SERVER_STATES:
            yield layout.server(ip)
            break


def _first_below(tree: Tree, parent: str, names: frozenset[str]) -> Iterator[str]:
    """Yield the first node of one of these names below any child of ``parent``, if there is one."""
    for above in tree.children(parent):
        path = child(parent, above)
        for name in tree.children(path):
            if name in names:
                yield child(path, name)
                return
