"""Limits alerts: one outage can make thousands of moments be missed, and leave many jobs without an instance."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from math import inf

from aioelasticjob.error_handlers.failure import Failure
from aioelasticjob.errors import MissedRuns
from aioelasticjob.plural import counted

INTERVAL = 600.0
"""Seconds between two alerts with the same reason about the same job."""
MOST = 20
"""Alerts of one kind that a target is sent in ``INTERVAL`` seconds, over all jobs of the process."""


@dataclass(slots=True)
class _Sent:
    """The alerts of one kind that one target was sent in the current interval."""

    since: float
    """When this count began, by the loop's clock."""
    times: dict[Hashable, float] = field(default_factory=dict)
    """When an alert was last sent, by its job and reason."""
    alerts: int = 0
    left_out: int = 0


class AlertLimit:
    """Decides which failures a target is sent.  Failed runs are not limited: each has its own reason."""

    def __init__(self) -> None:
        self._sent: dict[Hashable, _Sent] = {}

    def admitted(self, target: Hashable, failure: Failure, now: float) -> Failure | None:
        """Return the failure with a note about those that are left out; None if it is itself left out."""
        if failure.what == "failed":
            return failure
        sent = self._sent.setdefault((target, failure.what), _Sent(now))
        if now >= sent.since + INTERVAL:
            recent = {key: at for key, at in sent.times.items() if now < at + INTERVAL}
            sent = self._sent[target, failure.what] = _Sent(now, recent, left_out=sent.left_out)
        key = failure.job, failure.error.reason if isinstance(failure.error, MissedRuns) else failure.items
        if now < sent.times.get(key, -inf) + INTERVAL or sent.alerts >= MOST:
            sent.left_out += 1
            return None
        sent.times[key] = now
        sent.alerts += 1
        before = f"{counted(sent.left_out, 'such alert')} left out before this one." if sent.left_out else ""
        more = f"More such alerts in the next {INTERVAL / 60:g} minutes are only in the log."
        after = more if sent.alerts == MOST else ""
        sent.left_out = 0
        return replace(failure, note=" ".join(filter(None, (before, after))))
