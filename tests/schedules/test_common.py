"""The moments that several schedules have in common."""

from __future__ import annotations

from aioelasticjob.config.following import common_moments
from aioelasticjob.schedules import Schedule, schedule_of
from tests.schedules.made import schedule

SECOND = 1_000


def common(*schedules: Schedule) -> Schedule:
    found = schedule_of(common_moments([one.settings for one in schedules]))
    assert found is not None
    return found


def test_only_moments_that_all_have_are_common() -> None:
    found = common(schedule(every="6s"), schedule(every="4s"))
    assert [found.after(second * SECOND) for second in (0, 11, 12)] == [12_000, 12_000, 24_000]
    assert [found.until(second * SECOND) for second in (11, 12, 23)] == [0, 12_000, 12_000]


def test_a_rare_schedule_and_a_dense_one_meet_at_the_moments_of_the_rare_one() -> None:
    found = common(schedule(every="1s"), schedule("0 0 0 ? * SUN"))
    thursday = 0
    assert found.after(thursday) == 3 * 86_400_000
    assert found.until(9 * 86_400_000) == 3 * 86_400_000


def test_schedules_that_miss_each_other_have_no_common_moment() -> None:
    for one, other in (("0 0 * * * ?", "0 30 * * * ?"), ("0 0 0 30 1 ?", "0 0 0 1 2 ?")):
        found = common(schedule(one), schedule(other))
        assert found.after(0) is None
        assert found.until(10**12) is None
    dense = common(schedule(every="1s"), schedule(every="1s", start_at="2020-01-01T00:00:00.500"))
    assert dense.after(1_600_000_000_000) is None


def test_a_follower_of_equal_schedules_has_that_schedule_without_its_delays() -> None:
    found = common(schedule(every="6s", jitter="3s"), schedule(every="6s"))
    assert found == schedule(every="6s")


def test_common_moments_of_common_moments_are_common_to_all() -> None:
    four_and_six = common(schedule(every="4s"), schedule(every="6s"))
    found = common(four_and_six, schedule(every="5s"))
    assert found.after(0) == 60_000
    assert type(found.settings).of_json(found.settings.as_json()) == found.settings


def test_common_moments_are_described_by_all_schedules() -> None:
    found = common(schedule(every="4s"), schedule("0 0 * * * ?", time_zone="Europe/Berlin"))
    assert found.expression == "every 4s and 0 0 * * * ?"
    assert "Every 4s; " in found.describe()
    assert found.uses_zone
    assert not found.never_fires
