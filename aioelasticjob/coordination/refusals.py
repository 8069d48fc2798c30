"""Notes which requests of a job the registry refuses, since when and why, for the log and for health checks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from aioelasticjob.clock import SystemClock
from aioelasticjob.errors import RegistryError
from aioelasticjob.plural import counted

QUIET_FOR = 60.0
"""Refusals of one kind of request are logged once in so many seconds.  A refusal not repeated for so long is over."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """One kind of request that the registry refuses at present."""

    what: str
    """The purpose of the request, as in "to settle items"."""
    why: str
    since: float
    """When the request was first refused, in seconds since the epoch."""
    last: float
    """When the request was last refused, in seconds since the epoch."""
    times: int = 1


class Refusals:
    """The requests of one job that the registry refuses at present.  ``now`` returns seconds since the epoch."""

    def __init__(self, job: str, now: Callable[[], float] | None = None) -> None:
        self._job, self._now = job, now or SystemClock().now
        self.open: dict[str, RefusedRequest] = {}
        """What was refused last and has not been accepted since, by its purpose."""
        self._logged: dict[str, float] = {}
        self._latest: RegistryError | None = None

    @property
    def present(self) -> tuple[RefusedRequest, ...]:
        """Return the requests that are refused at present.  One that is not repeated is left out after a while."""
        now = self._now()
        return tuple(one for one in self.open.values() if abs(now - one.last) < QUIET_FOR)

    def refused(self, what: str, error: RegistryError) -> None:
        """Note a refusal.  It is logged at most once a minute for each kind of request."""
        if error is self._latest:  # the function that raised it has noted it
            return
        now, self._latest = self._now(), error
        known = self.open.get(what)
        if known is None or abs(now - known.last) >= QUIET_FOR:
            known = RefusedRequest(what, str(error), now, now, 0)
        self.open[what] = replace(known, why=str(error), last=now, times=known.times + 1)
        if abs(now - self._logged.get(what, -QUIET_FOR)) >= QUIET_FOR:
            self._logged[what] = now
            text = "%s: the registry refuses %s: %s"
            log.error(text, self._job, what, error.with_page(), extra={"job": self._job})

    def accepted(self, what: str) -> None:
        """Note that a request was accepted.  That is logged if its refusal was logged."""
        if (over := self.open.pop(what, None)) is None:
            return
        if self._logged.get(what, over.since - 1) >= over.since:  # its refusal was logged
            log.warning(
                "%s: the registry accepts %s again; it had refused that %s in %.1f s",
                *(self._job, what, counted(over.times, "time"), self._now() - over.since),
                extra={"job": self._job},
            )
