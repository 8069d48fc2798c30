"""Carries out plans: writes the states of alerts, sends messages, and writes what has become of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from anyio.abc import TaskGroup

from aioelasticjob.error_handlers import Failure, call_handler, to_log
from aioelasticjob.ground.plural import counted
from aioelasticjob.logging import logger
from aioelasticjob.operations.alerts.nodes import TOGETHER, AlertStore
from aioelasticjob.operations.alerts.plan import Condition, Message, Planner, Target
from aioelasticjob.operations.alerts.state import AlertKey, AlertState

IN_LOG = ("log", "raise")
"""Error handlers of jobs for which a message is logged: ``raise`` is for workers, and would end the command."""

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What has become of a message about an alert."""

    sent: AlertState
    trouble: str
    """Why it could not be delivered; empty if it was."""
    at: float


class AlertSender:
    """Sends what a planner has planned.  ``failure_of`` puts a message into words; ``now`` is the registry's time."""

    def __init__(
        self,
        planner: Planner,
        tasks: TaskGroup,
        failure_of: Callable[[Sequence[AlertState]], Failure],
        now: Callable[[], float],
    ) -> None:
        self._planner = planner
        self._tasks = tasks
        self._failure_of = failure_of
        self._now = now
        self._outcomes: dict[AlertKey, _Outcome] = {}
        """What has yet to be written: the registry may be away when a message has been delivered."""
        self._sending = 0
        self.news = asyncio.Event()
        """Set when a message was delivered, or could not be."""
        self.idle = asyncio.Event()
        """Set while no message is on its way and no outcome waits to be written."""
        self.idle.set()

    def forget(self) -> None:
        """Begin to count again how long faults have lasted."""
        self._planner.forget()

    async def look(
        self,
        store: AlertStore,
        conditions: Iterable[Condition],
        target_of: Callable[[AlertKey], Target | None],
        *,
        sends: bool = True,
    ) -> float:
        """Do what has to be done now; return when to look again, or 0 if the states have to be read again first."""
        if not await self._write_outcomes(store):
            return 0.0
        plan = self._planner.plan(conditions, store.states, target_of, self._now())
        for part in _parts(plan.writes):
            if not await store.write(part):
                return 0.0
        for message in plan.messages if sends else ():
            claimed = list[AlertState]()
            for part in _parts({alert.key: alert for alert in message.alerts}):
                if await store.write(part):
                    claimed += [alert for alert in part.values() if alert is not None]
            if claimed:
                self._sending += 1
                self.idle.clear()
                self._tasks.start_soon(self._send, Message(message.target, tuple(claimed)))
            if len(claimed) < len(message.alerts):
                return 0.0
        return plan.next_look

    async def _send(self, message: Message) -> None:
        failure = self._failure_of(message.alerts)
        handler = message.target.handler
        trouble = ""
        if handler in IN_LOG:
            await to_log(failure, {})
        else:
            log.warning("%s; the error handler %s is called", failure.subject, handler, extra=_about(failure))
            trouble = await call_handler(handler, dict(message.target.options), failure)
        if trouble:
            text = "the error handler %s could not deliver %s, so it is called again: %s"
            what = counted(len(message.alerts), "alert")
            log.error(text, handler, what, trouble, extra={**_about(failure), "reason": trouble})
        for alert in message.alerts:
            self._outcomes[alert.key] = _Outcome(alert, trouble, self._now())
        self._sending -= 1
        self.news.set()

    async def _write_outcomes(self, store: AlertStore) -> bool:
        changes = dict[AlertKey, AlertState | None]()
        for key, outcome in self._outcomes.items():
            state = store.states.get(key)
            if state is None:  # somebody has removed its node
                continue
            if outcome.trouble:
                changes[key] = state.undelivered(outcome.trouble, outcome.at)
            else:
                changes[key] = state.delivered(outcome.sent, outcome.at)
        for part in _parts(changes):
            if not await store.write(part):
                return False
            for key in part:
                del self._outcomes[key]
        for key in self._outcomes.keys() - changes.keys():
            del self._outcomes[key]
        if not self._sending:
            self.idle.set()
        return True


def _parts(changes: Mapping[AlertKey, AlertState | None]) -> Iterator[dict[AlertKey, AlertState | None]]:
    """Yield the changes in parts that fit into one transaction each."""
    keys = sorted(changes)
    for first in range(0, len(keys), TOGETHER):
        yield {key: changes[key] for key in keys[first : first + TOGETHER]}


def _about(failure: Failure) -> dict[str, object]:
    return {"job": failure.job, "alerts": [f"{one.kind} {one.job}".rstrip() for one in failure.alerts[:TOGETHER]]}
