from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core import strategies
from aioelasticjob.core.strategies import AssignmentInput, assignment_of, find, in_order, java_hash
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.model import Instance

NAMES = ("average", "average-by-name", "odevity", "round-robin", "single-balance", "sticky")


@st.composite
def allotments(draw: st.DrawFn) -> AssignmentInput:
    instances = tuple(f"10.0.0.{n}@-@1" for n in range(draw(st.integers(1, 9))))
    count = draw(st.integers(1, 40))
    holders = st.sampled_from([*instances, "gone@-@9"])
    present = draw(st.dictionaries(st.integers(0, 45), holders))
    return AssignmentInput(draw(st.text(max_size=8)), instances, count, present)


def held(assignment: strategies.Assignment, instances: tuple[str, ...]) -> list[list[int]]:
    return [[item for item, holder in sorted(assignment.items()) if holder == one] for one in instances]


@pytest.mark.parametrize("name", NAMES)
@given(given=allotments())
def test_every_item_goes_to_one_instance_and_shares_differ_by_at_most_one(name: str, given: AssignmentInput) -> None:
    assignment = find(name)(given)
    assert sorted(assignment) == list(range(given.count))
    shares = [len(items) for items in held(assignment, given.instances)]
    assert sum(shares) == given.count
    assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize("name", NAMES)
@given(given=allotments())
def test_a_strategy_is_content_with_its_own_answer(name: str, given: AssignmentInput) -> None:
    assignment = find(name)(given)
    assert find(name)(AssignmentInput(given.job, given.instances, given.count, assignment)) == assignment


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (9, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
        (8, [[0, 1, 6], [2, 3, 7], [4, 5]]),
        (10, [[0, 1, 2, 9], [3, 4, 5], [6, 7, 8]]),
        (2, [[0], [1], []]),
    ],
)
def test_average_gives_runs_and_the_remainder_from_the_first(count: int, expected: list[list[int]]) -> None:
    instances = ("a", "b", "c")
    assert held(strategies.average(AssignmentInput("job", instances, count)), instances) == expected


@given(given=allotments())
def test_average_by_name_divides_as_average_does(given: AssignmentInput) -> None:
    by_name = held(strategies.average_by_name(given), given.instances)
    first = by_name.index(next(filter(lambda items: 0 in items, by_name)))
    assert by_name[first:] + by_name[:first] == held(strategies.average(given), given.instances)


def test_average_by_name_begins_at_the_same_place_in_every_process_and_release() -> None:
    instances = ("a", "b", "c")
    first = [strategies.average_by_name(AssignmentInput(job, instances, 1))[0] for job in ("report", "mail", "分片")]
    assert first == ["c", "a", "b"]


@pytest.mark.parametrize("count", [2, 3, 5, 10, 31, 32])
@pytest.mark.parametrize("name", ["job-{}", "{}-daily", "shop.orders.{:03}"])
def test_a_thousand_jobs_of_one_item_spread_over_all_instances(name: str, count: int) -> None:
    instances = tuple(f"10.0.0.{n}@-@1" for n in range(count))
    jobs = [AssignmentInput(name.format(n), instances, 1) for n in range(1000)]
    held_by = Counter(strategies.find(JobConfig(job_name=job.job).sharding_strategy)(job)[0] for job in jobs)
    fair = 1000 / count
    assert all(fair / 2 < held_by[one] < fair * 2 for one in instances)


def test_odevity_goes_by_the_job_names_hash() -> None:
    instances = ("a", "b", "c")
    assert (java_hash("a") % 2, java_hash("b") % 2) == (1, 0)
    assert held(strategies.odevity(AssignmentInput("a", instances, 2)), instances) == [[0], [1], []]
    assert held(strategies.odevity(AssignmentInput("b", instances, 2)), instances) == [[], [1], [0]]


def test_round_robin_starts_at_the_job_names_hash() -> None:
    instances = ("a", "b", "c")
    assert java_hash("a") % 3 == 1
    assert held(strategies.round_robin(AssignmentInput("a", instances, 3)), instances) == [[2], [0], [1]]


def test_single_balance_spreads_jobs_of_one_item() -> None:
    instances = tuple("abcde")
    first = {strategies.single_balance(AssignmentInput(f"job{n}", instances, 1))[0] for n in range(40)}
    assert first == set(instances)


@given(given=allotments())
def test_sticky_moves_only_what_balance_demands(given: AssignmentInput) -> None:
    assignment = strategies.sticky(given)
    share, extra = divmod(given.count, len(given.instances))
    kept_at_best = sorted((len(items) for items in held(_alive(given), given.instances)), reverse=True)
    possible = sum(min(items, share + (n < extra)) for n, items in enumerate(kept_at_best))
    kept = sum(assignment[item] == holder for item, holder in _alive(given).items())
    assert kept == possible


def _alive(given: AssignmentInput) -> dict[int, str]:
    return {n: who for n, who in given.present.items() if who in given.instances and n < given.count}


def test_the_order_is_by_address_as_a_number() -> None:
    addresses = ("10.0.0.10", "10.0.0.9", "fe80::1", "web-1")
    instances = [Instance(f"{ip}@-@1", ip) for ip in addresses]
    assert in_order(instances) == ("10.0.0.9@-@1", "10.0.0.10@-@1", "fe80::1@-@1", "web-1@-@1")
    assert in_order(instances[::-1]) == in_order(instances)


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), ("abc", 96354), ("polygenelubricants", -(2**31)), ("分片", 680193), ("𐍈", 1771336)]
)
def test_java_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_an_unknown_strategy_is_named_with_the_known_ones() -> None:
    with pytest.raises(InvalidSetting, match=r"sharding_strategy = 'averag': must be one of average, .*sticky"):
        find("averag")


@pytest.mark.parametrize("answer", [{}, {0: "a", 1: "stranger"}, None])
def test_when_a_strategy_fails_items_stay_where_they_are_or_are_spread_evenly(
    answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strategies, "find", lambda _: lambda _: answer)
    given = AssignmentInput("job", ("a", "b"), 2)
    assignment, failure = assignment_of("broken", given)
    assert assignment == strategies.average(given)
    assert failure
    kept = replace(given, present={0: "b", 1: "b"})
    assert assignment_of("broken", kept) == (kept.present, failure)
    for present in ({0: "b"}, {0: "b", 1: "gone"}, {0: "b", 1: "b", 2: "b"}):
        assert assignment_of("broken", replace(given, present=present)) == (strategies.average(given), failure)
