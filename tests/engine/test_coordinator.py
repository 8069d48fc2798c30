"""When an instance writes what the rules want, and when it waits."""

from __future__ import annotations

import gc
from asyncio import get_running_loop
from collections.abc import Sequence
from contextlib import nullcontext
from math import inf

import anyio
import pytest
from anyio import current_time

from aioelasticjob.config import job as config
from aioelasticjob.core import effects
from aioelasticjob.core.effects import EndRun, UpdateRequest
from aioelasticjob.core.layout import server_switch
from aioelasticjob.core.reasons import REMOVED
from aioelasticjob.core.requests import Request, changed, encode, encode_progress
from aioelasticjob.engine import coordinator
from aioelasticjob.engine.commit import SentTransaction, write
from aioelasticjob.engine.coordinator import MIRROR_TIMEOUT, RETRY_PAUSE, Coordinator
from aioelasticjob.engine.item_reader import cut_off_runs
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.pacing import PAUSE_AFTER_REMOVAL
from aioelasticjob.engine.refusals import noted_refusals
from aioelasticjob.engine.run_counts import RunCounts
from aioelasticjob.errors import Suspended
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.ground.latest import Latest
from aioelasticjob.model import FireSource, Progress
from aioelasticjob.registry.codec import failure
from aioelasticjob.registry.transaction import Committed, Create, Delete, Op, Set
from aioelasticjob.registry.tree import Node, Tree
from aioelasticjob.testing import VirtualClock, run
from tests.engine.test_claims import LAYOUT as ASKED
from tests.engine.test_claims import ClaimedJob, Word, done
from tests.engine.test_membership import LAYOUT, ME
from tests.support.stats import stat


class CoordinatedInstance:
    """An instance that coordinates, and the mirror that shows it the tree when it is told to."""

    def __init__(self, job: ClaimedJob) -> None:
        self.job, self.called = job, list[str]()
        self.trees, self.views = Latest(job.registry.tree()), Latest(job.view())
        self.common = Latest(Tree())
        self.coordinator = Coordinator(
            *(job.member, self.trees, self.common, self.views, RunCounts(), VirtualClock(), self)
        )

    @property
    def takes_part(self) -> bool:
        return not self.called

    def view_changed(self) -> None:
        """Nobody follows the views."""

    def conclude(self, written: EndRun | UpdateRequest) -> None:
        """Nobody waits for the end of a run or of a request."""

    def dismissed(self, why: str) -> None:
        self.called.append(why)

    def end_soon(self) -> None:
        self.called.append("over")

    def show(self) -> None:
        self.trees.set(self.job.registry.tree())

    async def turn(self) -> float:
        """Take one turn, with the work that it asks for; return how long it rests then."""
        found = self.coordinator.turn()
        return found if isinstance(found, float) else await found()

    async def settle(self) -> float:
        for _ in range(20):
            self.show()
            if (rest := await self.turn()) > 0 and self.trees.value.zxid == self.job.registry.zxid:
                return rest
        raise AssertionError("it never comes to rest")


def test_what_the_rules_want_is_written_and_then_there_is_rest_until_the_next_tick() -> None:
    job = ClaimedJob()

    async def main() -> None:
        coordinated, began = CoordinatedInstance(job), current_time()
        await coordinated.settle()
        await anyio.sleep(job.config.sharding_quiet)
        rest = await coordinated.settle()
        view = coordinated.views.value
        assert (view.leader, view.assignment_stands, view.schedules.is_noted) == (ME, True, True)
        assert current_time() + rest == pytest.approx(began + job.config.reconcile_interval, abs=1e-3)
        assert await coordinated.settle() == pytest.approx(rest, abs=1e-3)
        assert coordinated.called == []

    run(main, seed=0)


def test_the_leader_does_not_wait_for_the_mirror_after_it_has_removed_records() -> None:
    job = ClaimedJob()
    job.config = job.config.changed(monitor_execution=False, failover=False, server_retention=0)
    record, paused = LAYOUT.item(0).execution, server_switch(job.member.ip, "paused")
    job.write(Set(LAYOUT.config, job.config.to_json(), -1))

    async def main() -> None:
        coordinated = CoordinatedInstance(job)
        await coordinated.settle()
        await anyio.sleep(job.config.sharding_quiet)
        await coordinated.settle()
        job.write(Create(record))
        coordinated.show()
        await anyio.sleep(job.config.reconcile_interval)
        await coordinated.turn()
        assert record not in job.registry.nodes
        assert coordinated.views.value.active == {ME}
        coordinated.common.set(Tree({paused: Node.of(b"", stat())}))  # the job's own nodes do not change
        await coordinated.turn()
        assert coordinated.views.value.active == set()

    run(main, seed=0)


def test_of_a_job_that_keeps_records_no_more_only_those_go_below_which_nobody_has_made_nodes_by_hand() -> None:
    job, paths = ClaimedJob(), LAYOUT.item(0)
    job.config = job.config.changed(monitor_execution=False, failover=False)
    by_hand, record = f"{paths.execution}/by-hand", LAYOUT.item(1).execution
    job.write(Set(LAYOUT.config, job.config.to_json(), -1), *map(Create, (paths.execution, record, by_hand)))

    async def main() -> None:
        coordinated = CoordinatedInstance(job)
        await coordinated.settle()
        await anyio.sleep(job.config.reconcile_interval)
        await coordinated.settle()
        assert record not in job.registry.nodes
        assert by_hand in job.registry.nodes

    run(main, seed=0)


def test_who_leads_no_more_hears_it_once_however_much_there_was_to_remove() -> None:
    job, tried = ClaimedJob(), list[None]()
    orphans = [LAYOUT.item(item).orphan for item in range(100, 200)]

    async def main() -> None:
        coordinated = CoordinatedInstance(job)
        await coordinated.settle()
        await anyio.sleep(job.config.sharding_quiet)
        await coordinated.settle()
        job.write(*map(Create, orphans))
        coordinated.show()
        job.write(Set(LAYOUT.epoch, b"", -1))
        job.session.commits += [lambda: tried.append(None)] * len(orphans)
        await coordinated.turn()
        assert len(tried) == 1

    run(main, seed=0)


def test_until_the_mirror_shows_what_was_written_nothing_else_is_decided() -> None:
    job = ClaimedJob()

    async def main() -> None:
        coordinated = CoordinatedInstance(job)
        coordinated.show()
        assert await coordinated.turn() == 0.0  # it has taken the seat, and maybe more
        assert job.view().leader == ME
        written = job.registry.zxid
        for _ in range(3):
            assert isinstance(coordinated.coordinator.turn(), float)
        assert coordinated.views.value.leader is None
        assert 0 < await coordinated.turn() <= MIRROR_TIMEOUT
        assert job.registry.zxid == written
        await anyio.sleep(MIRROR_TIMEOUT)  # then it looks all the same: it may have been taken back by hand
        assert not isinstance(coordinated.coordinator.turn(), float)

    run(main, seed=0)


def test_who_is_asked_to_leave_takes_the_request_and_has_no_more_say() -> None:
    job = ClaimedJob()

    async def main() -> None:
        coordinated = CoordinatedInstance(job)
        job.write(Create(ASKED.shutdown(ME)))
        coordinated.show()
        assert await coordinated.turn() == inf
        assert coordinated.called == ["an operator has asked this instance to leave"]
        assert ASKED.shutdown(ME) not in job.registry.nodes
        job.write(Delete(ASKED.orphans))  # which everybody else would make again
        coordinated.show()
        assert await coordinated.turn() == inf
        assert coordinated.called == ["an operator has asked this instance to leave"]
        assert ASKED.orphans not in job.registry.nodes

    run(main, seed=0)


def test_who_writes_under_a_session_that_has_ended_says_so() -> None:
    job = ClaimedJob()

    async def main() -> None:
        coordinated = CoordinatedInstance(job)
        job.session.commits.append("over")
        coordinated.show()
        assert await coordinated.turn() == inf
        assert coordinated.called == ["over"]

    run(main, seed=0)


def test_what_is_refused_is_noted_on_a_tick_and_on_the_next_one_if_that_was_refused_as_well() -> None:
    job, path = ClaimedJob(), ASKED.instance(ME)

    def refuse() -> None:
        raise failure(-125, path)

    async def main() -> None:
        coordinated = CoordinatedInstance(job)
        await coordinated.settle()
        await anyio.sleep(job.config.sharding_quiet)
        await coordinated.settle()
        noted = []
        for word in (refuse, "well"):
            await anyio.sleep(job.config.reconcile_interval)
            job.member.refusals.refused("to settle items", failure(-125, "/job/execution/0"))
            job.session.commits.append(word)
            await coordinated.turn()  # the rest of the tick goes on all the same
            assert [one.what for one in job.member.refusals.present] == ["to settle items"]
            await coordinated.settle()
            said = noted_refusals(json_object(job.registry.nodes[path].data))
            noted.append([what for what, _, _ in said])
        assert noted == [[], ["to settle items"]]

    run(main, seed=0)


REQUEST = ASKED.request("r")


@pytest.mark.parametrize(
    ("closed", "refused", "begun"),
    [
        (0, f"{REQUEST}/0", 1),  # it is closed, and the node of its item stays
        (7, f"{REQUEST}/0", 0),
        (None, ASKED.item(2).instance, 1),  # the first parts of an assignment are written, and the last ones are not
    ],
)
def test_what_is_refused_in_part_is_not_begun_over_and_over(
    closed: int | None, refused: str, begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, written = ClaimedJob(), list[set[str]]()

    async def writing(member: Member, ops: Sequence[Op], what: str, **options: bool) -> Committed:
        if refused in (paths := {op.path for op in ops}):
            raise failure(-102, refused)
        committed = await write(member, ops, what, **options)
        written.append(paths & {REQUEST, ASKED.sharding})
        return committed

    async def main() -> None:
        coordinated = CoordinatedInstance(job)
        await coordinated.settle()
        await anyio.sleep(job.config.sharding_quiet)
        await coordinated.settle()
        monkeypatch.setattr(coordinator, "write", writing)
        monkeypatch.setattr(effects, "MAX_OPERATIONS", 1)
        if closed is None:
            job.write(Delete(ASKED.item(2).instance), Create(ASKED.necessary))
            coordinated.show()
            await coordinated.turn()
            await anyio.sleep(PAUSE_AFTER_REMOVAL)
            begun_at = ASKED.sharding
        else:
            data = changed(encode(Request("r", FireSource.TRIGGER, 3, 1)), stopped="cancelled", closed=closed)
            done = encode_progress(Progress(1, outcome="completed"))
            job.write(Create(REQUEST, data), Create(f"{REQUEST}/0", done))
            begun_at = REQUEST
        for attempts in (begun, 2 * begun if closed is None else begun):
            for _ in range(20):
                coordinated.show()
                await coordinated.turn()
            assert written.count({begun_at}) == attempts
            await anyio.sleep(RETRY_PAUSE)

    run(main, seed=0)


@pytest.mark.parametrize(("required", "renewed"), [("requests", True), ("dreams", False), (None, False)])
def test_who_is_given_no_items_because_its_node_was_overwritten_writes_its_features_anew(
    required: str | None, renewed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "FEATURES", frozenset({"requests"}))
    job, path = ClaimedJob(), ASKED.instance(ME)
    job.write(Set(path, b'{"by": "hand"}', -1))
    if required is not None:
        job.write(Set(ASKED.config, job.config.changed(requires=(required,)).to_json(), -1))

    async def main() -> None:
        coordinated = CoordinatedInstance(job)
        await coordinated.settle()
        await anyio.sleep(job.config.reconcile_interval)
        await coordinated.settle()
        here = coordinated.views.value.instances[ME]
        assert (here.features, here.pid) == ((job.member.features, 1) if renewed else (frozenset(), 0))
        assert json_object(job.registry.nodes[path].data)["by"] == "hand"

    run(main, seed=0)


@pytest.mark.parametrize(("word", "called"), [("suspended", []), ("over", ["over"])])
def test_without_a_connection_nothing_else_is_looked_up_on_a_tick(word: Word, called: list[str]) -> None:
    job = ClaimedJob()

    async def main() -> None:
        coordinated = CoordinatedInstance(job)
        await coordinated.settle()
        await anyio.sleep(job.config.reconcile_interval)
        job.member.refusals.refused("to settle items", failure(-125, "/job/execution/0"))
        job.session.commits.append(word)
        coordinated.show()
        before = job.registry.zxid
        await coordinated.turn()
        assert (coordinated.called, job.registry.zxid) == (called, before)

    run(main, seed=0)


def test_surplus_items_are_removed_with_the_runs_they_lose_once_nobody_runs_them() -> None:
    job = ClaimedJob()
    claim, removal = job.taken(items=[1]), effects.RemoveItems(frozenset({1}))
    view = job.view()
    assert done(coordinator._transactions(job.member, view, removal, {})) == ([], None)
    assert done(cut_off_runs(job.member, [1])) == ({}, {job.member.id})
    job.write(Delete(ASKED.item(1).running))
    (transaction,), lost = done(coordinator._transactions(job.member, view, removal, {}))
    assert lost == effects.LostRuns({1: claim.items[1].record}, REMOVED)
    assert Delete(ASKED.item(1).execution, claim.items[1].version or 0) in transaction
    # with the transaction of the claim, which a wish to stop the run names
    assert done(cut_off_runs(job.member, [1])) == (claim.items, set())


@pytest.mark.parametrize("answers", ["accepted", "suspended"])
def test_the_marks_of_all_orphans_are_sent_before_the_first_answer(
    answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an instance that saw only the first mark would rescue only that orphan, and the others would wait."""
    job, sent, seen, asyncio_errors = ClaimedJob(), list[SentTransaction](), list[int](), list[object]()
    lost = job.taken().items
    job.write(*(Delete(ASKED.item(item).running) for item in lost))

    def answer() -> None:
        seen.append(len(sent))
        if answers == "suspended":
            raise Suspended("no connection")

    marks = [effects.MarkOrphan(item, run) for item, run in lost.items()]
    send = coordinator.send
    monkeypatch.setattr(coordinator, "send", lambda *about: sent.append(send(*about)) or sent[-1])

    async def main() -> None:
        get_running_loop().set_exception_handler(lambda _, context: asyncio_errors.append(context))
        coordinated = CoordinatedInstance(job)
        await coordinated.settle()  # it leads
        job.session.commits.extend([answer] * len(lost))
        sent.clear()
        with nullcontext() if answers == "accepted" else pytest.raises(Suspended):
            await coordinator._commit(job.member, job.view(), marks, coordinated)
        await anyio.sleep(1)
        sent.clear()
        gc.collect()

    run(main, seed=0)
    assert (seen, asyncio_errors) == ([3, 3, 3], [])
    assert all(ASKED.item(item).orphan in job.registry.nodes for item in lost) == (answers == "accepted")
