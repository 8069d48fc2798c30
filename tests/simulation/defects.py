"""Ways to break the package on purpose: each is a context in which one check that matters is missing."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import get_running_loop
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from math import inf
from typing import Any
from unittest import mock

from aioelasticjob.core import choice, effects, records, request_runs, rules
from aioelasticjob.core import view as core_view
from aioelasticjob.core.account import JobState
from aioelasticjob.core.choice import Choice
from aioelasticjob.core.commands import ClaimItems, ClaimResult, RemoveOrphanMark, Steps
from aioelasticjob.core.effects import Effect, RequireAssignment
from aioelasticjob.core.items import Item, Lock
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.pauses import Pause, pause_in
from aioelasticjob.core.rules import RuleInput, assign_items
from aioelasticjob.core.view import JobView
from aioelasticjob.engine import claims, execution, settlements
from aioelasticjob.engine.execution import Execution
from aioelasticjob.engine.job_scheduler import JobScheduler
from aioelasticjob.engine.life import Life
from aioelasticjob.engine.local_jobs import LocalJob
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.offsets import Offsets
from aioelasticjob.engine.pacing import Pacing
from aioelasticjob.engine.runs import OpenRun, Runs
from aioelasticjob.engine.settlements import Settlement, Settlements
from aioelasticjob.errors import RegistryError
from aioelasticjob.jobs.context import Context
from aioelasticjob.model import GIVEN_UP, LEFT_OPEN, Claim, Fire, Outcome, Record
from aioelasticjob.registry.mirror import Follower
from aioelasticjob.registry.session import Session, SessionStatus
from aioelasticjob.registry.transaction import Check, Committed, Create, Op, Set
from tests.simulation.judges.restraint import MOST

Defect = Callable[[], AbstractContextManager[object]]

_claiming, _commit = claims._claiming, Session.commit


def no_deadline() -> AbstractContextManager[object]:
    """Let handlers run on when the session can no longer be proven alive."""
    return mock.patch.object(Session, "bind")


def live_on() -> AbstractContextManager[object]:
    """Let a job live on when its session is over, until something that it asks for is refused."""

    def session_changed(self: Life, _status: SessionStatus) -> None:
        for activity in self._activities:
            activity.wake()

    return mock.patch.object(Life, "session_changed", session_changed)


def claim_on_hearsay() -> AbstractContextManager[object]:
    """Claim without asking whether record and assignment are still those that were read."""

    def claiming(member: Member, item: int, record: Record, version: int | None) -> list[Op]:
        return [
            Set(op.path, op.data, -1) if isinstance(op, Set) else op for op in _claiming(member, item, record, version)
        ]

    def entitled(member: Member, *_args: object) -> list[Op]:
        return [Check(member.layout.sharding)]

    return mock.patch.multiple(claims, _claiming=claiming, _entitled=entitled)


def claim_without_lock() -> AbstractContextManager[object]:
    """Claim without creating ``running``."""

    def claiming(member: Member, item: int, record: Record, version: int | None) -> list[Op]:
        nothing = Check(member.layout.execution)
        return [
            nothing if isinstance(op, Create) and op.ephemeral else op
            for op in _claiming(member, item, record, version)
        ]

    return mock.patch.object(claims, "_claiming", claiming)


def deaf_mirror() -> AbstractContextManager[object]:
    """Do not read again what was missed while there was no connection."""
    return mock.patch.object(Follower, "reset")


def settle_in_any_session() -> AbstractContextManager[object]:
    """Settle a run in whatever session there is, as a client that waits out an expiry does."""

    original, settle = Settlements.finish, Settlements.settle

    async def finish(self: Settlements, given: Settlement) -> bool:
        session, layout = self._member.session, self._member.layout
        for item, ended in [pair for part in given.parts for pair in part.items()]:
            operation = Set(layout.item(item).execution, records.encode(ended.record), -1)
            await session.connected()
            with contextlib.suppress(RegistryError):
                await session.commit([operation], incarnation=session.incarnation)
        return await original(self, given)

    def not_at_once(self: Settlements, *rest: Any, **options: Any) -> Settlement:
        return settle(self, *rest, **{**options, "removed": True})

    return mock.patch.multiple(Settlements, finish=finish, settle=not_at_once)


@contextlib.contextmanager
def commit_in_any_session() -> Iterator[None]:
    """Write in the present session what was decided in an earlier one, by a job that lives on."""

    async def commit_later(session: Session, ops: list[Op]) -> Committed:
        await session.connected()
        return await _commit(session, ops, incarnation=session.incarnation)

    def commit(self: Session, ops: list[Op], *, incarnation: int) -> asyncio.Future[Committed]:
        return asyncio.get_running_loop().create_task(commit_later(self, ops))

    with live_on(), mock.patch.object(Session, "commit", commit):
        yield


def lead_without_epoch() -> AbstractContextManager[object]:
    """Let leaders write without showing that they still lead."""
    return mock.patch.object(effects, "_leading", side_effect=lambda _view: [])


def claim_unsettled() -> AbstractContextManager[object]:
    """Claim although an assignment is due."""
    return mock.patch.object(JobView, "assignment_stands", property(lambda self: True))


def forget_orphans() -> AbstractContextManager[object]:
    """Claim an item's next moment although its last run was cut off and waits for a rescuer."""
    return mock.patch.object(Item, "is_free", property(lambda self: self.lock is Lock.FREE))


def undo_marks() -> AbstractContextManager[object]:
    """Remove the mark of each orphan instead of rescuing it, so often that it shows: the leader marks it again."""
    left = 10 * MOST  # without an end, nothing but this would happen in the rest of the seed

    def rescue_together(self: Choice, view: JobView, orphans: Sequence[int]) -> Steps[None]:
        nonlocal left
        for number in orphans:
            if left:
                left -= 1
                yield RemoveOrphanMark(number, None)

    return mock.patch.object(Choice, "_rescue_together", rescue_together)


def try_again_at_once() -> AbstractContextManager[object]:
    """Send a request that was refused again without a pause."""
    return mock.patch.object(Session, "pause_after", return_value=0.0)


def mark_on_ticks_only() -> AbstractContextManager[object]:
    """Look for orphans on ticks only."""

    def never(pacing: Pacing, view: JobView, tick: bool) -> bool:
        return tick and view.leader == pacing.me and view.config.failover

    return mock.patch.object(Pacing, "looks_at_records", never)


def require_on_ticks_only() -> AbstractContextManager[object]:
    """Ask for an assignment on ticks only."""

    def lazy(now: RuleInput) -> Iterable[Effect]:
        return [one for one in assign_items(now) if now.tick or not isinstance(one, RequireAssignment)]

    changed = tuple(lazy if rule is assign_items else rule for rule in rules.LEADER_RULES)
    return mock.patch.object(rules, "LEADER_RULES", changed)


def hear_no_orphans() -> AbstractContextManager[object]:
    """Take no orphan but after a wait."""
    original: Any = Choice._rescue

    def rescue(self: Choice, view: JobView) -> Steps[ClaimResult | None]:
        return None if int(get_running_loop().time()) % 8 else (yield from original(self, view))

    return mock.patch.object(Choice, "_rescue", rescue)


def run_what_is_switched_off() -> AbstractContextManager[object]:
    """Do not look at the flags of items."""
    return mock.patch.object(JobView, "disabled_items", property(lambda self: frozenset()))


def run_what_is_paused() -> AbstractContextManager[object]:
    """Do not look at pauses."""
    return mock.patch.object(JobView, "active", property(lambda self: frozenset(self.eligible)))


def forget_the_ends_of_pauses() -> AbstractContextManager[object]:
    """Take each pause for one that somebody has to end."""
    return mock.patch.object(core_view, "pause_in", lambda node: replace(pause_in(node), until=inf))


def end_pauses_early() -> AbstractContextManager[object]:
    """Take a pause for over a few seconds before it is."""
    return mock.patch.object(Pause, "is_over", lambda self, time: time >= self.until - 5)


def give_no_grace() -> AbstractContextManager[object]:
    """Cut runs off as soon as their instance leaves."""
    return mock.patch.object(JobScheduler, "shutdown_timeout", property(lambda self: 0.0))


def take_out_without_grace() -> AbstractContextManager[object]:
    """Cut runs off as soon as the program leaves their job."""

    def dismiss(self: LocalJob, why: str) -> None:
        self.ending.set(self.ending.value.dismissed(why))
        if self.life is not None:
            self.life.end_soon()

    return mock.patch.object(LocalJob, "dismiss", dismiss)


def take_out_and_leave_the_rest() -> AbstractContextManager[object]:
    """Let a job that leaves forget the nodes that it could not remove at once."""
    return mock.patch.object(Life, "remove_what_is_left")


def ignore_timeouts() -> AbstractContextManager[object]:
    """Let handlers take as long as they like."""
    original: Any = execution._run_handler

    async def run(execution: Execution, context: Context) -> Outcome:
        execution.config = execution.config.model_copy(update={"timeout": None})
        outcome: Outcome = await original(execution, context)
        return outcome

    return mock.patch.object(execution, "_run_handler", run)


@contextlib.contextmanager
def save_unfenced() -> Iterator[None]:
    """Let handlers run on, and save their checkpoints in whatever session there is."""

    async def save(self: Offsets, _claim: Claim, item: int, value: str) -> None:
        session, path = self._member.session, self._member.layout.item(item).offset
        with contextlib.suppress(RegistryError):
            await session.connected()
            known = await session.exists(path)
            write: Op = Create(path, value.encode()) if known is None else Set(path, value.encode(), -1)
            await session.commit([write], incarnation=session.incarnation)

    with no_deadline(), live_on(), mock.patch.object(Offsets, "save", save):
        yield


def begin_where_it_was_known() -> AbstractContextManager[object]:
    """Give handlers the checkpoint that was read when the item was assigned."""
    original: Any = Offsets.read

    async def read(self: Offsets, items: frozenset[int], **options: Any) -> dict[int, str]:
        known = vars(self).setdefault("_first", {})
        found: dict[int, str] = await original(self, items, **options)
        return {item: known.setdefault(item, value) for item, value in found.items()}

    return mock.patch.object(Offsets, "read", read)


def bury_the_cut_off() -> AbstractContextManager[object]:
    """Tell nobody that a run was cut off."""
    return mock.patch.object(JobState, "report_lost")


def end_what_gave_way() -> AbstractContextManager[object]:
    """Note a run for a request as completed although its stream has given way."""

    def settling(layout: Layout, fire: Fire, outcomes: Mapping[int, str]) -> list[Set]:
        ended = {item: Outcome.COMPLETED if how == LEFT_OPEN else how for item, how in outcomes.items()}
        return request_runs.settling(layout, fire, ended)

    return mock.patch.object(settlements, "settling", settling)


def run_requests_again() -> AbstractContextManager[object]:
    """Claim an item for a request without noting that, so that the item is run for the request again and again."""
    original = request_runs.claiming

    def claiming(layout: Layout, fire: Fire, items: Iterable[int], instance: str = "") -> list[Op]:
        return [operation for operation in original(layout, fire, items, instance) if isinstance(operation, Check)]

    return mock.patch.object(claims, "claiming", claiming)


def ignore_cancellations() -> AbstractContextManager[object]:
    """Let runs go on that somebody has cancelled."""
    return mock.patch.object(execution.Execution, "stop_cancelled")


@contextlib.contextmanager
def rescue_the_cancelled() -> Iterator[None]:
    """Rescue runs that somebody had cancelled before they were cut off."""

    def ended_as(view: JobView, item: int, record: Record, fence: int) -> str:
        return GIVEN_UP if record.rescues >= view.config.max_rescues else ""

    with (
        mock.patch.object(rules, "ended_as", ended_as),
        mock.patch.object(choice, "ended_as", ended_as),
    ):
        yield


def end_together() -> AbstractContextManager[object]:
    """Take the end of an independent item for the end of all items of its claim."""

    one_ended = Runs._items_ended

    def items_ended(self: Runs, run: OpenRun, execution: Execution, _items: Sequence[int]) -> None:
        going_on = [item for item in run.claim.items if item not in run.ended_items]
        for item in going_on:
            execution.outcomes.setdefault(item, Outcome.COMPLETED)
        one_ended(self, run, execution, going_on)

    return mock.patch.object(Runs, "_items_ended", items_ended)


def keep_what_has_ended() -> AbstractContextManager[object]:
    """Leave independent items that have ended unsettled until they are claimed again, whoever holds them by then."""
    return mock.patch.object(JobState, "to_settle", return_value=frozenset())


def settle_again() -> AbstractContextManager[object]:
    """Settle all items of a claim when its last run has ended, also those that were settled and claimed again since."""
    begin_settlement = Runs._begin_settlement

    def begin(self: Runs, run: OpenRun) -> None:
        if run.ended is not None:
            run.ended.claim = run.claim
        begin_settlement(self, run)

    return mock.patch.object(Runs, "_begin_settlement", begin)


def forget_what_a_claim_has_not_settled() -> AbstractContextManager[object]:
    """Leave independent items locked that have ended if the claim that settles them is not accepted."""

    def claim(self: Choice, command: ClaimItems) -> Steps[ClaimResult]:
        taken: ClaimResult = yield command
        if taken.claim is not None:
            self._state.settled_with_claim(command.settling, taken.claim)
        return taken

    return mock.patch.object(Choice, "_claim", claim)
