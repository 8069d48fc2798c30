"""Alerts as states: what begins, lasts and ends, and which messages follow from it, without any waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.operations.alerts.plan import KEPT, MESSAGES, MESSAGES_EACH, Condition, Message, Planner, Target
from aioelasticjob.operations.alerts.state import (
    CLAIM_SECONDS,
    INTERVAL,
    MAX_EPISODES,
    AlertKey,
    AlertState,
    decode,
    encode,
)

PAGER = Target("webhook", (("url", "http://pager/"),))
AFTER = 60.0
REPEAT = 4 * 3600.0
NOBODY = AlertKey("nobody-there", "billing")
FAILING = AlertKey("failing", "billing")


def nobody(job: str = "billing") -> Condition:
    return Condition(AlertKey("nobody-there", job), "no instance is up")


def failing(job: str = "billing") -> Condition:
    return Condition(AlertKey("failing", job), "item 0 failed 3 times")


@dataclass
class Sent:
    """One message that arrived."""

    at: float
    alerts: tuple[AlertState, ...]

    @property
    def said(self) -> list[str]:
        return ["firing" if alert.fires else "resolved" for alert in self.alerts]


@dataclass
class Registry:
    """Nodes of alerts with their versions, which several commands share."""

    nodes: dict[AlertKey, tuple[bytes, int]] = field(default_factory=dict)
    written: int = 0

    def states(self) -> dict[AlertKey, AlertState]:
        found = {}
        for key, (data, _) in self.nodes.items():
            state = decode(data)
            assert state is not None
            found[key] = state
        return found

    def versions(self) -> dict[AlertKey, int]:
        return {key: version for key, (_, version) in self.nodes.items()}

    def write(self, changes: dict[AlertKey, AlertState | None], seen: dict[AlertKey, int]) -> bool:
        if any(self.versions().get(key) != seen.get(key) for key in changes):
            return False
        for key, state in changes.items():
            self.written += 1
            if state is None:
                del self.nodes[key]
            else:
                self.nodes[key] = encode(state), self.written
        return True


@dataclass
class Command:
    """One `alert` command: it plans, writes by version, and sends; ``works`` says whether a delivery succeeds."""

    registry: Registry
    name: str = "a"
    works: Callable[[], bool] = lambda: True
    sent: list[Sent] = field(default_factory=list)
    tried: int = 0
    next_look: float = 0.0

    def __post_init__(self) -> None:
        self.planner = Planner(self.name, AFTER, REPEAT)

    def look(self, now: float, *faults: Condition, delivers: bool = True) -> list[Message]:
        messages = self.claim(now, self.registry.states(), self.registry.versions(), faults)
        if delivers:
            self.deliver(now, messages)
        return messages

    def claim(
        self, now: float, known: dict[AlertKey, AlertState], seen: dict[AlertKey, int], faults: Iterable[Condition]
    ) -> list[Message]:
        plan = self.planner.plan(faults, known, lambda _: PAGER, now)
        self.next_look = plan.next_look
        for key, state in plan.writes.items():
            self.registry.write({key: state}, seen)
        return [
            message
            for message in plan.messages
            if self.registry.write({alert.key: alert for alert in message.alerts}, seen)
        ]

    def deliver(self, now: float, messages: list[Message]) -> None:
        for message in messages:
            self.tried += 1
            works = self.works()
            for alert in message.alerts:
                current = self.registry.states()[alert.key]
                after = current.delivered(alert, now) if works else current.undelivered("no route", now)
                self.registry.write({alert.key: after}, self.registry.versions())
            if works:
                self.sent.append(Sent(now, message.alerts))

    def history(self) -> list[tuple[float, str]]:
        return [(one.at, said) for one in self.sent for said in one.said]


@pytest.fixture
def command() -> Command:
    return Command(Registry())


def test_a_fault_is_told_when_it_has_lasted_again_while_it_lasts_and_once_when_it_is_over(command: Command) -> None:
    for second in range(0, 40_000, 10):
        faults = [nobody()] if second < 30_000 else []
        command.look(second, *faults)
    assert command.history() == [
        (60, "firing"),
        (60 + REPEAT, "firing"),
        (60 + 2 * REPEAT, "firing"),
        (30_000, "resolved"),
    ]


def test_a_fault_that_ends_sooner_than_it_has_to_last_is_no_alert(command: Command) -> None:
    for second in range(0, 1000, 10):
        command.look(second, *([nobody()] if second % 60 else []))
    assert command.sent == []
    assert command.registry.nodes == {}


def test_two_outages_in_ten_minutes_are_four_messages(command: Command) -> None:
    outages = [(100, 220), (300, 420)]
    for second in range(0, 700, 10):
        out = any(begin <= second < end for begin, end in outages)
        command.look(second, *([nobody()] if out else []))
    assert command.history() == [(160, "firing"), (220, "resolved"), (360, "firing"), (420, "resolved")]


def test_a_fault_that_comes_and_goes_is_summed_up_by_the_next_message_that_the_limit_allows(command: Command) -> None:
    begun = 0
    for second in range(0, 1200, 10):
        fires = second < 600 and second % 60 < 30
        begun += fires and not second % 60
        command.look(second, *([failing()] if fires else []))
    times = [one.at for one in command.sent]
    assert times[:MESSAGES_EACH] == [0, 30, 60, 90]
    assert times[MESSAGES_EACH] == INTERVAL
    summary = command.sent[MESSAGES_EACH].alerts[0]
    told = 2 + len(summary.unreported) + 1  # two before, and the newest episode, which it is about itself
    assert told == begun
    assert [(one.since, one.until) for one in summary.unreported][:2] == [(120, 150), (180, 210)]
    assert command.registry.states()[FAILING].unreported == ()


def test_of_very_many_untold_episodes_only_the_number_is_kept(command: Command) -> None:
    command.works = lambda: False
    for second in range(0, 60 * (MAX_EPISODES + 5), 30):
        command.look(second, *([failing()] if second % 60 == 0 else []))
    state = command.registry.states()[FAILING]
    assert len(state.unreported) == MAX_EPISODES
    assert state.left_out == 4


def test_a_delivery_that_fails_is_tried_again_ever_more_rarely_until_it_succeeds(command: Command) -> None:
    command.works = lambda: False
    tries = []
    for second in range(0, 3600, 5):
        before = command.tried
        command.look(second, failing())
        if command.tried > before:
            tries.append(second)
    assert tries == [0, 15, 45, 105, 225, 465, 945, 1545, 2145, 2745, 3345]
    assert command.registry.states()[FAILING].trouble == "no route"
    command.works = lambda: True
    command.look(3945, failing())
    assert command.history() == [(3945, "firing")]


def test_what_was_never_delivered_is_said_by_the_message_that_it_is_over(command: Command) -> None:
    command.works = lambda: False
    command.look(0, failing())
    command.look(10, failing())
    command.look(12)
    command.works = lambda: True
    command.look(20)
    assert command.history() == [(20, "resolved")]
    told = command.sent[0].alerts[0]
    assert (told.notified, told.tries, told.trouble, told.since, told.resolved) == (None, 1, "no route", 0, 12)
    command.look(10_000)
    assert len(command.sent) == 1


def test_more_alerts_than_a_target_may_be_sent_are_told_in_one_message_at_once(command: Command) -> None:
    jobs = [f"job-{number:03}" for number in range(500)]
    command.look(0, *map(failing, jobs))
    assert len(command.sent) == MESSAGES
    assert [len(one.alerts) for one in command.sent] == [1] * (MESSAGES - 1) + [500 - MESSAGES + 1]
    assert {alert.job for one in command.sent for alert in one.alerts} == set(jobs)


def test_an_alert_that_the_limit_holds_back_is_told_as_soon_as_the_limit_allows(command: Command) -> None:
    command.look(0, *(failing(f"job-{number}") for number in range(MESSAGES)))
    faults = [failing(f"job-{number}") for number in range(MESSAGES)]
    late = [failing("late-1"), failing("late-2")]
    command.look(60, *faults, *late)
    assert len(command.sent) == MESSAGES
    assert command.next_look == pytest.approx(INTERVAL, abs=0.001)
    command.look(command.next_look + 0.001, *faults, *late)
    assert [alert.job for one in command.sent[MESSAGES:] for alert in one.alerts] == ["late-1", "late-2"]


def test_an_alert_that_begins_and_ends_while_the_limit_holds_it_back_is_not_forgotten(command: Command) -> None:
    faults = [failing(f"job-{number}") for number in range(MESSAGES)]
    command.look(0, *faults)
    command.look(60, *faults, failing("short"))
    command.look(120, *faults)
    command.look(INTERVAL + 1, *faults)
    last = command.sent[-1]
    assert [(alert.job, alert.since, alert.resolved) for alert in last.alerts] == [("short", 60, 120)]


def test_of_several_commands_one_sends_each_message() -> None:
    registry = Registry()
    commands = [Command(registry, name) for name in "abc"]
    for second in range(0, 400, 10):
        faults = [nobody(), failing()] if second < 200 else []
        known, seen = registry.states(), registry.versions()  # all of them have read the same
        claimed = [command.claim(second, known, seen, faults) for command in commands]
        for command, messages in zip(commands, claimed, strict=True):
            command.deliver(second, messages)
    history = sorted(entry for command in commands for entry in command.history())
    assert history == [(0, "firing"), (60, "firing"), (200, "resolved"), (200, "resolved")]


def test_a_command_that_is_started_again_continues_and_tells_nothing_twice() -> None:
    registry = Registry()
    first = Command(registry)
    for second in range(0, 100, 10):
        first.look(second, nobody())
    again = Command(registry, "b")
    for second in range(100, 200, 10):  # it has not seen the fault for as long as it has to last, and does not end it
        again.look(second, nobody())
    assert again.sent == []
    again.look(200)
    assert again.history() == [(200, "resolved")]


def test_a_message_whose_command_was_killed_is_sent_by_another_one() -> None:
    registry = Registry()
    dead, other = Command(registry, "a"), Command(registry, "b")
    assert dead.look(0, failing(), delivers=False)
    other.look(CLAIM_SECONDS - 1, failing())
    assert other.sent == []
    other.look(CLAIM_SECONDS, failing())
    assert other.history() == [(CLAIM_SECONDS, "firing")]


def test_a_fault_that_ends_while_its_message_is_on_its_way_is_told_to_be_over_afterwards(command: Command) -> None:
    messages = command.look(0, failing(), delivers=False)
    command.look(10)
    command.deliver(20, messages)
    command.look(21)
    assert command.history() == [(20, "firing"), (21, "resolved")]


def test_what_a_worker_has_told_is_told_again_only_when_it_lasts(command: Command) -> None:
    given_up = Condition(AlertKey("given-up", "billing"), "a run was given up", is_notified=True)
    command.look(0, given_up)
    command.look(100, given_up)
    assert command.sent == []
    command.look(REPEAT, given_up)
    command.look(REPEAT + 60)
    assert command.history() == [(REPEAT, "firing"), (REPEAT + 60, "resolved")]


def test_what_is_not_certain_begins_no_alert_and_ends_none(command: Command) -> None:
    doubtful = Condition(FAILING, "item 0 failed once", begins=False)
    command.look(0, doubtful)
    assert command.registry.nodes == {}
    command.look(10, failing())
    command.look(20, doubtful)
    assert command.history() == [(10, "firing")]
    assert command.registry.states()[FAILING].fires


def test_an_alert_without_a_target_is_kept_and_told_to_nobody() -> None:
    planner = Planner("a", AFTER, REPEAT)
    plan = planner.plan([failing()], {}, lambda _: None, 0)
    assert plan.messages == []
    state = plan.writes[FAILING]
    assert state is not None
    assert state.fires


def test_an_alert_that_is_over_is_forgotten_after_a_day(command: Command) -> None:
    command.look(0, failing())
    command.look(10)
    command.look(10 + KEPT - 1)
    assert FAILING in command.registry.nodes
    command.look(10 + KEPT)
    assert command.registry.nodes == {}


def test_nothing_is_written_while_nothing_changes(command: Command) -> None:
    command.look(0, failing())
    before = command.registry.written
    for second in range(10, 3600, 10):
        command.look(second, failing())
    assert command.registry.written == before


def test_the_time_of_an_interruption_does_not_count(command: Command) -> None:
    command.look(0, nobody())
    command.planner.forget()
    command.look(59, nobody())
    command.look(60, nobody())
    assert command.sent == []
    command.look(59 + AFTER, nobody())
    assert len(command.sent) == 1


def test_a_node_that_somebody_has_made_by_hand_is_no_state() -> None:
    for data in (b"", b"hello", b"[]", b'{"kind": "late"}', b"[" * 1000):
        assert decode(data) is None


Step = Literal["fault", "no fault", "works", "fails", "restart"]


@given(st.lists(st.sampled_from(["fault", "no fault", "works", "fails", "restart"]), max_size=60), st.integers(1, 400))
def test_whatever_happens_people_know_in_the_end_how_it_is_and_of_every_episode(steps: list[Step], pause: int) -> None:
    registry = Registry()
    works = True

    def delivers() -> bool:
        return works

    commands = [Command(registry, name, delivers) for name in "ab"]
    second = 0.0
    episodes = list[float]()
    faulty = False
    for number, step in enumerate(steps):
        second += pause
        works = step == "works" or (works and step != "fails")
        if step == "restart":
            old = commands[number % 2]
            commands[number % 2] = Command(registry, old.name, delivers, old.sent)
        now_faulty = step == "fault" or (faulty and step != "no fault")
        if now_faulty and not faulty:
            episodes.append(second)
        faulty = now_faulty
        for command in commands:
            command.look(second, *([failing()] if faulty else []))
    works = True
    for _ in range(5):
        second += 2 * INTERVAL
        for command in commands:
            command.look(second, *([failing()] if faulty else []))
    sent = sorted((one for command in commands for one in command.sent), key=lambda one: one.at)
    told = set[float]()
    left_out = 0
    for one in sent:
        told.add(one.alerts[0].since)
        told.update(episode.since for episode in one.alerts[0].unreported)
        left_out += one.alerts[0].left_out
    assert len(told) + left_out == len(episodes)
    if episodes:
        assert sent[-1].said == ["firing" if faulty else "resolved"]
