"""Random histories of one instance: every moment is run, reported or excused, none is reported twice.

And every row of the table that says what becomes of moments is used, with ``misfire`` and without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import product
from random import Random
from typing import Any
from unittest import mock

import pytest

from aioelasticjob.core.commands import MarkMissed, ReadItems
from aioelasticjob.core.state import Came, Timetable
from aioelasticjob.core.step import JobState
from aioelasticjob.model import Fire, FireSource, Record, Requested
from tests.core.cases import BEGIN, LAYOUT, ME, OTHER, Case
from tests.core.test_account_clocks import ClockLife

SEEDS, BATCH, STEPS, CLOCKS = 300, 100, 60, 40
CRONS = ("* * * * * ?", "0/2 * * * * ?", "0/3 * * * * ?", "1/5 * * * * ?")
SERVER_OFF = LAYOUT.server_disabled("10.0.0.1")


class Life:
    """One instance, another that may run its items, and an account of every moment."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = Random(f"account {seed}")
        self.refusals = Random(f"refusals {seed}")
        self.misfire, self.count = seed % 2 == 0, dice.choice([1, 2, 4])
        settings = {"misfire": self.misfire, "failover": dice.random() < 0.5}
        self.case = Case.of(self.count, dice.choice(CRONS), **settings)
        self.case.put(LAYOUT.servers)
        self.state = self.case.state()
        self.schedules = [(self.case.config.schedule, self.ms)]
        self.ran = {item: Counter[int]() for item in range(self.count)}
        self.excused = {item: set[int]() for item in range(self.count)}
        """Stretches, by their ends, are kept as moments: of every second."""
        self.looked, self.known_off = self.ms, set[int]()
        self.calls: list[str] = []
        self.look()

    @property
    def ms(self) -> int:
        return int((BEGIN + self.case.now) * 1000)

    def off(self) -> set[int]:
        """Return the items that are not to be run here: they are switched off, or the other instance holds them."""
        if SERVER_OFF in self.case.nodes:
            return set(range(self.count))
        nodes = self.case.nodes
        given = {n for n in range(self.count) if nodes[LAYOUT.item(n).instance].data == OTHER.encode()}
        return given | {item for item in range(self.count) if LAYOUT.item(item).disabled in nodes}

    def excuse(self, items: Iterable[int]) -> None:
        """Excuse what has come since the last look, and what was still owed then."""
        for item in items:
            self.excused[item].update(range(min(self.looked, self.state.timetable.newest) // 1000, self.ms // 1000 + 1))

    def look(self) -> None:
        """Look at the registry, which may refuse a command at first.

        What comes is excused while an item is switched off, as far as this instance knows.
        """
        self.excuse(self.off() | self.known_off)
        self.looked, self.known_off = self.ms, self.off()
        if self.refusals.random() < 0.2:
            self.case.refused = [self.refusals.choice([ReadItems, MarkMissed])]
            self.case.see(self.state)
            self.case.refused.clear()
        self.case.see(self.state)

    def live(self) -> None:
        for _ in range(STEPS):
            self.case.now += self.dice.choice([0.2, 0.7, 1.0, 1.0, 2.6, 5.3])
            action = self.dice.choice(
                [self.fire] * 6
                + [self.look, self.free, self.switch_item, self.switch_server, self.be_cut_off]
                + [self.mark_outdated, self.reschedule, self.give, self.switch_records, self.claim_ahead]
            )
            self.calls.append(f"{self.case.now:.1f} {action.__name__}")
            action()
        self.end()

    def end(self) -> None:
        """Let all be well again, and run what is owed."""
        for item in range(self.count):
            self.case.drop(LAYOUT.item(item).disabled)
            self.case.drop(LAYOUT.item(item).orphan)
        if SERVER_OFF in self.case.nodes:
            self.excuse(range(self.count))
            self.case.drop(SERVER_OFF)
        for item in range(self.count):
            if self.case.nodes[LAYOUT.item(item).instance].data != ME.encode():
                self.give(item)
        self.rescued()
        self.look()
        while self.elsewhere():
            self.free()
        self.look()
        self.fire(calm=True)
        self.fire(calm=True)

    def fire(self, *, calm: bool = False) -> None:
        """Run what is owed, for a while; another instance may run some of it, or something may stand in the way."""
        self.look()
        state, case = self.state, self.case
        owed = state.claimable() - self.off()
        if not owed:
            return
        fire = Fire(state.timetable.newest, state.source(owed))
        refused = frozenset(n for n in owed if not calm and self.dice.random() < 0.1)
        blocked = frozenset(n for n in owed - refused if not calm and self.dice.random() < 0.05)
        if refused:
            case.running |= refused
            case.tell(state, lambda: state.note_running_elsewhere(refused, fire))
        if blocked:
            case.tell(state, lambda: state.note_obstructed(blocked, fire))
        self.run(owed - refused - blocked, fire.slot, 0.1 if calm else self.dice.choice([0.1, 0.3, 2.2, 4.4]))

    def run(self, items: frozenset[int], slot: int, seconds: float) -> None:
        if not items:
            return
        for item in items:
            self.ran[item][slot // 1000] += 1
        self.case.claim(self.state, items, slot)
        self.case.now += seconds
        if self.dice.random() < 0.1:
            self.dice.choice([self.switch_item, self.reschedule, self.switch_server])()
        self.case.settle(self.state, items)
        self.state.items.ran(items, slot)
        self.excuse(self.off())
        self.case.tell(self.state, lambda: self.state.run_ended(self.case.view()))

    def claim_ahead(self) -> None:
        """Claim the next moment before it comes; an item may come free meanwhile."""
        self.look()
        state, upcoming = self.state, self.state.timetable.upcoming
        assert upcoming is not None
        if upcoming - self.ms > 2500 or state.claimable():
            return
        items = state.claimable(upcoming) - self.off()
        if items:
            for item in self.elsewhere() if self.dice.random() < 0.7 else ():
                self.end_elsewhere(item)
            self.case.now = upcoming / 1000 - BEGIN
            self.case.tell(state, lambda: state.advance_to(upcoming))
            self.run(items, upcoming, 0.1)

    def elsewhere(self) -> list[int]:
        """Return the items that another instance runs."""
        return [number for number, item in sorted(self.state.items.items()) if item.elsewhere]

    def free(self) -> None:
        """Let what another instance runs come to its end."""
        if self.elsewhere():
            self.end_elsewhere(self.dice.choice(self.elsewhere()))

    def end_elsewhere(self, item: int) -> None:
        self.case.running.discard(item)
        if self.state.items[item].seen is not None:
            self.complete(item)
            self.case.learn(self.state, item)
        self.case.tell(self.state, lambda: self.state.released(item))

    def complete(self, item: int) -> None:
        if item in self.case.records:
            self.case.settle(self.state, frozenset([item]))

    def switch_item(self) -> None:
        path = LAYOUT.item(self.dice.randrange(self.count)).disabled
        self.switch(path)

    def switch_server(self) -> None:
        if self.dice.random() < 0.5 or SERVER_OFF in self.case.nodes:
            self.switch(SERVER_OFF)

    def switch(self, path: str) -> None:
        if path in self.case.nodes:
            self.excuse(self.off())
            self.case.drop(path)
        else:
            self.case.put(path)

    def be_cut_off(self) -> None:
        """Let an item's run be cut off and wait for its rescue, or let that be over."""
        if not self.case.config.failover or not self.case.config.monitor_execution:
            return
        item = self.dice.randrange(self.count)
        if LAYOUT.item(item).orphan in self.case.nodes:
            return self.rescued()
        if item in self.case.records and not self.elsewhere():
            self.case.put(LAYOUT.orphans)
            self.case.put(LAYOUT.item(item).orphan)
            record = self.case.records[item]
            self.case.records[item] = Record(record.slot, "CRON", OTHER, record.begun, completed=False)
            self.case.learn(self.state, item)
        return None

    def rescued(self) -> None:
        for item in range(self.count):
            self.case.drop(LAYOUT.item(item).orphan)
            record = self.case.records.get(item)
            if record is not None and not record.completed and item not in self.case.running:
                self.case.records[item] = Record(record.slot, "FAILOVER", OTHER, record.begun, completed=True)

    def mark_outdated(self) -> None:
        began = self.case.now
        self.case.now += self.dice.choice([0.5, 1.5, 4.0])
        self.case.outages.append((began, self.case.now))
        self.look()

    def reschedule(self) -> None:
        """Change the schedule: what comes from now on is the new one's."""
        if self.ms - self.schedules[-1][1] > 3000:
            before = self.case.config.cron
            self.case.configure(cron=self.dice.choice(CRONS))
            if self.case.config.cron != before:
                self.schedules.append((self.case.config.schedule, self.ms))

    def switch_records(self) -> None:
        """Switch the records off, when nothing waits, and on again."""
        if self.case.config.failover:
            return  # which needs them
        if self.dice.random() < 0.3 or not self.case.config.monitor_execution:
            on = not self.case.config.monitor_execution
            if not on:
                self.look()
            self.case.configure(monitor_execution=on)
            self.schedules.append((self.case.config.schedule, self.ms))
            if not on:
                self.case.records.clear()
            self.look()

    def give(self, item: int | None = None) -> None:
        """Give an item to the other instance, which runs all that comes, or take it back."""
        chosen = self.dice.randrange(self.count) if item is None else item
        holder = self.case.nodes[LAYOUT.item(chosen).instance].data
        if holder == OTHER.encode():
            self.excuse([chosen])
            self.case.give(chosen, ME)
        elif not self.case.config.monitor_execution:
            return
        elif chosen not in self.elsewhere() and LAYOUT.item(chosen).orphan not in self.case.nodes:
            self.case.give(chosen, OTHER)
            self.look()

    # What has become of each moment.

    def expected(self, item: int) -> Iterable[int]:
        """Yield the moments of an item, by the second: those of each schedule while it was in force."""
        ends = [*(since for _, since in self.schedules[1:]), self.state.timetable.newest]
        for (cron, since), until in zip(self.schedules, ends, strict=True):
            table, last = Timetable(cron, until), since
            while (passed := table.passed(last, until)) is not None:
                yield passed.first // 1000
                last = passed.first

    def reported(self, item: int) -> Counter[int]:
        """Return how often each moment was reported, by the second."""
        found = Counter[int]()
        for report in self.case.reports:
            if item in report.items:
                crons = [self.schedules[-1][0]] if len(self.schedules) == 1 else [cron for cron, _ in self.schedules]
                seconds = {report.passed.first // 1000, report.passed.last // 1000}
                for cron in crons:
                    table, last = Timetable(cron, report.passed.last), report.passed.first
                    while (passed := table.passed(last, report.passed.last)) is not None:
                        seconds.add(passed.first // 1000)
                        last = passed.first
                found.update(seconds)
        return found

    def wrong(self) -> list[str]:
        """Return which moments were lost, and which were reported twice or run without need."""
        found = []
        for item in range(self.count):
            reported = self.reported(item)
            for second in self.expected(item):
                at, ran = second - BEGIN, self.ran[item][second]
                if not (ran or reported[second] or second in self.excused[item]):
                    found.append(f"item {item}: {at} is lost")
                if reported[second] > 1 and len(self.schedules) == 1:
                    found.append(f"item {item}: {at} is reported {reported[second]} times")
                if ran > 1:
                    found.append(f"item {item}: {at} is run {ran} times")
        return found


NEVER = {(Came.OVERTAKEN, False)}
visits = Counter[tuple[Came, bool]]()


@pytest.fixture(scope="module", autouse=True)
def _counting() -> Any:
    """Count how often each row of the table accounts for a moment."""
    original: Any = JobState._account

    def account(self: JobState, items: Iterable[int], came: Came, **options: Any) -> None:
        numbers = frozenset(items)
        before = [(self.items[n].reported, self.items[n].floor, self.items[n].late) for n in sorted(numbers)]
        original(self, numbers, came, **options)
        after = [(self.items[n].reported, self.items[n].floor, self.items[n].late) for n in sorted(numbers)]
        visits[came, self.view.config.misfire] += before != after

    with mock.patch.object(JobState, "_account", account):
        yield


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_every_moment_is_run_reported_or_excused_and_none_is_reported_twice(first: int) -> None:
    for seed in range(first, first + BATCH):
        life = Life(seed)
        life.live()
        assert not life.wrong(), "\n".join([f"seed {seed}, {life.case.config.cron}", *life.wrong(), *life.calls])


@pytest.mark.parametrize(
    ("fire", "reports"),
    [
        (Fire(7_000, FireSource.TRIGGER), 1),
        (Fire(7_000, FireSource.TRIGGER, requested=Requested("r1", 0, {})), 0),
        (Fire(7_000, FireSource.BACKFILL, requested=Requested("r1", 0, {})), 0),
        (Fire(7_000, FireSource.FAILOVER), 0),
    ],
)
def test_what_is_obstructed_is_missed_unless_it_is_tried_again(fire: Fire, reports: int) -> None:
    case = Case.of(items=2)
    state = case.state()
    case.see(state)
    case.tell(state, lambda: state.note_obstructed({1}, fire))
    assert [(one.items, one.passed.last) for one in case.reports] == [((1,), 7_000)] * reports


def test_every_row_of_the_table_is_used() -> None:
    for seed in range(BATCH):
        Life(seed).live()
    for seed in range(CLOCKS):
        ClockLife(seed).live()
    # without misfire an item that comes free owes nothing that could be overtaken
    assert {visit for visit, count in visits.items() if count} == {*product(Came, (True, False))} - NEVER, visits
