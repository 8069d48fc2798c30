"""Bytes become frames, whatever pieces they come in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.zookeeper.connection import MAX_FRAME, Connection, Unfinished
from aioelasticjob.zookeeper.jute import INT, MalformedError
from aioelasticjob.zookeeper.statistics import Traffic


def connection() -> Connection:
    return Connection("127.0.0.1", 1, MAX_FRAME, Traffic())


def unfinished(size: int) -> Connection:
    """Return a connection that keeps so many bytes of a frame that is longer."""
    receiver = connection()
    receiver.feed((INT.pack(MAX_FRAME) + bytes(size))[:size])
    return receiver


@given(st.lists(st.binary(max_size=40)), st.data())
def test_frames_come_out_as_they_went_in(frames: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(INT.pack(len(frame)) + frame for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    receiver, seen = connection(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        receiver.feed(stream[start:end])
        while (frame := receiver.next_frame()) is not None:
            seen.append(frame)
    assert seen == frames


@pytest.mark.parametrize("length", [-1, -(2**31), MAX_FRAME + 1, 2**31 - 1])
def test_a_length_nobody_may_send_is_malformed_before_the_frame_is_there(length: int) -> None:
    receiver = connection()
    receiver.feed(INT.pack(length))
    with pytest.raises(MalformedError):
        receiver.next_frame()


def test_the_largest_frame_passes() -> None:
    receiver = connection()
    receiver.feed(INT.pack(MAX_FRAME) + bytes(MAX_FRAME))
    frame = receiver.next_frame()
    assert frame is not None
    assert len(frame) == MAX_FRAME


def test_what_was_read_is_not_kept() -> None:
    receiver = connection()
    receiver.feed(INT.pack(1000) + bytes(1000))
    assert receiver.unread == 1004
    assert receiver.next_frame() is not None
    assert receiver.unread == len(receiver._input) == 0


def test_a_frame_in_many_pieces_is_not_copied_with_each() -> None:
    receiver = connection()
    receiver.feed(INT.pack(3))
    receiver.feed(b"a")
    kept = receiver._input
    receiver.feed(b"b")
    assert receiver._input is kept
    receiver.feed(b"cd")
    assert receiver.next_frame() == b"abc"
    receiver.feed(b"e")
    assert receiver.unread == 2


def test_who_keeps_a_frame_unfinished_for_longest_is_dropped_first() -> None:
    first, second, third = unfinished(40), unfinished(40), unfinished(40)
    all_of_them = Unfinished(100)
    assert all_of_them.keep(first, fresh=False) == []
    assert all_of_them.keep(second, fresh=False) == []
    first.feed(bytes(10))
    assert all_of_them.keep(first, fresh=False) == []
    assert all_of_them.keep(third, fresh=False) == [first]
    assert all_of_them.keep(third, fresh=True) == []
    second.feed(bytes(30))
    assert all_of_them.keep(second, fresh=True) == [third]  # its frame is another one than before
    all_of_them.forget(second)
    assert all_of_them.keep(unfinished(100), fresh=False) == []
    one_more = unfinished(101)
    assert Unfinished(100).keep(one_more, fresh=False) == [one_more]


def test_a_word_is_seen_once_it_is_whole() -> None:
    receiver = connection()
    receiver.feed(b"ru")
    assert receiver.four_letter_word() is None
    receiver.feed(b"ok\n")
    assert receiver.four_letter_word() == "ruok"


def test_a_length_is_no_word() -> None:
    receiver = connection()
    receiver.feed(b"\0\0\0\x2c")
    assert receiver.four_letter_word() is None


def test_output_is_handed_over_whole_and_counted() -> None:
    sender = connection()
    sender.send(b"one")
    sender.send(b"two")
    assert (sender.backlog, sender.take_output(), sender.take_output()) == (6, (b"onetwo", 2), (b"", 0))
