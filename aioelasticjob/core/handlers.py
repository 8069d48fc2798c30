"""What the nodes below ``~handlers`` say: which created jobs name a handler, and which processes have it."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import HandlerPaths
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.registry.transaction import Create, Op, Set
from aioelasticjob.registry.tree import Node, Tree

REMOVING: Final = b'{"removing": true}'
"""The data of a job's node in the index while the job is being removed: nobody joins it any more."""


@dataclass(frozen=True, slots=True)
class HandlerProcess:
    """A process that has a handler, as its node says."""

    id: str
    ip: str
    host: str
    pid: int
    schema: dict[str, Any] | None
    """The JSON schema of the job parameter that it takes; None if it takes any text."""
    options: dict[str, Any] | None
    """The JSON schema of the options that it takes, if the handler is a kind of job; else None."""

    @property
    def name(self) -> str:
        """The process as it is shown."""
        return f"process {self.pid} on {self.host or self.ip}"


def is_being_removed(node: Node) -> bool:
    """Whether a job's node in the index says that the job is being removed."""
    return json_object(node.data).get("removing") is True


def process_note(ip: str, host: str, pid: int, schema: dict[str, Any] | None, options: dict[str, Any] | None) -> bytes:
    """Return the data of the node of a process that has a handler."""
    about: dict[str, object] = {"ip": ip, "host": host, "pid": pid, "schema": schema}
    if options is not None:
        about["options"] = options
    return json.dumps(about).encode()


def processes_with(tree: Tree, paths: HandlerPaths) -> tuple[HandlerProcess, ...]:
    """Return the processes that have a handler.  What somebody has written by hand is left out if it makes no sense."""
    found = list[HandlerProcess]()
    for id in tree.children(paths.processes):
        node = tree.get(paths.process(id))
        said = {} if node is None else json_object(node.data)
        ip = said.get("ip")
        host = said.get("host")
        pid = said.get("pid")
        schema = said.get("schema")
        options = said.get("options")
        if isinstance(ip, str) and isinstance(host, str) and isinstance(pid, int):
            found.append(HandlerProcess(id, ip, host, pid, _object(schema), _object(options)))
    return tuple(found)


def _object(said: Any) -> dict[str, Any] | None:
    return said if isinstance(said, dict) else None


def missing_parents(paths: HandlerPaths, there: Collection[str]) -> list[Op]:
    """Return the operations that make the nodes that a handler's jobs and processes need, as far as they do not exist.

    ``there`` has the paths that exist, among others.
    """
    return [Create(path) for path in paths.parents if path not in there]


def noted_change(config: JobConfig, index: Node | None) -> list[Op]:
    """Return the operations that tell the processes with a job's handler that its configuration has changed.

    ``index`` is the job's node in the index.  There are none for a job that code declares.
    """
    if config.handler is None:
        return []
    path = HandlerPaths(config.handler).job(config.job_name)
    return [Create(path) if index is None else Set(path, index.data, index.stat.version)]
