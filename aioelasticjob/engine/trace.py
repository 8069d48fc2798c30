"""Puts the events of one execution.  If nobody reads events, no trace is made, so that a fire costs less."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Collection, Iterable, Mapping

from aioelasticjob.clock import Clock
from aioelasticjob.config.job import JobConfig
from aioelasticjob.engine.early_end import FailedAttempt
from aioelasticjob.events import AttemptFailed, Began, Ended, Events, HandedOver, Rescued, Started
from aioelasticjob.jobs.context import Context, task_id
from aioelasticjob.model import Claim, FireSource, Outcome


class Trace:
    """Puts the events of one execution, and remembers them, so that each item has exactly one ``Ended`` event."""

    def __init__(self, claim: Claim, config: JobConfig, events: Events, clock: Clock) -> None:
        self._claim = claim
        self._events = events
        self._clock = clock
        self._job = config.job_name
        self._about = config.job_name, claim.instance, claim.fire.slot, claim.fire.source
        """What most events begin with."""
        self._loop = get_running_loop()
        self._open = _task_ids(claim, config)
        """The task id of each item that has not ended."""
        self._cancelled: dict[int, str] = {}
        self._started: dict[int, float] = {}
        self._failures: dict[int, BaseException] = {}
        self.attempts: dict[int, int] = {}
        """The number of the newest attempt of each item that has had more than one."""

    def began(self) -> None:
        """Put ``Began``; for a rescue, also ``Rescued``, which names the instance whose run was cut off."""
        fire = self._claim.fire
        me = self._claim.instance
        now = self._clock.now()
        items = tuple(self._open)
        tasks = tuple(self._open.values())
        late = now - fire.start / 1000
        self._events.put(Began(*self._about, items, late, tasks, fire.delay / 1000))
        if fire.source is FireSource.FAILOVER:
            for item, task in self._open.items():
                cut_off = self._claim.before[item].instance
                self._events.put(Rescued(self._job, me, fire.slot, item, cut_off, task, now))

    def started(self, context: Context) -> None:
        """Put ``Started``: a handler is called for the items of a context."""
        now = self._loop.time()
        self._started.update(dict.fromkeys(context.claimed, now))
        task = self._open[context.claimed[0]]
        self._events.put(Started(*self._about, context.claimed, task, self._clock.now()))

    def ended(self, items: Iterable[int], outcome: Outcome) -> None:
        """Put ``Ended`` for items whose handler has ended."""
        for item in items:
            task = self._open.pop(item, None)
            if task is not None:
                now = self._loop.time()
                self._put_ended(item, task, outcome, now - self._started.get(item, now))

    def close(self, outcomes: Mapping[int, Outcome], seconds: float) -> None:
        """Put ``Ended`` for all items that have not ended; the execution began ``seconds`` ago."""
        now = self._loop.time()
        for item, task in self._open.items():
            outcome = outcomes.get(item, Outcome.CANCELLED)
            took = now - self._started[item] if item in self._started else seconds
            self._put_ended(item, task, outcome, took)
            if outcome is Outcome.CANCELLED:
                self._cancelled[item] = task
        self._open = {}

    def attempt_failed(self, failed: FailedAttempt) -> None:
        """Put ``AttemptFailed``."""
        items = failed.context.claimed
        attempt = failed.context.attempt
        task = self._open[items[0]]
        now = self._clock.now()
        event = AttemptFailed(*self._about, items, attempt, failed.seconds, failed.pause, task, now, failed.error)
        self._events.put(event)

    def handed_over(self, items: Collection[int]) -> None:
        """Put ``HandedOver`` for cancelled items that were marked as orphans, so that other instances run them."""
        now = self._clock.now()
        for item, task in self._cancelled.items():
            if item in items:
                self._events.put(HandedOver(*self._about, item, task, now))

    def failed(self, context: Context, error: Exception) -> None:
        """Keep an error for the ``Ended`` events of its items."""
        self._failures.update(dict.fromkeys(context.claimed, error))

    def _put_ended(self, item: int, task: str, outcome: Outcome, seconds: float) -> None:
        failure = self._failures.pop(item, None)
        now = self._clock.now()
        if outcome is Outcome.COMPLETED:
            failure = None  # a listener may fail although the run is completed
        attempt = self.attempts.get(item, 1)
        self._events.put(Ended(*self._about, item, outcome, seconds, task, now, failure, attempt))


def _task_ids(claim: Claim, config: JobConfig) -> dict[int, str]:
    """Return the task ids that the contexts of these items have."""
    job = config.job_name
    me = claim.instance
    slot = claim.fire.slot
    run = claim.fire.run
    fences = claim.fences
    if config.per == "instance":
        items = sorted(claim.items)
        listed = ",".join(map(str, items))
        newest = max(fences.values(), default=0)
        together = task_id(job, listed, me, run, newest or slot)
        return dict.fromkeys(items, together)
    tasks = dict[int, str]()
    for item in claim.items:
        fence = fences.get(item, 0)
        tasks[item] = task_id(job, str(item), me, run, fence or slot)
    return tasks
