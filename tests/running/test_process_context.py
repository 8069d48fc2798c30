"""What all jobs of a process share."""

from __future__ import annotations

from aioelasticjob.error_handlers import ErrorDispatcher
from aioelasticjob.errors import NotPermitted
from aioelasticjob.events import Events
from aioelasticjob.limited_log import LimitedLog
from aioelasticjob.running.executors import Executors
from aioelasticjob.running.process_context import ProcessContext
from aioelasticjob.testing import run
from tests.support.clocks import StandingClock


def test_what_is_refused_to_a_job_outlives_its_sessions_and_is_no_other_jobs_matter() -> None:
    async def main() -> None:
        events, clock = Events(), StandingClock(4_711.0)
        shared = ProcessContext(
            clock, events, Executors(), ErrorDispatcher(clock, events.counts, LimitedLog()), LimitedLog()
        )
        shared.refusals_of("report").refused("to claim items", NotPermitted("/report"))
        assert shared.refusals_of("billing").present == ()
        (refused,) = shared.refusals_of("report").present
        assert (refused.what, refused.since) == ("to claim items", 4_711.0)
        assert shared.refusals.keys() == {"report", "billing"}

    run(main)
