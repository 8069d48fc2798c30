"""The wire's encoding, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.zookeeper.jute import INT, LONG, MalformedError, Reader, pack_buffer, pack_string, pack_strings

text = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))


@given(st.none() | text)
def test_a_string_comes_back(value: str | None) -> None:
    assert Reader(pack_string(value)).string() == value


@given(st.none() | st.binary())
def test_a_buffer_comes_back(value: bytes | None) -> None:
    assert Reader(pack_buffer(value)).buffer() == value


@given(st.lists(text))
def test_a_vector_of_strings_comes_back(values: list[str]) -> None:
    reader = Reader(pack_strings(values))
    assert reader.vector(reader.string) == values


def test_numbers_and_truth_values_are_read_in_order() -> None:
    reader = Reader(INT.pack(-7) + LONG.pack(2**40) + b"\x00\x02")
    assert (reader.integer(), reader.long(), reader.boolean(), reader.boolean()) == (-7, 2**40, False, True)


def test_beyond_the_basic_plane_text_goes_out_as_two_surrogates() -> None:
    assert pack_string("a😀") == INT.pack(7) + b"a\xed\xa0\xbd\xed\xb8\x80"


@pytest.mark.parametrize(
    ("raw", "seen"),
    [(b"a\xffb", "a\ufffdb"), (b"\xed\xa0\x80x", "\ufffdx"), (b"\xe2\x82", "\ufffd"), (b"\xed\xa0", "\ufffd")],
)
def test_broken_utf8_is_replaced_as_java_does(raw: bytes, seen: str) -> None:
    assert Reader(INT.pack(len(raw)) + raw).string() == seen


def test_an_absent_vector_is_told_from_an_empty_one() -> None:
    absent, empty = Reader(INT.pack(-1)), Reader(INT.pack(0))
    assert absent.vector(absent.string) is None
    assert empty.vector(empty.string) == []


@pytest.mark.parametrize("length", [-2, -(2**31), 5, 2**31 - 1])
def test_a_lying_length_is_malformed(length: int) -> None:
    with pytest.raises(MalformedError):
        Reader(INT.pack(length) + b"abcd").buffer()


def test_a_lying_count_ends_with_the_frame() -> None:
    reader = Reader(INT.pack(2**31 - 1) + pack_string("only one"))
    with pytest.raises(MalformedError):
        reader.vector(reader.string)


@given(st.binary(max_size=7), st.sampled_from(["integer", "long", "boolean", "string"]))
def test_a_frame_that_ends_early_is_malformed_and_nothing_else(raw: bytes, what: str) -> None:
    reader = Reader(raw)
    try:
        while True:
            getattr(reader, what)()
    except MalformedError:
        assert reader.position > len(raw) or what == "string"
