"""Keeps the node of this process, ``~processes/{id}``: what the process cannot do at present.

It is written only if that has changed, and not at all while the process can do everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anyio import sleep

from aioelasticjob.clock import Clock
from aioelasticjob.core.layout import PROCESSES
from aioelasticjob.core.processes import NO_PROBLEMS, Author, ProcessProblems, is_news, renewal
from aioelasticjob.engine.local_jobs import Host
from aioelasticjob.engine.refusals import Refusals
from aioelasticjob.errors import Conflict, OutcomeUnknown, RegistryError, SessionEnded, Suspended
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.registry.session import Session, SessionState

LOOK_INTERVAL: Final = 1.0
"""Seconds between two looks at what the process cannot do."""
WRITE_INTERVAL: Final = 5.0
"""Seconds that pass at least between two writes."""
WRITE: Final = "to note what this process cannot do"
"""The purpose of the writes, for the log line if the registry refuses them."""


class ProcessNode:
    """The node of one process.  ``problems`` returns what the process cannot do now."""

    def __init__(
        self,
        session: Session,
        host: Host,
        problems: Callable[[], ProcessProblems],
        clock: Clock,
        limited_log: LimitedLog,
    ) -> None:
        self._session = session
        self._host = host
        self._problems = problems
        self._refusals = Refusals(PROCESSES, clock, limited_log)
        self._incarnation = 0
        """The session under which the node was written last."""
        self._noted: ProcessProblems | None = NO_PROBLEMS
        """What the node says; None if that is not known."""

    async def keep(self) -> None:
        """Keep the node up to date, until the session is closed."""
        while True:
            await sleep(LOOK_INTERVAL)
            status = self._session.status.value
            if status.state is SessionState.CLOSED:
                return
            if status.state is not SessionState.CONNECTED:
                continue
            if status.incarnation != self._incarnation:  # the node of the former session ends with it
                self._incarnation = status.incarnation
                self._noted = NO_PROBLEMS
            problems = self._problems()
            if self._noted is not None and not is_news(self._noted, problems):
                continue
            if await self._write(problems):
                await sleep(WRITE_INTERVAL - LOOK_INTERVAL)

    async def _write(self, problems: ProcessProblems) -> bool:
        """Bring the node up to date; return whether the next write has to wait, because the registry has answered."""
        author = Author(self._host.ip, self._host.name, self._host.pid, self._incarnation)
        self._noted = None
        try:
            parent, node = await self._session.get_many((PROCESSES, author.path))
            operations = renewal(author, parent, node, problems)
            if operations:
                await self._session.commit(operations, incarnation=author.incarnation)
        except (Conflict, OutcomeUnknown, Suspended, SessionEnded):  # the next look reads the node again
            return False
        except RegistryError as error:
            self._refusals.refused(WRITE, error)
            return True
        self._refusals.accepted(WRITE)
        self._noted = problems
        return True
