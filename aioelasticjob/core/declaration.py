"""Compares what a process declares of a job with what applies in the cluster, so that nobody edits code in vain.

It also replaces the names in a configuration that do not work in this process.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from aioelasticjob import error_handlers
from aioelasticjob.config.job import JobConfig
from aioelasticjob.config.retry import Retry
from aioelasticjob.core.layout import Layout
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.jobs import executors
from aioelasticjob.registry.tree import Tree

MAY_BE_SECRET = ("options", "error_handler_options")
"""Settings that may hold passwords: of these, only the names are shown."""
MAX_SHOWN = 100
"""Characters of a setting's value that a warning shows."""
NOT_COMPARED = ("job_name", "job_type", "handler", "overwrite", "requires")
"""Settings that have to agree, that are never stored, or that are kept when a declaration lacks them."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that this process declares otherwise than the registry, whose value applies."""

    setting: str
    declared: object
    applies: object

    def text(self, job: str) -> str:
        """Return the warning: both values, which one applies, and what to do."""
        name = self.setting
        declared = self.declared
        applies = self.applies
        if name in MAY_BE_SECRET and isinstance(declared, Mapping) and isinstance(applies, Mapping):
            either = declared.keys() | applies.keys()
            keys = sorted(str(key) for key in either if declared.get(key) != applies.get(key))
            said = f"{name} is declared here with other values for {', '.join(keys)} than the registry has"
        else:
            said = f"{name} = {shown(declared)} is declared here, but the registry has {shown(applies)}"
        if name == "sharding_total_count" and isinstance(declared, int) and isinstance(applies, int):
            said = f"{said}: {_meaning_of_count(declared, applies)}"
        typed = "…" if name in MAY_BE_SECRET else _typed(declared)
        change = shlex.quote(f"{name}={typed}")
        return (
            f"{job}: {said}; the registry's value applies: to change it, declare overwrite=True,"
            f" or run aioelasticjob set {job} {change}"
        )


def differences(declared: JobConfig, applies: JobConfig) -> tuple[Difference, ...]:
    """Return each setting in which a declaration differs from the configuration that applies."""
    if declared is applies:
        return ()
    found = list[Difference]()
    for name in JobConfig.model_fields:
        mine = getattr(declared, name)
        theirs = getattr(applies, name)
        if name not in NOT_COMPARED and mine != theirs:
            found.append(Difference(name, mine, theirs))
    return tuple(found)


def declared_otherwise(declared: JobConfig, applies: JobConfig) -> tuple[Difference, ...]:
    """Return each setting that a process declares otherwise than the registry; none if no code declares the job."""
    return () if declared.is_created else differences(declared, applies)


@dataclass(frozen=True, slots=True)
class Usable:
    """A configuration as a process can use it."""

    config: JobConfig
    """The configuration, with other names in place of those that do not work in this process."""
    fault: str | None = None
    """Which names were replaced, and why; None if none was."""
    unusable: str | None = None
    """Why this process cannot run the job by the configuration; None if it can."""


def with_known_names(config: JobConfig, last: JobConfig) -> Usable:
    """Return a configuration with an error handler and an executor that work here.

    An error handler that does not work here is replaced by that of ``last``, with its options; an executor likewise.
    Without its executor a process cannot run the job as configured, without its error handler it can.
    """
    kept = dict[str, object]()
    wrong = list[str]()
    unusable = None
    try:
        error_handlers.check(config.error_handler, config.error_handler_options)
    except InvalidSetting as mistake:
        kept |= {"error_handler": last.error_handler, "error_handler_options": last.error_handler_options}
        wrong.append(f"{mistake}; the error handler {last.error_handler} stays in use")
    try:
        executors.check(config.executor)
    except InvalidSetting as mistake:
        kept["executor"] = last.executor
        unusable = str(mistake)
        wrong.append(f"{mistake}; the executor {last.executor} stays in use")
    if not wrong:
        return Usable(config)
    return Usable(config.model_copy(update=kept), "; ".join(wrong), unusable)


def other_handlers(tree: Tree, layout: Layout, me: str, handler: str) -> Mapping[str, str]:
    """Return the instances that run the job with another handler than this one, each with the handler's name."""
    found = {}
    for name in tree.children(layout.instances):
        node = tree.get(layout.instance(name))
        other = None if node is None or name == me else json_object(node.data).get("handler")
        if handler and isinstance(other, str) and other and other != handler:
            found[name] = other
    return found


def _meaning_of_count(declared: int, applies: int) -> str:
    """Return what it means for the items if a process declares another item count than the one that applies."""
    first = min(declared, applies)
    last = max(declared, applies) - 1
    one = first == last
    items = f"item {first}" if one else f"items {first} to {last}"
    if declared > applies:
        share = "its share of it" if one else "their share of it"
        meaning = f"nobody runs {items} of this code, and if it divides the work by {declared}, nobody does {share}"
    else:
        run, them = ("is run", "it") if one else ("are run", "them")
        meaning = f"{items} {run} as well, and if this code divides the work by {declared}, there is none for {them}"
    return f"{meaning} (let it divide by context.sharding_total_count)"


def _typed(value: object) -> str:
    """Return a setting's value as a person types it after ``aioelasticjob set``; ``…`` if that would be too long."""
    match value:
        case None | bool():
            text = str(value).lower()
        case Mapping():
            text = json.dumps(value, ensure_ascii=False)
        case tuple():
            text = ",".join(map(str, value))
        case Retry():
            text = json.dumps(value.as_json())
        case _:
            text = str(value)
    return text if len(text) <= MAX_SHOWN else "…"


def shown(value: object, most: int = MAX_SHOWN) -> str:
    """Return a setting's value for people, shortened if it has more characters than ``most``."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
