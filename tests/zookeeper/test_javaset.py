"""Names in the order of Java's hash sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.zookeeper.javaset import JavaSet, spread, string_hash


def filled(names: list[str], buckets: int = 16) -> JavaSet:
    names_set = JavaSet(buckets)
    for name in names:
        names_set.add(name)
    return names_set


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("zookeeper", 1600681804), ("ü", 252), ("\U0001f600", 1772899), ("Aa", 2112), ("BB", 2112)],
)
def test_hash_codes_are_those_of_java(text: str, expected: int) -> None:
    assert string_hash(text) == expected


@given(st.text(alphabet=st.characters(exclude_categories=[]), max_size=600))
def test_long_names_hash_as_horner_has_it(text: str) -> None:
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) % 2**32
    assert string_hash(text) == value


def test_high_bits_reach_the_buckets() -> None:
    assert spread(0x1_0000) == 0x1_0001
    assert spread(-1) == 0xFFFF_0000


def test_names_are_read_by_bucket_and_within_one_by_age() -> None:
    assert filled(["b", "BB", "a", "Aa"]).ordered() == ["BB", "Aa", "a", "b"]


def test_a_grown_table_stays_large() -> None:
    names = [chr(code) for code in range(ord("z"), ord("p"), -1)]
    grown = filled(names, 8)
    for name in names[2:]:
        del grown[name]
    assert grown.buckets == 16
    assert filled(["z", "y"], 8).ordered() == ["y", "z"]
    assert grown.ordered() == ["y", "z"]


def test_a_table_grows_when_three_quarters_are_full() -> None:
    assert filled([str(number) for number in range(6)], 8).buckets == 8
    assert filled([str(number) for number in range(7)], 8).buckets == 16


def test_a_copy_is_read_as_tightly_as_it_is_packed() -> None:
    # "p" is 112 and "b" is 98: far apart in a table that once was large, neighbours in one of four buckets.
    assert filled(["p", "b"], 256).ordered() == ["b", "p"]
    assert filled(["p", "b"], 256).ordered_as_copy() == ["p", "b"]
    assert JavaSet().ordered_as_copy() == []


def test_what_is_put_back_is_where_it_was() -> None:
    names = filled(["Aa", "BB", "a"])
    before, added = names.ordered(), names["Aa"]
    del names["Aa"]
    names.put_back("Aa", added)
    assert names.ordered() == before
    assert list(names) == ["Aa", "BB", "a"]
