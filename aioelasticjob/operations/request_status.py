"""Requests as operators see them: how far each has come, and how its runs have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from anyio import sleep

from aioelasticjob.clock import Clock
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.records import decode as decode_record
from aioelasticjob.core.request_runs import begun_items, waiting_items
from aioelasticjob.core.requests import EXPIRED, Request, is_id
from aioelasticjob.core.view import JobView
from aioelasticjob.cron.zone import local_time
from aioelasticjob.errors import ForeignData, InvalidSetting
from aioelasticjob.ground.times import time_text
from aioelasticjob.model import CUT_OFF, Outcome
from aioelasticjob.operations.instances import see_who_runs
from aioelasticjob.operations.queries import listed, names, requests_view, view_of
from aioelasticjob.operations.results import NotPossible
from aioelasticjob.registry.session import Session

POLL_INTERVAL = 0.3
"""Seconds between two looks at a request whose end is waited for."""

COUNTED_IN_A_LIST = 1_000
"""How many moments of each backfill are counted when requests are listed, which takes a hundredth of a second."""


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
    time_zone: str = "UTC"
    """The job's time zone."""
    errors: Mapping[int, str] = field(default_factory=dict)
    """Why items have failed whose newest run was made for the request, as their records say."""

    @property
    def is_over(self) -> bool:
        """Whether all its runs have ended, and no more will begin."""
        may_begin = self.request.is_open and self.state != EXPIRED
        return bool(self.request.closed) or not (self.running or (self.waiting and may_begin))

    @property
    def left(self) -> int:
        """How many items have not ended their runs."""
        return len(set(self.waiting) | set(self.running)) if self.request.is_open else 0

    @property
    def outcomes_text(self) -> str:
        """How many runs have ended in which way, as text."""
        if self.outcomes:
            return ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        return "nothing was run" if self.is_over else "nothing yet"

    @property
    def last_text(self) -> str:
        """The last moment of a backfill, and how many there are; empty if there is only one."""
        if self.request.span is None:
            return ""
        _, last, count = self.request.span.moments(COUNTED_IN_A_LIST)
        if count == 1:
            return ""
        more = "at least " if count == COUNTED_IN_A_LIST else ""
        return f"{self.text(last)} ({more}{count:,} moments)"

    def local(self, milliseconds: int) -> datetime | None:
        """Return one of the request's times in the job's time zone; None for 0, which stands for no time."""
        return local_time(milliseconds, self.time_zone) if milliseconds else None

    def text(self, milliseconds: int) -> str:
        """Return one of the request's times in the job's time zone, for people; empty for 0."""
        found = self.local(milliseconds)
        return "" if found is None else time_text(found)


async def requests(session: Session, job: str, *, now: float | None = None) -> tuple[RequestStatus, ...]:
    """Return the requests of a job, in the order in which they are answered; those that have ended last for a while.

    With ``now``, in seconds since the epoch, also those are shown as expired of which no leader has noted it.
    A job of another program has none.

    Raises:
        InvalidSetting: there is no such job.
        RegistryError: the registry could not be read.
    """
    try:
        view = await requests_view(session, job)
    except ForeignData:
        return ()
    return tuple([await _completed(session, view, status_of_request(view, one, now)) for one in view.requests])


async def request(session: Session, job: str, id: str, *, now: float | None = None) -> RequestStatus:
    """Return one request of a job; ``now`` as in ``requests``.

    Raises:
        InvalidSetting: there is no such job, or no such request.
        RegistryError: the registry could not be read.
    """
    view = await requests_view(session, job, id)
    return await _completed(session, view, status_of_request(view, existing(view, id), now))


async def ended(
    session: Session, job: str, id: str, *, clock: Clock | None = None, warn: Callable[[str], None] | None = None
) -> RequestStatus:
    """Wait until all runs of a request have ended, and return how.  A run that was cut off for good has ended, too.

    With a ``clock`` a request that has expired is not waited for, also if no leader notes it.  ``warn`` is called
    with each new reason why nothing of the request can begin at present.

    Raises:
        InvalidSetting: there is no such job, or no such request.
        RegistryError: the registry could not be read.
    """
    warned = ""
    while True:
        now = None if clock is None else clock.now()
        found = await request(session, job, id, now=now)
        if found.is_over:
            return found
        if warn is not None:
            held_up = await _held_up(session, job, found, now)
            if held_up and held_up != warned:
                warn(f"{held_up}; the request waits until then")
            warned = held_up
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
    found = {one.id: one for one in view.requests}
    if not isinstance(id, str) or id not in found:
        there = listed(found)
        raise InvalidSetting("request", id, f"{view.layout.job} has no such request; there are: {there}")
    return found[id]


def status_of_request(view: JobView, request: Request, now: float | None = None) -> RequestStatus:
    """Return how far a request has come, as a view shows it; ``now`` as in ``requests``."""
    zone = view.config.time_zone
    if request.closed:
        return RequestStatus(request, request.stopped or "done", request.outcomes or {}, (), (), zone)
    begun = begun_items(view, request)
    outcomes = sum((progress.outcomes() for progress, _ in begun.values()), Counter[str]())
    waiting = tuple(waiting_items(view, request))
    running = tuple(sorted(item for item, (progress, _) in begun.items() if not progress.outcome))
    is_planned = not begun and (now is None or round(now * 1000) < request.at)
    state = _state(request, waiting, running, is_planned=is_planned)
    if now is not None and request.is_open and waiting and 0 < request.expires <= round(now * 1000):
        state = EXPIRED
    return RequestStatus(request, state, dict(outcomes), waiting, running, zone)


async def _completed(session: Session, view: JobView, found: RequestStatus) -> RequestStatus:
    """Add to the status of a request what only the nodes of its items' runs say."""
    found = await _without_cut_off(session, view, found)
    if not found.outcomes.keys() & {Outcome.FAILED, Outcome.TIMED_OUT} or not view.config.monitor_execution:
        return found
    items = list(found.request.within(view.config.sharding_total_count))
    nodes = await session.get_many([view.layout.item(item).execution for item in items])
    errors = dict[int, str]()
    for item, node in zip(items, nodes, strict=True):
        record = None if node is None else decode_record(node.data)
        if record is not None and record.request == found.request.id and record.outcome and record.error:
            errors[item] = record.error
    return replace(found, errors=errors)


async def _without_cut_off(session: Session, view: JobView, found: RequestStatus) -> RequestStatus:
    """Count runs that were cut off as ended: without failover nobody rescues them, and nobody may be up to note it."""
    if not found.running or view.config.failover:
        return found
    begun_by = {item: one.instance for item, (one, _) in begun_items(view, found.request).items()}
    locks = list[str]()
    for item in found.running:
        instance = begun_by[item]
        # without records, the node of the instance stands for the lock
        locks.append(view.layout.instance(instance) if instance else view.layout.item(item).running)
    begun = [view.layout.request_item(found.request.id, item) for item in found.running]
    nodes = await session.get_many([*locks, *begun])  # a run that has ended since has removed its lock, and noted it
    before = [view.tree.get(path) for path in begun]
    now = zip(found.running, nodes[: len(locks)], nodes[len(locks) :], before, strict=True)
    lost = set[int]()
    for item, lock, node, seen in now:
        if node is None or node != seen:
            continue  # its progress has changed since
        if lock is None or lock.stat.czxid > node.stat.mzxid:
            lost.add(item)
    if not lost:
        return found
    running = tuple(item for item in found.running if item not in lost)
    outcomes = dict(Counter(found.outcomes) + Counter({CUT_OFF: len(lost)}))
    state = found.state
    if state == "running":
        state = _state(found.request, found.waiting, running, is_planned=False)
    return replace(found, state=state, outcomes=outcomes, running=running)


async def _held_up(session: Session, job: str, found: RequestStatus, now: float | None) -> str:
    """Return why nothing of a request can begin at present; empty if something can, or if it is not due yet."""
    request = found.request
    if request.paused:
        return f"{job}: the request {request.id} is paused: resume it first"
    is_due = not request.at or (now is not None and request.at <= round(now * 1000))
    if not is_due or (found.running and await session.children(Layout(job).instances)):
        return ""
    view = await view_of(session, job)
    if request.span is not None and not view.config.monitor_execution:
        return f"{job}: without records it runs no moments again: set monitor_execution = True first"
    if found.waiting and view.disabled_items.issuperset(found.waiting):
        return f"{job}: all items that are left are disabled ({listed(found.waiting)}): enable one first"
    try:
        see_who_runs(view)
    except NotPossible as refusal:
        return str(refusal)
    return ""


def _state(request: Request, waiting: tuple[int, ...], running: tuple[int, ...], *, is_planned: bool) -> str:
    if request.stopped or request.paused:
        return request.stopped or "paused"
    if running:
        return "running"
    if not waiting:
        return "done"
    return "planned" if request.at and is_planned else "waiting"
