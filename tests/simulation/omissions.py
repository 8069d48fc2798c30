"""More ways to break the package on purpose: each leaves out one check, one report or one margin, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, TypeAlias
from unittest import mock

from anyio import CancelScope

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core import effects, reasons
from aioelasticjob.core.account import JobState
from aioelasticjob.core.choice import Choice
from aioelasticjob.core.commands import ClaimResult, ReadItems, Report, Steps
from aioelasticjob.core.effects import BecomeLeader, Effect, MarkOrphan, Transaction
from aioelasticjob.core.items import Item, learned
from aioelasticjob.core.reasons import Newest
from aioelasticjob.core.schedules import InForce, Schedules
from aioelasticjob.core.view import JobView
from aioelasticjob.engine import coordinator, early_end, execution, item_reader
from aioelasticjob.engine.execution import Execution
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.missed_reports import MissedReports
from aioelasticjob.engine.offsets import Offsets
from aioelasticjob.engine.runs import OpenRun, Runs
from aioelasticjob.engine.settlements import Settlement, Settlements
from aioelasticjob.host.user_code import UserCode
from aioelasticjob.jobs.context import Context
from aioelasticjob.model import Claim, Fire, FireSource, Outcome, VersionedRecord
from aioelasticjob.registry import lease
from aioelasticjob.registry.transaction import Check, Create, Delete, Op, Set
from tests.simulation.bare import faults as bare_events
from tests.simulation.bare import world as bare_world
from tests.simulation.bare.process import Process
from tests.simulation.bare.world import World

Event: TypeAlias = Callable[[World, Process], None]

_margin, _assign, _mark_orphan, _to_transactions = (
    lease.margin,
    effects._assign,
    effects._mark_orphan,
    effects.to_transactions,
)


def leave_unsettled() -> AbstractContextManager[object]:
    """Let an instance that leaves drop what it runs."""
    begun: Any = Runs._begin_settlement
    finished: Any = Runs.finish

    def begin(self: Runs, run: OpenRun) -> None:
        if self._retry_waits.leaves:
            self._close(run, {})
        else:
            begun(self, run)

    async def finish(self: Runs) -> None:
        if self._retry_waits.leaves:
            self._open.clear()
        await finished(self)

    return mock.patch.multiple(Runs, _begin_settlement=begin, finish=finish)


def unreported(*reasons: str) -> AbstractContextManager[object]:
    """Report no misfire for these reasons."""
    original: Any = MissedReports.put

    def put(self: MissedReports, config: JobConfig, report: Report) -> None:
        if report.why not in reasons:
            original(self, config, report)

    return mock.patch.object(MissedReports, "put", put)


def elsewhere_unreported() -> AbstractContextManager[object]:
    """Report no misfire of an item that another instance held or ran."""
    return unreported(reasons.BLOCKED)


def changed_schedule_unreported() -> AbstractContextManager[object]:
    """Report no misfire of a schedule that was changed before its moments could be run."""
    return unreported(reasons.ENDED)


def new_schedule_unreported() -> AbstractContextManager[object]:
    """Report no moment of a new schedule that came before this instance knew the schedule."""
    original: Any = JobState._take_in

    def take_in(self: JobState, view: JobView) -> Steps[None]:
        before, is_first = self.timeline, self._looked_at is None
        yield from original(self, view)
        if self.timeline is not before and not is_first:
            for number, item in self.items.items():
                accounted = max(item.accounted, self.clock.now)
                self.items[number] = Item(item.given, item.seen, item.lock, accounted)

    return mock.patch.object(JobState, "_take_in", take_in)


def held_up_unreported() -> AbstractContextManager[object]:
    """Report no misfire of a process that was held up."""
    return unreported(reasons.HELD_UP)


def busy_unreported() -> AbstractContextManager[object]:
    """Report no moment that came while the last run was still going on."""
    return unreported(reasons.BUSY)


def unsettled_unreported() -> AbstractContextManager[object]:
    """Report no misfire of moments that came while an assignment was due."""
    return unreported(reasons.UNSETTLED)


def nobody_up_unreported() -> AbstractContextManager[object]:
    """Report no misfire of moments that nobody was up for."""
    return unreported(reasons.NO_INSTANCE_UP)


def away_unreported() -> AbstractContextManager[object]:
    """Report no misfire of moments that came while the registry could not be heard."""
    return unreported(reasons.AWAY)


def former_schedules_forgotten() -> AbstractContextManager[object]:
    """Report nothing of earlier schedules."""
    original: Any = Schedules.periods

    def newest(self: Schedules) -> tuple[InForce, ...]:
        periods: tuple[InForce, ...] = original.fget(self)
        return periods[-1:]

    return mock.patch.object(Schedules, "periods", property(newest))


@contextmanager
def lead_unfenced() -> Any:
    """Let leaders write without showing that they still lead, and assign whatever the assignment is by now."""

    def assign(view: JobView, assignment: Mapping[int, str], most: int) -> list[Transaction]:
        return [
            [
                Set(op.path, op.data, -1) if isinstance(op, Set) and op.path == view.layout.sharding else op
                for op in part
            ]
            for part in _assign(view, assignment, most)
        ]

    nobody = mock.patch.object(effects, "_leading", side_effect=lambda _view: [])
    with nobody, mock.patch.object(effects, "_assign", assign):
        yield


def settle_without_hand_over() -> AbstractContextManager[object]:
    """Unlock items whose runs were cut off without marking them as orphans."""
    original = Settlements.settle

    def settle(
        self: Settlements, claim: Claim, outcomes: Mapping[int, Outcome], now: int, **_options: object
    ) -> Settlement:
        return original(self, claim, outcomes, now, hand_over=False)

    return mock.patch.object(Settlements, "settle", settle)


def offsets_unfenced() -> AbstractContextManager[object]:
    """Save checkpoints without showing that the item is still held."""
    original: Any = Offsets._saving

    def saving(self: Offsets, claim: Claim, item: int, data: bytes) -> list[Op]:
        return [op for op in original(self, claim, item, data) if not isinstance(op, Check)]

    return mock.patch.object(Offsets, "_saving", saving)


def rescue_the_completed() -> AbstractContextManager[object]:
    """Rescue the first orphan of each group, even if its record says that its run is completed."""

    def rescue_first(self: Choice, view: JobView, orphans: Sequence[int]) -> Steps[ClaimResult]:
        number = orphans[0]
        found = yield ReadItems(frozenset({number}))
        item = learned(found[number], 0, view.made_at(number), view.made_by(number))
        fire = Fire(item.record.moment, FireSource.FAILOVER, item.record.parameter)
        return (yield from self._run(view, fire, {number: item}, {}))

    return mock.patch.object(Choice, "_rescue_together", rescue_first)


def rescue_twice() -> AbstractContextManager[object]:
    """Call a rescue's handlers twice."""
    original: Any = execution._call

    async def call(execution: Execution, context: Context) -> None:
        await original(execution, context)
        if execution.claim.fire.source is FireSource.FAILOVER:
            await original(execution, context)

    return mock.patch.object(execution, "_call", call)


@contextmanager
def mark_what_runs() -> Any:
    """Mark as orphans all items whose last run has no end, without looking whether it is still going on."""
    original: Any = item_reader.cut_off_runs

    async def cut_off(member: Member, items: Sequence[int]) -> Any:
        with mock.patch.object(type(member.session), "get_many", _without_locks(type(member.session).get_many)):
            return await original(member, items)

    def mark_orphan(view: JobView, lost: MarkOrphan) -> Transaction:
        running = view.layout.item(lost.item).running
        return [op for op in _mark_orphan(view, lost) if op.path != running]

    with (
        mock.patch.object(effects, "_mark_orphan", mark_orphan),
        mock.patch.object(coordinator, "cut_off_runs", cut_off),
    ):
        yield


def _without_locks(read: Callable[..., Any]) -> Callable[..., Any]:
    async def get_many(self: object, paths: Iterable[str]) -> list[Any]:
        asked = list(paths)
        nodes = await read(self, asked)
        return [None if path.endswith("/running") else node for path, node in zip(asked, nodes, strict=True)]

    return get_many


def mark_unversioned() -> AbstractContextManager[object]:
    """Mark as orphans items whose run had no end when it was read, though it may have one by now."""

    def mark_orphan(view: JobView, lost: MarkOrphan) -> Transaction:
        record = view.layout.item(lost.item).execution
        return [Check(record) if op.path == record else op for op in _mark_orphan(view, lost)]

    return mock.patch.object(effects, "_mark_orphan", mark_orphan)


def lease_without_margin() -> AbstractContextManager[object]:
    """Let handlers run until the very moment at which their session can end."""
    return mock.patch.object(lease, "margin", return_value=0.0)


def lease_too_late() -> AbstractContextManager[object]:
    """Let handlers run half a second longer than the margin allows."""
    return mock.patch.object(lease, "margin", lambda timeout: _margin(timeout) - 0.5)


def epoch_not_raised() -> AbstractContextManager[object]:
    """Take the leader's seat without raising the epoch."""

    def transactions(effect: Effect, view: JobView) -> list[Transaction]:
        found, epoch = _to_transactions(effect, view), view.layout.epoch
        if not isinstance(effect, BecomeLeader):
            return found
        return [[op for op in part if not (isinstance(op, Set) and op.path == epoch)] for part in found]

    return mock.patch.object(coordinator, "to_transactions", transactions)


def prune_what_runs() -> AbstractContextManager[object]:
    """Remove items beyond the count without looking whether they run."""

    async def transactions(
        _member: Member, view: JobView, effect: Effect, _unwanted: object
    ) -> tuple[list[Transaction], None]:
        return effects.to_transactions(effect, view), None

    return mock.patch.object(coordinator, "_transactions", transactions)


def always_catch_up() -> AbstractContextManager[object]:
    """Run what nobody was up for, whether or not that is wanted."""
    return fate_with(catch_up=3600.0)


def late_run_unasked() -> AbstractContextManager[object]:
    """Run what was missed although ``misfire`` is off."""
    return fate_with(misfire=True)


def fate_with(**settings: object) -> AbstractContextManager[object]:
    """Decide what happens to the newest moment as if the job had other settings."""
    original: Any = JobState._fate

    def fate(self: JobState, number: int, item: Item, moment: int) -> Newest:
        view = self.view
        self.view = replace(view, config=view.config.model_copy(update=settings))
        try:
            found: Newest = original(self, number, item, moment)
            return found
        finally:
            self.view = view

    return mock.patch.object(JobState, "_fate", fate)


def try_what_is_switched_off() -> AbstractContextManager[object]:
    """Begin further attempts of whatever was switched off or given away meanwhile."""
    return mock.patch.object(early_end, "why_not_again", return_value="")


def try_without_a_lock() -> AbstractContextManager[object]:
    """Begin further attempts of a run without asking whether the session lives."""
    original: Any = execution._Attempts.run

    async def run(self: execution._Attempts) -> None:
        self._execution.is_proven = lambda: True
        await original(self)

    return mock.patch.object(execution._Attempts, "run", run)


# Other safeguards, which have to be missing as well before one of the above shows.


@contextmanager
def attempts_uncancelled() -> Any:
    """Let the attempts of a run go on when its execution is cancelled: a shield hides that, also if they ask for it."""
    original: Any = execution._Attempts.run

    async def run(self: execution._Attempts) -> None:
        with CancelScope(shield=True):
            await original(self)

    def is_cancelled(self: UserCode) -> bool:
        scope: Any = self._scope
        while scope is not None and not (scope.cancel_called or scope.shield):
            scope = scope._parent_scope
        return scope is not None and bool(scope.cancel_called)

    asked = mock.patch.object(UserCode, "is_cancelled", property(is_cancelled))
    with mock.patch.object(execution._Attempts, "run", run), asked:
        yield


def look_with_old_eyes() -> AbstractContextManager[object]:
    """Mark as orphans also items whose runs were cut off at any earlier look of the same leader."""
    original: Any = item_reader.cut_off_runs
    seen = dict[str, dict[int, VersionedRecord]]()

    async def cut_off(member: Member, items: Sequence[int]) -> tuple[dict[int, VersionedRecord], set[str]]:
        found, runners = await original(member, items)
        seen[member.id] = seen.get(member.id, {}) | found
        return seen[member.id], runners

    return mock.patch.object(coordinator, "cut_off_runs", cut_off)


def marks_made_by_hand() -> AbstractContextManager[object]:
    """Let operators mark items as orphans again and again, though no run of them was cut off."""

    def meddle(world: World, _process: Process) -> None:
        item = world.layout.item(world.dice.randrange(4))
        parts = (item.execution, item.sharding)
        if all(path in world.registry.nodes for path in parts) and item.orphan not in world.registry.nodes:
            world.by_hand(Create(item.orphan))

    return _happening(bare_events.meddle, meddle, {bare_events.meddle: 40})


def servers_disabled_often() -> AbstractContextManager[object]:
    """Let operators disable and enable servers again and again: items are given away and come back.

    A pause would not give them away, and would keep them from being claimed.
    """

    def disable(world: World, process: Process) -> None:
        path = world.layout.server_disabled(process.ip)
        world.by_hand(Delete(path) if path in world.registry.nodes else Create(path))

    often: dict[Event, int] = {bare_events.switch_server: 480, bare_events.start: 80}
    return _happening(bare_events.switch_server, disable, often)


def eight_items_to_rescue() -> AbstractContextManager[object]:
    """Give the job of the bare simulation eight items and failover, whatever the dice say."""
    original: Any = bare_world.configured

    def configured(**settings: object) -> JobConfig:
        given: JobConfig = original(**settings | {"sharding_total_count": 8, "failover": True})
        return given

    return mock.patch.object(bare_world, "configured", configured)


def only_failures() -> AbstractContextManager[object]:
    """Let operators do nothing and no process leave or fall asleep; sessions end far more often."""
    failures = (bare_events.cut, bare_events.miss_deadline, bare_events.crash, bare_events.start)
    rest = dict.fromkeys((one for one in bare_events._EVENTS if one not in failures), 0)
    return _happening(bare_events.crash, bare_events.crash, rest | {bare_events.expire: 30})


def _happening(event: Event, instead: Event, often: Mapping[Event, int]) -> AbstractContextManager[object]:
    """Let another event of the bare simulation take the place of one, and let some happen often."""
    events = tuple(instead if one is event else one for one in bare_events._EVENTS)
    weights = tuple(often.get(one, weight) for one, weight in bare_events._CHANCES.items())
    return mock.patch.multiple(bare_events, _EVENTS=events, _WEIGHTS=weights)


@contextmanager
def all_of(*defects: Callable[[], AbstractContextManager[object]]) -> Any:
    """Plant several defects at once."""
    with ExitStack() as stack:
        for defect in defects:
            stack.enter_context(defect())
        yield
