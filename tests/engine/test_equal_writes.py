"""Equal writes: a writer whose reply is lost does not take what another process has written for its own.

In each history the transaction of this instance never arrives.  Before it looks what was written, another process
writes the same, or almost the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from aioelasticjob.core import reasons
from aioelasticjob.core.effects import Effect, LostRuns, RemoveItems, RemoveNodes
from aioelasticjob.engine import coordinator
from aioelasticjob.engine.accounts import write_accounts
from aioelasticjob.engine.commit import committed_by_nodes
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.run_counts import RunCounts
from aioelasticjob.errors import OutcomeUnknown
from aioelasticjob.model import Owing, Record, VersionedRecord
from aioelasticjob.registry.transaction import Committed, Create, Delete, Op, Set
from tests.engine.test_claims import LAYOUT, ME, MINE, NOW, SLOT, THEIRS, ClaimedJob, FaultySession, done

OTHER = "10.0.0.1@-@2"


class LosingSession(FaultySession):
    """A session whose next transaction gets lost if something happens meanwhile."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def _commit(self, ops: Sequence[Op], incarnation: int) -> Committed:
        meanwhile = self.meanwhile
        if meanwhile is None:
            return await super()._commit(ops, incarnation)
        self.meanwhile = None
        await meanwhile()
        raise OutcomeUnknown("the connection broke")


class EqualJob(ClaimedJob):
    """A job with this instance and another one on the same server."""

    def __init__(self) -> None:
        super().__init__()
        self.session = LosingSession(self.registry)
        self.member = replace(self.member, session=self.session)
        session = FaultySession(self.registry)
        session.renew(THEIRS)
        self.other = replace(self.member, id=OTHER, session=session, incarnation=THEIRS)

    def lose_next(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        """Let the next transaction of this instance get lost, and something happen before that is known."""
        self.session.zxid = self.registry.zxid
        self.session.meanwhile = meanwhile


def accounted(job: EqualJob, by: str) -> dict[int, tuple[VersionedRecord, Record]]:
    """Return the records with which an instance promises a report about item 0, and excuses moments of item 1."""
    promised = Owing(by, NOW, SLOT, SLOT, 1, reasons.HELD_UP)
    return {
        0: (job.seen[0], Record(accounted=SLOT, owing=(promised,))),
        1: (job.seen[1], Record(accounted=SLOT)),
    }


def test_a_report_that_another_holder_has_promised_is_not_made_here_as_well() -> None:
    job = EqualJob()
    view = job.view()

    async def move() -> None:
        job.write(Set(LAYOUT.sharding, b"", -1))
        assert await write_accounts(job.other, job.view(), accounted(job, OTHER))

    job.lose_next(move)
    assert not done(write_accounts(job.member, view, accounted(job, ME)))
    assert [one.by for one in job.record(0).owing] == [OTHER]


def test_the_counts_of_two_instances_of_a_server_are_added_up_if_both_have_counted_the_same() -> None:
    job = EqualJob()
    view = job.view()
    job.write(Create(LAYOUT.server("10.0.0.1")))
    counts = RunCounts(3, 1)
    job.lose_next(lambda: RunCounts(3, 1).publish(job.other, view, SLOT / 1000))
    done(counts.publish(job.member, view, SLOT / 1000))
    assert (counts.succeeded, counts.failed) == (3, 1)  # they are published with those of the next interval
    done(counts.publish(job.member, view, SLOT / 1000))
    assert job.registry.nodes[LAYOUT.success_count("10.0.0.1")].data == b"6"
    assert job.registry.nodes[LAYOUT.failure_count("10.0.0.1")].data == b"2"


async def reports_of(job: EqualJob, member: Member, effect: Effect) -> list[object]:
    """Write an effect as a leader, and return what that leader reports then."""
    reports = list[object]()
    unwanted = {}
    if isinstance(effect, RemoveNodes):
        unwanted = {0: (effect.operations[0], job.record(0))}
    leader = SimpleNamespace(conclude=reports.append)
    await coordinator._commit(member, job.view(), [effect], leader, unwanted)
    return reports


@pytest.mark.parametrize(
    ("effect", "why"),
    [
        (RemoveItems(frozenset({0})), reasons.REMOVED),
        (RemoveNodes((Delete(LAYOUT.item(0).execution, 0),)), reasons.NOT_RECORDED),
    ],
)
def test_runs_whose_records_two_leaders_want_to_remove_are_reported_by_one_of_them(effect: Effect, why: str) -> None:
    job = EqualJob()
    job.write(Create(LAYOUT.epoch), Delete(LAYOUT.item(0).instance))
    job.elsewhere(0, running=False)
    lost = LostRuns({0: job.record(0)}, why)
    reports = list[object]()

    async def lead() -> None:
        job.write(Set(LAYOUT.epoch, b"", -1))
        reports.extend(await reports_of(job, job.other, effect))

    job.lose_next(lead)
    reports.extend(done(reports_of(job, job.member, effect)))
    assert reports == [lost]
    assert LAYOUT.item(0).execution not in job.registry.nodes


def test_other_data_in_the_version_that_a_transaction_would_have_written_shows_that_it_was_not() -> None:
    job = ClaimedJob()
    job.write(Create("/job/a"), Create("/job/b"))
    since = job.registry.zxid
    job.write(Set("/job/a", b"theirs", 0), Set("/job/b", b"equal", 0), Create("/job/c", b"theirs"))
    equal = Set("/job/b", b"equal", 0)
    assert committed_by_nodes([equal], job.registry.nodes, MINE, since) is not None
    for other_data in (Set("/job/a", b"ours", 0), Create("/job/c", b"ours")):
        assert committed_by_nodes([equal, other_data], job.registry.nodes, MINE, since) is None


def test_data_that_was_replaced_later_shows_nothing() -> None:
    job = ClaimedJob()
    job.write(Create("/job/a"), Create("/job/b"))
    since = job.registry.zxid
    ops: list[Op] = [Set("/job/a", b"ours", 0), Set("/job/b", b"ours", 0), Create("/job/c", b"ours")]
    job.write(*ops)
    job.write(Set("/job/a", b"by hand", -1), Set("/job/c", b"by hand", -1))
    assert committed_by_nodes(ops, job.registry.nodes, MINE, since) is not None
    job.write(Delete("/job/a"))
    job.write(Create("/job/a"))
    job.write(Set("/job/a", b"by hand", -1))
    assert committed_by_nodes(ops, job.registry.nodes, MINE, since) is not None
