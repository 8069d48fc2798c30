from __future__ import annotations

import json
from asyncio import wait
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

import pytest

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core import records
from aioelasticjob.core.commands import ClaimItems, ClaimResult
from aioelasticjob.core.items import Lock
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.records import MAX_PARAMETER_BYTES
from aioelasticjob.core.view import JobView, read
from aioelasticjob.engine.claims import ITEMS_AT_ONCE, Claims, OwnLocks, remove_orphan_mark
from aioelasticjob.engine.item_reader import ItemReader
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.settlements import Settlements
from aioelasticjob.errors import Conflict, OutcomeUnknown, SessionEnded, Suspended
from aioelasticjob.model import SCHEDULED, Claim, Fire, FireSource, Outcome, Record, VersionedRecord
from aioelasticjob.registry.session import SessionState, SessionStatus
from aioelasticjob.registry.transaction import Committed, Create, Delete, Op, Set
from aioelasticjob.registry.tree import Node
from aioelasticjob.testing import run
from tests.simulation.bare.registry import BareRegistry
from tests.simulation.bare.server import Past
from tests.simulation.bare.session import BareSession

T = TypeVar("T")
LAYOUT = Layout("job")
ME, MINE, THEIRS = "10.0.0.1@-@1", 1, 2
SLOT, NOW, NEXT = 1_000_000, 1_000_500, 1_001_000
CRON, RESCUE = Fire(SLOT, FireSource.SCHEDULE), Fire(SLOT, FireSource.FAILOVER)
CONFIG = JobConfig.build(job_name="job", sharding_total_count=3)
Word = str | Callable[[], object]


class Calm(Random):
    """Dice that never fall."""

    def random(self) -> float:
        return 0.5


class FaultySession(BareSession):
    """A session that goes wrong as told: a word for each commit, and for each read, then all is well."""

    def __init__(self, registry: BareRegistry) -> None:
        super().__init__(registry, Past(registry), Calm(), MINE)
        self.commits, self.reads = deque[Word](), deque[Word]()
        self.sizes: list[int] = []
        """Of each transaction the bytes that it would be on the wire, roughly."""
        self.old: dict[str, Node] | None = None
        """What a server that lags behind shows until it is told to catch up."""

    def renew(self, incarnation: int) -> None:
        """Go on under another session."""
        self.status.set(SessionStatus(SessionState.CONNECTED, incarnation))

    async def _commit(self, ops: Sequence[Op], incarnation: int) -> Committed:
        word = self.commits.popleft() if self.commits else "well"
        self.sizes.append(sum(len(op.path) + len(getattr(op, "data", b"")) + 40 for op in ops))
        if word == "reply lost":
            self._registry.commit(ops, incarnation)
        if word in ("reply lost", "never arrived"):
            raise OutcomeUnknown("the connection broke")
        if isinstance(word, str) and word != "well":
            raise {"suspended": Suspended, "over": SessionEnded}[word](word)
        if not isinstance(word, str):
            word()
        return await super()._commit(ops, incarnation)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        if self.reads:
            word = self.reads.popleft()
            if word == "suspended":
                raise Suspended(word)
        if self.old is not None:
            return [self.old.get(path) for path in paths]
        return await super().get_many(paths)

    async def sync(self) -> None:
        self.old = None


class ClaimedJob:
    """A job whose items are mine, what is known of them, and what claims them."""

    def __init__(self, items: int = 3) -> None:
        self.registry = BareRegistry(SLOT / 1000)
        self.session, self.items = FaultySession(self.registry), range(items)
        self.config = CONFIG if items == 3 else CONFIG.changed(sharding_total_count=items)
        self.write(*(Create(path) for path in LAYOUT.skeleton), Create(LAYOUT.config, self.config.to_json()))
        self.registry.commit([Create(LAYOUT.instance(ME), b"", ephemeral=True)], MINE)
        for item in self.items:
            paths = LAYOUT.item(item)
            self.write(Create(paths.sharding), Create(paths.instance, ME.encode()))
        self.member = Member(self.session, LAYOUT, ME, "10.0.0.1", "", 1, MINE)
        self.reader, self.locks = ItemReader(self.member), OwnLocks()
        self.claims = Claims(self.member, self.locks)
        self.settlements = Settlements(self.member, self.reader, self.locks)
        self.seen: dict[int, VersionedRecord] = {}
        """The record of each item, as it was read or written last."""
        self.learn()

    def write(self, *operations: Op) -> None:
        self.registry.commit(operations)

    def view(self) -> JobView:
        return read(self.registry.tree(), LAYOUT, self.config)

    def learn(self) -> dict[int, Lock]:
        """Read the records of all items; return who holds their locks."""
        found = done(self.reader.read(self.items))
        self.seen = {item: one.seen for item, one in found.items()}
        return {item: one.lock for item, one in found.items()}

    def command(
        self,
        view: JobView,
        fire: Fire = CRON,
        items: Collection[int] | None = None,
        times: tuple[int, int] = (NOW, NEXT),
    ) -> ClaimItems:
        """Return the command that claims items, with the records that are known."""
        before = {item: self.seen[item] for item in (self.items if items is None else items)}
        return ClaimItems(view, fire, before, {item: wanted(one.record, fire, times) for item, one in before.items()})

    def claim(self, fire: Fire = CRON, items: Collection[int] | None = None) -> ClaimResult:
        return self.claim_on(self.view(), fire, items)

    def claim_on(
        self,
        view: JobView,
        fire: Fire = CRON,
        items: Collection[int] | None = None,
        times: tuple[int, int] = (NOW, NEXT),
    ) -> ClaimResult:
        """Claim items on a view that may be outdated."""

        async def claim() -> ClaimResult:
            sent = self.claims.send(self.command(view, fire, items, times))
            await wait([sent.transaction.answer])
            taken = self.claims.claimed(sent)
            return await self.claims.finish(sent) if taken is None else taken

        taken = done(claim())
        if taken.claim is not None:
            self.seen |= taken.claim.items
        return taken

    def taken(self, fire: Fire = CRON, items: Collection[int] | None = None) -> Claim:
        claim = self.claim(fire, items).claim
        assert claim is not None
        return claim

    def settle(self, claim: Claim, *outcomes: Outcome) -> bool:
        return self.hand_over(claim, *outcomes, hand_over=False) is not None

    def hand_over(self, claim: Claim, *outcomes: Outcome, hand_over: bool = True) -> frozenset[int] | None:
        return self.settled(claim, dict(zip(claim.items, outcomes, strict=False)), NOW + 100, hand_over=hand_over)

    def settled(
        self, claim: Claim, outcomes: Mapping[int, Outcome], now: int = NOW, **options: Any
    ) -> frozenset[int] | None:
        """Settle a claim; return the items handed over, or None if the session is over."""

        async def settle() -> frozenset[int] | None:
            given = self.settlements.settle(claim, outcomes, now, **options)
            is_settled = await self.settlements.finish(given)
            self.seen |= given.written
            return given.handed_over if is_settled else None

        return done(settle())

    def record(self, item: int = 0) -> Record:
        record = records.decode(self.registry.nodes[LAYOUT.item(item).execution].data)
        assert record is not None
        return record

    def waiting(self) -> set[int]:
        return {item for item in self.items if LAYOUT.item(item).orphan in self.registry.nodes}

    def running(self) -> list[int]:
        return [item for item in self.items if LAYOUT.item(item).running in self.registry.nodes]

    def elsewhere(self, item: int, record: Record | None = None, *, running: bool = True) -> None:
        """Let another instance claim an item."""
        paths, data = (
            LAYOUT.item(item),
            records.encode(record or Record(SLOT - 1000, "SCHEDULE", "other", 1, 0, 0, False)),
        )
        there = paths.execution in self.registry.nodes
        begin: list[Op] = [Set(paths.execution, data, -1) if there else Create(paths.execution, data)]
        lock: list[Op] = [Create(paths.running, b"other@-@2", ephemeral=True)] if running else []
        self.registry.commit([*begin, *lock], THEIRS)

    def orphaned(self, item: int) -> None:
        """Let another instance die in the midst of an item, and the leader mark its orphan."""
        self.elsewhere(item, Record(SLOT, "SCHEDULE", "other", 1, 0, 0, completed=False), running=False)
        self.write(Create(LAYOUT.item(item).orphan))
        self.learn()


def wanted(before: Record, fire: Fire, times: tuple[int, int] = (NOW, NEXT)) -> Record:
    """Return the record that a claim writes: that of a scheduled moment accounts for all moments up to it."""
    accounted = fire.slot if fire.source in SCHEDULED else before.accounted
    return records.begun(before, fire, ME, *times, accounted)


def done(work: Coroutine[Any, Any, T]) -> T:
    return run(lambda: work)


def test_what_is_claimed_runs_until_it_is_settled() -> None:
    job = ClaimedJob()
    taken = job.claim()
    assert taken.claim is not None
    assert (taken.stale, taken.obstructed, taken.renewed) == (False, frozenset(), frozenset())
    assert job.running() == [0, 1, 2]
    assert set(taken.claim.fences.values()) == {job.registry.zxid}
    assert job.record() == Record(SLOT, "SCHEDULE", ME, NOW, 0, NEXT, completed=False, accounted=SLOT)
    assert job.settle(taken.claim, Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMED_OUT)
    assert job.running() == []
    assert [job.record(item).outcome for item in job.items] == ["completed", "failed", "timed out"]
    assert all(job.record(item).completed for item in job.items)
    assert job.seen[0].record.accounted == SLOT
    assert job.taken(Fire(NEXT, FireSource.SCHEDULE)).items[0].version == 2


def test_a_claim_of_an_item_that_runs_elsewhere_takes_none_so_that_all_are_read_again() -> None:
    job = ClaimedJob()
    job.elsewhere(1)
    assert job.claim() == ClaimResult(None, renewed=frozenset({0, 1, 2}))
    assert job.running() == [1]
    locks = job.learn()
    assert locks == {0: Lock.FREE, 1: Lock.OTHERS, 2: Lock.FREE}
    assert set(job.taken(items=[0, 2]).items) == {0, 2}


def test_a_moment_that_somebody_has_claimed_is_nobody_elses() -> None:
    job = ClaimedJob()
    for item in job.items:
        job.elsewhere(item, Record(SLOT, "SCHEDULE", "other", 1, 1, 0, completed=True), running=False)
    assert job.claim() == ClaimResult(None, renewed=frozenset(job.items))
    assert job.running() == []


def test_a_record_that_was_written_meanwhile_is_read_again_and_then_claimed() -> None:
    job, cut_off = ClaimedJob(), Record(SLOT - 1000, "SCHEDULE", "other", 7, 0, 0, completed=False)
    job.elsewhere(0, Record(SLOT - 1000, "SCHEDULE", "other", 1, 1, 0, completed=True), running=False)
    job.elsewhere(1, cut_off, running=False)
    assert job.claim().renewed == {0, 1, 2}
    job.learn()
    claim = job.taken()
    assert set(claim.items) == {0, 1, 2}
    assert (claim.before[1].slot, claim.before[1].completed) == (SLOT - 1000, False)


def test_a_claim_refused_again_though_nothing_prevents_it_is_an_error_so_that_it_is_not_sent_again_at_once() -> None:
    job, conflict = ClaimedJob(), Conflict(2, LAYOUT.item(0).running, "exists")

    def refuse() -> None:
        raise conflict

    job.session.commits.extend([refuse] * 9)
    assert job.claim().renewed == {0, 1, 2}
    job.learn()
    with pytest.raises(Conflict, match="exists"):
        job.claim()
    assert len(job.session.commits) == 7
    assert job.running() == []
    job.session.commits.clear()
    assert set(job.taken().items) == {0, 1, 2}


@pytest.mark.parametrize("commits", [[], ["reply lost"], ["never arrived"]])
def test_a_claim_that_is_accepted_in_the_end_needs_no_record_to_be_read_again(commits: list[Word]) -> None:
    job = ClaimedJob()
    job.session.commits.extend(commits)
    taken = job.claim()
    assert taken.claim is not None
    assert taken.renewed == set()


def test_an_assignment_that_has_changed_makes_a_claim_stale() -> None:
    job, view = ClaimedJob(), None
    view = job.view()
    job.write(Set(LAYOUT.sharding, b"", -1))
    taken = job.claim_on(view)
    assert (taken.claim, taken.stale) == (None, True)
    assert job.running() == []


@pytest.mark.parametrize("at_once", [True, False])
def test_the_items_of_a_claim_on_an_outdated_view_may_be_released_again(at_once: bool) -> None:
    job = ClaimedJob()
    view = job.view()
    job.write(Set(LAYOUT.sharding, b"", -1))

    async def claim() -> ClaimResult | None:
        sent = job.claims.send(job.command(view))
        await wait([sent.transaction.answer])
        return job.claims.claimed(sent) if at_once else await job.claims.finish(sent)

    taken = done(claim())
    assert taken is not None
    assert taken.stale
    assert job.locks.executing == set()


@pytest.mark.parametrize("fire", [CRON, RESCUE], ids=["cron", "rescue"])
@pytest.mark.parametrize("word", ["reply lost", "never arrived"])
@pytest.mark.parametrize("reads", [[], ["suspended", "suspended"]], ids=["found out", "found out later"])
def test_a_claim_whose_reply_is_lost_is_found_out_about(fire: Fire, word: str, reads: list[Word]) -> None:
    job = ClaimedJob()
    if fire is RESCUE:
        for item in job.items:
            job.orphaned(item)
    job.session.commits.append(word)
    job.session.reads.extend(reads)
    claim = job.taken(fire)
    assert set(claim.items) == set(job.items)
    nodes = job.registry.nodes
    assert claim.fences[0] == nodes[LAYOUT.item(0).running].stat.czxid
    assert claim.items[0].version == nodes[LAYOUT.item(0).execution].stat.version
    assert job.settle(claim, *[Outcome.COMPLETED] * 3)
    assert job.running() == []
    assert not [path for path in nodes if path.endswith("/failover") and "sharding" in path.removeprefix("/job/leader")]


def test_a_claim_whose_reply_is_lost_is_not_looked_up_on_a_server_that_lags_behind() -> None:
    job = ClaimedJob()
    job.session.commits.append("reply lost")
    job.session.old = dict(job.registry.nodes)
    assert set(job.taken().items) == set(job.items)
    assert job.record().begun == NOW


def test_after_a_claim_that_never_arrived_others_may_have_taken_a_part() -> None:
    job = ClaimedJob()
    job.session.commits.append("never arrived")
    view = job.view()
    job.elsewhere(2)
    assert job.claim_on(view).renewed == {0, 1, 2}
    assert job.running() == [2]


def test_a_claim_that_goes_down_with_its_session_is_no_claim() -> None:
    job = ClaimedJob()
    job.session.commits.append("never arrived")
    job.session.renew(MINE + 5)
    with pytest.raises(SessionEnded):
        job.claim()


def test_without_a_connection_nothing_is_claimed() -> None:
    job = ClaimedJob()
    job.session.commits.append("suspended")
    with pytest.raises(Suspended):
        job.claim()


def test_many_items_are_claimed_and_settled_in_parts() -> None:
    job = ClaimedJob(2 * ITEMS_AT_ONCE + 10)
    claim = job.taken()
    assert len(claim.items) == len(job.items)
    assert len(set(claim.fences.values())) == 3
    assert job.settle(claim, *[Outcome.COMPLETED] * len(job.items))
    assert job.running() == []


def test_what_was_taken_before_the_connection_was_lost_is_run() -> None:
    job = ClaimedJob(ITEMS_AT_ONCE + 10)
    job.session.commits.extend(["well", "suspended"])
    assert set(job.taken().items) == set(range(ITEMS_AT_ONCE))


def test_what_was_taken_before_the_assignment_changed_is_run() -> None:
    job = ClaimedJob(2 * ITEMS_AT_ONCE + 10)
    job.session.commits.extend(["well", lambda: job.write(Set(LAYOUT.sharding, b"", -1))])
    taken = job.claim()
    assert taken.claim is not None
    assert (len(taken.claim.items), taken.stale) == (ITEMS_AT_ONCE, True)
    assert len(job.session.sizes) == 2  # what is left waits for the next view


def test_a_rescue_takes_the_mark_and_gives_it_back_to_nobody() -> None:
    job = ClaimedJob()
    job.orphaned(1)
    claim = job.taken(RESCUE, {1})
    paths, nodes = LAYOUT.item(1), job.registry.nodes
    assert paths.orphan not in nodes
    assert (nodes[paths.failover].data, nodes[paths.failover].stat.ephemeral_owner) == (ME.encode(), MINE)
    assert job.record(1).slot == SLOT
    assert job.settle(claim, Outcome.COMPLETED)
    assert not {paths.orphan, paths.failover, paths.running} & job.registry.nodes.keys()


def test_a_rescue_that_another_has_taken_is_stale() -> None:
    job = ClaimedJob()
    job.orphaned(1)
    job.write(Delete(LAYOUT.item(1).orphan))
    assert job.claim(RESCUE, {1}) == ClaimResult(None, stale=True)


def test_an_orphan_whose_run_is_completed_after_all_is_not_rescued() -> None:
    job = ClaimedJob()
    job.orphaned(1)
    job.elsewhere(1, Record(SLOT, "SCHEDULE", "other", 1, 2, 0, completed=True), running=False)
    assert job.claim(RESCUE, {1}) == ClaimResult(None, renewed=frozenset({1}))
    assert job.running() == []


def test_an_orphan_that_needs_no_rescue_is_dismissed_once() -> None:
    job = ClaimedJob()
    job.orphaned(1)
    done(remove_orphan_mark(job.member, 1, job.seen[1].version))
    assert LAYOUT.item(1).orphan not in job.registry.nodes
    done(remove_orphan_mark(job.member, 1, job.seen[1].version))  # somebody else has seen to it
    job.write(Create(LAYOUT.item(0).orphan))
    done(remove_orphan_mark(job.member, 0, job.seen[0].version))  # it has no record at all
    assert LAYOUT.item(0).orphan not in job.registry.nodes


def test_an_item_that_can_have_no_lock_is_named_and_the_rest_can_be_taken() -> None:
    job = ClaimedJob()
    job.registry.commit([Create(LAYOUT.item(1).execution, b"", ephemeral=True)], THEIRS)
    job.learn()
    assert job.claim() == ClaimResult(None, obstructed=frozenset({1}), renewed=frozenset({0, 1, 2}))
    assert set(job.taken(items=[0, 2]).items) == {0, 2}


def test_an_item_that_can_have_no_lock_holds_up_no_claim_of_the_next_moment() -> None:
    job = ClaimedJob()
    job.registry.commit([Create(LAYOUT.item(1).execution, b"", ephemeral=True)], THEIRS)
    job.learn()
    for slot in (SLOT, NEXT):  # for each moment it turns out once
        assert job.claim(Fire(slot, FireSource.SCHEDULE)).obstructed == {1}


def test_records_whose_parent_was_removed_are_made_again() -> None:
    job = ClaimedJob()
    job.write(Delete(LAYOUT.execution))
    assert job.claim().renewed == {0, 1, 2}
    assert set(job.taken().items) == {0, 1, 2}


def test_a_job_that_was_removed_is_not_made_again() -> None:
    job = ClaimedJob()
    job.write(Delete(LAYOUT.execution), Delete(LAYOUT.instance(ME)))
    assert job.claim() == ClaimResult(None, stale=True)
    assert LAYOUT.execution not in job.registry.nodes


def test_a_trigger_leaves_the_schedule_as_it_was() -> None:
    job = ClaimedJob()
    assert job.settle(job.taken(), *[Outcome.COMPLETED] * 3)
    claim = job.taken(Fire(NOW, FireSource.TRIGGER))
    assert {seen.record.slot for seen in claim.items.values()} == {SLOT}
    assert {seen.record.source for seen in claim.items.values()} == {"TRIGGER"}


def test_who_rescues_a_triggered_run_or_its_rescue_knows_what_was_asked_for() -> None:
    job, asked = ClaimedJob(), NOW - 7
    assert job.settle(job.taken(), *[Outcome.COMPLETED] * 3)
    job.hand_over(job.taken(Fire(asked, FireSource.TRIGGER, "day 7"), {1}))
    for _ in range(2):
        record = job.record(1)
        assert (record.slot, record.moment, record.asked, record.parameter) == (SLOT, asked, asked, "day 7")
        job.hand_over(job.taken(Fire(record.moment, FireSource.FAILOVER, record.parameter), {1}))
    assert (job.record(1).source, job.record(1).parameter) == ("FAILOVER", "day 7")


@pytest.mark.parametrize("source", [FireSource.SCHEDULE, FireSource.MISFIRE])
def test_a_scheduled_run_has_nothing_of_the_trigger_before_it(source: FireSource) -> None:
    job = ClaimedJob()
    assert job.settle(job.taken(Fire(NOW, FireSource.TRIGGER, "day 7")), *[Outcome.COMPLETED] * 3)
    job.hand_over(job.taken(Fire(NEXT, source)))
    assert (job.record().moment, job.record().asked, job.record().parameter) == (NEXT, 0, None)
    job.learn()
    job.taken(Fire(NEXT, FireSource.FAILOVER))
    assert (job.record().moment, job.record().asked, job.record().parameter) == (NEXT, 0, None)


def test_no_transaction_that_carries_a_triggers_parameter_is_too_large_for_the_registry() -> None:
    job = ClaimedJob(2 * ITEMS_AT_ONCE)
    claim = job.taken(Fire(NOW, FireSource.TRIGGER, "\0" * (MAX_PARAMETER_BYTES // 40)))
    assert job.hand_over(claim) == set(job.items)
    again = job.taken(Fire(NEXT, FireSource.SCHEDULE))
    assert done(job.settlements.give_back(again))
    job.learn()
    assert job.record().parameter == claim.fire.parameter
    assert job.settle(job.taken(Fire(NOW, FireSource.TRIGGER, "\0" * MAX_PARAMETER_BYTES), {7}), Outcome.COMPLETED)
    assert 400_000 < max(job.session.sizes) < 900_000


def test_rescues_in_a_row_are_counted() -> None:
    job, counted = ClaimedJob(), []
    for source, outcome in [
        *[(RESCUE, Outcome.CANCELLED), (RESCUE, Outcome.CANCELLED), (RESCUE, Outcome.FAILED)],
        *[(RESCUE, Outcome.CANCELLED), (CRON, Outcome.CANCELLED), (RESCUE, Outcome.TIMED_OUT)],
    ]:
        if source is RESCUE and LAYOUT.item(0).orphan not in job.registry.nodes:
            before = job.record() if LAYOUT.item(0).execution in job.registry.nodes else Record()
            job.elsewhere(0, replace(before, begun=1, slot=SLOT - 1, completed=False), running=False)
            job.write(Create(LAYOUT.item(0).orphan))
            job.learn()
        claim = job.taken(source, {0})
        counted.append(job.record().rescues)
        job.hand_over(claim, outcome, hand_over=source is RESCUE)
        assert job.record().rescues == (0 if outcome is not Outcome.CANCELLED else counted[-1])
    assert counted == [1, 2, 3, 1, 0, 1]


@pytest.mark.parametrize("end", ["settled", "handed over", "given back"])
def test_what_a_record_says_that_is_not_known_is_kept_by_every_write(end: str) -> None:
    job = ClaimedJob()
    fields = {"slot": SLOT - 1000, "newer": {"a": [1]}, "completed": True}
    job.write(Create(LAYOUT.item(0).execution, json.dumps(fields).encode()))
    job.learn()
    claim = job.taken(CRON, {0})
    assert job.record().unknown == ',"newer":{"a": [1]}'
    if end == "given back":
        assert done(job.settlements.give_back(claim))
        assert job.record().slot == SLOT - 1000
    else:
        job.hand_over(claim, Outcome.COMPLETED if end == "settled" else Outcome.CANCELLED)
        assert job.record().slot == SLOT
    assert json.loads(job.registry.nodes[LAYOUT.item(0).execution].data)["newer"] == {"a": [1]}
    job.learn()
    job.taken(RESCUE if end == "handed over" else Fire(SLOT + 1000, FireSource.SCHEDULE), {0})
    assert job.record().unknown


def test_records_that_hold_much_that_is_not_known_are_written_a_few_at_a_time() -> None:
    job = ClaimedJob(40)
    data = json.dumps({"slot": 1, "newer": "x" * 60_000}).encode()
    job.write(*(Create(LAYOUT.item(item).execution, data) for item in job.items))
    job.learn()
    claim = job.taken()
    assert len(claim.items) == 40
    assert job.settle(claim, *[Outcome.COMPLETED] * 40)
    assert max(job.session.sizes) < 1024 * 1024


def test_a_rescue_takes_no_item_of_which_another_run_was_cut_off_than_the_one_it_was_decided_on() -> None:
    job = ClaimedJob(1)
    job.orphaned(0)
    newer = Record(SLOT + 1000, "TRIGGER", "other", 2, 0, 0, completed=False)
    job.elsewhere(0, newer, running=False)  # after the record was read
    assert job.claim(RESCUE).renewed == {0}
    assert (job.record(), job.waiting(), job.running()) == (newer, {0}, [])


def test_a_claim_on_a_former_schedule_is_stale_so_that_it_hides_no_moment_of_the_present_one() -> None:
    job = ClaimedJob()
    job.write(Create(LAYOUT.schedule, b"{}"))
    view = job.view()
    job.write(Set(LAYOUT.schedule, b"{}", -1))
    assert job.claim_on(view) == ClaimResult(None, stale=True)
    assert job.running() == []


def test_an_item_whose_claim_is_given_back_owes_its_moment_again() -> None:
    job = ClaimedJob()
    assert job.settle(job.taken(), *[Outcome.COMPLETED] * 3)
    before = job.record()
    assert done(job.settlements.give_back(job.taken(Fire(NEXT, FireSource.SCHEDULE))))
    assert job.record() == replace(before, accounted=NEXT - 1)


def test_without_monitoring_nothing_is_written() -> None:
    job = ClaimedJob()
    before = dict(job.registry.nodes)
    claim = job.claims.unmonitored(job.command(job.view(), items=[2]))
    assert (claim.fences, set(claim.items)) == ({}, {2})
    assert job.registry.nodes == before
