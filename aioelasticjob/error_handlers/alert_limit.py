"""Limits what workers send: one outage can make thousands of moments be missed.

What is held back is sent later, and what could not be delivered is sent again.  Otherwise an outage that begins soon
after the last message would be reported by nobody.  ``operations.alerts`` has the limits of ``aioelasticjob alert``.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeAlias

from aioelasticjob.error_handlers.failure import Failure
from aioelasticjob.errors import MissedRuns
from aioelasticjob.ground.plural import counted
from aioelasticjob.ground.repeat_limit import RepeatLimit

INTERVAL = 600.0
"""Seconds between two alerts with the same reason about the same job."""
MOST = 20
"""Alerts of one kind that a target is sent in ``INTERVAL`` seconds, over all jobs of the process."""
RETRY_PAUSE = 60.0
"""Seconds before an alert that could not be delivered is sent again; twice as long each time, up to ``INTERVAL``."""

_Subject: TypeAlias = tuple[Hashable, ...]
"""What an alert is about: its target, kind, job and reason."""


@dataclass(slots=True)
class _Sent:
    """The alerts of one kind that one target was sent in the current interval."""

    limit: RepeatLimit
    """Counts them, by the loop's clock."""
    not_before: dict[_Subject, float] = field(default_factory=dict)
    """When the next alert may be sent, by what it is about."""


class AlertLimit:
    """Decides when a target is sent which failures.  Failed runs are not limited: each has its own reason.

    Of several failures that are about the same and have to wait, only the newest is kept.
    """

    def __init__(self) -> None:
        self._sent: dict[Hashable, _Sent] = {}
        self._held: dict[_Subject, tuple[Hashable, Failure]] = {}

    @property
    def held(self) -> list[Failure]:
        """The failures that have to wait."""
        return [failure for _, failure in self._held.values()]

    def holds(self, target: Hashable, failure: Failure) -> bool:
        """Whether a failure that is about the same waits already."""
        return _subject(target, failure) in self._held

    def admitted(self, target: Hashable, failure: Failure, now: float) -> Failure | None:
        """Return the failure with a note about those that are left out; None if it has to wait itself."""
        if failure.what == "failed":
            return failure
        subject = _subject(target, failure)
        sent = self._current(target, failure, now)
        if self._held.pop(subject, None) is not None:
            sent.limit.leave_out(subject)
        if now < self._due(target, failure):
            self._held[subject] = target, failure
            return None
        sent.not_before[subject] = now + INTERVAL
        if failure.undelivered:
            return failure  # it was counted when it was sent first, and has its note
        left_out = sent.limit.take_left_out().total()
        sent.limit.admits(subject, most=MOST)  # it has room, else the alert would not be due
        notes = list[str]()
        if left_out:
            notes.append(f"{counted(left_out, 'such alert')} left out before this one.")
        if sent.limit.is_full(MOST):
            notes.append(f"Further such alerts wait for up to {INTERVAL / 60:g} minutes.")
        return replace(failure, note=" ".join(notes))

    def failed(self, target: Hashable, failure: Failure, now: float) -> float | None:
        """Have a failure that could not be delivered wait, unless a newer one does; return for how many seconds.

        The result is None for a failed run, which is not sent again.
        """
        if failure.what == "failed":
            return None
        pause = min(RETRY_PAUSE * 2.0**failure.undelivered, INTERVAL)
        subject = _subject(target, failure)
        sent = self._current(target, failure, now)
        sent.not_before[subject] = now + pause
        if subject not in self._held:
            self._held[subject] = target, replace(failure, undelivered=failure.undelivered + 1)
        return pause

    def next_due(self) -> float:
        """Return when the next of the failures that wait may be sent, by the loop's clock."""
        due = [self._due(target, failure) for target, failure in self._held.values()]
        return min(due, default=inf)

    def released(self, now: float) -> list[tuple[Hashable, Failure]]:
        """Return the failures that need not wait any more, each with its target; they do not wait any more."""
        found = list[tuple[Hashable, Failure]]()
        for subject, (target, failure) in list(self._held.items()):
            self._current(target, failure, now)
            if now >= self._due(target, failure):
                del self._held[subject]
                found.append((target, failure))
        return found

    def _current(self, target: Hashable, failure: Failure, now: float) -> _Sent:
        """Return the count of the current interval, which begins anew when the last one is over."""
        key = target, failure.what
        sent = self._sent.setdefault(key, _Sent(RepeatLimit(INTERVAL, now)))
        if sent.limit.renew(now):
            sent.not_before = {subject: then for subject, then in sent.not_before.items() if now < then}
        return sent

    def _due(self, target: Hashable, failure: Failure) -> float:
        """Return when a failure may be sent."""
        sent = self._sent[target, failure.what]
        then = sent.not_before.get(_subject(target, failure), -inf)
        if sent.limit.is_full(MOST) and not failure.undelivered:
            return max(then, sent.limit.end)
        return then


def _subject(target: Hashable, failure: Failure) -> _Subject:
    reason: Hashable = failure.items
    if isinstance(failure.error, MissedRuns):
        reason = failure.error.reason
    return target, failure.what, failure.job, reason
