"""Why a job needs a person: rules over its status and its newest runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aioelasticjob.config.job import JobConfig
from aioelasticjob.console.watching.health import health_of
from aioelasticjob.console.watching.instance_log import InstanceLog, Rescue
from aioelasticjob.core.pauses import Pause
from aioelasticjob.core.reasons import BUSY, GONE, NO_INSTANCE_UP, UNSETTLED
from aioelasticjob.ground.times import moment
from aioelasticjob.model import GIVEN_UP, Owing, Record
from aioelasticjob.observers.missed import Count, MissedMoments
from aioelasticjob.operations import ActiveRun, JobStatus
from aioelasticjob.operations.attention import (
    ENDED_AFTER,
    LONG_RUN,
    RESTART_LIMIT,
    SETTLE_LIMIT,
    SEVERITY,
    Seen,
    changes_at,
    excused_of,
    is_restarting,
)
from aioelasticjob.operations.error_groups import ErrorGroup
from aioelasticjob.operations.observed_runs import ObservedRun
from tests.console.samples import INSTANCES, NOW, ended, item, reasons, status


def _runs(*outcomes: str, item: int = 0) -> list[ObservedRun]:
    begun = [int((NOW - 60 * (len(outcomes) - n)) * 1000) for n in range(len(outcomes))]
    return [
        ObservedRun(item, at, at + 500, "SCHEDULE", outcome, "") for at, outcome in zip(begun, outcomes, strict=True)
    ]


def test_a_job_whose_newest_run_failed_is_failing_since_the_first_failure_of_the_streak() -> None:
    runs = _runs("failed", "completed", "failed", "timed out", "failed")
    last = replace(ended("failed", NOW), begun=runs[-1].begun)
    found = reasons(status("report", (item(0, record=last),), now=NOW), runs)
    assert [(one.kind, one.values["streak"], one.since) for one in found] == [("failing", 3, runs[2].begun / 1000)]
    health = health_of(status("report", (item(0, record=last),), now=NOW), found)
    assert (health.group, health.colour, health.word, health.fires) == ("attention", "bad", "failing", True)


@pytest.mark.parametrize("before", [(), ("completed",), ("misfired",)])
def test_failures_are_counted_exactly_only_if_the_success_before_them_is_known(before: tuple[str, ...]) -> None:
    runs = _runs(*before, "failed", "failed")
    last = replace(ended("failed", NOW), begun=runs[-1].begun)
    found, *_ = reasons(status("report", (item(0, record=last),), now=NOW), runs)
    least = "" if before == ("completed",) else "at least "
    assert found.sentence == f"failing, {least}{{streak}} in a row (items: {{items}})"
    assert found.values == {"items": "0", "streak": 2}


def test_a_job_that_fails_now_and_then_stays_with_those_that_need_attention_when_a_run_succeeds() -> None:
    good = item(0, record=ended("completed", NOW))
    now_and_then = _runs(*["completed", "completed", "failed"] * 4, "completed")
    (found,) = reasons(status("report", (good,), now=NOW), now_and_then)
    assert (found.kind, found.values) == ("unreliable", {"failed": 4, "runs": 13})
    assert reasons(status("report", (good,), now=NOW), _runs("failed", *["completed"] * 19)) == ()  # once is no rate
    assert reasons(status("report", (good,), now=NOW), _runs("failed", "failed", *["completed"] * 20)) == ()  # long ago


def test_a_job_that_fails_does_not_look_well_while_it_runs() -> None:
    runs = _runs("completed", "failed", "failed")
    under_way = replace(ended("", NOW), completed=False, completed_at=runs[-1].ended)
    run = ActiveRun(INSTANCES[0], moment(NOW))
    (found,) = reasons(status("report", (item(0, record=under_way, run=run),), now=NOW), runs)
    assert (found.kind, found.values["streak"]) == ("failing", 2)
    assert reasons(status("report", (item(0, record=under_way, run=run),), now=NOW), _runs("failed", "completed")) == ()


def test_the_errors_behind_failures_are_shown_with_count_and_streak_the_most_frequent_first() -> None:
    runs = _runs("failed", "failed", "completed", "failed", "failed")
    began = [run.begun / 1000 for run in runs]
    last = replace(ended("failed", NOW), begun=runs[-1].begun)
    known = ErrorGroup("KeyError", "a.py, f", began[0], "r4", ((0, began[4]), (0, began[1]), (0, began[0])))
    other = ErrorGroup("OSError", "b.py, g", began[3], "r3", ((0, began[3]),))
    (found,) = reasons(status("report", (item(0, record=last),), now=NOW), runs, errors=(other, known))
    assert [(one.group.kind, one.group.count.number, one.streak.number) for one in found.errors] == [
        ("KeyError", 3, 1),
        ("OSError", 1, 1),
    ]
    assert found.details == {"KeyError · a.py, f": began[0], "OSError · b.py, g": began[3]}


def test_a_run_that_somebody_has_stopped_is_no_failure() -> None:
    stopped = status("report", (item(0, record=ended("stopped", NOW)),), now=NOW)
    assert reasons(stopped, _runs("completed", "stopped", "stopped")) == ()


def _missed(number: int, why: str = BUSY, *, at: float = NOW, is_least: bool = False) -> MissedMoments:
    return MissedMoments(Count(number, is_least), why, at, at)


def test_missed_moments_are_counted_by_moments_and_need_attention_until_that_has_ended_by_itself() -> None:
    well = status("report", (item(0, record=ended("completed", NOW + 1)),), now=NOW)
    (found,) = reasons(well, [], missed=(_missed(3), _missed(16, at=NOW - 60, is_least=True)), now=NOW + 299)
    assert (found.kind, found.sentence) == ("misfiring", "missed moments: at least {count}")
    assert (found.values, found.since) == ({"count": 19}, NOW - 60)
    assert reasons(well, [], missed=(_missed(3),))[0].sentence == "missed moments: {count}"
    assert reasons(well, [], missed=(_missed(3),), now=NOW + ENDED_AFTER) == ()
    since_then_none = status("report", (item(0, record=ended("completed", NOW - 1)),), now=NOW)
    assert [one.kind for one in reasons(since_then_none, [], missed=(_missed(3),), now=NOW + 3000)] == ["misfiring"]
    unmonitored = status("report", (item(0),), now=NOW, monitor_execution=False)
    assert reasons(unmonitored, [], missed=(_missed(3),), now=NOW + ENDED_AFTER) == ()
    assert changes_at(well, NOW, Seen(missed=(_missed(3),))) == NOW + ENDED_AFTER


def test_a_reader_that_looks_once_finds_the_moments_that_the_records_report_as_missed() -> None:
    at = int(NOW * 1000)
    owing = (Owing("x", at, at - 9000, at - 5000, 3, BUSY), Owing("x", at, at - 4000, at - 4000, 1, BUSY))
    owes = item(0, record=replace(ended("completed", NOW), owing=owing))
    (found,) = reasons(status("report", (owes, replace(owes, item=1)), now=NOW), [])
    assert (found.kind, found.values) == ("misfiring", {"count": 8})


def test_moments_that_were_missed_during_an_announced_restart_are_no_fault_and_those_after_a_crash_are() -> None:
    why = GONE.format(INSTANCES[1])
    plain = status("report", (item(0),), now=NOW)
    announced = replace(plain, left_at=moment(NOW - 20))
    for reason in (why, NO_INSTANCE_UP, UNSETTLED):
        assert reasons(announced, [], missed=(_missed(2, reason),)) == ()
        assert [one.kind for one in reasons(plain, [], missed=(_missed(2, reason),))] == ["misfiring"]
    seen = {"missed": (_missed(2, why), _missed(1, why, at=NOW + 600)), "departures": (NOW - 20,)}
    again = replace(plain, left_at=moment(NOW + 590))  # the registry keeps only the newest departure
    assert reasons(again, [], now=NOW + 600, **seen) == ()
    both = (_missed(2, why), _missed(5, BUSY))
    (busy,) = reasons(announced, [], missed=both)  # that has nothing to do with it
    assert busy.values == {"count": 5}
    assert excused_of(announced, Seen(missed=both)) == Count(2)
    too_long = replace(plain, left_at=moment(NOW - RESTART_LIMIT - 1))
    assert [one.kind for one in reasons(too_long, [], missed=(_missed(2, why),))] == ["misfiring"]


def test_nobody_is_missed_while_the_last_instance_restarts_and_nobody_there_is_the_worst_afterwards() -> None:
    alone = status("report", (item(0, record=ended("failed", NOW)),), now=NOW, instances=())
    left = replace(alone, left_at=moment(NOW))
    assert [one.kind for one in reasons(alone, [])] == ["nobody there", "failing"]
    assert [one.kind for one in reasons(left, [], now=NOW + RESTART_LIMIT - 0.1)] == ["failing"]
    assert changes_at(left, NOW) == NOW + RESTART_LIMIT
    assert [one.kind for one in reasons(left, [], now=NOW + RESTART_LIMIT)] == ["nobody there", "failing"]
    calm = replace(left, items=(item(0),))
    health = health_of(calm, reasons(calm, []), restarting=is_restarting(calm, NOW))
    assert (health.group, health.word, health.fires) == ("waiting", "restarting", False)


def test_moments_that_come_while_a_stream_runs_are_no_fault() -> None:
    stream = status("flow", (item(0),), now=NOW, job_type="DATAFLOW", streaming=True)
    assert reasons(stream, [], missed=(_missed(2, BUSY),)) == ()
    assert [one.kind for one in reasons(stream, [], missed=(_missed(2, NO_INSTANCE_UP),))] == ["misfiring"]


def test_runs_that_begin_late_again_and_again_need_attention_and_one_does_not() -> None:
    good = status("report", (item(0, record=ended("completed", NOW)),), now=NOW)
    late = [replace(run, source="MISFIRE") for run in _runs("completed", "completed")]
    (found,) = reasons(good, [*_runs(*["completed"] * 3), *late])
    assert (found.kind, found.values) == ("behind", {"late": 2, "runs": 5})
    assert reasons(good, late[:1]) == reasons(good, [*late, *_runs(*["completed"] * 19)]) == ()


def test_the_worst_reason_comes_first_from_what_runs_nothing_to_what_goes_wrong_at_times() -> None:
    assert list(SEVERITY) == list(dict.fromkeys(SEVERITY))
    order = ("nobody there", "failing", "late", "misfiring", "unreliable")
    assert sorted(order, key=SEVERITY.index) == list(order)
    open_end = replace(ended("", NOW - 60), completed=False, completed_at=int(NOW - 3600) * 1000)
    bad = status("report", (item(0, record=ended("failed", NOW)), item(1, record=open_end)), now=NOW)
    assert [one.kind for one in reasons(bad, [], missed=(_missed(1),))] == ["failing", "cut off", "misfiring"]
    assert [one.severity for one in reasons(bad, [])] == [SEVERITY.index("failing"), SEVERITY.index("cut off")]


def test_failures_that_come_and_go_have_ended_when_the_newer_half_of_the_recent_runs_has_none() -> None:
    good = status("report", (item(0, record=ended("completed", NOW)),), now=NOW)
    assert reasons(good, _runs(*["failed"] * 9, *["completed"] * 10)) != ()  # not enough to tell
    assert reasons(good, _runs(*["failed"] * 9, "failed", *["completed"] * 10)) == ()
    assert reasons(good, _runs(*["failed"] * 9, "completed", "failed", *["completed"] * 9)) != ()


def test_what_else_needs_attention_and_what_does_not() -> None:
    plain = status("report", (item(0),), now=NOW)
    assert reasons(plain, []) == ()
    assert [one.kind for one in reasons(status("report", (item(0),), now=NOW, instances=()), [])] == ["nobody there"]
    lacking = replace(plain, instances=tuple(replace(one, lacks=("streams",)) for one in plain.instances))
    assert [one.kind for one in reasons(lacking, [])] == ["nobody able"]
    assert [one.kind for one in reasons(replace(plain, fault="no cron"), [])] == ["refused"]
    config = JobConfig.from_json(b'{"jobName": "report", "cron": "0 0 0 30 2 ?"}', "/report/config")
    never = replace(plain, config=config, next_fire=None)
    assert [one.kind for one in reasons(never, [])] == ["never fires"]
    cut_off = status("report", (item(0, orphaned=True), item(1, record=ended(GIVEN_UP, NOW))), now=NOW)
    assert [one.kind for one in reasons(cut_off, [])] == ["given up", "cut off"]
    assert reasons(replace(plain, settled=False), [], SETTLE_LIMIT - 1) == ()
    assert [one.kind for one in reasons(replace(plain, settled=False), [], SETTLE_LIMIT)] == ["not converging"]


@pytest.mark.parametrize(
    ("settings", "what"), [({"monitor_execution": False}, "runs"), ({"job_type": "DATAFLOW"}, "records")]
)
def test_failures_that_only_the_counts_of_the_servers_tell_need_attention(settings: dict[str, Any], what: str) -> None:
    def counted(succeeded: int, failed: int, **traits: Any) -> JobStatus:
        plain = status("report", (item(0),), now=NOW, **traits)
        servers = tuple(replace(one, succeeded=succeeded, failed=failed) for one in plain.servers)
        return replace(plain, servers=servers)

    (lost,) = reasons(counted(0, 1, **settings), [], errors=(ErrorGroup("OSError", "a.py, f", NOW, "r1", ((0, NOW),)),))
    assert (lost.kind, lost.sentence) == ("failing", f"{{failed}} of {{total}} {what} failed in the last interval")
    assert (lost.values, lost.details, len(lost.errors)) == ({"failed": 1, "total": 1}, {"OSError · a.py, f": NOW}, 1)
    assert [one.kind for one in reasons(counted(90, 10, **settings), [])] == ["unreliable"]
    assert reasons(counted(91, 9, **settings), []) == ()
    assert reasons(counted(5, 0, **settings), []) == reasons(counted(0, 0, **settings), []) == ()
    assert reasons(counted(0, 5), []) == ()  # of other jobs the records tell more


def test_the_records_of_a_job_that_is_not_monitored_any_more_tell_nothing_of_its_present_runs() -> None:
    old = item(0, record=ended("failed", NOW - 86_400))
    assert [one.kind for one in reasons(status("report", (old,), now=NOW), _runs("failed"))] == ["failing"]
    for outcome in ("failed", "misfired"):
        assert reasons(status("report", (old,), now=NOW, monitor_execution=False), _runs(outcome)) == ()


def test_a_run_that_was_cut_off_needs_attention_until_the_next_one_also_if_nobody_rescues_it() -> None:
    open_end = replace(ended("", NOW - 60), completed=False, completed_at=int(NOW - 3600) * 1000)
    run = ActiveRun(INSTANCES[0], moment(NOW))
    (found,) = reasons(status("report", (item(0), item(1, record=open_end)), now=NOW), [])
    assert (found.kind, found.values, found.since) == ("cut off", {"items": "1"}, NOW - 60)
    assert found.details == {"1": NOW - 60}
    assert reasons(status("report", (item(1, record=open_end, run=run),), now=NOW), []) == ()
    assert reasons(status("report", (item(1, record=open_end),), now=NOW, monitor_execution=False), []) == ()
    off = status("report", (item(0), item(1, record=open_end, disabled=True)), now=NOW)
    assert reasons(off, []) == ()  # it has no next run that would end this
    (waits,) = reasons(status("report", (item(1, record=open_end, orphaned=True),), now=NOW), [])
    assert waits.sentence == "cut off and waiting for a rescuer (items: {items})"
    items = item(0, orphaned=True), item(1, record=open_end), item(2, record=open_end, orphaned=True), item(3)
    (both,) = reasons(status("report", items, now=NOW), [])
    assert both.sentence == "the last run was cut off (items: {items}; waiting for a rescuer: {orphans})"
    assert (both.values, both.since) == ({"items": "0, 1, 2", "orphans": "0, 2"}, NOW - 60)
    assert both.details == {"0": None, "1": NOW - 60, "2": None}


def test_requests_that_the_registry_refuses_need_attention_since_the_first_refusal() -> None:
    plain = status("report", (item(0),), now=NOW, instances=INSTANCES[:2])
    first, second = plain.instances
    refused = replace(first, refused=(("to settle items", "the quota is used up", NOW - 60),))
    (found,) = reasons(replace(plain, instances=(refused, second)), [])
    assert (found.kind, found.since, found.values["instances"]) == ("writes refused", NOW - 60, 1)
    assert found.details == {"to settle items: the quota is used up": NOW - 60}
    assert health_of(plain, (found,)).word == "writes refused"


def test_processes_that_cannot_use_what_others_use_need_attention() -> None:
    plain = status("report", (item(0),), now=NOW, instances=INSTANCES[:2])
    first, second = (replace(one, unusable="there is no such time zone") for one in plain.instances)
    (found,) = reasons(replace(plain, instances=(first, plain.instances[1])), [])
    assert (found.kind, found.values["instances"], found.values["why"]) == ("unusable here", 1, first.unusable)
    assert health_of(plain, (found,)).word == "unusable here"
    nobody = reasons(replace(plain, instances=(first, second)), [])
    assert [one.kind for one in nobody] == ["nobody able", "unusable here"]


@pytest.mark.parametrize(
    ("settings", "long_after"),
    [
        ({"cron": "0/10 * * * * ?"}, LONG_RUN),
        ({"cron": "0 0/20 * * * ?"}, LONG_RUN),
        ({"cron": "0 20 * * * ?"}, 3603.2),
        ({"cron": "0/10 * * * * ?", "timeout": 1.0}, LONG_RUN),
        ({"cron": "0/10 * * * * ?", "timeout": 7200.0}, 7200.0),
        ({"cron": "0/10 * * * * ?", "job_type": "DATAFLOW", "streaming": True}, None),
        ({"cron": None}, None),
        ({"cron": "0 20 8 15 1 ? 2027"}, None),  # no moment follows
        ({"cron": "0 20 8 15 1 ? 2099"}, None),  # no moment has come
    ],
)
def test_a_run_that_goes_on_although_the_next_fire_has_come_needs_attention(
    settings: dict[str, Any], long_after: float | None
) -> None:
    begun = 1_800_001_196.8  # before 2027-01-15 08:20 UTC: claims are sent early, and the registry's clock is behind
    older, newer = (ActiveRun(INSTANCES[0], moment(at)) for at in (begun, begun + (long_after or 0)))
    record = replace(ended("", begun), slot=1_800_001_200_000, completed=False)
    items = item(0), item(4, run=older, record=record), item(5, run=newer, record=record)
    busy = status("report", items, now=begun, **settings)
    if long_after is None:
        assert reasons(busy, [], now=begun + 10**7) == ()
        return
    assert reasons(busy, [], now=begun + long_after - 0.001) == ()
    (found,) = reasons(busy, [], now=begun + long_after + 0.001)
    assert (found.kind, found.values, found.since) == ("running long", {"items": "4"}, begun)
    assert found.details == {"4": begun}
    health = health_of(busy, (found,))
    assert (health.group, health.colour, health.word, health.fires) == ("attention", "warn", "running long", True)
    failed = replace(busy, items=(item(0, record=ended("failed", begun)), *busy.items[1:]))
    assert [one.kind for one in reasons(failed, [], now=begun + long_after + 0.001)] == ["failing", "running long"]


@pytest.mark.parametrize(
    ("settings", "is_known"),
    [
        ({}, True),
        ({"cron": "0 0 0 1 1 ?"}, True),  # its next moment is far away
        ({"timeout": None}, False),
        ({"items_at_once": 1}, False),  # it may have waited for others
        ({"job_type": "DATAFLOW", "streaming": True, "cron": "0/10 * * * * ?"}, False),
    ],
)
def test_a_run_whose_timeout_is_long_over_needs_attention_also_if_no_further_moment_comes(
    settings: dict[str, Any], is_known: bool
) -> None:
    first, second = (ActiveRun(INSTANCES[0], moment(NOW + at)) for at in (0, 1))
    busy = status("report", (item(0), item(4, run=first), item(5, run=second)), now=NOW, **{"timeout": 7200} | settings)
    due = NOW + 7200 + LONG_RUN
    assert changes_at(busy, NOW) == (due if is_known else None)
    assert changes_at(busy, due) == (due + 1 if is_known else None)
    assert changes_at(busy, due + 1) is None
    if not is_known:
        assert reasons(busy, [], now=due + 10**6) == ()
        return
    assert reasons(busy, [], now=due - 0.001) == ()
    (found,) = reasons(busy, [], now=due)
    assert found.sentence == "still running, although its timeout is long over (items: {items})"
    assert (found.kind, found.values, found.since) == ("running long", {"items": "4"}, NOW)
    assert reasons(busy, [], now=due + 1)[0].values == {"items": "4, 5"}


def test_a_moment_that_has_not_ended_or_begun_in_time_needs_attention() -> None:
    def late(at: float, record: Record, **settings: Any) -> list[tuple[object, ...]]:
        config = JobConfig.build(job_name="report", cron="0 0 * * * ?", **settings)
        one = replace(status("report", (item(0, record=record),), now=at), config=config)
        return [(found.kind, found.sentence, found.since) for found in reasons(one, [], now=at) if found.kind == "late"]

    came = NOW - NOW % 3600
    slot = int(came * 1000)
    running = Record(slot=slot, begun=slot, accounted=slot, completed=False)
    before = Record(slot=slot - 3_600_000, begun=1, accounted=slot - 3_600_000, outcome="completed")
    ended_late = "has not ended within {seconds} s after its moment (items: {items})"
    begun_late = "has not begun within {seconds} s after its moment (items: {items})"
    assert late(came + 599, running, must_end_within="10m") == []
    assert late(came + 600, running, must_end_within="10m") == [("late", ended_late, came)]
    assert late(came + 600, running, must_start_within="10m") == []
    assert late(came + 600, before, must_start_within="10m") == [("late", begun_late, came)]
    config = JobConfig.build(job_name="report", cron="0 0 * * * ?", must_end_within="10m")
    waiting = replace(status("report", (item(0, record=running),), now=came), config=config)
    assert changes_at(waiting, came) == came + 600


def test_clocks_because_of_which_runs_are_refused_need_attention_and_if_all_differ_nobody_runs_the_next_fire() -> None:
    plain = status("report", (item(0),), now=NOW, instances=INSTANCES, cron="* * * * * ?")
    first, second, third = plain.instances
    off = replace(first, clock_differs=7.2), replace(second, clock_differs=-9.5, host="web2")
    some = replace(plain, instances=(*off, third)).at(NOW)
    (found,) = reasons(some, [])
    assert (found.kind, found.values) == ("clock differs", {"host": "web2", "seconds": 9.5, "instances": 2})
    assert found.details == {"host": None, "web2": None}  # that of another host is another reason
    health = health_of(some, (found,))
    assert (health.group, health.colour, health.word, health.fires) == ("attention", "bad", "clock differs", True)
    servers = *plain.servers[:1], replace(plain.servers[1], disabled=True, flagged_at=(moment(NOW),)), plain.servers[2]
    assert [one.values["host"] for one in reasons(replace(some, servers=servers), [])] == ["host"]
    incapable = replace(some, instances=(*(replace(one, lacks=("streams",)) for one in off), third))
    assert reasons(incapable, []) == ()  # they run nothing anyway
    all_of_them = replace(plain, instances=(*off, replace(third, clock_differs=0.0))).at(NOW)
    (found,) = reasons(all_of_them, [])
    assert found.values["instances"] == 3
    health = health_of(all_of_them, (found,))
    assert (health.group, health.word, health.fires) == ("attention", "clock differs", False)
    paused = status("report", (item(0),), now=NOW, paused=True)
    assert reasons(replace(paused, instances=(replace(paused.instances[0], clock_differs=7.2),)), []) == ()


@pytest.mark.parametrize("whole", [True, False])
def test_a_job_that_was_switched_off_on_purpose_needs_no_attention_and_fires_nothing(whole: bool) -> None:
    off = status("report", (item(0, record=ended("failed", NOW)),), now=NOW, paused=not whole, cron="* * * * * ?")
    off = replace(off, pause=Pause(NOW) if whole else None)
    found = reasons(off, _runs("failed", "failed"))
    assert found == ()
    health = health_of(off, found)
    assert (health.group, health.word, health.fires) == ("off", "switched off", False)


def test_processes_that_have_left_gracefully_are_told_from_those_that_are_killed() -> None:
    log = InstanceLog()
    three = status("report", (item(0),), now=NOW, instances=INSTANCES)
    instances = tuple(replace(one, pid=number) for number, one in enumerate(three.instances))
    before = moment(NOW - 60)  # another one has left
    log.update([replace(three, instances=instances, left_at=before)], NOW)
    log.update([replace(three, instances=instances[1:], left_at=moment(NOW + 1))], NOW + 1)
    log.update([replace(three, instances=instances[2:], left_at=moment(NOW + 1))], NOW + 2)
    assert [one.announced for one in log.gone] == [True, False]
    assert list(log.departures["report"]) == [NOW - 60, NOW + 1]


def test_processes_that_go_are_remembered_and_those_in_a_run_are_marked() -> None:
    log = InstanceLog()
    busy = status("report", (item(0),), now=NOW, instances=INSTANCES[:2])
    first, second = (replace(one, pid=number) for number, one in enumerate(busy.instances))
    running = replace(busy, instances=(replace(first, runs=(0,)), second))
    other = status("other", (item(0),), now=NOW)
    other = replace(other, instances=(replace(first, id="of the other job"), replace(second, id="of it, too")))
    log.update([running, other], NOW)
    assert len(log.there) == 2  # a process has an instance of each of its jobs
    log.update([replace(running, instances=()), other], NOW + 1)
    assert not log.gone  # they have only left one of them
    log.update([], NOW + 1)
    assert [(one.at, one.cut_off) for one in log.gone] == [(NOW + 1, False), (NOW + 1, False)]
    assert log.rescue is None
    for begun in (NOW, NOW + 5, NOW + 2):
        log.update([status("report", (item(3, record=replace(ended("", begun), source="FAILOVER")),), now=NOW)], NOW)
    assert log.rescue == Rescue("report", 3, NOW + 5)
