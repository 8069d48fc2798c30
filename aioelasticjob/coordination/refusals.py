"""What the registry refuses to a job in this process: since when and why, for the log and for those who ask."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from aioelasticjob.clock import SystemClock
from aioelasticjob.errors import RegistryError

QUIET_FOR = 60.0
"""Seconds in which refusals of one kind of request are logged once; a refusal not repeated for so long is over."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """One kind of request that the registry refuses at present."""

    what: str
    """What the job wanted, as in "to settle items"."""
    why: str
    since: float
    """When it was refused first, in seconds since the epoch."""
    last: float
    """When it was refused last."""
    times: int = 1


class Refusals:
    """The requests of one job that are refused at present; ``now`` returns seconds since the epoch."""

    def __init__(self, job: str, now: Callable[[], float] | None = None) -> None:
        self._job, self._now = job, now or SystemClock().now
        self._open: dict[str, RefusedRequest] = {}
        self._logged: dict[str, float] = {}
        self._latest: RegistryError | None = None

    @property
    def present(self) -> tuple[RefusedRequest, ...]:
        """Return what is refused at present; what nobody asks for any more is left out after a while."""
        now = self._now()
        return tuple(one for one in self._open.values() if abs(now - one.last) < QUIET_FOR)

    def refused(self, what: str, error: RegistryError) -> None:
        """Note a refusal; it is logged once a minute at most for each kind of request."""
        if error is self._latest:  # somebody further down has noted it
            return
        now, self._latest = self._now(), error
        known = self._open.get(what)
        if known is None or abs(now - known.last) >= QUIET_FOR:
            known = RefusedRequest(what, str(error), now, now, 0)
        self._open[what] = replace(known, why=str(error), last=now, times=known.times + 1)
        if abs(now - self._logged.get(what, -QUIET_FOR)) >= QUIET_FOR:
            self._logged[what] = now
            log.error("%s: the registry refuses %s: %s", self._job, what, error, extra={"job": self._job})

    def accepted(self, what: str) -> None:
        """Note that something was not refused; it is logged if a refusal was."""
        if not self._open or (over := self._open.pop(what, None)) is None:
            return
        if self._logged.get(what, over.since - 1) >= over.since:  # else the log does not know that it was refused
            log.warning(
                "%s: the registry accepts %s again; it had refused that %d times in %.1f s",
                *(self._job, what, over.times, self._now() - over.since),
                extra={"job": self._job},
            )
