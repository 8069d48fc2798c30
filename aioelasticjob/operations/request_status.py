"""Requests as operators see them: how far each has come, and how its runs have ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from anyio import sleep

from aioelasticjob.coordination.request_runs import begun_items, failures, requests_of, waiting_items
from aioelasticjob.coordination.requests import Request, is_id
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.layout import Layout
from aioelasticjob.model import Outcome
from aioelasticjob.operations.queries import listed, names, view_of
from aioelasticjob.registry.session import Session

POLL_INTERVAL = 0.3
"""Seconds between two looks at a request whose end is waited for."""


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """A request and how far it has come."""

    request: Request
    state: str
    """``planned``, ``waiting``, ``running``, ``paused``, ``cancelled``, ``expired`` or ``done``."""
    outcomes: Mapping[str, int]
    """How many runs have ended in which way."""
    waiting: tuple[int, ...]
    """The items that have moments to run."""
    running: tuple[int, ...]
    """The items whose newest run has not ended."""

    @property
    def is_over(self) -> bool:
        """Whether all its runs have ended, and no more will begin."""
        return bool(self.request.closed) or not (self.running or (self.waiting and self.request.is_open))


async def requests(session: Session, job: str) -> tuple[RequestStatus, ...]:
    """Return the requests of a job, in the order in which they are answered; those that have ended last for a while.

    Raises:
        InvalidSetting: there is no such job.
        RegistryError: the registry could not be read.
    """
    view = await view_of(session, job)
    return tuple(_status(view, request) for request in requests_of(view))


async def request(session: Session, job: str, id: str) -> RequestStatus:
    """Return one request of a job.

    Raises:
        InvalidSetting: there is no such job, or no such request.
        RegistryError: the registry could not be read.
    """
    view = await view_of(session, job)
    return _status(view, existing(view, id))


async def ended(session: Session, job: str, id: str) -> RequestStatus:
    """Wait until all runs of a request have ended, and return how.  A run that was cut off for good has ended, too.

    Raises:
        InvalidSetting: there is no such job, or no such request.
        RegistryError: the registry could not be read.
    """
    while True:
        view = await view_of(session, job)
        found = _status(view, existing(view, id))
        if found.is_over:
            return found
        if found.running and not found.waiting and not view.config.failover:
            paths = [path for item in map(view.layout.item, found.running) for path in (item.running, item.execution)]
            nodes = await session.get_many(paths)
            if not any(nodes[::2]):  # and nobody rescues them
                lost = {**found.outcomes, "cut off": len(found.running)}
                newest = await request(session, job, id)
                return newest if newest.is_over else replace(found, outcomes=lost, running=())
        await sleep(POLL_INTERVAL)


async def job_of_request(session: Session, id: str) -> str:
    """Return the job that has a request of this id.

    Raises:
        InvalidSetting: no job has one, or several have one.
        RegistryError: the registry could not be read.
    """
    if not is_id(id):
        raise InvalidSetting("id", id, "is no id of a request")
    jobs = await names(session)
    nodes = await session.get_many([Layout(job).request(id) for job in jobs])
    found = [job for job, node in zip(jobs, nodes, strict=True) if node is not None]
    if len(found) != 1:
        expected = f"several jobs have such a request, so name the job: {listed(found)}" if found else "no job has it"
        raise InvalidSetting("id", id, expected)
    return found[0]


def existing(view: JobView, id: str) -> Request:
    """Return a request of a job.

    Raises:
        InvalidSetting: there is no such request.
    """
    found = {one.id: one for one in requests_of(view)}
    if id not in found:
        there = listed(found)
        raise InvalidSetting("request", id, f"{view.layout.job} has no such request; there are: {there}")
    return found[id]


def _status(view: JobView, request: Request) -> RequestStatus:
    if request.closed:
        return RequestStatus(request, request.stopped or "done", request.outcomes or {}, (), ())
    begun = begun_items(view, request)
    outcomes = dict[str, int]()
    for progress, _ in begun.values():
        failed = failures(progress)
        ended = {Outcome.COMPLETED.value: progress.runs - failed - (not progress.outcome), Outcome.FAILED.value: failed}
        if request.span is None:
            ended = {progress.outcome: 1}
        for outcome, count in ended.items():
            if outcome and count > 0:
                outcomes[outcome] = outcomes.get(outcome, 0) + count
    waiting = tuple(waiting_items(view, request))
    running = tuple(sorted(item for item, (progress, _) in begun.items() if not progress.outcome))
    state = request.stopped or ("paused" if request.paused else "running" if running else "waiting")
    if state == "waiting" and not waiting:
        state = "done"
    elif state == "waiting" and not begun and request.at:
        state = "planned"
    return RequestStatus(request, state, outcomes, waiting, running)
