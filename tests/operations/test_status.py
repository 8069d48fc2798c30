"""A job in a few words: what lists say of it is true."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from anyio import sleep

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.config.job import JobConfig
from aioelasticjob.ground.times import moment
from aioelasticjob.model import Record
from aioelasticjob.operations import InstanceStatus, ItemStatus, JobStatus, ServerStatus
from aioelasticjob.operations.attention import reasons
from aioelasticjob.testing import VirtualCluster, simulated


def record(begun: int, outcome: str, *, completed: bool = True) -> Record:
    return Record(begun, "SCHEDULE", "one", begun, begun + 500, begun + 1000, completed, outcome)


def job(*records: Record | None) -> JobStatus:
    items = tuple(ItemStatus(n, None, None, None, None, False, False, False, one) for n, one in enumerate(records))
    return JobStatus(JobConfig(job_name="report"), None, None, True, None, (), (), items)


@pytest.mark.parametrize("outcome", ["failed", "timed out", "cancelled"])
def test_what_went_wrong_is_not_hidden_behind_the_other_items_of_that_fire(outcome: str) -> None:
    wrong = record(2000, outcome)
    others = [record(2000, "completed"), None, Record(), record(1000, "completed"), record(2000, "", completed=False)]
    assert job(*others, wrong).last == wrong
    assert job(wrong, *others).last == wrong


def test_an_older_failure_is_over_once_a_newer_run_has_begun() -> None:
    newer = record(3000, "completed")
    assert job(record(2000, "failed"), newer).last == newer
    assert job(None, Record()).last is None


NOON = 1_767_268_800.0  # 2026-01-01 12:00 UTC


def attended(cron: str | None, *, paused: bool = False, present: bool = True) -> JobStatus:
    """Return the status of a job with one server, and one instance if it is ``present``."""
    joined = moment(NOON)
    instances = (InstanceStatus("one", "10.0.0.7", "host", 1, joined, True, (0,), ()),) if present else ()
    server = ServerStatus("10.0.0.7", "host", False, paused, len(instances))
    config = JobConfig(job_name="report", cron=cron)
    return JobStatus(config, None, "one", True, None, instances, (server,), ()).at(NOON)


def test_a_job_announces_its_next_moment_only_if_an_instance_would_run_it() -> None:
    assert attended("0 0 13 * * ?").next_fire == moment(NOON + 3600)
    assert attended("0 0 13 * * ?").state == "waiting"
    for status in (attended("0 0 13 * * ?", paused=True), attended("0 0 13 * * ?", present=False)):
        assert status.next_fire is None
        assert status.state in ("switched off", "nobody there")


def test_counts_are_those_of_the_last_interval_and_a_job_says_when_they_are_not_any_more() -> None:
    plain = attended(None)
    assert plain.changes_at is None
    counted = replace(plain, servers=(replace(plain.servers[0], failed=3, counted_until=NOON + 120),))
    assert counted.changes_at == NOON + 120
    assert (counted.at(NOON + 119.9).failed, counted.at(NOON + 119.9).changes_at) == (3, NOON + 120)
    over = counted.at(NOON + 120)
    assert (over.servers[0].succeeded, over.servers[0].failed, over.changes_at) == (None, 0, None)
    hourly = replace(attended("0 0 13 * * ?"), servers=counted.servers)
    assert (hourly.changes_at, hourly.at(NOON + 120).changes_at) == (NOON + 120, NOON + 3600)


@pytest.mark.parametrize(
    ("disabled", "server_paused", "state"),
    [
        ((True, True), False, "switched off"),
        ((True, False), False, "partly off"),
        ((False, False), True, "partly off"),
        ((True, False), True, "switched off"),
        ((False, False), False, "waiting"),
    ],
)
def test_a_job_whose_items_rest_is_switched_off_or_partly_off(
    disabled: tuple[bool, bool], server_paused: bool, state: str
) -> None:
    other = InstanceStatus("two", "10.0.0.8", "host", 2, moment(NOON), False, (1,), ())
    servers = (
        ServerStatus("10.0.0.7", "host", False, False, 1),
        ServerStatus("10.0.0.8", "host", False, server_paused, 1),
    )
    items = tuple(
        ItemStatus(n, None, holder, None, None, False, off, False, None)
        for n, (holder, off) in enumerate(zip(("one", "two"), disabled, strict=True))
    )
    status = attended("0 0 13 * * ?")
    status = replace(status, items=items, instances=(*status.instances, other), servers=servers).at(NOON)
    assert status.state == state
    assert (status.next_fire is None) is (state == "switched off")


@pytest.mark.parametrize(
    ("clocks", "lacks", "off", "state"),
    [
        ((7.2, -7.2), (), False, "clock differs"),
        ((7.2, None), (), False, "waiting"),
        ((7.2, None), ("streams",), False, "clock differs"),  # the other one may not run the job
        ((7.2, None), (), True, "clock differs"),
        ((None, 7.2), ("streams",), False, "waiting"),
        ((0.0, 0.0), (), False, "clock differs"),  # the limit is 0
    ],
)
def test_a_job_has_no_next_moment_if_all_who_could_run_it_refuse_that_because_of_their_clocks(
    clocks: tuple[float | None, float | None], lacks: tuple[str, ...], off: bool, state: str
) -> None:
    status = attended("0 0 13 * * ?")
    two = InstanceStatus("two", "10.0.0.8", "host", 2, moment(NOON), False, (), (), lacks=lacks)
    instances = tuple(replace(one, clock_differs=by) for one, by in zip((*status.instances, two), clocks, strict=True))
    servers = (*status.servers, ServerStatus("10.0.0.8", "host", off, False, 1))
    status = replace(status, instances=instances, servers=servers).at(NOON)
    assert (status.state, status.next_fire is None) == (state, state != "waiting")


def test_a_job_that_is_paused_is_switched_off_whatever_its_clocks_show() -> None:
    status = attended("0 0 13 * * ?", paused=True)
    assert replace(status, instances=(replace(status.instances[0], clock_differs=7.2),)).state == "switched off"


def test_clocks_are_not_to_blame_if_nobody_could_run_the_job_for_other_reasons() -> None:
    status = attended("0 0 13 * * ?")
    one, two = replace(status.instances[0], lacks=("streams",)), replace(status.instances[0], id="two", ip="10.0.0.8")
    servers = (*status.servers, ServerStatus("10.0.0.8", "host", True, False, 1))
    assert replace(status, instances=(one, two), servers=servers).at(NOON).state != "clock differs"


def test_a_schedule_without_any_moment_which_somebody_wrote_by_hand_never_fires() -> None:
    server = ServerStatus("10.0.0.7", "host", False, False, 1)
    one = InstanceStatus("one", "10.0.0.7", "host", 1, moment(NOON), True, (0,), ())
    config = JobConfig.from_json(b'{"jobName": "report", "cron": "0 0 0 30 2 ?"}', "/report/config")
    status = JobStatus(config, None, "one", True, None, (one,), (server,), ()).at(NOON)
    assert (status.state, status.next_fire) == ("never fires", None)


def test_a_job_whose_moments_are_over_is_finished() -> None:
    assert attended("0 0 0 1 1 ? 2020").state == "finished"
    assert attended("0 0 13 1 1 ? 2026").state == "waiting"
    assert attended("0 0 13 1 1 ? 2026").at(NOON + 3600).state == "finished"
    assert attended(None).state == "waiting"


def test_an_instance_that_has_ended_is_a_gone_holder_and_one_that_is_there_or_nobody_is_none() -> None:
    status = attended(None)
    items = tuple(
        ItemStatus(n, None, holder, None, None, False, False, False, None)
        for n, holder in enumerate(("one", "two", None))
    )
    assert replace(status, items=items).gone_holders == {"two"}
    assert replace(status, items=items, instances=()).gone_holders == {"one", "two"}


def test_handlers_differ_only_if_instances_run_several() -> None:
    (one,) = attended(None).instances
    for handlers, differing in ((("a:f", "a:f", ""), ()), (("b:f", "a:f", ""), ("a:f", "b:f")), ((), ())):
        instances = tuple(replace(one, handler=handler) for handler in handlers)
        assert replace(attended(None), instances=instances).differing_handlers == differing


@simulated
async def test_a_run_that_ends_while_it_is_read_does_not_seem_to_be_cut_off(virtual_cluster: VirtualCluster) -> None:
    app = ElasticJob("zk://somewhere/billing")

    async def work(context: ItemContext) -> None:
        await sleep(0.01)

    app.add(work, name="report", cron="* * * * * ?", sharding_total_count=3)
    await virtual_cluster.start(app)
    await sleep(2)
    end = virtual_cluster.now + timedelta(seconds=10)
    while virtual_cluster.now < end:
        status = await virtual_cluster.status("report")
        found = reasons(status, virtual_cluster.now.timestamp())
        assert [one.kind for one in found] == []
