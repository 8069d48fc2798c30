"""What came while nobody was there is reported by one who returns: items are marked, or the whole job is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.entries import MissedMark
from aioelasticjob.engine.missed_marks import (
    advance_accounted,
    mark_misfired,
    mark_missed_moments,
    note_accounted,
    read_accounted,
)
from aioelasticjob.engine.record_cache import RecordCache
from aioelasticjob.errors import SessionEnded, Suspended
from aioelasticjob.model import Fire, FireSource, Outcome, Record
from aioelasticjob.registry.transaction import Create, Delete, Set
from tests.engine.test_claims import LAYOUT, ME, SLOT, THEIRS, ClaimedJob, done

MINUTE = 60_000
MISSED = {0: SLOT + 5000, 2: SLOT + 6000}
SAID = {item: MissedMark(until) for item, until in MISSED.items()}


def run_once() -> ClaimedJob:
    job = ClaimedJob()
    job.settle(job.taken(), *[Outcome.COMPLETED] * 3)
    job.learn()
    return job


def marked(job: ClaimedJob, cache: RecordCache | None = None) -> frozenset[int] | None:
    return done(mark_missed_moments(job.claims._member, cache or job.cache, job.view(), SAID))


def marks(job: ClaimedJob) -> dict[int, int]:
    nodes = {item: job.registry.nodes.get(LAYOUT.item(item).misfire) for item in job.items}
    return {item: int(node.data) for item, node in nodes.items() if node is not None}


@pytest.mark.parametrize("reply", ["well", "reply lost", "never arrived"])
def test_items_are_marked_whether_or_not_the_reply_comes_and_the_next_claim_removes_the_marks(reply: str) -> None:
    job = run_once()
    before = job.record()
    job.session.commits.append(reply)
    if reply == "reply lost":
        job.session.reads.append("suspended")
    assert marked(job) == {0, 2}
    assert marks(job) == MISSED
    assert job.record() == before  # which is its runner's alone
    assert job.taken(Fire(SLOT + 9000, FireSource.CRON)).items.keys() == {0, 1, 2}
    assert marks(job) == {}


def test_of_two_who_come_back_one_leaves_the_marks_and_the_other_knows_what_they_say() -> None:
    job = run_once()
    other = RecordCache(job.claims._member)
    done(other.learn(job.items))
    assert marked(job) == {0, 2}
    assert marked(job, other) == frozenset()
    assert [other.items[item].mark.until for item in job.items] == [SLOT + 5000, 0, SLOT + 6000]


def test_a_mark_that_is_there_is_moved_on() -> None:
    job = run_once()
    job.write(Create(LAYOUT.item(0).misfire, b"1000"), Create(LAYOUT.item(2).misfire, b"by hand"))
    job.learn()
    assert (job.cache.items[0].mark.until, job.cache.items[2].mark.until) == (1000, 0)
    assert marked(job) == {0, 2}
    assert marks(job) == MISSED


@pytest.mark.parametrize("reply", ["well", "reply lost"])
def test_a_mark_of_ones_own_is_moved_on_both_ways_and_the_next_holder_reads_the_whole_stretch(reply: str) -> None:
    job = run_once()
    job.session.commits.extend([reply, reply, reply])
    for mark_now in (
        MissedMark(SLOT + 9000, SLOT + 5000),
        MissedMark(SLOT + 5000, SLOT + 2000),
        MissedMark(SLOT + 12_000),
    ):
        assert done(mark_missed_moments(job.claims._member, job.cache, job.view(), {0: mark_now})) == {0}
    other = RecordCache(job.claims._member)
    done(other.learn(job.items))
    for entry in (other.items[0], job.cache.items[0]):
        assert (entry.mark, entry.mark.version) == (MissedMark(SLOT + 12_000, SLOT + 2000), 2)


def test_a_mark_that_a_claim_has_removed_is_made_again() -> None:
    job = run_once()
    assert marked(job) == {0, 2}
    job.settle(job.taken(Fire(SLOT + 9000, FireSource.CRON)), *[Outcome.COMPLETED] * 3)
    assert marked(job) == {0, 2}
    assert marks(job) == MISSED


@pytest.mark.parametrize("word", ["well", "never arrived"])
def test_what_somebody_else_has_claimed_is_left_to_him_and_the_rest_is_marked(word: str) -> None:
    job = run_once()
    job.elsewhere(0, Record(SLOT + 7000, "CRON", "other", 1, 0, 0, completed=False))
    job.session.commits.append(word)
    assert marked(job) == {2}
    assert marks(job).keys() == {2}


def test_an_item_that_is_rescued_meanwhile_is_marked_however_often_its_rescuer_writes() -> None:
    job = run_once()
    begun = Record(SLOT, "FAILOVER", "other", 2, 0, 0, completed=False)
    ended = replace(begun, completed=True)
    job.session.commits += [lambda: job.elsewhere(0, begun), lambda: job.elsewhere(0, ended, running=False)]
    assert marked(job) == {0, 2}
    assert marks(job) == MISSED


def test_under_another_assignment_nothing_is_marked() -> None:
    job = run_once()
    view = job.view()
    job.write(Set(LAYOUT.sharding, b"", -1))
    assert done(mark_missed_moments(job.claims._member, job.cache, view, SAID)) is None
    assert marks(job) == {}


@pytest.mark.parametrize("reply", ["well", "reply lost", "never arrived"])
def test_an_item_that_never_ran_gets_a_record_that_says_so_for_the_mark_to_stand_on(reply: str) -> None:
    job = ClaimedJob()
    job.learn()
    job.session.commits.append(reply)
    assert marked(job) == {0, 2}
    assert marks(job) == MISSED
    assert job.record(0) == Record()
    assert job.taken(Fire(SLOT + 9000, FireSource.CRON)).items.keys() == {0, 1, 2}
    assert marks(job) == {}


def test_of_two_who_mark_an_item_that_never_ran_one_leaves_the_mark() -> None:
    job = ClaimedJob()
    job.learn()
    other = RecordCache(job.claims._member)
    done(other.learn(job.items))
    assert marked(job) == {0, 2}
    assert marked(job, other) == frozenset()


@pytest.mark.parametrize(("word", "error"), [("suspended", Suspended), ("over", SessionEnded)])
def test_without_a_connection_nothing_is_marked(word: str, error: type[Exception]) -> None:
    job = run_once()
    job.session.commits.append(word)
    with pytest.raises(error):
        marked(job)
    assert marks(job) == {}


def unmonitored(**settings: object) -> ClaimedJob:
    made = ClaimedJob()
    made.config = JobConfig.build(
        job_name="job", **{"cron": "0 * * * * ?", "monitor_execution": False, "sharding_total_count": 3, **settings}
    )
    made.write(Set(LAYOUT.config, made.config.to_json(), -1), Create(LAYOUT.epoch))
    return made


def written(here: ClaimedJob) -> bytes:
    return here.registry.nodes[LAYOUT.execution].data


def noted(here: ClaimedJob, now: float) -> tuple[bytes, int]:
    """Note up to which moment an instance was up; return what is written then, and the version of the node."""
    done(note_accounted(here.member, here.view(), now))
    node = here.registry.nodes[LAYOUT.execution]
    return node.data, node.stat.version


def test_the_newest_moment_is_written_once() -> None:
    here = unmonitored()
    assert noted(here, 119.9) == (b"60000", 1)
    assert noted(here, 119.9) == (b"60000", 1)
    assert noted(here, 120.0) == (b"120000", 2)


def test_nothing_is_asked_of_the_registry_while_the_newest_moment_is_known_to_be_noted() -> None:
    here = unmonitored()
    known = done(note_accounted(here.member, here.view(), 60.5))
    here.write(Set(LAYOUT.execution, b"", -1))
    assert done(note_accounted(here.member, here.view(), 119.9, known)) == known == MINUTE
    assert written(here) == b""
    assert done(note_accounted(here.member, here.view(), 120.0, known)) == 2 * MINUTE
    assert written(here) == b"120000"


@pytest.mark.parametrize("refused", [True, False])
def test_a_moment_that_could_not_be_noted_is_not_known(refused: bool) -> None:
    here = unmonitored()
    if refused:
        here.session.commits.append(lambda: here.write(Set(LAYOUT.execution, b"", -1)))
    else:
        here.write(Delete(LAYOUT.execution))
    assert done(note_accounted(here.member, here.view(), 60.5)) is None


def test_a_leaver_whose_clock_is_slow_does_not_take_back_what_the_leader_wrote() -> None:
    here = unmonitored()
    here.write(Set(LAYOUT.execution, b"120000", -1))
    assert noted(here, 119.9) == (b"120000", 1)


def test_what_was_written_while_a_clock_was_far_ahead_is_taken_back() -> None:
    here = unmonitored()
    here.write(Set(LAYOUT.execution, b"3600000", -1))
    assert noted(here, 119.9) == (b"60000", 2)


def test_who_was_overtaken_writes_when_it_is_asked_again() -> None:
    here = unmonitored()
    here.session.commits.append(lambda: here.write(Set(LAYOUT.execution, b"120000", -1)))
    assert noted(here, 180.0) == (b"120000", 1)
    assert noted(here, 180.0) == (b"180000", 2)


@pytest.mark.parametrize("settings", [{"monitor_execution": True}, {"cron": None}])
def test_nothing_is_written_for_a_job_with_records_or_without_a_schedule(settings: dict[str, object]) -> None:
    assert noted(unmonitored(**settings), 119.9) == (b"", 0)


def test_who_is_registered_no_more_writes_nothing() -> None:
    here = unmonitored()
    here.write(Delete(LAYOUT.instance(ME)))
    assert noted(here, 119.9) == (b"", 0)


@pytest.mark.parametrize(("data", "moment"), [(b"", 0), (b"60000", 60_000), (b"by hand", 0), (b"9" * 30, 0)])
def test_what_somebody_else_wrote_there_is_no_moment(data: bytes, moment: int) -> None:
    here = unmonitored()
    here.write(Set(LAYOUT.execution, data, -1))
    assert done(read_accounted(here.member)) == (moment, 1)


def test_without_the_node_there_is_nothing_to_know() -> None:
    here = unmonitored()
    here.write(Delete(LAYOUT.execution))
    assert done(read_accounted(here.member)) is None


@pytest.mark.parametrize("reply", ["well", "reply lost", "never arrived"])
def test_one_leader_answers_for_an_absence_whether_or_not_the_reply_comes(reply: str) -> None:
    here = unmonitored()
    member, view = here.member, here.view()
    here.session.commits.append(reply)
    if reply == "reply lost":
        here.session.reads.append("suspended")
    assert done(advance_accounted(member, view, MINUTE, 0)) is True
    assert written(here) == b"60000"
    assert done(advance_accounted(member, view, 2 * MINUTE, 0)) is False  # decided on what was there before


def test_a_leader_that_was_deposed_answers_for_nothing() -> None:
    here = unmonitored()
    view = here.view()
    here.write(Set(LAYOUT.epoch, b"", -1))
    assert done(advance_accounted(here.member, view, MINUTE, 0)) is False


def test_a_session_that_ends_meanwhile_answers_for_nothing() -> None:
    here = unmonitored()
    here.session.commits.append("over")
    with pytest.raises(SessionEnded):
        done(advance_accounted(here.member, here.view(), MINUTE, 0))


def test_a_mark_of_a_misfire_stands_until_the_next_claim() -> None:
    job = ClaimedJob()
    job.elsewhere(0)
    job.elsewhere(1)
    for item in job.items:  # one without a record has no place for a mark
        done(mark_misfired(job.member, job.cache, job.view(), item, SLOT))
    done(mark_misfired(job.member, job.cache, job.view(), 1, SLOT + 1))  # it is there already
    marks = [job.registry.nodes[LAYOUT.item(item).misfire].data for item in (0, 1)]
    assert marks == [str(SLOT).encode()] * 2
    job.registry.expire(THEIRS)
    assert set(job.taken().items) == {0, 1, 2}
    assert not [item for item in job.items if LAYOUT.item(item).misfire in job.registry.nodes]


def test_a_misfire_is_not_marked_under_an_assignment_that_is_over() -> None:
    job = ClaimedJob()
    job.elsewhere(0)
    view = job.view()
    job.write(Set(LAYOUT.sharding, b"", -1))
    done(mark_misfired(job.member, job.cache, view, 0, SLOT))
    assert LAYOUT.item(0).misfire not in job.registry.nodes


def test_an_item_that_is_refused_again_though_nothing_has_changed_is_left_out() -> None:
    job = run_once()
    path = LAYOUT.item(2).execution
    data = job.registry.nodes[path].data
    job.registry.commit([Delete(path)])
    job.registry.commit([Create(path, data, ephemeral=True)], incarnation=9)  # so no mark can be made below it
    job.learn()
    assert marked(job) == {0}
    assert marks(job) == {0: MISSED[0]}
