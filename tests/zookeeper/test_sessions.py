"""Sessions: ids, passwords, deadlines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.zookeeper.sessions import Sessions


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(tick=100, secret=b"s" * 32)


def test_ids_differ_are_positive_and_name_the_server(sessions: Sessions) -> None:
    ids = [sessions.create(zxid, 1000, 0) for zxid in (1, 2, 7)]
    assert len(set(ids)) == 3
    assert all(0 < each < 2**63 and each >> 56 == 1 for each in ids)


def test_a_session_ends_with_the_tick_after_its_timeout(sessions: Sessions) -> None:
    session = sessions.create(1, 1000, now=250)
    assert sessions.deadlines() == {1300: [session]}
    assert sessions.expired(1299) == []
    assert sessions.expired(1300) == [session]


def test_a_touch_moves_the_deadline(sessions: Sessions) -> None:
    session = sessions.create(1, 1000, now=0)
    assert sessions.touch(session, 1000, now=900)
    assert sessions.expired(1999) == []
    assert sessions.expired(2000) == [session]


def test_a_new_timeout_counts_from_the_next_touch(sessions: Sessions) -> None:
    session = sessions.create(1, 10_000, now=0)
    sessions.touch(session, 200, now=0)
    assert sessions.expired(300) == [session]


def test_the_closed_cannot_be_touched(sessions: Sessions) -> None:
    session = sessions.create(1, 1000, 0)
    sessions.close(session)
    sessions.close(session)
    assert not sessions.touch(session, 1000, 0)
    assert sessions.deadlines() == {}


def test_a_password_opens_its_own_session_only(sessions: Sessions) -> None:
    first, second = sessions.create(1, 1000, 0), sessions.create(2, 1000, 0)
    assert sessions.admits(first, sessions.password(first))
    assert not sessions.admits(second, sessions.password(first))
    assert not sessions.admits(first, b"")
    assert not sessions.admits(0, sessions.password(0))


def test_a_restored_session_keeps_its_password(sessions: Sessions) -> None:
    session = sessions.create(1, 1000, 0)
    again = Sessions(tick=100, secret=b"s" * 32)
    again.restore(session, 1000, now=50)
    assert again.admits(session, sessions.password(session))
    assert again.expired(1100) == [session]


def test_a_server_that_stood_still_gives_its_sessions_that_time_back(sessions: Sessions) -> None:
    first, second = sessions.create(1, 1000, now=0), sessions.create(2, 2000, now=0)
    sessions.give_back(450)
    assert sessions.deadlines() == {1600: [first], 2600: [second]}, "and the rest of the tick"
    assert sessions.touch(first, 1000, now=500)
    assert sessions.expired(1599) == []
    sessions.close(first)
    assert sessions.expired(2600) == [second]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 500), st.integers(1, 900)), max_size=40))
def test_nobody_expires_early_and_nobody_lives_two_ticks_too_long(steps: list[tuple[int, int, int]]) -> None:
    sessions, now, due = Sessions(tick=100, secret=b""), 0, dict[int, int]()
    ids = [sessions.create(zxid, 1, 0) for zxid in range(1, 5)]
    due = dict.fromkeys(ids, 1)
    for index, pause, timeout in steps:
        now += pause
        for session in sessions.expired(now):
            assert due.pop(session) <= now
            sessions.close(session)
        assert all(now < deadline + 200 for deadline in due.values())
        if sessions.touch(ids[index], timeout, now):
            due[ids[index]] = now + timeout
    assert set(due) == set(sessions.timeouts)
