"""What operators do to a job is in the log of the processes that it concerns."""

from __future__ import annotations

import pytest

from aioelasticjob import operations
from tests.support.simulated_jobs import SimulatedJobs, simulate


def test_what_operators_do_is_logged_by_the_workers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "aioelasticjob.coordination.operator_log")

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0 0 0 1 1 ? 2090", sharding_total_count=15)
        async with app.running():
            await here.until(5)
            assert said() == []
            server = (await operations.job(here.observer, "job", now=0)).servers[0].ip
            for act, expected in (
                (operations.pause(here.observer, "job"), "job: an operator has paused the job"),
                (operations.resume(here.observer, "job"), "job: an operator has resumed the job"),
                *(
                    (act(here.observer, "job", server=server), f"job: an operator has {done} this server, {server}")
                    for act, done in (
                        (operations.pause, "paused"),
                        (operations.resume, "resumed"),
                        (operations.disable, "disabled"),
                        (operations.enable, "enabled"),
                    )
                ),
                *(
                    (act(here.observer, server), f"job: an operator has {done} this server, {server}, in all jobs")
                    for act, done in (
                        (operations.pause_server, "paused"),
                        (operations.resume_server, "resumed"),
                        (operations.disable_server, "disabled"),
                        (operations.enable_server, "enabled"),
                    )
                ),
                (operations.disable(here.observer, "job", item=3), "job: an operator has disabled item 3"),
                (operations.enable(here.observer, "job", item=3), "job: an operator has enabled item 3"),
                (operations.trigger(here.observer, "job"), "job: an operator has triggered this instance"),
                (
                    operations.configure(here.observer, "job", {"timeout": 5}),
                    "job: the setting timeout was changed from None to 5.0",
                ),
                (
                    operations.configure(here.observer, "job", {"error_handler_options": {"password": "a"}}),
                    "job: the setting error_handler_options was changed",
                ),
                (operations.shut_down(here.observer, "job"), "job: an operator has asked this instance to leave"),
            ):
                await act
                await here.until(here.now() + 3)
                assert said() == [expected]

    def said() -> list[str]:
        found = [one.getMessage() for one in caplog.records if one.name == "aioelasticjob.coordination.operator_log"]
        caplog.clear()
        return found

    simulate(scene)
