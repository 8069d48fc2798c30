"""Ways to break the account of an item on purpose: up to where its moments are accounted for, and what is promised."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context
from dataclasses import replace
from typing import Any
from unittest import mock

from aioelasticjob.core import account, items, records
from aioelasticjob.core.account import Closing, JobState, Off
from aioelasticjob.core.choice import Choice
from aioelasticjob.core.commands import Steps
from aioelasticjob.core.items import Found, Item
from aioelasticjob.core.schedules import FOREVER, InForce, Schedules
from aioelasticjob.core.view import JobView
from aioelasticjob.engine import accounts, claims
from aioelasticjob.engine.member import Member
from aioelasticjob.model import Claim, Owing, Record
from aioelasticjob.registry.transaction import Op, Set
from tests.simulation.bare.process import Process
from tests.simulation.bare.registry import Before
from tests.simulation.bare.world import World

_in_force, _writing, _left_by_the_gone = claims.in_force, accounts._writing, items.left_by_the_gone

# What a write is not checked against.


def claim_by_any_schedule() -> AbstractContextManager[object]:
    """Claim without asking whether the schedules are still those that the claim was decided on."""
    return _unchecked(claims, "schedule")


def account_for_what_moved() -> AbstractContextManager[object]:
    """Account for moments of items without asking whether they are still this instance's."""
    return _unchecked(accounts, "sharding")


def account_over_others() -> AbstractContextManager[object]:
    """Account for moments without asking whether the record is still the one that was read."""

    def writing(member: Member, chosen: Sequence[int], wanted: Mapping[int, Any]) -> list[Op]:
        operations = _writing(member, chosen, wanted)
        return [Set(op.path, op.data, -1) if isinstance(op, Set) else op for op in operations]

    return mock.patch.object(accounts, "_writing", writing)


def _unchecked(module: object, name: str) -> AbstractContextManager[object]:
    def in_force(member: Member, view: JobView) -> list[Op]:
        return [check for check in _in_force(member, view) if check.path != getattr(member.layout, name)]

    return mock.patch.object(module, "in_force", in_force)


# Up to where an item is accounted for.


def give_back_as_run() -> AbstractContextManager[object]:
    """Give claims back as if their moment had been run."""

    def given_back(before: Record, claimed: Record) -> Record:
        return replace(before, accounted=claimed.accounted)

    return mock.patch.object(records, "given_back", given_back)


def keep_old_accounts() -> AbstractContextManager[object]:
    """Let an item owe what came before it was made."""

    def learned(found: Found, given: int, _made: int, _made_by: int, _known: int) -> Item:
        return Item(given, found.seen, found.lock, found.seen.record.accounted)

    return mock.patch.object(account, "learned", learned)


def leave_the_future() -> AbstractContextManager[object]:
    """Never lower a record that a clock ahead has written."""
    return mock.patch.object(account, "MAX_FUTURE", 10**12)


def follow_before_it_is_noted() -> AbstractContextManager[object]:
    """Follow a schedule before the leader has noted it."""
    original: Any = Schedules.periods

    def periods(self: Schedules) -> tuple[InForce, ...]:
        noted: tuple[InForce, ...] = original.fget(self)
        if self.is_noted or not self.noted:
            return noted
        return (*noted[:-1], InForce(self.config.schedule, noted[-1].since, FOREVER, noted[-1].recorded))

    return mock.patch.object(Schedules, "periods", property(periods))


# What was switched off.


def report_what_is_off() -> AbstractContextManager[object]:
    """Report what came while an item was switched off."""

    def excuse(self: JobState, number: int, item: Item, off: Off, view: JobView) -> Closing:
        missed = self._missed(number, item, off.until, view)
        return self._closing(item, item.record, off.until, missed, view)

    return mock.patch.object(JobState, "_excuse", excuse)


def excuse_for_ever() -> AbstractContextManager[object]:
    """Excuse what comes to an item that was switched off once."""
    original: Any = JobState.notice_what_is_off

    def notice(self: JobState, view: JobView) -> None:
        original(self, view)
        for number, off in self._off.items():
            self._off[number] = Off(off.since, self.clock.now)

    return mock.patch.object(JobState, "notice_what_is_off", notice)


# What is promised and reported.


@contextmanager
def report_before_writing() -> Any:
    """Report what was missed before the record says so."""
    original: Any = JobState._write

    def write(self: JobState, view: JobView, closings: Mapping[int, Closing]) -> Steps[bool]:
        self._report(closings)
        unsaid = {number: replace(one, missed=(), lost=None, given_up=()) for number, one in closings.items()}
        is_written: bool = yield from original(self, view, unsaid)
        return is_written

    with mock.patch.object(JobState, "_write", write):
        yield


@contextmanager
def report_when_the_run_begins() -> Any:
    """Report what a claim accounts for when its run begins, and not when the claim is accepted."""
    claimed: Any = JobState.claimed
    await_moment: Any = Choice._await_moment
    waiting = dict[JobState, Mapping[int, Closing]]()

    def keep(self: JobState, claim: Claim, promised: Mapping[int, Closing]) -> None:
        claimed(self, claim, {})
        waiting[self] = {number: one for number, one in promised.items() if number in claim.items}

    def begin(self: Choice, view: JobView, claim: Claim) -> Steps[bool]:
        is_in_force: bool = yield from await_moment(self, view, claim)
        if is_in_force:
            self._state._report(waiting.pop(self._state))
        return is_in_force

    with mock.patch.object(JobState, "claimed", keep), mock.patch.object(Choice, "_await_moment", begin):
        yield


def claim_in_silence() -> AbstractContextManager[object]:
    """Report nothing of what a claim accounts for."""
    original: Any = JobState.claimed

    def claimed(self: JobState, claim: Claim, _promised: Mapping[int, Closing]) -> None:
        original(self, claim, {})

    return mock.patch.object(JobState, "claimed", claimed)


def break_promises() -> AbstractContextManager[object]:
    """Do not report what an instance has promised to report that is gone."""
    return mock.patch.object(account, "left_by_the_gone", return_value=())


def keep_promises_of_others() -> AbstractContextManager[object]:
    """Report what another instance has promised to report, though that one lives."""

    def left_by(record: Record, me: str, _present: Collection[str], seen: Mapping[str, int]) -> tuple[Owing, ...]:
        return _left_by_the_gone(record, me, (), seen)

    return mock.patch.object(account, "left_by_the_gone", left_by)


# What has to happen before one of the above shows.


def killed_before_they_report() -> AbstractContextManager[object]:
    """Kill processes of the bare simulation that have promised a report and do not know yet that this is written."""
    original = World._keep

    def keep(self: World, session: int, before: Before) -> None:
        original(self, session, before)
        process = self.judge.processes.get(session)
        if process not in self.processes or self.peaceful or self.dice.random() < 0.5:
            return
        promise = f'"owing":[{{"by": "{process.id}"'.encode()
        if any(path in self.registry.nodes and promise in self.registry.nodes[path].data for path in before):
            self.say(f"{process.number} is killed before it can report")
            self.loop.call_soon(kill_if_there, self, process, context=Context())

    def kill_if_there(self: World, process: Process) -> None:
        if process in self.processes:
            self.kill(process)

    return mock.patch.object(World, "_keep", keep)
