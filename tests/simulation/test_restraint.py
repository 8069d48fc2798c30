"""The rules that no node is written and no request is sent over and over notice these, and nothing less."""

from __future__ import annotations

from aioelasticjob.zookeeper.codes import OpCode
from tests.simulation.facts import Facts
from tests.simulation.judges.restraint import MOST, no_node_is_written_over_and_over, no_request_is_sent_over_and_over
from tests.simulation.test_conduct import history_of
from tests.simulation.test_invariants import gone, put, written
from tests.simulation.witness import OFTEN, Hearing, Witness
from tests.support.history import Entry, History
from tests.zookeeper.simulated_clients import SimulatedServer, path_watch

MARK = "leader/failover/items/0"


def named(*entries: Entry) -> list[str]:
    return [violation.text for violation in no_node_is_written_over_and_over(Facts(history_of(*entries)))]


def undone(times: int, pause: float, path: str = MARK) -> list[Entry]:
    changes = put(path, "{}"), gone(path)
    return [written(12 + number * pause, 1 + number % 2, changes[number % 2]) for number in range(times)]


def test_instances_that_undo_what_the_others_do_are_noticed_once() -> None:
    (text,) = named(*undone(3 * MOST, 0.001))
    assert text == f"/job/{MARK} has changed {MOST + 1} times within a second"


def test_a_node_may_change_often_in_the_course_of_time() -> None:
    assert not named(*undone(MOST, 0.001))
    assert not named(*undone(3 * MOST, 1.01 / MOST))
    assert not named(*undone(3 * MOST, 0.001, "guarantee"))


def test_a_request_that_one_session_sends_over_and_over_is_noticed_once() -> None:
    now, server = [100.0], SimulatedServer()
    history = History(lambda: now[0])
    server.processor = Hearing(server.processor, server.processor.sessions, Witness(history))
    client, other = server.client(), server.client()

    def ask(times: int) -> list[str]:
        for xid in range(times):
            client.ask(OpCode.EXISTS, path_watch("/here"), xid)
        return [violation.text for violation in no_request_is_sent_over_and_over(Facts(history.entries))]

    assert not ask(OFTEN - 1)
    for xid in range(OFTEN):
        other.ask(OpCode.EXISTS, path_watch(f"/{xid}"), xid)
    now[0] = 101
    assert not ask(OFTEN - 1)
    assert ask(OFTEN) == [f"127.0.0.1 has sent the same request (operation 3) {OFTEN} times within a second"]
