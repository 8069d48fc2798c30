"""The scheduler of one process: it gives a job a turn when the job was woken, or when the job's time has come.

A job that has nothing to do is a value in a heap: it owns no task and no timer.  One timer serves all jobs of the
process, and one loop gives turns to all woken jobs, one after another.  A turn decides and does not wait.  If something
has to wait (a request to the registry, an execution), the turn returns it as work, and the scheduler starts a task
for it.
"""

from __future__ import annotations

from asyncio import CancelledError, Event, Future, TimerHandle, get_running_loop, sleep, wait
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from heapq import heappop, heappush
from itertools import count, islice
from math import inf
from typing import Protocol, TypeAlias, TypeVarTuple

from anyio import Semaphore, create_task_group

from aioelasticjob.errors import NotAnException
from aioelasticjob.host.event_loop import CancelScope
from aioelasticjob.host.user_code import present_task

Ts = TypeVarTuple("Ts")
Work: TypeAlias = Callable[[], Awaitable[float]]
"""Performs the part of a turn that has to wait, and returns the seconds until the next turn."""
URGENT_AT_ONCE = 200
"""How many urgent activities get a turn in one round of the loop.  More would delay the traffic with the registry."""
AT_ONCE = 50
"""How many activities that are not urgent get a turn in one round of the loop."""
ANSWERED_AT_ONCE = 20
"""How many activities that can go on get a turn in one round; then the handlers that they have started begin."""
AT_ONCE_WHILE_REGISTERING = 2
"""The same while jobs wait until they may join or unregister."""
SHORTEST_REST = 0.001
"""Seconds until the next turn at least, unless it is due at once.

A timer may fire early by the clock's resolution.  An activity that rested for less would be given turns without end,
and each of them would find that it is still too early.
"""


class Part(Protocol):
    """A part of a job that gets turns."""

    def turn(self) -> float | Work:
        """Return the seconds until the next turn, unless the part is woken before; or work to be done first."""


class TaskOwner(Protocol):
    """The part of a job that owns tasks, and ends together with them."""

    def fail(self, error: Exception) -> None:
        """Act on an error that one of the tasks has raised."""

    def end_soon(self) -> None:
        """End all tasks soon: the session is over, the job has left, or asyncio has cancelled one of the tasks."""


class Scheduler:
    """Gives turns to the activities of one process, in the order in which they were woken."""

    def __init__(self, registering: Semaphore) -> None:
        self.loop = get_running_loop()
        """The loop in which all is done.  Asking Python for it takes a call of the system before CPython 3.12."""
        self._registering = registering
        """Each job holds it while it joins or unregisters.  While jobs wait for it, fewer turns are given."""
        self._answered: dict[Activity, None] = {}
        self._urgent: dict[Activity, None] = {}
        self._woken: dict[Activity, None] = {}
        self._news = Event()
        self._heap: list[tuple[float, int, Activity]] = []
        self._order = count()
        self._timer: TimerHandle | None = None
        self._timer_at = inf
        self.context = copy_context()
        """The context of all callbacks, so that not each of them copies one."""
        self.tasks = create_task_group()
        """The tasks that outlast the parts of jobs: they end the lives of jobs, and begin the next ones."""

    async def run(self) -> None:
        """Give turns until ``stop`` is called.

        The jobs of a process that is cancelled have yet to leave, so its cancellation does not end this, also if
        asyncio cancels all tasks, as at the end of ``asyncio.run``.
        """
        async with self.tasks:
            self.tasks.cancel_scope.shield = True
            while not self.tasks.cancel_scope.cancel_called:
                with suppress(CancelledError):
                    await self._news.wait()
                    self._news.clear()
                    self._give_turns()
                    if self._answered or self._urgent or self._woken:  # all other ready tasks go first
                        self._news.set()
                        await sleep(0)

    def stop(self) -> None:
        """Give no more turns, and cancel ``tasks``.  The tasks of the jobs have ended."""
        self.tasks.cancel_scope.cancel()
        self._set_timer()

    def wake(self, activity: Activity) -> None:
        """Give an activity a turn, after the activities that were woken before it."""
        waiting = self._urgent if activity.is_urgent else self._woken
        waiting[activity] = None
        self._news.set()

    def go_on(self, activity: Activity) -> None:
        """Give a turn to an activity whose answer is there, after those whose answers came before."""
        self._answered[activity] = None
        self._news.set()

    def wake_at(self, when: float, activity: Activity) -> None:
        """Give an activity a turn at a time of the loop's clock."""
        heappush(self._heap, (when, next(self._order), activity))
        self._set_timer()

    def _give_turns(self) -> None:
        """Give turns to activities that can go on, to urgent ones, and to some others; who waited longest comes first.

        If the process is overloaded, jobs wait here, where a waiting job costs nothing, and not in the middle of an
        execution, where each costs memory and a lock in the registry.  Urgent activities do not wait for them: jobs
        join, and items move, as fast as without load.
        """
        at_once = AT_ONCE_WHILE_REGISTERING if self._registering.value == 0 else AT_ONCE
        queues = (self._answered, ANSWERED_AT_ONCE), (self._urgent, URGENT_AT_ONCE), (self._woken, at_once)
        for waiting, most in queues:
            for activity in tuple(islice(waiting, most)):
                del waiting[activity]
                activity.take_turn()

    def _set_timer(self) -> None:
        has_stopped = self.tasks.cancel_scope.cancel_called
        earliest = self._heap[0][0] if self._heap and not has_stopped else inf
        if self._timer is not None and earliest != self._timer_at:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and earliest < inf:
            self._timer = self.loop.call_at(earliest, self._time_has_come)
        self._timer_at = earliest

    def _time_has_come(self) -> None:
        self._timer = None
        until = max(self._timer_at, self.loop.time())
        while self._heap and self._heap[0][0] <= until:
            when, _, activity = heappop(self._heap)
            activity.time_has_come(when)
        self._set_timer()


class TaskScope:
    """The tasks of one job in one session.  They are cancelled together, and their errors do not reach other jobs.

    A task group would do the same, but it makes thirty objects for each task, which takes four times as long as the
    task itself, and a task is started for every fire.
    """

    def __init__(self, scheduler: Scheduler, owner: TaskOwner) -> None:
        self.scheduler = scheduler
        self.owner = owner
        self._scopes: dict[CancelScope, Future[None] | None] = {}
        """The scope of each task, and the task itself, once it is known.  Nothing else keeps the task in memory."""
        self.over = False
        """Whether all tasks were cancelled, so that no further task is started."""

    def start_soon(self, work: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        """Start a task, unless all were cancelled.  An error that it raises is passed to the owner."""
        if not self.over:
            scope = CancelScope()
            self._scopes[scope] = None
            task = self.scheduler.loop.create_task(self._run(work, args, scope))
            if scope in self._scopes:  # where users have tasks begin eagerly, it may have ended
                self._scopes[scope] = task

    async def run(self, work: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        """Run work in the current task; it may be cancelled with the other tasks."""
        scope = CancelScope()
        ended = self._scopes[scope] = self.scheduler.loop.create_future()
        try:
            with scope:
                await work(*args)
        finally:
            del self._scopes[scope]
            ended.set_result(None)

    def cancel(self) -> None:
        """Cancel all tasks."""
        self.over = True
        for scope in self._scopes:
            scope.cancel()

    async def ended(self) -> None:
        """Wait until no task is left."""
        while True:
            left = [one for one in self._scopes.values() if one is not None and not one.done()]
            if not left:
                return
            await wait(left)

    async def _run(self, work: Callable[[*Ts], Awaitable[object]], args: tuple[*Ts], scope: CancelScope) -> None:
        try:
            with scope:
                if not self.over:
                    await work(*args)
        except CancelledError:  # by asyncio: the scope keeps the error of its own cancellation
            self.owner.end_soon()
            raise
        except Exception as error:
            self.owner.fail(error)
        except GeneratorExit as error:  # from a future that users' code awaits, unless the coroutine is being closed
            if present_task() is None:
                raise
            self.owner.fail(NotAnException("what a run awaited", error, is_cancelled=False))
        finally:
            del self._scopes[scope]


class Activity:
    """The turns of a part of a job.  If it is woken while its work is under way, it gets a further turn after it."""

    __slots__ = ("_again", "_due", "_part", "_queued", "_tasks", "_under_way", "is_urgent", "scheduler")

    def __init__(self, tasks: TaskScope, part: Part, *, is_urgent: bool = True) -> None:
        self.scheduler = tasks.scheduler
        self.is_urgent = is_urgent
        self._tasks: TaskScope | None = tasks
        self._part: Part | None = part
        self._under_way = False
        self._again = False
        self._due = inf
        self._queued = inf

    def wake(self) -> None:
        """Ask for a turn."""
        if self._under_way:
            self._again = True
        else:
            self.scheduler.wake(self)

    def time_has_come(self, when: float) -> None:
        """Ask for a turn if the activity's time has come.  It may have asked for a later time meanwhile."""
        if when == self._queued:  # otherwise it has asked for an earlier time since, which has come already
            self._queued = inf
        if self._due <= when:
            self.wake()
        else:
            self._queue()

    def take_turn(self) -> None:
        """Call the turn; start a task for the work that it returns, or wait for the time that it returns."""
        tasks = self._tasks
        part = self._part
        if tasks is None or part is None or tasks.over:
            return
        if self._under_way:  # it was woken during the turn that has started the present work
            self._again = True
            return
        self._due = inf
        try:
            found = part.turn()
        except Exception as error:
            tasks.owner.fail(error)
            return
        if isinstance(found, float):
            if found < inf:
                self._rest(found)
        else:
            self._under_way = True
            self._again = False
            tasks.start_soon(self._finish, found)

    def end(self) -> None:
        """Take no more turns, and drop the requested time, so that the heap does not keep the job in memory."""
        self._tasks = None
        self._part = None

    async def _finish(self, work: Work) -> None:
        self._rest(await work())
        self._under_way = False
        if self._again:
            self.wake()

    def _rest(self, seconds: float) -> None:
        rest = max(seconds, SHORTEST_REST) if seconds > 0 else 0.0
        self._due = self.scheduler.loop.time() + rest
        self._queue()

    def _queue(self) -> None:
        if self._due < self._queued:
            self._queued = self._due
            self.scheduler.wake_at(self._due, self)
