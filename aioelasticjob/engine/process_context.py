"""What all jobs of a process share."""

from __future__ import annotations

from asyncio import Lock
from dataclasses import dataclass, field

from anyio import Semaphore

from aioelasticjob.clock import Clock
from aioelasticjob.engine.claim_ahead import Starts
from aioelasticjob.engine.executors import Executors
from aioelasticjob.engine.stopping import Departures
from aioelasticjob.error_handlers import ErrorDispatcher
from aioelasticjob.events import Events
from aioelasticjob.ground.latest import Latest
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.registry.tree import Tree

REGISTERING_AT_ONCE = 32
"""How many jobs of one process register or unregister at the same time.

With more of them at once, garbage collections take longer and come more often.  With fewer, a process would have to
wait for the answers of a distant registry.
"""


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What all jobs of a process share."""

    clock: Clock
    events: Events
    executors: Executors
    dispatcher: ErrorDispatcher
    limited_log: LimitedLog
    registering: Semaphore = field(default_factory=lambda: Semaphore(REGISTERING_AT_ONCE))
    """Each job holds it while it joins, or unregisters: if thousands did at once, they would block the loop."""
    comparing: Lock = field(default_factory=Lock)
    """A job holds it while it asks the registry for its time; the other jobs wait for the answer."""
    common: Latest[Tree] = field(default_factory=lambda: Latest(Tree()))
    """The nodes that all jobs have in common: which servers are switched off in all jobs, and the calendars."""
    starts: Starts = field(default_factory=Starts)
    departures: Departures = field(default_factory=Departures)
