"""What the port of metrics answers: metrics and health of this process, or of all processes that share the port."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from anyio import create_task_group, to_thread

from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.ground.nesting import read_json
from aioelasticjob.host.user_code import UserCode
from aioelasticjob.logging import logger
from aioelasticjob.observers.exposition import together
from aioelasticjob.observers.siblings import Siblings, ask

PROBE_TIMEOUT = 0.8
"""Seconds that another process has to answer a probe: less than the second that Kubernetes gives us, unless told."""
METRICS_TIMEOUT = 5.0
"""Seconds that another process has to answer with its metrics: half of the time that Prometheus gives us."""

METRICS: Final = "/metrics"
PROBES: Final[Mapping[str, Literal["health", "live", "ready"]]] = {
    "/health": "health",
    "/health/live": "live",
    "/health/ready": "ready",
}
STATUSES = ("up", "suspended", "down")
"""What a process can be, the best first."""

Render: TypeAlias = Callable[[str], Awaitable[tuple[bytes, str]]]

log = logger(__name__)


class Health(Protocol):
    """The health of a process, such as ``ElasticJob.health``."""

    def status_code(self, asked: Literal["health", "live", "ready"]) -> int:
        """Return the status code of an answer by HTTP."""
        ...

    def as_json(self) -> Mapping[str, object]:
        """Return the body of the answer."""
        ...


class HasHealth(Protocol):
    """An application that can be asked for its health."""

    @property
    def health(self) -> Health:
        """Its health at present."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer by HTTP."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class Answers:
    """Answers requests, each within a time that is bounded, whatever other processes do."""

    def __init__(self, render: Render, app: HasHealth, siblings: Siblings, limited_log: LimitedLog) -> None:
        self._render = render
        self._app = app
        self._siblings = siblings
        self._limited_log = limited_log

    async def to(self, method: str, path: str, accept: str, *, alone: bool) -> Answer:
        """Return the answer to a request; with ``alone`` set, for this process only: another one asks for it."""
        if method not in ("GET", "HEAD"):
            return Answer(405, b"GET or HEAD\n")
        if path in PROBES:
            own = self._own_health(path)
            if alone:
                return own
            return await self._all_health(path, own)
        if path != METRICS:
            return Answer(404, f"there is {METRICS}, {', '.join(PROBES)}\n".encode())
        own = await self._own_metrics(accept)
        if alone or own.status != 200:
            return own
        return await self._all_metrics(accept, own)

    def _own_health(self, path: str) -> Answer:
        health = self._app.health
        status = health.status_code(PROBES[path])
        body = json.dumps(health.as_json()).encode()
        return Answer(status, body, "application/json")

    async def _all_health(self, path: str, own: Answer) -> Answer:
        """Return the health of all processes that share the port; of this one alone if there is no other."""
        others = await self._asked(path, "", PROBE_TIMEOUT)
        if not others:
            return own
        answers = {self._siblings.own: own, **others}
        processes = {process: _health_in(answer) for process, answer in sorted(answers.items())}
        known = [health or {"status": STATUSES[-1], "alive": False, "ready": False} for health in processes.values()]
        body = {
            "status": max((health["status"] for health in known), key=STATUSES.index),
            "alive": all(health["alive"] for health in known),
            "ready": all(health["ready"] for health in known),
            "processes": processes,
        }
        is_good = all(answer is not None and answer.status == 200 for answer in answers.values())
        status = 200 if is_good else 503
        return Answer(status, json.dumps(body).encode(), "application/json")

    async def _own_metrics(self, accept: str) -> Answer:
        try:
            async with UserCode("a collector of metrics"):
                return Answer(200, *await self._render(accept))
        except Exception:
            text = "metrics could not be rendered, because a collector failed"
            if self._limited_log.admits(log, None, text):
                log.exception("%s", text, extra={"reason": "a collector failed"})
            return Answer(500, b"the metrics could not be rendered: see the log of the process\n")

    async def _all_metrics(self, accept: str, own: Answer) -> Answer:
        texts = {self._siblings.own: own.body}
        others = await self._asked(METRICS, accept, METRICS_TIMEOUT)
        for process, answer in others.items():
            if answer is not None and answer.status == 200:
                texts[process] = answer.body
                continue
            text = f"process {process} has not answered with its metrics, so they are left out"
            if self._limited_log.admits(log, None, "processes that have not answered with their metrics"):
                log.warning("%s", text, extra={"reason": text})
        body = await to_thread.run_sync(together, dict(sorted(texts.items())))
        return Answer(200, body, own.content_type)

    async def _asked(self, path: str, accept: str, timeout: float) -> dict[int, Answer | None]:
        """Return the answers of all other processes, None for each that has not answered in time."""
        found = dict[int, Answer | None]()

        async def note(process: int, connection: Any) -> None:
            answer = await ask(connection, path, accept, timeout)
            found[process] = None if answer is None else Answer(*answer)

        async with create_task_group() as tasks:
            for process, connection in self._siblings.connect().items():
                tasks.start_soon(note, process, connection)
        return found


def _health_in(answer: Answer | None) -> dict[str, Any] | None:
    """Return the health that a process has answered with; None if it has not, or is of a version that differs."""
    if answer is None:
        return None
    with suppress(ValueError):
        health = read_json(answer.body)
        if not isinstance(health, dict):
            return None
        if health.get("status") in STATUSES and {"alive", "ready"} <= health.keys():
            return health
    return None
