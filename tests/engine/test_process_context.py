"""What all jobs of a process share."""

from __future__ import annotations

from aioelasticjob.engine.executors import Executors
from aioelasticjob.engine.process_context import REGISTERING_AT_ONCE, ProcessContext
from aioelasticjob.error_handlers import ErrorDispatcher
from aioelasticjob.events import Events
from aioelasticjob.ground.limited_log import LimitedLog
from aioelasticjob.testing import VirtualClock, run


def test_jobs_of_one_process_wait_for_each_other_and_not_for_those_of_another_process() -> None:
    async def main() -> None:
        events, clock, log = Events(), VirtualClock(), LimitedLog()
        one, other = (
            ProcessContext(clock, events, Executors(), ErrorDispatcher(clock, events.counts, log), log)
            for _ in range(2)
        )
        async with one.registering, one.comparing:
            assert (one.registering.value, other.registering.value) == (REGISTERING_AT_ONCE - 1, REGISTERING_AT_ONCE)
            assert not other.comparing.locked()
        assert one.starts is not other.starts
        assert one.departures is not other.departures

    run(main)
