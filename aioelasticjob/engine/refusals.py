"""Notes which requests of a job the registry refuses, since when and why: for the log, health checks and operators.

Operators read it in the node of the instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aioelasticjob.clock import Clock, SystemClock
from aioelasticjob.errors import RegistryError
from aioelasticjob.ground.encoding import number
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.ground.plural import counted
from aioelasticjob.logging import logger

QUIET_FOR = 60.0
"""Refusals of one kind of request are logged once in so many seconds.  A refusal not repeated for so long is over."""
CLAIM = "to claim items"
SETTLE = "to settle items"
GIVE_BACK = "to give items back"
READ_DUE = "to read what is due"
NEEDED_TO_RUN = frozenset({CLAIM, SETTLE, GIVE_BACK, READ_DUE})
"""The purposes of the requests that a job needs to run items.  While one is refused, moments may be missed."""
REFUSAL_DELAY = 1.0
"""Seconds.  The refusal of a claim may arrive so long after the moment that is claimed."""
MAX_SPANS = 32
"""How many spans of refusals are remembered after they have ended."""
KEY = "refused"
"""The key in the instance's node."""
MOST = 3
"""Kinds of requests that are noted in the instance's node."""
LONGEST_REASON = 300
"""Characters of a reason that are noted in the instance's node."""

log = logger(__name__)


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
    """The requests of one job that the registry refuses at present.

    ``limited_log`` limits the lines of all jobs of the process together.
    """

    def __init__(self, job: str, clock: Clock | None = None, limited_log: LimitedLog | None = None) -> None:
        self._job = job
        self._clock = clock or SystemClock()
        self._limited_log = limited_log
        self.open: dict[str, RefusedRequest] = {}
        """What was refused last and has not been accepted since, by its purpose."""
        self.past: tuple[tuple[float, float], ...] = ()
        """The start and end of each past span of refusals that kept items from running, in seconds since the epoch."""
        self._logged: dict[str, float] = {}
        self._latest: RegistryError | None = None

    @property
    def present(self) -> tuple[RefusedRequest, ...]:
        """Return the requests that are refused at present.  One that is not repeated is left out after a while."""
        now = self._clock.now()
        return tuple(one for one in self.open.values() if abs(now - one.last) < QUIET_FOR)

    def ages(self, now: float) -> tuple[tuple[float, float], ...]:
        """Return how many seconds ago each span of refusals that kept items from running began and ended."""
        present = [self._span(one, now) for one in self.open.values() if one.what in NEEDED_TO_RUN]
        spans = (*self.past, *present)
        return tuple((now - began, now - ended) for began, ended in spans)

    def _span(self, one: RefusedRequest, now: float) -> tuple[float, float]:
        """Return the start and the end of the span whose moments could not be run because of a refusal."""
        ended = now if abs(now - one.last) < QUIET_FOR else one.last
        delay = REFUSAL_DELAY if one.what == CLAIM else 0.0
        return one.since - delay, ended

    def _remember(self, one: RefusedRequest, now: float) -> None:
        """Keep the span of a refusal that is over, if it kept items from running."""
        if one.what in NEEDED_TO_RUN:
            self.past = (*self.past, self._span(one, now))[-MAX_SPANS:]

    def refused(self, what: str, error: RegistryError) -> None:
        """Note a refusal.  It is logged at most once a minute for each kind of request."""
        if error is self._latest:  # the function that raised it has noted it
            return
        now = self._clock.now()
        self._latest = error
        known = self.open.get(what)
        if known is not None and abs(now - known.last) >= QUIET_FOR:
            self._remember(known, now)
            known = None
        if known is None:
            known = RefusedRequest(what, str(error), now, now, 0)
        self.open[what] = replace(known, why=str(error), last=now, times=known.times + 1)
        logged = self._logged.get(what, -QUIET_FOR)
        if abs(now - logged) < QUIET_FOR:
            return
        kind = f"the registry refuses {what}"
        if self._limited_log is None or self._limited_log.admits(log, self._job, kind):
            self._logged[what] = now
            text = "%s: the registry refuses %s: %s"
            log.error(text, self._job, what, error.with_page(), extra={"job": self._job})

    def accepted(self, what: str) -> None:
        """Note that a request was accepted.  That is logged if its refusal was logged."""
        over = self.open.pop(what, None)
        if over is None:
            return
        self._remember(over, self._clock.now())
        if self._logged.get(what, over.since - 1) >= over.since:  # its refusal was logged
            text = "%s: the registry accepts %s again; it had refused that %s in %.1f s"
            times = counted(over.times, "time")
            seconds = self._clock.now() - over.since
            log.warning(text, self._job, what, times, seconds, extra={"job": self._job})

    def note(self, said: Mapping[str, object]) -> object:
        """Return what the instance's node has to say of what is refused at present; None if there is nothing.

        ``said`` is what it says now.  That stays as long as the same requests are refused, whatever the newest reasons.
        """
        present = self.present[:MOST]
        if not present:
            return None
        noted = [(what, since) for what, _, since in noted_refusals(said)]
        if noted == [(one.what, one.since) for one in present]:
            return said[KEY]
        return [{"what": one.what, "why": one.why[:LONGEST_REASON], "since": one.since} for one in present]


def noted_refusals(data: Mapping[str, object]) -> tuple[tuple[str, str, float], ...]:
    """Return the purpose, the reason and the beginning of each refusal that an instance's node tells of."""
    found = data.get(KEY)
    said = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    noted = list[tuple[str, str, float]]()
    for one in said:
        what = one.get("what")
        why = one.get("why")
        since = number(one.get("since"))
        if isinstance(what, str) and isinstance(why, str) and since is not None:
            noted.append((what, why, since))
    return tuple(noted)
