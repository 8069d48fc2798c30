"""What a process says of itself and its jobs, to those who ask whether it is well."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, cast, get_args

from aioelasticjob import operations
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.pauses import pause_data
from aioelasticjob.engine.health import Health, JobHealth, Phase, Probe
from aioelasticjob.engine.refusals import RefusedRequest
from aioelasticjob.ground.times import moment
from aioelasticjob.model import Claim, Fire, FireSource, Record, VersionedRecord
from aioelasticjob.registry.session import SessionState, open_session
from aioelasticjob.testing import VirtualClock, run
from tests.core.cases import BEGIN, LAYOUT, ME, OTHER, Case
from tests.support.simulated_jobs import SimulatedJobs, simulate
from tests.support.simulated_registry import simulated

DECLARED = JobConfig.build(job_name="job")
IDLE = [JobHealth("job"), JobHealth("other")]
REFUSED = (RefusedRequest("to leave", "not permitted", BEGIN, BEGIN),)


def test_a_job_shows_what_it_holds_and_runs_and_when_it_fires_next() -> None:
    case = Case.of(items=3, cron="0/10 * * * * ?")
    case.give(1, OTHER)
    case.put(LAYOUT.host, ME.encode(), owner=1)
    claim = Claim(Fire(0, FireSource.SCHEDULE), ME, 1, {2: VersionedRecord(Record(), 0, 1)}, {})
    health = JobHealth.of(case.view(), ME, sorted(claim.items), BEGIN + 3, DECLARED, None)
    assert (health.name, health.instance, health.leads, health.problem) == ("job", ME, True, None)
    assert (health.holds, health.running) == ((0, 2), (2,))
    assert health.next_fire == datetime.fromtimestamp(BEGIN + 10, UTC)
    other = JobHealth.of(case.view(), OTHER, (), BEGIN + 3, DECLARED, None)
    assert (other.leads, other.holds, other.running) == (False, (1,), ())


def test_a_job_without_a_schedule_fires_at_no_time() -> None:
    case = Case.of()
    case.configure(cron=None)
    assert JobHealth.of(case.view(), ME, (), BEGIN, DECLARED, None).next_fire is None


def test_a_job_that_requires_what_is_not_known_here_has_a_problem() -> None:
    case = Case.of(requires=["x"])
    problem = JobHealth.of(case.view(), ME, (), BEGIN, DECLARED, None).problem
    assert problem is not None
    assert "requires 'x'" in problem


def test_a_job_that_is_switched_off_says_so_and_the_process_is_ready() -> None:
    case = Case.of()
    ip = "10.0.0.1"
    assert JobHealth.of(case.view(), ME, (), BEGIN, DECLARED, None).switched_off == ()
    case.put(LAYOUT.paused, pause_data("anna", "the bank is closed", BEGIN + 60))
    case.put(LAYOUT.server_disabled(ip))
    health = JobHealth.of(case.view(), ME, (), BEGIN, DECLARED, None)
    assert [one.what for one in health.switched_off] == ["the job is paused", "this server is disabled in the job"]
    assert health.problem is None
    (job,) = cast(list[Any], Health.of(None, [health]).as_json()["jobs"])
    paused, disabled = job["switched_off"]
    until = moment(BEGIN + 60).isoformat()
    assert (paused["by"], paused["note"], paused["until"]) == ("anna", "the bank is closed", until)
    assert disabled == {**disabled, "by": "", "note": "", "until": None}
    case.drop(LAYOUT.paused)
    case.drop(LAYOUT.server_disabled(ip))
    assert JobHealth.of(case.view(), ME, (), BEGIN, DECLARED, None).switched_off == ()


def test_a_process_shows_a_pause_at_once_and_its_end() -> None:
    async def scene(here: SimulatedJobs) -> None:
        app = here.app(cron="0/10 * * * * ?")
        async with app.running():
            await here.until(12)
            await operations.pause_server(here.observer, "127.0.0.1", note="new disks", until=moment(here.start + 31))
            await here.until(13)
            (job,) = app.health.jobs
            assert [(one.what, one.flag.note) for one in job.switched_off] == [
                ("this server is paused in all jobs", "new disks")
            ]
            assert app.health.ready
            await here.until(32)
            (job,) = app.health.jobs
            assert job.switched_off == ()

    simulate(scene)


def test_an_application_that_does_not_run_is_down_and_names_its_jobs_all_the_same() -> None:
    health = Health.of(None, IDLE)
    assert (health.status, health.ready, health.registry) == ("down", False, None)
    assert not Health.of(None, IDLE, "ended").alive
    assert health.jobs == (JobHealth("job"), JobHealth("other"))


def test_an_application_is_up_suspended_and_down_as_its_session_is_and_shows_no_credentials() -> None:
    async def main() -> None:
        async with simulated() as world:
            settings = world.settings(digest="us:secret", session_timeout=4)
            async with open_session(settings, clock=VirtualClock()) as session:
                health = Health.of(session, IDLE)
                assert (health.status, health.ready, health.reason) == ("up", True, None)
                assert health.registry == "zk://10.0.0.1:2181/test"
                world.partition()
                await session.status.until(lambda status: status.state is SessionState.SUSPENDED)
                health = Health.of(session, IDLE)
                assert (health.status, health.ready, health.as_json()["reason"]) == ("suspended", False, "silent")
                world.heal()
                await session.status.until(lambda status: status.state is SessionState.CONNECTED)
                assert Health.of(session, IDLE).ready
            assert Health.of(session, IDLE).status == "down"

    run(main)


def test_a_job_that_has_to_wait_keeps_the_process_from_being_ready_and_one_that_is_refused_something_does_not() -> None:
    async def scene(here: SimulatedJobs) -> None:
        assert Health.of(here.observer, [JobHealth("job", refused=REFUSED)]).ready
        waiting = Health.of(here.observer, [JobHealth("job", problem="it waits")])
        assert (waiting.status, waiting.ready) == ("up", False)

    simulate(scene)


def test_a_process_that_starts_or_leaves_is_alive_and_not_ready() -> None:
    async def scene(here: SimulatedJobs) -> None:
        codes = {}
        for phase in get_args(Phase):
            health = Health.of(here.observer, IDLE, phase)
            codes[phase] = tuple(health.status_code(asked) for asked in get_args(Probe))
        assert codes == {
            "not started": (200, 503, 503),
            "starting": (200, 200, 503),
            "running": (200, 200, 200),
            "leaving": (200, 200, 503),
            "ended": (200, 503, 503),
        }
        connecting = Health.of(None, IDLE, "starting")
        assert [connecting.status_code(asked) for asked in get_args(Probe)] == [503, 200, 503]

    simulate(scene)


def test_it_is_written_as_json_with_times_as_text() -> None:
    next_fire = datetime.fromtimestamp(BEGIN, UTC)
    job = JobHealth("job", ME, leads=True, holds=(0, 2), next_fire=next_fire, refused=REFUSED, clock_differs=-7.2)
    fields = json.loads(json.dumps(Health.of(None, [job, JobHealth("other")]).as_json()))
    assert (fields["status"], fields["ready"], fields["registry"]) == ("down", False, None)
    first, second = fields["jobs"]
    assert (first["instance"], first["leads"], first["holds"]) == (ME, True, [0, 2])
    assert first["next_fire"] == "2001-09-09T01:46:40+00:00"
    assert first["refused"] == [{"what": "to leave", "why": "not permitted", "since": "2001-09-09T01:46:40+00:00"}]
    assert (second["name"], second["instance"], second["next_fire"]) == ("other", None, None)
    assert (first["clock_differs"], second["clock_differs"]) == (-7.2, None)
