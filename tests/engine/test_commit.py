"""Each write of an instance is applied, refused, or its session is over, whatever the registry answers."""

from __future__ import annotations

from asyncio import wait
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob.core.effects import (
    Assign,
    BecomeLeader,
    Effect,
    MarkOrphan,
    RefreshServer,
    RemoveItems,
    RemoveNodes,
    RequireAssignment,
    RestoreNodes,
    StepDown,
)
from aioelasticjob.core.items import Lock
from aioelasticjob.core.records import decode_mark
from aioelasticjob.engine import coordinator
from aioelasticjob.engine.accounts import write_accounts
from aioelasticjob.engine.claims import Claims, OwnLocks, remove_orphan_mark
from aioelasticjob.engine.commit import answer_to, committed_by_nodes, send, write, write_if_unchanged
from aioelasticjob.engine.item_reader import ItemReader
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.membership import _joining, announce_leaving, leave, restore_parent
from aioelasticjob.engine.offsets import Offsets
from aioelasticjob.engine.refusals import Refusals
from aioelasticjob.engine.run_barrier import BEGUN, RunBarrier
from aioelasticjob.engine.run_counts import RunCounts
from aioelasticjob.engine.settlements import Settlements
from aioelasticjob.errors import Conflict, OutcomeUnknown, RegistryError, SessionEnded, Suspended
from aioelasticjob.model import Claim, Fire, FireSource, Outcome, Record, VersionedRecord
from aioelasticjob.registry.codec import SESSION_OVER, UNCERTAIN, failure
from aioelasticjob.registry.transaction import Check, Committed, Create, Delete, Op, Set
from aioelasticjob.registry.tree import Node
from tests.engine.test_claims import (
    CRON,
    LAYOUT,
    ME,
    MINE,
    NEXT,
    SLOT,
    THEIRS,
    ClaimedJob,
    FaultySession,
    done,
)
from tests.support.clocks import StandingClock

CODES = [*range(-1, -15, -1), -100, -101, -102, -103, *range(-108, -128, -1), -999]
"""Every error code of the protocol (KeeperException.Code of ZooKeeper 3.9), the gaps between, and an unknown one."""
TROUBLE = ["reply lost", "never arrived", "suspended", "applied, then an error", *CODES]
WRONG = st.lists(st.sampled_from(TROUBLE), max_size=4)
ENDS = st.sampled_from([None, None, None, 0, 1, 2, 3])


def refusal(code: int, path: str) -> RegistryError:
    """Return what the registry's client raises for an error code."""
    if code in UNCERTAIN or code == -4:
        return OutcomeUnknown(f"{code}")
    return failure(code, path)


class RefusedSession(FaultySession):
    """A session that has a fault for each of its first commits and reads, and that may end at one of its commits."""

    def __init__(self, session: FaultySession) -> None:
        super().__init__(session._registry)
        self.faults: list[object] = []
        self.read_faults: list[object] = []
        self.ends_at: int | None = None
        self.written: list[Sequence[Op]] = []

    def arm(self, faults: Collection[object], read_faults: Collection[object], ends_at: int | None) -> None:
        self.faults, self.read_faults, self.ends_at = list(faults), list(read_faults), ends_at

    async def _commit(self, ops: Sequence[Op], incarnation: int) -> Committed:
        if self.ends_at is not None:
            self.ends_at -= 1
            if self.ends_at < 0 and self.incarnation == MINE:
                self._registry.expire(MINE)
                self.renew(MINE + 100)
        word = self.faults.pop(0) if self.faults and incarnation == self.incarnation else None
        if word == "applied, then an error":
            self._registry.commit(ops, incarnation)
            self.written.append(ops)
            raise OutcomeUnknown("the registry took too long")
        if isinstance(word, int):
            raise refusal(word, ops[0].path)
        if word is not None:
            self.commits.append(word)  # type: ignore[arg-type]
        try:
            committed = await super()._commit(ops, incarnation)
        except OutcomeUnknown:
            if word == "reply lost":
                self.written.append(ops)
            raise
        self.written.append(ops)
        return committed

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        self._fail(paths[0] if paths else "/")
        return await super().get_many(paths)

    async def sync(self) -> None:
        self._fail("/")
        await super().sync()

    def _fail(self, path: str) -> None:
        word = self.read_faults.pop(0) if self.read_faults else None
        if isinstance(word, int) and word not in SESSION_OVER and word != -4:
            raise failure(word, path)
        if word is not None:
            raise Suspended("no connection")


class RefusedJob(ClaimedJob):
    """A desk whose registry may refuse anything."""

    session: RefusedSession
    is_read = False
    """Whether the records were read since the job has joined."""

    def __init__(self) -> None:
        super().__init__()
        self.session = RefusedSession(self.session)
        self.session.zxid = self.registry.zxid
        self.member = Member(
            self.session, LAYOUT, ME, "10.0.0.1", "", 1, MINE, refusals=Refusals("job", StandingClock(0.0))
        )
        self.joined_again()
        self.learn()

    @property
    def lives(self) -> bool:
        return self.session.incarnation == MINE

    def learn(self) -> dict[int, Lock]:
        locks = super().learn()
        self.is_read = True
        return locks

    def locked(self) -> set[int]:
        """Return the items that are locked by us."""
        nodes = self.registry.nodes
        found = {item: nodes.get(LAYOUT.item(item).running) for item in self.items}
        return {item for item, node in found.items() if node is not None and node.stat.ephemeral_owner == MINE}

    def joined_again(self) -> None:
        """Let the job end here with an error and join again under the same session: it knows nothing of before."""
        self.reader, self.locks = ItemReader(self.member), OwnLocks()
        self.claims = Claims(self.member, self.locks)
        self.settlements = Settlements(self.member, self.reader, self.locks)
        self.is_read = False


# One write.


@dataclass
class Case:
    """A transaction, and how to tell whether it was applied."""

    ops: list[Op]
    before: list[Op] = field(default_factory=list)


CASES = {
    "a lock": Case([Create("/job/a", b"x", ephemeral=True)]),
    "a node": Case([Create("/job/a", b"x")]),
    "a change": Case([Set("/job/a", b"x", 0)], [Create("/job/a")]),
    "any version": Case([Set("/job/a", b"x", -1)], [Create("/job/a")]),
    "a removal": Case([Delete("/job/a", 0)], [Create("/job/a")]),
    "a claim": Case([Check("/job"), Set("/job/a", b"x", 0), Create("/job/a/b", ephemeral=True)], [Create("/job/a")]),
    "a probe": Case([Create("/job/b", ephemeral=True), Delete("/job/b"), Create("/job/a")]),
}


@pytest.mark.parametrize("name", CASES)
@given(faults=WRONG, reads=WRONG, ends=ENDS, wait=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_write_is_applied_once_or_refused_or_its_session_is_over(
    name: str, faults: list[object], reads: list[object], ends: int | None, wait: bool
) -> None:
    job, case = RefusedJob(), CASES[name]
    if case.before:
        job.write(*case.before)
    job.session.zxid = job.registry.zxid
    job.session.arm(faults, reads, ends)
    try:
        committed = done(write(job.member, case.ops, "to try", wait=wait))
    except Suspended:
        assert not wait
        assert job.session.written == []
    except SessionEnded:
        assert not job.lives or (not wait and (-112 in faults or -118 in faults))
        assert job.lives is False or job.session.written == []
    except RegistryError:
        assert job.session.written == []
    else:
        assert job.session.written == [case.ops]
        assert committed.zxid == job.registry.zxid or not job.lives or name == "a removal"
        versions = [0 if isinstance(op, Create) else 1 if isinstance(op, Set) else -1 for op in case.ops]
        assert list(committed.versions) == versions


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_whoever_writes_after_a_lost_reply_hides_no_lock_of_ours(data: st.DataObject) -> None:
    job = RefusedJob()
    since = job.session.zxid = job.registry.zxid
    ops: list[Op] = [
        Check(LAYOUT.sharding),
        *(op for item in job.items for op in (Create(LAYOUT.item(item).execution, b"x"),)),
        *(Create(LAYOUT.item(item).running, ME.encode(), ephemeral=True) for item in job.items),
    ]
    applied = data.draw(st.booleans())
    if applied:
        job.registry.commit(ops, MINE)
    at = job.registry.zxid
    for item in data.draw(st.lists(st.sampled_from(list(job.items)), max_size=4, unique=True)):
        record = LAYOUT.item(item).execution
        if record in job.registry.nodes:
            job.write(Set(record, b"by hand", -1))
        else:
            job.elsewhere(item)
    found = committed_by_nodes(ops, job.registry.nodes, MINE, since)
    assert (found is not None) is applied
    if found is not None:
        assert found.zxid == at


def test_a_lock_of_ours_that_is_older_is_no_evidence() -> None:
    job = RefusedJob()
    ops = [Create("/job/a", b"x", ephemeral=True)]
    job.registry.commit(ops, MINE)
    assert committed_by_nodes(ops, job.registry.nodes, MINE, job.registry.zxid - 1) is not None
    assert committed_by_nodes(ops, job.registry.nodes, MINE, job.registry.zxid) is None


# Every kind of write.

Action = Callable[[RefusedJob], Awaitable[object]]


def _effect(effect: Effect) -> Action:
    async def commit_effect(job: RefusedJob) -> None:
        await coordinator._commit(job.member, job.view(), [effect], lambda _: None)

    return commit_effect


async def save(job: RefusedJob) -> None:
    claim = Claim(CRON, ME, MINE, job.claims.unmonitored(job.command(job.view(), items=[0])).items, {})
    offsets = Offsets(job.member, job.reader)
    await offsets.save(claim, 0, "7")
    assert job.registry.nodes[LAYOUT.item(0).offset].data == b"7"


async def drop(job: RefusedJob) -> None:
    path = LAYOUT.shutdown(ME)
    job.write(Create(path, b"P"))
    job.session.zxid = job.registry.zxid
    assert await write_if_unchanged(job.member, [Delete(path, 0)], "to take a request") is (
        path not in job.registry.nodes
    )


async def listen(job: RefusedJob) -> None:
    marks = RunBarrier(job.member)
    await marks.join("1000", [0, 1])
    if await marks.acquire("1000", None):
        await marks.note("1000", BEGUN)
    await marks.end("1000", [0, 1])


async def publish(job: RefusedJob) -> None:
    counts = RunCounts(3, 1)
    await counts.publish(job.member, job.view(), 1.0)


async def join(job: RefusedJob) -> None:
    ops = _joining(job.member, job.view(), job.config, job.config, [], lambda _: b"{}")
    await write(job.member, ops, "to join")


async def account(job: RefusedJob) -> None:
    accounted = {item: (job.seen[item], replace(job.seen[item].record, accounted=SLOT + 5)) for item in (0, 1)}
    await write_accounts(job.member, job.view(), accounted)


ACTIONS: dict[str, Action] = {
    "dismiss": lambda job: remove_orphan_mark(job.member, 0, job.seen[0].version),
    "account": account,
    "save": save,
    "drop": drop,
    "listen": listen,
    "publish": publish,
    "join": join,
    "leave": lambda job: leave(job.member),
    "give notice": lambda job: announce_leaving(job.member),
    "make": lambda job: restore_parent(job.member, LAYOUT.offsets),
    "take the seat": _effect(BecomeLeader(ME)),
    "leave the seat": _effect(StepDown()),
    "ask": _effect(RequireAssignment()),
    "assign": _effect(Assign({0: ME, 1: ME})),
    "prune": _effect(RemoveItems(frozenset({2}))),
    "mark orphan": _effect(MarkOrphan(0, VersionedRecord(Record(), 0))),
    "forget": _effect(RemoveNodes((Delete(LAYOUT.item(0).orphan), Delete(LAYOUT.shutdown("gone"))))),
    "restore": _effect(RestoreNodes((Check(LAYOUT.instance(ME)), Create(LAYOUT.shutdowns)))),
    "refresh": _effect(RefreshServer((Set(LAYOUT.server("10.0.0.1"), b"", 0),))),
    "forget the server": _effect(RemoveNodes((Delete(LAYOUT.server("10.0.0.7"), 0),))),
    "clear records": _effect(RemoveNodes((Delete(LAYOUT.item(1).execution, 0),))),
}


@pytest.mark.parametrize("name", ACTIONS)
@given(faults=WRONG, reads=WRONG, ends=ENDS)
@settings(max_examples=25, deadline=None)
def test_whatever_the_registry_answers_nothing_is_raised_but_its_errors(
    name: str, faults: list[object], reads: list[object], ends: int | None
) -> None:
    job = RefusedJob()
    job.write(Create(LAYOUT.server("10.0.0.1")), Create(LAYOUT.item(0).execution), Create(LAYOUT.item(0).orphan))
    job.learn()
    job.session.arm(faults, reads, ends)
    with suppress(RegistryError):
        done(ACTIONS[name](job))  # type: ignore[arg-type]
    assert job.locked() == set()


def attempt(job: RefusedJob, fire: Fire) -> Claim | None:
    """Claim as the runner does, again and again until it is no longer refused or suspended."""
    for _ in range(20):
        try:
            if not job.is_read:
                job.learn()
                for item in job.items:
                    done(job.settlements.release(item, hand_over=False))
            taken = job.claim(fire)
            if taken.renewed:
                job.learn()
                continue
            return taken.claim
        except SessionEnded:
            if not job.lives:
                return None
            job.joined_again()
        except OutcomeUnknown:
            raise AssertionError("nobody looked") from None
        except RegistryError:
            continue
    raise AssertionError("it is still refused")


@given(st.lists(WRONG, min_size=3, max_size=3), WRONG, ENDS, st.booleans(), st.sampled_from(list(Outcome)))
@settings(max_examples=300, deadline=None)
def test_no_item_stays_locked_and_none_runs_twice_whatever_the_registry_answers(
    faults: list[list[object]], reads: list[object], ends: int | None, hand_over: bool, outcome: Outcome
) -> None:
    job, runs = RefusedJob(), list[tuple[int, int]]()
    for fire, wrong in zip([CRON, Fire(NEXT, FireSource.SCHEDULE)], faults, strict=False):
        job.session.arm(wrong, reads, ends if fire is CRON else None)
        try:
            claim = attempt(job, fire)
        except RegistryError:
            continue
        if claim is None or not job.lives:
            break
        assert job.locked() == set(claim.items)
        runs += [(item, fire.slot) for item in claim.items]
        job.session.arm(faults[2], reads, ends)
        handed_over = job.hand_over(claim, *[outcome] * 3, hand_over=hand_over)
        assert (handed_over is None) is (not job.lives)
        if handed_over is None:
            break
        assert job.locked() == set()
        assert all(job.record(item).slot == fire.slot == job.seen[item].record.slot for item in claim.items)
        cut_off = hand_over and outcome is Outcome.CANCELLED
        assert handed_over == job.waiting() == (set(claim.items) if cut_off else set())
        if cut_off:
            break
    assert len(runs) == len(set(runs))
    assert job.locked() == set()


@given(WRONG, WRONG, ENDS)
@settings(max_examples=100, deadline=None)
def test_what_is_given_back_is_as_it_was_found(faults: list[object], reads: list[object], ends: int | None) -> None:
    job = RefusedJob()
    claim = job.taken()
    job.session.arm(faults, reads, ends)
    assert done(job.settlements.give_back(claim)) is job.lives
    if job.lives:
        assert (job.locked(), job.record().slot, job.record().completed) == (set(), 0, True)


@pytest.mark.parametrize("hand_over", [True, False])
@given(WRONG, WRONG)
@settings(max_examples=50, deadline=None)
def test_a_lock_that_an_earlier_life_under_the_same_session_left_is_removed(
    hand_over: bool, faults: list[object], reads: list[object]
) -> None:
    job = RefusedJob()
    job.taken(items=[0, 1])
    job.joined_again()
    job.learn()
    job.session.arm(faults, reads, None)
    claim = job.taken(items=[2]) if not faults and not reads else None
    for item in job.items:
        for _ in range(5):
            try:
                done(job.settlements.release(item, hand_over=hand_over))
                break
            except RegistryError:  # it could not be read
                continue
    assert job.locked() == (set() if claim is None else {2})
    assert job.waiting() == ({0, 1} if hand_over else set())
    assert not job.record(0).completed


@pytest.mark.parametrize("defect", [False, True], ids=["as it is", "trusting a server that lags behind"])
def test_a_claim_mistaken_for_lost_is_found_locked_and_given_free_again(
    defect: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def trust(_session: RefusedSession) -> None:
        return

    job = RefusedJob()
    session, before = job.session, dict(job.registry.nodes)
    if defect:
        monkeypatch.setattr(RefusedSession, "sync", trust)
    session.old = before
    session.commits.extend(["reply lost", lambda: setattr(session, "old", None)])  # whoever is refused has caught up
    taken = job.claim()
    assert job.locked() == {0, 1, 2}
    if not defect:
        assert taken.claim is not None
        return
    assert (taken.claim, taken.renewed) == (None, {0, 1, 2})
    assert set(job.learn().values()) == {Lock.OURS}
    claimed = {item: job.registry.nodes[LAYOUT.item(item).execution].stat.mzxid for item in job.items}
    for item in job.items:
        done(job.settlements.release(item, hand_over=True))
    assert (job.locked(), job.waiting()) == (set(), {0, 1, 2})
    # by its fence a cancelled run is known
    assert {item: decode_mark(job.registry.nodes[LAYOUT.item(item).orphan].data)[2] for item in job.items} == claimed


def test_an_item_that_is_locked_by_an_execution_of_ours_is_not_released() -> None:
    job = RefusedJob()
    claim = job.taken()
    done(job.settlements.release(0, hand_over=True))
    assert job.locked() == {0, 1, 2}
    assert job.settle(claim, *[Outcome.COMPLETED] * 3)
    job.elsewhere(1)
    done(job.settlements.release(1, hand_over=True))
    assert LAYOUT.item(1).running in job.registry.nodes
    assert job.registry.nodes[LAYOUT.item(1).running].stat.ephemeral_owner == THEIRS


@pytest.mark.parametrize("code", CODES)
def test_every_error_code_is_an_error_of_ours_with_a_plain_message(code: int) -> None:
    error: Any = failure(code, "/job/config")
    assert isinstance(error, RegistryError)
    assert isinstance(error, SessionEnded) or "/job/config" in str(error)
    assert "None" not in str(error)


def test_a_conflict_is_raised_and_not_noted_as_a_refusal() -> None:
    job = RefusedJob()
    with pytest.raises(Conflict):
        done(write(job.member, [Create(LAYOUT.config)], "to try"))
    assert job.member.refusals.present == ()


def test_a_write_that_is_accepted_ends_the_refusal_of_its_purpose() -> None:
    job = RefusedJob()
    job.member.refusals.refused("to try", refusal(-102, LAYOUT.config))

    async def scene() -> None:
        sent = send(job.member, [Create(LAYOUT.paused)], "to try")
        await wait([sent.answer])
        assert isinstance(answer_to(job.member, sent), Committed)

    done(scene())
    assert job.member.refusals.present == ()
