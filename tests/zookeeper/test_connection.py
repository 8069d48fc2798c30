"""Bytes become frames, whatever pieces they come in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.zookeeper.connection import MAX_FRAME, Connection
from aioelasticjob.zookeeper.jute import INT, MalformedError
from aioelasticjob.zookeeper.statistics import Traffic


def connection() -> Connection:
    return Connection("127.0.0.1", 1, MAX_FRAME, Traffic())


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
    assert receiver.next_frame() == bytes(MAX_FRAME)


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
