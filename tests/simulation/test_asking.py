"""Each rule about requests notices what it is for: a small history, right and wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from aioelasticjob.core import records
from aioelasticjob.core.requests import (
    Request,
    decode_progress,
    encode,
    encode_cancellation,
    encode_progress,
)
from aioelasticjob.events import Ended, Refused
from aioelasticjob.model import LEFT_OPEN, FireSource, Progress, Record, run_name
from tests.simulation.asking import STREAM_WISHES, WISHES
from tests.simulation.facts import Facts, Violation
from tests.simulation.judges import requests
from tests.simulation.simulation import live, plan, replay
from tests.simulation.test_conduct import history_of
from tests.simulation.test_invariants import CONFIG, A, B, T, begun, broken, ended, made, put, written
from tests.support.history import Begun, Drained, Fault, Phase, Reported, Written, of_kind

MOMENT = int((T + 15) * 1000)
ASKED = encode(Request("r", FireSource.TRIGGER, 1, MOMENT))
SEEDS = range(4)
MADE = written(15, 9, made("requests"), made("requests/r", ASKED))


def claim(at: float, moment: int = MOMENT, fence: int = 1, *, locked: bool = True, first: bool = True) -> Written:
    """Return the claim of item 0 for the request."""
    record = records.encode(Record(instance=A, completed=False, begun=1, asked=moment, request="r"))
    progress = (made if first else put)("requests/r/0", encode_progress(Progress(moment)))
    lock = [made("execution/0/running", A)] if locked else []
    return written(at, 1, progress, put("execution/0", record), *lock, zxid=fence)


def test_an_item_goes_on_by_a_claim_and_not_back() -> None:
    later = claim(17, MOMENT + 1000, 2, first=False)
    assert not broken(requests.items_go_on_by_claims, history_of(MADE, claim(16), later))
    assert broken(requests.items_go_on_by_claims, history_of(MADE, claim(16, locked=False)))
    assert broken(requests.items_go_on_by_claims, history_of(MADE, claim(16), claim(17, MOMENT - 1000, 2, first=False)))


def test_a_moment_of_a_request_is_begun_once() -> None:
    run = begun(1, 16, slot=15, fence=1, source=FireSource.TRIGGER)
    again = replace(run, run=2, at=T + 18, fence=2)
    rescue = replace(again, source=FireSource.FAILOVER)
    second = claim(17.9, fence=2, first=False)
    assert not broken(
        requests.requested_runs_begin_once, history_of(MADE, claim(15.9), run, ended(1, 17), second, rescue)
    )
    assert broken(requests.requested_runs_begin_once, history_of(MADE, claim(15.9), run, ended(1, 17), second, again))


def test_what_was_asked_for_is_answered_unless_it_was_cancelled_or_nobody_may() -> None:
    calm = [Phase(T + 30, "calm")]
    off = written(20, 9, made("sharding/0/disabled"))
    cancelled = written(20, 9, put("requests/r", json.dumps({**json.loads(ASKED), "stopped": "cancelled"})))
    assigned = written(15, 1, made("sharding/0/instance", A))
    refused = Reported(T + 35, "10.0.1.1#1", "10.0.1.1", Refused("job", A, "the clocks differ"))
    of_another = Reported(T + 35, "10.0.1.2#1", "10.0.1.2", Refused("job", B, "the clocks differ"))
    assert broken(requests.requests_are_answered, history_of(MADE, *calm))
    assert broken(requests.requests_are_answered, history_of(assigned, MADE, *calm, of_another))
    assert not broken(requests.requests_are_answered, history_of(assigned, MADE, *calm, refused))
    for excuse in (claim(16), off, cancelled):
        assert not broken(requests.requests_are_answered, history_of(MADE, excuse, *calm))


def settled(at: float, outcome: str, moment: int = MOMENT) -> Written:
    """Return the settlement of item 0 for the request."""
    return written(at, 1, put("requests/r/0", encode_progress(Progress(moment, outcome=outcome))))


def test_a_stream_that_gave_way_is_begun_again_and_no_other_run() -> None:
    run = begun(1, 16, slot=15, fence=1, source=FireSource.TRIGGER)
    again = replace(run, run=2, at=T + 18, fence=2)
    for outcome, wrong in ((LEFT_OPEN, False), ("completed", True)):
        first = MADE, claim(15.9), run, ended(1, 17), settled(17, outcome)
        history = history_of(*first, claim(17.9, fence=2, first=False), again)
        assert bool(broken(requests.requested_runs_begin_once, history)) is wrong


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_stream_that_was_asked_for_is_completed_only_when_there_are_no_more_records(is_stream: bool) -> None:
    streaming = b', "streamingProcess": true, "jobType": "DATAFLOW"}' if is_stream else b"}"
    config = written(0.5, 9, put("config", CONFIG.replace(b"}", streaming)))
    first, rule = (config, MADE, claim(15.9), RUN), requests.streams_are_fetched_to_their_end
    drained = Drained(T + 17, "job", 0, run_name(MOMENT, "r"))
    of_another = Drained(T + 17, "job", 0, run_name(MOMENT + 1000, "r"))
    assert not broken(rule, history_of(*first, drained, settled(18, "completed")))
    assert not broken(rule, history_of(*first, settled(18, LEFT_OPEN), settled(19, "failed")))
    for wrong in (
        [settled(18, "completed")],
        [of_another, settled(18, "completed")],
        [settled(16, "completed"), drained],
    ):
        assert bool(broken(rule, history_of(*first, *wrong))) is is_stream


WISH = written(19, 9, made("requests/cancel-1", encode_cancellation({0: 1}, MOMENT, "")))
RUN = begun(1, 16, slot=15, fence=1)


def test_only_a_run_that_was_cancelled_is_stopped() -> None:
    stopped = written(20, 1, put("execution/0", records.encode(Record(instance=A, outcome="stopped"))))
    other = written(19, 9, made("requests/cancel-1", encode_cancellation({0: 2, 1: 1}, MOMENT, "")))
    assert broken(requests.only_cancelled_runs_are_stopped, history_of(MADE, claim(15.9), stopped))
    assert broken(requests.only_cancelled_runs_are_stopped, history_of(MADE, claim(15.9), other, stopped))
    assert not broken(requests.only_cancelled_runs_are_stopped, history_of(MADE, claim(15.9), WISH, stopped))
    assert broken(requests_excuse, history_of(MADE, claim(15.9), RUN, ended(1, 20, "cut off")))
    assert not broken(requests_excuse, history_of(MADE, claim(15.9), RUN, WISH, ended(1, 20, "cut off")))


@pytest.mark.parametrize("per", ["instance", "item"])
def test_items_of_one_call_are_stopped_together(per: str) -> None:
    config = written(0.5, 9, put("config", CONFIG.replace(b"}", b', "per": "%s"}' % per.encode())))
    both = written(15.9, 1, made("execution/0/running", A), made("execution/1/running", A), zxid=1)
    wish = written(19, 9, made("requests/cancel-1", encode_cancellation({1: 1}, MOMENT, "")))
    stopped = written(20, 1, put("execution/0", records.encode(Record(instance=A, outcome="stopped"))))
    found = broken(requests.only_cancelled_runs_are_stopped, history_of(config, both, wish, stopped))
    assert bool(found) is (per == "item")


def test_a_run_that_was_cancelled_ends_unless_its_host_cannot_hear_of_it() -> None:
    late = history_of(MADE, claim(15.9), RUN, WISH, ended(1, 25, "cut off"))
    assert broken(requests.cancelled_runs_end, late)
    deaf = Fault(T + 18, "drop", ("10.0.1.1",))
    assert not broken(requests.cancelled_runs_end, [*late[:-1], deaf, late[-1]])
    assert not broken(requests.cancelled_runs_end, history_of(MADE, claim(15.9), RUN, WISH, ended(1, 20, "cut off")))
    assert not broken(requests.cancelled_runs_end, history_of(MADE, claim(15.9), RUN, ended(1, 25)))


@pytest.mark.parametrize(("wished", "fence", "wrong"), [(19, 1, True), (24.99, 1, False), (19, 5, False)])
def test_a_run_that_was_cancelled_is_not_rescued(wished: float, fence: int, wrong: bool) -> None:
    wish = written(wished, 9, made("requests/cancel-1", encode_cancellation({0: fence}, MOMENT, "")))
    rescue = written(25, 2, made("execution/0/running", B), zxid=7)
    history = history_of(MADE, claim(15.9), RUN, ended(1, 20, "crashed"), wish, rescue, rescued(25.1))
    assert bool(broken(requests.cancelled_runs_are_not_rescued, history)) is wrong


def rescued(at: float) -> Begun:
    """Return the rescue of item 0 by another instance."""
    host = B.partition("@")[0]
    return replace(begun(2, at, slot=15, fence=7, source=FireSource.FAILOVER), instance=B, host=host)


@pytest.mark.simulation
@pytest.mark.timeout(600)
def test_clusters_keep_their_promises_while_programs_ask_for_runs() -> None:
    """Requests, backfills, reruns, cancels, attempts and kills are all there, so that the judges have work."""
    asked, outcomes, kinds, sources = set[str](), set[str](), set[str](), set[FireSource]()
    for seed in SEEDS:
        verdict = live(plan(seed, failover=seed % 2 == 1, retries=True, requests=True))
        assert not verdict.violations, verdict.report()
        assert "--requests" in replay(verdict.plan)
        faults = list(of_kind(verdict.entries, Fault))
        kinds |= {fault.kind for fault in faults}
        asked |= {fault.detail.partition(" of ")[0] for fault in faults if fault.kind == "operator"}
        ends = [one.event for one in of_kind(verdict.entries, Reported) if isinstance(one.event, Ended)]
        outcomes |= {end.outcome.value for end in ends}
        sources |= {end.source for end in ends}
    assert {wish.__name__ for wish in WISHES} <= asked
    assert {"crash", "pause", "drop", "expire"} <= kinds
    assert {"completed", "failed", "stopped"} <= outcomes
    assert {FireSource.TRIGGER, FireSource.BACKFILL, FireSource.FAILOVER} <= sources


@pytest.mark.simulation
@pytest.mark.timeout(600)
def test_streams_that_programs_ask_for_are_fetched_to_their_end() -> None:
    asked, outcomes, sources = set[str](), set[str](), set[FireSource]()
    for seed in SEEDS:
        verdict = live(plan(seed, failover=seed % 2 == 1, streams=True))
        assert not verdict.violations, verdict.report()
        assert "--streams" in replay(verdict.plan)
        faults = of_kind(verdict.entries, Fault)
        asked |= {fault.detail.partition(" of ")[0] for fault in faults if fault.kind == "operator"}
        changes = [change for one in of_kind(verdict.entries, Written) for change in one.changes if change.data]
        noted = [one.data for one in changes if one.path.split("/")[2] == "requests" and one.path.count("/") == 4]
        outcomes |= {decode_progress(data).outcome for data in noted if data}
        sources |= {run.source for run in of_kind(verdict.entries, Begun)}
    assert {wish.__name__ for wish in STREAM_WISHES} <= asked
    assert {LEFT_OPEN, "completed", "failed", "stopped"} <= outcomes
    assert {FireSource.TRIGGER, FireSource.BACKFILL, FireSource.FAILOVER} <= sources


def requests_excuse(facts: Facts) -> Iterator[Violation]:
    """Yield the runs that nobody has cancelled."""
    for run in facts.runs:
        if not requests.is_cancelled(facts, run):
            yield Violation("cancelled", run.end, str(run))
