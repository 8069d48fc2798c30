"""One job in this process: join, coordinate and run until asked to leave, session after session."""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from dataclasses import dataclass, field
from math import inf
from uuid import uuid4

from anyio import TASK_STATUS_IGNORED, CancelScope, Event, create_task_group, move_on_after, sleep
from anyio.abc import TaskStatus

from aioelasticjob.clock import Clock
from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.attendance import note_accounted
from aioelasticjob.coordination.claims import Claims
from aioelasticjob.coordination.commit import connected
from aioelasticjob.coordination.coordinator import coordinate, follow
from aioelasticjob.coordination.faults import lacks
from aioelasticjob.coordination.ledger import Ledger
from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.membership import give_notice, join, leave
from aioelasticjob.coordination.view import JobView, read
from aioelasticjob.errors import (
    ElasticJobError,
    ForeignData,
    InvalidSetting,
    OutcomeUnknown,
    RegistryError,
    SessionEnded,
    Suspended,
    unwrapped,
)
from aioelasticjob.jobs.base import Job
from aioelasticjob.latest import Latest
from aioelasticjob.layout import Layout
from aioelasticjob.model import instance_id
from aioelasticjob.registry.mirror import mirror
from aioelasticjob.registry.session import Session, SessionState
from aioelasticjob.registry.tree import Tree
from aioelasticjob.running.clockwork import Clockwork, Reading
from aioelasticjob.running.health import JobHealth
from aioelasticjob.running.monitor import monitored
from aioelasticjob.running.runner import Runner
from aioelasticjob.running.standby import FAREWELL, wait_for_news, wait_until_known
from aioelasticjob.running.state import Items
from aioelasticjob.running.stopping import LAST_WORD
from aioelasticjob.running.surroundings import Running, Surroundings

CLOCK_CHECK = 1.0
"""Seconds between two looks at the time, to see whether it was set."""
CLOCK_CHECK_AT_LAST = 60.0
"""Seconds between two questions for the registry's time when it has long been far from this host's."""
CLOCK_CHECK_REFUSING = 5.0
"""The same while a job refuses to run for it: then nothing is written that would tell that it was put right."""
AGAIN_AFTER = 1.0
"""Seconds before a job joins again under the session that it had, or tries again what was refused."""
COMPLAIN_AGAIN_AFTER = 60.0
"""Seconds after which the log hears the same complaint again."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Host:
    """The machine and process that instances are named after."""

    ip: str
    name: str
    pid: int


async def run_job(
    job: Job,
    session: Session,
    host: Host,
    shared: Surroundings,
    leaving: Event,
    *,
    task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
) -> None:
    """Run a job until ``leaving`` is set or an operator shuts the instance down.

    It is up when it has joined; and also when what the registry holds of it makes no sense, or requires what is not
    known here: then it waits for its turn, and the other jobs of the process run.

    Raises:
        InvalidSetting: at the start only; what this process declares is wrong, or is another kind of job there.
        RegistryError: at the start only; the registry could not be read.
    """
    life = _Life(task_status)
    while not leaving.is_set():
        await life.pause(session)
        status = await session.status.until(lambda now: now.state in (SessionState.CONNECTED, SessionState.CLOSED))
        if status.state is SessionState.CLOSED:
            return
        name = life.name_under(status.incarnation, host)
        layout, refusals = Layout(job.config.job_name), shared.refusals_of(job.config.job_name)
        member = Member(session, layout, name, host.ip, host.name, host.pid, status.incarnation, refusals=refusals)
        try:
            with unwrapped():
                if not await _live(job, member, shared, leaving, life):
                    shared.standing_by.pop(job.config.job_name, None)
                    await _remove_what_is_left(
                        member, shared, leaving, hand_over=life.config is not None and life.config.failover
                    )
                    return
        except (InvalidSetting, RegistryError) as error:
            cost = Suspended | SessionEnded | OutcomeUnknown  # what a slow start may cost
            if not (life.started or isinstance(error, cost)):
                raise
            life.complain(error, job.config.job_name)


@dataclass(slots=True)
class _Life:
    """What a job's lives in this process have in common."""

    task_status: TaskStatus[None]
    """Of the process's start, which waits until the job is up."""
    since: float | None = None
    """Since when somebody has been there, by the registry's clock, as was known when the first of them began."""
    started: bool = False
    """Whether the job is up, though it may have to wait for its turn."""
    config: JobConfig | None = None
    """The newest configuration that made sense."""
    incarnation: int = 0
    name: str = ""
    trouble: str = ""
    """What was complained of last."""
    complained_at: float = -inf
    """When that was, by the loop's clock."""
    again: bool = False
    """Whether the last of them was under the present session, too."""
    accounted: int = 0
    """The newest moment that was run here or reported, in milliseconds since the epoch."""
    items: Items = field(default_factory=Items)
    """The same of each item under the present session: an earlier one may not have heard of another schedule."""

    @property
    def up_since(self) -> float:
        """Since when somebody was there for the job, as far as this process can answer for it.

        Without records it cannot: what it did not run between two sessions nobody else knows of.
        """
        recorded = self.config is None or self.config.monitor_execution
        return self.since if self.since is not None and recorded else inf

    def begin(self) -> None:
        """Tell the process's start, once, that the job is up."""
        if not self.started:
            self.started = True
            self.task_status.started()

    def wait(self, job: str, problem: str, shared: Surroundings, instance: str | None = None) -> None:
        """Say why the job waits for its turn, once for each reason, and show it in the process's health."""
        if problem != self.trouble:
            self.trouble = problem
            log.warning("%s: waits: %s", job, problem, extra={"job": job})
        shared.standing_by[job] = JobHealth(job, instance, problem=problem)
        self.begin()

    def resume(self, job: str, shared: Surroundings) -> None:
        """Say that the job has joined, if it had to wait."""
        if shared.standing_by.pop(job, None):
            self.trouble = ""
            log.info("%s: has joined, what it waited for is mended", job, extra={"job": job})

    def complain(self, error: ElasticJobError, job: str) -> None:
        """Say why the job has to join again, once a minute at most while the reason stays the same."""
        now = get_running_loop().time()
        if str(error) != self.trouble or now >= self.complained_at + COMPLAIN_AGAIN_AFTER:
            self.trouble, self.complained_at = str(error), now
            log.warning("joining again: %s", error, extra={"job": job})

    async def pause(self, session: Session) -> None:
        """Wait a moment, if it was not the session's end that ended the last life: its cause may still be there."""
        if session.incarnation == self.incarnation:
            with move_on_after(AGAIN_AFTER):
                await session.status.until(lambda now: now.incarnation != self.incarnation)

    def name_under(self, incarnation: int, host: Host) -> str:
        """Return the instance's name: a new one for each session, so that no two incarnations share one."""
        self.again = incarnation == self.incarnation
        if not self.again:
            self.incarnation, self.name = incarnation, instance_id(host.ip, host.pid, uuid4().hex[:8])
            self.items = Items()
        return self.name


class _Views(Latest[JobView]):
    """The newest view; a newer one takes back what was about to be done on the last, rather than at its moment."""

    runner: Runner | None = None

    def set(self, value: JobView) -> None:
        """Replace the view, wake every reader, and let the runner look again."""
        super().set(value)
        if self.runner is not None:
            self.runner.reconsider()


async def _live(job: Job, member: Member, shared: Surroundings, leaving: Event, life: _Life) -> bool:
    """Live one session's life, or wait for it; return whether there is to be another."""
    async with mirror(member.session, member.layout.mirrored, shallow=member.layout.shallow) as trees:
        name, seen = job.config.job_name, trees.value
        try:
            if life.config is None and (lacking := member.lacks(seen)):
                life.wait(name, lacks(lacking), shared, member.id)
                return await wait_until_known(member, job.config, trees, leaving)
            config = await join(member, job.config, trees, life.config, life.up_since)
        except InvalidSetting as mistake:
            if not (life.started or isinstance(mistake, ForeignData)):
                raise
            life.wait(name, str(mistake), shared)
            await wait_for_news(member, trees, seen, leaving)
            return True
        life.resume(name, shared)
        await _compare_clocks(member, shared)
        views = _Views(read(trees.value, member.layout, config, config.job_type))
        own_port = config.monitor_port == job.config.monitor_port  # an operator's must not keep a process from starting
        async with monitored(member.session, member.layout, views, strict=not life.started and own_port):
            if life.since is None:
                here = views.value.instances.get(member.id)
                life.since = shared.clock.now() if here is None else here.up_since
            life.begin()
            runner = views.runner = Runner(job, member, views, shared, life.since, life.accounted, life.items)
            runner.again = life.again
            await _work(runner, member, trees, views, shared, leaving, life)
    return not runner.left


async def _work(
    runner: Runner,
    member: Member,
    trees: Latest[Tree],
    views: Latest[JobView],
    shared: Surroundings,
    leaving: Event,
    life: _Life,
) -> None:
    """Coordinate and run until the session is over or the job leaves."""
    shared.runners[runner] = None
    try:
        async with create_task_group() as tasks:

            async def keep() -> None:
                if await coordinate(member, trees, views, runner.tally, shared.clock, runner.rescues.given_up):
                    tasks.start_soon(follow, trees, views)
                    tasks.start_soon(_give_notice, member)
                    await retire(runner)
                else:
                    tasks.cancel_scope.cancel()

            async def heed() -> None:
                await leaving.wait()
                await _give_notice(member)

            tasks.start_soon(keep)
            tasks.start_soon(heed)
            if leaving.is_set():
                runner.leave()
            await runner.run()
            tasks.cancel_scope.cancel()  # or the coordinator took our own leave for an operator's hand
            with CancelScope(shield=True), move_on_after(FAREWELL):
                await _say_goodbye(runner, member, views.value, shared.clock)
    finally:
        life.config, life.accounted = views.value.config, max(life.accounted, runner.accounted)
        shared.runners.pop(runner, None)
        runner.stopping.end()


async def _compare_clocks(member: Member, shared: Surroundings) -> None:
    """See to it that the registry's clock is known before anything is claimed; once for all jobs of a process."""
    async with shared.comparing:
        if member.session.clock_skew is None:
            await member.session.server_time(member.layout.system_time)


async def watch_clock(session: Session, shared: Surroundings) -> None:
    """Let the jobs look again when the time that they go by is set; ask the registry for it while it is far from ours.

    Only writes are answered with the registry's time: jobs that are at rest would follow a clock that was put right.
    """
    time, pause, asked = Clockwork(Reading.of(session, shared.clock)), CLOCK_CHECK, 0.0
    turn = refused = 0
    while True:
        await sleep(CLOCK_CHECK)
        time.take(Reading.of(session, shared.clock))
        refusing = time.is_astray and any(runner.is_refusing for runner in shared.runners)
        wait = min(pause, CLOCK_CHECK_REFUSING) if refusing else pause
        if time.is_astray and shared.runners and session.steady_time() >= asked + wait - CLOCK_CHECK / 2:
            asked = session.steady_time()
            pause = CLOCK_CHECK if time.unsteady else min(2 * pause, CLOCK_CHECK_AT_LAST)
            try:
                await tuple(shared.runners)[turn % len(shared.runners)].ask_time()
                refused = 0
            except RegistryError:  # then with the next write, or through another job: this one may not be written
                turn, refused = turn + 1, refused + 1
                if refused < len(shared.runners):
                    pause = CLOCK_CHECK
        time.take(Reading.of(session, shared.clock))
        if time.has_jumped():
            pause = CLOCK_CHECK
            for runner in shared.runners:
                runner.look_again()


async def retire(runner: Running) -> None:
    """Ask a runner to leave and give its handlers their grace; without a registry its items stay unsettled."""
    runner.leave()
    cut = get_running_loop().call_later(runner.shutdown_timeout, runner.cut)
    try:
        with move_on_after(runner.shutdown_timeout + LAST_WORD):
            await runner.stopping.stopped()
    finally:
        cut.cancel()


async def _give_notice(member: Member) -> None:
    """Hand over what is not in flight here, beside the drain; who has nothing to finish is gone before that."""
    try:
        await give_notice(member)
    except RegistryError as error:  # then others wait until we are gone
        log.debug("leaving without notice: %s", error, extra={"job": member.layout.job})


async def _remove_what_is_left(member: Member, shared: Surroundings, leaving: Event, *, hand_over: bool) -> None:
    """Remove the locks and the instance that a job could not when it left, for the registry was away then.

    The process goes on, and its other jobs keep the session: items would stay locked, and a leader that is not there
    any more would stay in its seat.  If the process leaves as well, the end of its session will do.
    """
    claims = Claims(member, Ledger(member, lambda: int(shared.clock.now() * 1000)))
    async with create_task_group() as tasks:

        async def stop() -> None:
            await leaving.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(stop)
        failures = 0
        while await connected(member.session, member.incarnation):
            try:
                await claims.release_all(hand_over=hand_over)
                await leave(member)
                break
            except RegistryError as error:
                log.debug("cannot leave yet: %s", error, extra={"job": member.layout.job})
                await member.session.back_off(failures)
                failures += 1
        tasks.cancel_scope.cancel()


async def _say_goodbye(runner: Runner, member: Member, view: JobView, clock: Clock) -> None:
    try:
        if runner.left:  # nobody else knows what ran here since the last tick
            now = clock.now() - (member.session.clock_skew or 0.0)
            await runner.tally.publish(member, view, now)
            await note_accounted(member, view, now)
        await leave(member)
    except RegistryError as error:  # the session's end removes the instance all the same
        log.debug("left without a word: %s", error, extra={"job": member.layout.job})
