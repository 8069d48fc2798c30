"""Decides which instance calls the listeners that are called once in the whole cluster, and when.

The data of the node ``guarantee`` says how far each run has come.  Below it are: ``{run}``, an ephemeral node of the
instance that calls the listeners of that run; ``started/{item}``, the run that an item has begun and not ended; and
``completed/{item}``, the last scheduled moment that an item has ended, as long as a run needs it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias, TypeVar

from anyio import move_on_after

from aioelasticjob.core.effects import MAX_OPERATIONS, parts
from aioelasticjob.core.layout import child
from aioelasticjob.core.request_runs import following, open_requests, waiting_items
from aioelasticjob.core.requests import Request
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.commit import until_answered, when_connected, write, write_anew
from aioelasticjob.engine.item_reader import cut_off_runs, items_below
from aioelasticjob.engine.member import Member
from aioelasticjob.errors import Conflict, RegistryError
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.model import Fire, FireSource, Requested
from aioelasticjob.registry.transaction import Check, Create, Delete, Op, Set, put
from aioelasticjob.registry.tree import Node

BEGUN: Final = "begun"
"""The state of a run whose ``before`` has ended and whose ``after`` has not been called."""
OVER: Final = "over"
FAILED: Final = "failed: "
"""The beginning of a run's state if its ``before`` has failed; the reason follows."""
MAX_OPEN_RUNS = 64
"""How many runs that are not over are kept in ``guarantee``."""
MAX_CLOSED_RUNS = 16
"""How many runs that are over are kept in ``guarantee``."""
RELEASE_TIMEOUT = 3.0
"""Seconds that giving up the right to call listeners may take during a cancellation."""
NOTING: Final = "to note how far a run has come"

T = TypeVar("T")
Decide: TypeAlias = Callable[[], Awaitable[list[Op]]]
"""Reads nodes, and returns the operations that are to be written, conditional on these nodes; none if all is well."""

MAX_MOMENT_DIGITS = 15
"""The most digits that a moment in milliseconds has."""


def run_of(fire: Fire) -> str:
    """Return the name of a fire's run, which is the same on all instances that take part in it."""
    if fire.source is FireSource.BACKFILL:
        return f"backfill-{fire.request_id}-{fire.slot}"
    if fire.source is FireSource.TRIGGER:
        return f"trigger-{fire.request_id or fire.slot}"
    return str(fire.slot)


def moment_of(run: str) -> int | None:
    """Return the scheduled moment of a run; None if somebody has asked for it."""
    return whole_number(run, digits=MAX_MOMENT_DIGITS)


def fire_of(run: str, view: JobView, present: int) -> Fire:
    """Return the fire of an earlier run, for its ``after``; if its moment is not known any more, it is ``present``."""
    moment = moment_of(run)
    if moment is not None:
        return Fire(moment, FireSource.SCHEDULE)
    kind, _, about = run.partition("-")
    number, _, slot = about.partition("-")
    source = FireSource.BACKFILL if kind == "backfill" else FireSource.TRIGGER
    request = next((one for one in view.requests if str(one.number) == number), None)
    if request is None:
        return Fire(moment_of(slot) or present, source)
    requested = Requested(request.id, request.version, {})
    return Fire(moment_of(slot) or request.moment, source, request.parameter, request.number, requested)


def is_awaited(run: str, request: Request, moment: int | None) -> bool:
    """Whether an item, which has to run this moment of a request next, has yet to begin a run."""
    if moment is None:
        return False
    if request.span is None:
        fire = Fire(moment, request.source, request_id=request.number)
        return run == run_of(fire)
    begun, _, slot = run.rpartition("-")
    return begun == f"backfill-{request.number}" and (moment_of(slot) or 0) >= moment


class RunBarrier:
    """Reads and writes the nodes below ``guarantee`` of one job.  Every write is conditional on what was read."""

    def __init__(self, member: Member, calling: set[str] | None = None) -> None:
        self._member = member
        self._calling = set[str]() if calling is None else calling
        """The runs whose listeners this process calls: several executions may go on in it, under one session."""
        self._layout = member.layout
        self._session = member.session

    async def join(self, run: str, items: Collection[int], request: Check | None = None) -> bool:
        """Note that these items begin a run.  They take part in it until they end it or begin another one.

        Return False if the ``request`` has changed, so that a claim for it would be refused.
        """
        for part in parts(sorted(items), MAX_OPERATIONS):
            try:
                await self._write(partial(self._enrolling, run, part), request)
            except Conflict as conflict:
                if request is None or conflict.path != request.path:
                    raise
                return False
        return True

    async def begun_in(self, item: int) -> str | None:
        """Return the run that an item has begun and not ended; None if there is none."""
        (node,) = await self._read([child(self._layout.started, item)])
        return None if node is None else node.text

    async def state(self, run: str) -> str | None:
        """Return the state of a run; None until its ``before`` has ended."""
        return (await self._states()).get(run)

    async def caller(self, run: str) -> str | None:
        """Return the instance that calls a run's listeners now; None if there is none."""
        (node,) = await self._read([self._layout.calling(run)])
        return None if node is None else node.text

    async def wait_for_caller(self, run: str) -> None:
        """Wait until the instance that calls a run's listeners has called them, or has lost its session."""
        await self._session.wait_deleted(self._layout.calling(run))

    async def acquire(self, run: str, state: str | None) -> bool:
        """Take the right to call a run's listeners; False if somebody else has it, or the state is not ``state``."""
        if run in self._calling:
            return False
        self._calling.add(run)  # before it is written: the node's owner does not tell executions of this process apart
        mine = False

        async def decide() -> list[Op]:
            nonlocal mine
            path = self._layout.guarantee
            calling = self._layout.calling(run)
            parent, holder = await self._read([path, calling])
            is_free = holder is None or self._member.owns(holder)  # our own is left from a run that was cut off
            present = _runs(parent).get(run)
            mine = is_free and present == state
            if not mine or holder is not None:
                return []
            unchanged = Create(path) if parent is None else Check(path, parent.stat.version)
            return [unchanged, Create(calling, self._member.id.encode(), ephemeral=True)]

        has_written = False
        try:
            await self._write(decide)
            has_written = True
        finally:
            if not (mine and has_written):
                self._calling.discard(run)
        return mine

    async def note(self, run: str, state: str) -> None:
        """Note the state of a run, and give up the right to call its listeners.  Instances that wait then go on.

        If the registry refuses that, it is tried again while the session lives, because the others go on waiting.
        """

        async def decide() -> list[Op]:
            path = self._layout.guarantee
            calling = self._layout.calling(run)
            parent, holder = await self._read([path, calling])
            states = {**_runs(parent), run: state}
            data = json.dumps(_kept(states)).encode()
            operations: list[Op] = [put(path, data, parent)]
            if self._member.owns(holder):
                operations.append(Delete(calling, holder.stat.version))
            return operations

        await until_answered(self._member, NOTING, lambda: self._write(decide))
        self._calling.discard(run)

    async def release(self, run: str) -> None:
        """Give up the right to call listeners without a new state, so that another instance calls them."""

        async def decide() -> list[Op]:
            return [Delete(self._layout.calling(run))]

        cut_off = self._session.margin <= 0  # the lease is over: wait until the session is back or has ended
        seconds = self._session.timeout if cut_off else RELEASE_TIMEOUT
        try:
            with move_on_after(seconds, shield=True), suppress(RegistryError):
                await until_answered(self._member, NOTING, lambda: self._write(decide))
        finally:
            self._calling.discard(run)

    async def end(self, run: str, items: Collection[int]) -> None:
        """Note that items have ended a run."""
        for part in parts(sorted(items), MAX_OPERATIONS // 2):
            await self._write(partial(self._ending, run, part))

    async def finished_runs(self, view: JobView, besides: str | None = None) -> list[str]:
        """Return the runs, without ``besides``, that all their items have ended or passed over, in their order.

        The instance that writes last finds what all others have written, so at least one instance finds each run.
        """
        every = await self._waiting()
        waiting = [run for run in every if run != besides]
        if not waiting:
            return []
        asked = frozenset[str]()
        if any(moment_of(run) is None for run in waiting):
            asked = await self._requested(view, waiting)
        marks = await self._marks(view)
        wanted = [item for item in range(view.config.sharding_total_count) if item not in view.resting_items]
        reached = min(map(marks.reached, wanted), default=0)
        not_over = marks.under_way | asked
        open_runs = [run for run in waiting if run not in not_over]
        over = [run for run in open_runs if (moment_of(run) or 0) <= reached]
        if not over or not view.config.failover:
            return over
        cut_off, _ = await self._when_connected(lambda: cut_off_runs(self._member, wanted))
        rescued = set[int | None]()  # the moments of runs that will be rescued
        for run in cut_off.values():
            moment = None if run.record.asked else run.record.slot  # None stands for runs that somebody has asked for
            rescued.add(moment)
        return [run for run in over if moment_of(run) not in rescued]

    async def tidy(self, view: JobView) -> None:
        """Remove the nodes that no run needs any more."""
        waiting = await self._waiting()
        marks = await self._marks(view)
        moments = [moment_of(run) for run in waiting]
        first = min((moment for moment in moments if moment is not None), default=None)
        stale = {child(self._layout.started, item): node for item, node in marks.left.items()}
        for item, node in marks.ended.items():
            if first is None or _moment(node) < first:
                stale[child(self._layout.completed, item)] = node
        operations = list[Op]()
        for path, node in stale.items():
            if not node.stat.num_children:
                operations.append(Delete(path, node.stat.version))
        for part in parts(operations, MAX_OPERATIONS):
            with suppress(RegistryError):  # a later run tidies up
                await write(self._member, part, "to remove marks of runs")

    async def _states(self) -> Mapping[str, str]:
        """Return the states of runs, in the order in which the runs were noted."""
        (parent,) = await self._read([self._layout.guarantee])
        return _runs(parent)

    async def _waiting(self) -> Sequence[str]:
        """Return the runs whose ``after`` has not been called."""
        states = await self._states()
        return [run for run, state in states.items() if state == BEGUN]

    async def _requested(self, view: JobView, runs: Iterable[str]) -> frozenset[str]:
        """Return those of the runs that an item has yet to begin because of a request, which is read anew."""
        tree = await self._when_connected(lambda: self._session.subtree([self._layout.requests]))
        now = replace(view, tree=tree)
        awaited = set[str]()
        for request in open_requests(now):
            for item in waiting_items(now, request):
                if item not in view.disabled_items:
                    moment = following(now, request, item)
                    awaited.update(run for run in runs if is_awaited(run, request, moment))
        return frozenset(awaited)

    async def _marks(self, view: JobView) -> _Marks:
        begun = await self._below(self._layout.started)
        ended = await self._below(self._layout.completed)
        count = view.config.sharding_total_count
        unwanted = [item for item in begun if item >= count or item in view.disabled_items]  # not rescued
        running = await self._read([self._layout.item(item).running for item in unwanted])
        left = dict[int, Node]()
        for item, lock in zip(unwanted, running, strict=True):
            if lock is None:
                left[item] = begun.pop(item)
        return _Marks(begun, ended, left)

    async def _below(self, parent: str) -> dict[int, Node]:
        items = await self._when_connected(lambda: items_below(self._session, parent))
        nodes = await self._read([child(parent, item) for item in items])
        return {item: node for item, node in zip(items, nodes, strict=True) if node is not None}

    async def _enrolling(self, run: str, items: Collection[int]) -> list[Op]:
        paths = [child(self._layout.started, item) for item in items]
        data = run.encode()
        above, nodes = await self._with_parents([self._layout.started], paths)
        marks = list[Op]()
        for path, node in zip(paths, nodes, strict=True):
            if node is None or node.data != data:
                marks.append(put(path, data, node))
        return [*above, *marks] if marks else []

    async def _ending(self, run: str, items: Collection[int]) -> list[Op]:
        begun = [child(self._layout.started, item) for item in items]
        ended = [child(self._layout.completed, item) for item in items]
        parents = [self._layout.started, self._layout.completed]
        above, nodes = await self._with_parents(parents, [*begun, *ended])
        data = run.encode()
        states = await self._states()
        operations = list[Op]()
        for path, node in zip(begun, nodes, strict=False):
            if node is not None and node.data == data:
                if node.stat.num_children:
                    operations.append(Set(path, b"", node.stat.version))
                else:
                    operations.append(Delete(path, node.stat.version))
        moment = moment_of(run)
        if states.get(run, BEGUN) == BEGUN and moment is not None:
            for path, node in zip(ended, nodes[len(begun) :], strict=True):
                if node is None or _moment(node) < moment:
                    operations.append(put(path, data, node))
        return [*above, *operations] if operations else []

    async def _with_parents(self, parents: list[str], paths: list[str]) -> tuple[list[Op], list[Node | None]]:
        """Return the operations that make missing parents, and the nodes at ``paths``."""
        above = [self._layout.guarantee, *parents]
        nodes = await self._read([*above, *paths])
        missing = list[Op]()
        for path, node in zip(above, nodes, strict=False):
            if node is None:
                missing.append(Create(path))
        return missing, nodes[len(above) :]

    async def _read(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._when_connected(lambda: self._session.get_many(paths))

    async def _when_connected(self, request: Callable[[], Awaitable[T]]) -> T:
        return await when_connected(self._member, NOTING, request)

    async def _write(self, decide: Decide, condition: Check | None = None) -> None:
        """Write what ``decide`` wants, if the ``condition`` holds; if another instance has written before, decide anew.

        Raises:
            Conflict: the condition does not hold, the job was removed, or too many attempts have met a conflict.
            SessionEnded: the session was lost meanwhile.
        """

        async def conditional() -> list[Op]:
            operations = await decide()
            return operations if condition is None or not operations else [condition, *operations]

        def is_final(conflict: Conflict) -> bool:
            is_unmet = condition is not None and conflict.path == condition.path
            was_removed = (conflict.path, conflict.reason) == (self._layout.guarantee, "missing")
            return is_unmet or was_removed

        await write_anew(self._member, conditional, NOTING, wait=True, is_final=is_final)


@dataclass(frozen=True, slots=True)
class _Marks:
    """The nodes of items below ``guarantee``, as they were read."""

    begun: Mapping[int, Node]
    """The nodes of items that have begun a run and not ended it."""
    ended: Mapping[int, Node]
    """The nodes of items that have ended a scheduled moment."""
    left: Mapping[int, Node]
    """The nodes of items that have begun a run, and that no instance runs or will run."""

    @property
    def under_way(self) -> frozenset[str]:
        """The runs that at least one item has begun and not ended."""
        return frozenset(node.text for node in self.begun.values())

    def reached(self, item: int) -> int:
        """Return the moment up to which an item has no open run: it has ended that moment, or begun a later one."""
        begun = self.begun.get(item)
        ended = self.ended.get(item)
        has_ended = 0 if ended is None else _moment(ended)
        before_begun = 0 if begun is None else _moment(begun) - 1
        return max(has_ended, before_begun)


def _runs(node: Node | None) -> dict[str, str]:
    """Return the states of runs; empty if somebody has written nonsense by hand."""
    fields = {} if node is None else json_object(node.data)
    return {str(run): str(state) for run, state in fields.items()}


def _kept(runs: Mapping[str, str]) -> Mapping[str, str]:
    """Return the newest runs that are over, and the newest that are not."""
    waiting = [run for run, state in runs.items() if state == BEGUN]
    closed = [run for run, state in runs.items() if state != BEGUN]
    kept = {*waiting[-MAX_OPEN_RUNS:], *closed[-MAX_CLOSED_RUNS:]}
    return {run: state for run, state in runs.items() if run in kept}


def _moment(node: Node) -> int:
    return moment_of(node.text) or 0
