"""Records that a clock ahead has left: they stand, or are lowered, and no moment is lost for them."""

from __future__ import annotations

import logging
from dataclasses import replace
from math import inf

import pytest

from aioelasticjob.core.clock_skew import STEADY, ClockSkewMonitor
from aioelasticjob.core.commands import AnyReport, Report, SayLowered
from aioelasticjob.core.entries import MissedMark
from aioelasticjob.core.future_records import FutureRecords
from aioelasticjob.core.missed import MissedMoments
from aioelasticjob.core.state import SET_BACK, Items
from aioelasticjob.engine.claims import Claims
from aioelasticjob.engine.record_cache import RecordCache
from aioelasticjob.model import ClockReading, Record
from aioelasticjob.testing import simulated
from tests.core.cases import ME, OTHER, Case
from tests.core.test_clock_skew import Setting
from tests.engine.test_claims import CRON, ClaimedJob, done
from tests.engine.test_dates import slot


def test_nothing_is_claimed_of_the_future_though_it_is_not_certain_yet_that_the_clock_was_put_right() -> None:
    @simulated
    async def test() -> None:
        here = Setting(sharding_total_count=1)
        await here.open(workers=2)
        await here.until(23.5)
        (holder,) = [one for one in here.cluster.instances if await one.holds()]
        holder.kill()
        await here.until(29)
        here.off = 3600
        await here.until(34.3)  # the other one leads now, and is given the item at 34.5
        here.off = 0
        await here.until(60)
        assert max(here.runs) < 60
        assert {*here.runs, *here.reported()} >= set(range(20, 60))
        await here.cluster.close()

    test()


def test_a_record_is_lowered_to_what_was_run_here_if_that_was_not_by_the_clock_that_was_ahead() -> None:
    job, now = ClaimedJob(1), 1_010_500
    items = Items()
    items[0].reported = now - 1000
    cache = RecordCache(job.member, lambda: inf, items)
    job.elsewhere(0, Record(now + 3_600_000, "CRON", "other", 1, 1, 0, completed=True), running=False)
    done(cache.learn([0]))
    reports = list[AnyReport]()
    clock = ClockSkewMonitor(ClockReading(now / 1000 - 9, 0))
    ahead = FutureRecords(clock, MissedMoments(clock, items, reports), items, reports)
    ahead.find([0], now)
    assert ahead.lower(job.view(), [0]) == {0}
    assert reports == [SayLowered(0, now + 3_600_000, now - 1000)]
    assert cache.items[0].record.slot == items[0].reported == now - 1000


def test_a_run_that_was_cut_off_is_reported_for_the_moment_that_was_claimed_though_its_record_was_lowered() -> None:
    job, now = ClaimedJob(1), 1_010_500
    claimed, items, reports = now + 3_600_000, Items(), list[AnyReport]()
    cache = RecordCache(job.member, lambda: inf, items)
    job.elsewhere(0, Record(claimed, "CRON", "other", begun=1, completed=False), running=False)
    done(cache.learn([0]))
    clock = ClockSkewMonitor(ClockReading(now / 1000 - 9, 0))
    missed = MissedMoments(clock, items, reports)
    ahead = FutureRecords(clock, missed, items, reports)
    ahead.find([0], now)
    assert ahead.lower(job.view(), [0]) == {0}
    job.claims = Claims(job.member, cache)
    missed.report_lost_runs(job.claim(replace(CRON, slot=now - 500)).cut_off)
    (report,) = (one for one in reports if isinstance(one, Report))
    assert (report.items, report.cut_off) == ((0,), "other")
    assert (report.passed.first, report.passed.last) == (claimed, claimed)


def test_an_item_that_was_made_by_a_clock_an_hour_ahead_owes_what_comes_between_two_holders() -> None:
    @simulated
    async def test() -> None:
        here = Setting(sharding_total_count=1)
        await here.open(off=3600)
        await here.until(6.03)
        here.off = 0
        await here.until(20)
        await here.cluster.start(here.app)
        await here.until(30.5)
        (holder,) = [one for one in here.cluster.instances if await one.holds()]
        holder.kill()
        await here.until(60)
        assert {*here.runs, *here.reported()} >= set(range(17, 60))
        assert len(here.runs.keys() & range(44, 60)) == 16
        await here.cluster.close()

    test()


def test_an_item_owes_what_comes_after_a_record_written_before_the_date_at_which_it_was_made() -> None:
    @simulated
    async def test() -> None:
        here = Setting(cron="0/5 * * * * ?", sharding_total_count=1)
        await here.open(off=31)
        await here.until(1.03)
        here.off = 0
        await here.until(20.5)
        assert set(here.runs) == {10, 15, 20}
        (holder,) = here.cluster.instances
        await here.cluster.start(here.app)
        holder.kill()
        await here.until(60)
        assert {*here.runs, *here.reported()} >= set(range(15, 60, 5))
        await here.cluster.close()

    test()


def test_a_record_that_claims_more_than_a_minute_is_lowered_and_its_moment_not_run_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "aioelasticjob.engine.driver")

    @simulated
    async def test() -> None:
        here = Setting(misfire=True)
        await here.open(off=90)
        await here.until(6.03)
        here.off = 0
        await here.until(120)
        assert {*here.runs, *here.reported()} >= set(range(7, 120))
        assert all(here.now() > second for second in here.runs)
        claimed = max(second for second, runs in here.runs.items() if runs[0] < 10)
        assert [len(here.runs[second]) for second in (claimed - 1, claimed, claimed + 1)] == [2, 1, 1]
        assert [round(here.runs[second][-1]) for second in range(20, claimed)] == list(range(20, claimed))
        (message,) = (line for line in map(logging.LogRecord.getMessage, caplog.records) if "was claimed up to" in line)
        assert message.startswith(
            "job: item 0 was claimed up to 2026-01-01T00:01:36+00:00, because the registry's clock was ahead.  "
            "Now it counts as claimed up to 2026-01-01T00:0"
        )
        assert message.endswith("the moment claimed is not run again, others up to it may run twice")
        await here.cluster.close()

    test()


def test_a_record_is_believed_though_the_clock_has_just_been_an_hour_back() -> None:
    @simulated
    async def test() -> None:
        here = Setting(cron="0/5 * * * * ?", sharding_total_count=3)
        await here.open(workers=3)
        await here.until(29.5)
        here.off = -3600  # which the claims of the moment at 30 are dated by, and nobody knows of yet
        await here.until(34.1)
        here.off = 0  # which nobody knows of yet, either
        await here.cluster.instances[0].stop()  # its item is given to another, who reads the record
        await here.until(50)
        late = here.runs.pop(30)
        assert {second: len(runs) for second, runs in here.runs.items()} == dict.fromkeys(
            (*range(5, 30, 5), *range(35, 50, 5)), 3
        )
        assert len(late) + len(here.reported()[30]) == 3, "run when the clock shows the moment, or reported"
        await here.cluster.close()

    test()


def test_an_item_that_comes_back_with_a_mark_has_missed_nothing_before_what_the_mark_says() -> None:
    case = Case.of()
    state = case.state()
    case.see(state)
    case.claim(state, frozenset({0}), slot(3))
    case.settle(state, frozenset({0}))
    state.items.ran([0], slot(3))
    case.now, case.ahead = 3.5, 20.0
    case.configure(cron="0/2 * * * * ?")  # dated 23.5; this instance does not notice that the clock is ahead
    case.ahead = 0.0
    case.see(state)
    for case.now, claimed in [(11.0, 30), (13.0, 32)]:
        case.give(0, OTHER)
        case.see(state)
        case.records[0] = Record(slot(claimed), "CRON", OTHER, completed=True)
        case.give(0, ME)
        case.see(state)
    assert case.reported() == [(4, 22, SET_BACK)]
    assert case.marks[0].since == slot(3)


def test_a_mark_that_a_clock_ahead_has_dated_does_not_keep_an_item_from_running() -> None:
    """The clock was ahead, was set back but not far enough, and was right again before this instance came up."""
    case = Case.of()
    case.records[0] = Record(slot(7200), "CRON", OTHER, completed=True)
    case.marks[0] = MissedMark(slot(7200), slot(3600), zxid=case.zxid)
    case.now = 60.5
    state = case.state()
    case.see(state)
    case.now += STEADY
    case.see(state)
    case.now += 2
    case.see(state)
    assert state.items[0].record.slot <= slot(case.now)
    assert state.claimable() == {0}
