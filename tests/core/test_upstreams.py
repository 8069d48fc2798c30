"""What is known of the jobs that a job follows."""

from __future__ import annotations

from aioelasticjob.core.upstreams import Upstream, Upstreams
from aioelasticjob.model import End


def ended(*moments: int) -> tuple[End, ...]:
    return tuple(End(moment, moment, "completed", moment + 100) for moment in moments)


def test_a_moment_came_by_the_last_transaction_that_ended_it_as_far_as_that_is_known() -> None:
    extract = Upstream("extract", mark=1, ends={0: ended(10), 1: ended(10, 20), 2: ()}, written={0: 7, 1: 9, 2: 11})
    clean = Upstream("clean", mark=2, ends={0: ended(20)}, written={0: 8})
    upstreams = Upstreams([extract, clean], 0, takes_any=False, agrees=True)
    assert [upstreams.came_by(moment) for moment in (10, 20, 30)] == [7, 9, 0]
