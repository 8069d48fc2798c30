from __future__ import annotations

from aioelasticjob.ground.repeat_limit import RepeatLimit


def test_so_many_are_admitted_about_each_subject_and_about_all_together() -> None:
    limit = RepeatLimit(60, since=0)
    asked = ["a", "a", "b", "a", "b", "c", "d"]
    assert [limit.admits(one, each=2, most=5) for one in asked] == [True, True, True, False, True, True, False]
    assert limit.is_full(5)
    assert limit.take_left_out() == {"a": 1, "d": 1}
    assert (limit.left_out, limit.take_left_out()) == (0, {})


def test_a_new_interval_admits_again_and_keeps_the_count_of_what_was_left_out() -> None:
    limit = RepeatLimit(60, since=0)
    assert [limit.admits("a", most=1) for _ in range(3)] == [True, False, False]
    assert not limit.renew(59)
    assert not limit.admits("a", most=1)
    assert limit.renew(60)
    assert limit.end == 120
    assert limit.admits("a", most=1)
    assert limit.left_out == 3


def test_what_is_left_out_for_another_reason_is_counted_as_well() -> None:
    limit = RepeatLimit(60)
    limit.leave_out("a")
    limit.leave_out("b", 4)
    assert limit.left_out == 5
    assert limit.renew(0)
    assert limit.admits("a", most=1)
