"""What an instance runs next, decided without waiting: orphans, then what operators asked for, then what is due."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from aioelasticjob.core import records
from aioelasticjob.core.choice import RESCUE, Choice
from aioelasticjob.core.commands import (
    AwaitMoment,
    AwaitRescueEnd,
    ClaimItems,
    ClaimResult,
    Command,
    GiveBack,
    JoinRun,
    NoteAnswer,
    ReadItems,
    ReadOffsets,
    ReadRequested,
    RemoveOrphanMark,
    RunItems,
    SayRefused,
    SettleEnded,
    Steps,
)
from aioelasticjob.core.items import Lock
from aioelasticjob.core.reasons import AWAY, BUSY, OBSTRUCTED
from aioelasticjob.core.requests import Request, Span, encode, encode_progress
from aioelasticjob.errors import ClockSkew, NotPermitted, RegistryError, SessionEnded, Suspended
from aioelasticjob.model import EndedItem, FireSource, Outcome, Progress, Requested
from tests.core.cases import BEGIN, LAYOUT, ME, OTHER, Case
from tests.schedules.made import schedule

LEAD = 200
"""How many milliseconds before a moment its claim is sent."""


def slot(second: float) -> int:
    return int((BEGIN + second) * 1000)


@dataclass
class Chosen:
    """One instance that chooses what to run, and the commands that it gave.  Each test says what differs."""

    case: Case
    commands: list[Command] = field(default_factory=list)
    answers: dict[type, Callable[[Any], object]] = field(default_factory=dict)
    """What is answered to commands of a type, in place of what goes well."""
    with_offset: set[int] = field(default_factory=set)
    """The items that may have an offset."""

    def __post_init__(self) -> None:
        self.state = self.case.state()
        self.case.see(self.state)
        self.choose_as(ME)

    def choose_as(self, instance: str) -> None:
        """Go on as this instance."""
        self.choice = Choice(instance, self.state, LEAD, self.with_offset.intersection)  # type: ignore[arg-type]

    def run_next(self) -> ClaimResult | None:
        """Let the instance see the nodes, and run what comes first until it has ended."""
        taken = self.begin_next()
        self.end_all()
        return taken

    def begin_next(self) -> ClaimResult | None:
        """Let the instance see the nodes, and begin what comes first."""
        self.case.see(self.state)
        self.commands.clear()
        if (steps := self.choice.next_run(self.state.view)) is None:
            self.case.take_reports(self.state)
            return None
        return self.give(steps)  # type: ignore[no-any-return]

    def end_all(self) -> None:
        """Let all runs end that go on."""
        for claim in self.state.open:
            self.give(self.choice.ended(claim, self.case.end(claim)))

    def give(self, steps: Steps[Any]) -> Any:
        """Do what is commanded, and return what the steps return."""
        answer, error = None, None
        while True:
            try:
                command = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                self.case.take_reports(self.state)
            self.commands.append(command)
            answer = error = None
            try:
                answer = self.answers.get(type(command), self.perform)(command)
            except RegistryError as failure:
                error = failure
            self.state.clock.take(self.case.reading())

    def perform(self, command: Command) -> object:
        match command:
            case ReadOffsets():
                return {}
            case ClaimItems():
                return self.case.take(command)
            case AwaitMoment(_, claim):
                self.case.now = max(self.case.now, claim.fire.slot / 1000 - BEGIN)
                return True
            case RunItems():
                return None
            case JoinRun():
                return True
            case _:
                return self.case.answer(command)

    @property
    def claimed(self) -> list[tuple[FireSource, float, list[int]]]:
        """The source, the moment in seconds since ``BEGIN`` and the items of each claim."""
        claims = [one for one in self.commands if isinstance(one, ClaimItems)]
        return [(one.fire.source, one.fire.slot / 1000 - BEGIN, sorted(one.wanted)) for one in claims]

    def gave(self, kind: type[Command]) -> list[Command]:
        return [command for command in self.commands if isinstance(command, kind)]

    def said(self, kind: type) -> list[Any]:
        return [report for report in self.case.done if isinstance(report, kind)]

    def orphan(self, item: int, **changes: Any) -> None:
        """Let an item's run on the other instance be cut off."""
        self.case.was_cut_off(item, 0, **changes)
        self.case.give(item, OTHER)
        self.case.put(LAYOUT.orphans)
        self.case.put(LAYOUT.item(item).orphan, b"{}")

    def ask(self) -> None:
        """Let somebody ask for a run of all items."""
        self.case.put(LAYOUT.requests)
        self.case.put(LAYOUT.request("r"), encode(Request("r", FireSource.TRIGGER, 2, slot(-1))))


def chosen(items: int = 1, **settings: Any) -> Chosen:
    return Chosen(Case.of(items, **{"failover": True, **settings}))


def test_an_orphan_comes_before_a_request_and_a_request_before_what_is_due() -> None:
    here = chosen(2)
    here.orphan(1)
    here.ask()
    here.case.now = 1.2
    sources = []
    for node in (LAYOUT.item(1).orphan, LAYOUT.request("r"), None):
        assert here.run_next() is not None
        sources += [source for source, *_ in here.claimed]
        if node is not None:
            here.case.drop(node)
    # the moment waited for the run that somebody had asked for
    assert sources == [FireSource.FAILOVER, FireSource.TRIGGER, FireSource.MISFIRE]
    assert here.run_next() is None
    assert here.commands == []


def test_what_is_due_is_claimed_then_run_and_then_what_came_meanwhile_is_run_late() -> None:
    here = chosen(2)

    def run(command: RunItems) -> object:
        here.case.now = 4.5
        return here.perform(command)

    here.case.now, here.answers = 1.1, {RunItems: run}
    here.run_next()
    assert [type(command) for command in here.commands] == [ClaimItems, AwaitMoment, RunItems]
    assert here.claimed == [(FireSource.SCHEDULE, 1.0, [0, 1])]
    assert here.case.reports == []
    here.answers.clear()
    here.run_next()
    assert here.claimed == [(FireSource.MISFIRE, 4.0, [0, 1])]
    assert here.case.reported(0) == here.case.reported(1) == [(2, 3, BUSY)]


def test_a_claim_is_sent_ahead_only_within_its_lead() -> None:
    here = chosen(cron="0/10 * * * * ?")
    here.case.now = 9.79
    assert here.run_next() is None
    here.case.now = 9.81
    here.run_next()
    assert here.claimed == [(FireSource.SCHEDULE, 10.0, [0])]


def test_no_claim_is_sent_ahead_by_a_clock_that_is_not_tolerated() -> None:
    here = chosen(cron="0/10 * * * * ?", max_time_diff_seconds=0)
    here.case.now, here.case.ahead = 9.9, 0.4
    assert here.run_next() is None
    assert here.claimed == []


def test_a_view_that_became_outdated_while_offsets_were_read_claims_nothing() -> None:
    here = chosen()
    here.case.now = 1.1

    def read(_: ReadOffsets) -> object:
        here.state.view.tree.mark_outdated()
        return {}

    here.with_offset.add(0)
    here.answers = {ReadOffsets: read}
    assert here.run_next() == ClaimResult()
    assert here.claimed == []


def test_the_offsets_of_items_that_may_have_one_are_read_before_the_claim() -> None:
    here = chosen(3)
    here.case.now = 1.1
    here.with_offset.update({1, 2})
    here.answers = {ReadOffsets: lambda _: {1: "here"}}
    here.run_next()
    assert here.commands[0] == ReadOffsets(frozenset({1, 2}))
    (ran,) = here.gave(RunItems)
    assert isinstance(ran, RunItems)
    assert ran.offsets == {1: "here"}


def test_items_whose_record_or_lock_has_changed_are_read_again_and_the_others_claimed() -> None:
    here = chosen(2)
    here.case.now = 1.1
    here.case.see(here.state)
    here.case.ran(1, 1)
    view = here.state.view
    steps = here.choice.next_run(view)
    assert steps is not None
    claim = next(steps)
    assert isinstance(claim, ClaimItems)
    with pytest.raises(StopIteration) as ended:
        steps.send(here.case.take(claim))
    assert ended.value.value.claim is None
    here.run_next()
    assert here.claimed == [(FireSource.SCHEDULE, 1.0, [0])]
    assert here.case.reports == []


def test_items_that_run_elsewhere_are_run_late_when_that_has_ended() -> None:
    here = chosen(2)
    here.case.was_cut_off(1, 0)
    here.case.locks[1] = Lock.OTHERS
    here.state.read_again([1])
    here.case.now = 1.1
    here.run_next()
    assert here.claimed == [(FireSource.SCHEDULE, 1.0, [0])]
    here.case.locks.clear()
    here.case.ran(1, 0, completed_at=slot(1.3))
    here.state.released(1)
    here.case.now = 1.5
    here.run_next()
    assert here.claimed == [(FireSource.MISFIRE, 1.0, [1])]
    assert here.case.reports == []


def test_items_that_nodes_made_by_hand_keep_from_being_claimed_have_missed_their_moment() -> None:
    here = chosen(2)
    here.case.now = 1.1
    here.answers[ClaimItems] = lambda one: ClaimResult(renewed=frozenset(one.wanted), obstructed=frozenset({1}))
    here.run_next()
    del here.answers[ClaimItems]
    here.run_next()
    assert here.claimed == [(FireSource.SCHEDULE, 1.0, [0])]
    assert here.case.reported(1) == [(1, 1, OBSTRUCTED)]
    here.case.now = 2.1
    here.run_next()
    assert here.claimed == [(FireSource.SCHEDULE, 2.0, [0, 1])]


def test_a_claim_ahead_with_an_outdated_view_is_sent_again_at_once() -> None:
    here = chosen()
    here.case.now = 0.9
    here.answers[ClaimItems] = lambda _: ClaimResult(stale=True)
    here.run_next()
    del here.answers[ClaimItems]
    here.run_next()
    assert here.claimed == [(FireSource.SCHEDULE, 1, [0])]


def test_a_claim_ahead_waits_for_its_moment_which_is_then_run_on_time() -> None:
    here = chosen()
    here.case.now = 0.9
    here.run_next()
    assert [type(command) for command in here.commands] == [ClaimItems, AwaitMoment, RunItems]
    assert here.state.timeline.newest == 0  # the next pass moves on
    assert here.case.reported() == []


def test_a_claim_that_was_not_written_is_run_though_its_moment_seems_to_lie_ahead() -> None:
    here = chosen(failover=False, monitor_execution=False)
    here.case.now = 1.1
    here.with_offset.add(0)

    def read(_: ReadOffsets) -> object:
        here.case.now = 0.99  # the clock was set back a little meanwhile
        return {}

    here.answers = {ReadOffsets: read}
    here.run_next()
    assert [type(command) for command in here.commands] == [ReadOffsets, ClaimItems, RunItems]


def test_a_claim_whose_timer_rings_before_the_clock_shows_the_moment_waits_on() -> None:
    here = chosen()
    here.case.now = 0.9
    rings = iter([0.9998, 0.9999, 1.0])

    def ring(_: AwaitMoment) -> bool:
        here.case.now = next(rings)
        return True

    here.answers = {AwaitMoment: ring}
    here.run_next()
    assert [type(command) for command in here.commands] == [ClaimItems, *[AwaitMoment] * 3, RunItems]
    assert here.case.reported() == []


@pytest.mark.parametrize(
    ("comes", "now"),
    [(False, 0.95), (True, 2.1), (True, -60.0)],
    ids=["the view changed", "the machine slept", "the clock was set back"],
)
def test_a_claim_whose_moment_passes_it_by_is_given_back_and_accounts_for_nothing(comes: bool, now: float) -> None:
    here = chosen()
    here.case.now = 0.9

    def pass_by(_: AwaitMoment) -> bool:
        here.case.now = now
        return comes

    here.answers = {AwaitMoment: pass_by}
    here.run_next()
    assert [type(command) for command in here.commands] == [ClaimItems, AwaitMoment, GiveBack]
    assert here.case.reported() == []


def test_a_claim_is_run_though_the_registry_has_answered_it_after_the_next_moment() -> None:
    """Otherwise a slow registry would keep a frequent job from running at all."""
    here = chosen()
    here.case.now = 0.9

    def answer_late(command: ClaimItems) -> object:
        here.case.now = 2.1
        return here.perform(command)

    here.answers = {ClaimItems: answer_late}
    here.run_next()
    assert [type(command) for command in here.commands] == [ClaimItems, AwaitMoment, RunItems]


def test_a_moment_refused_because_of_the_clock_is_given_up_only_by_the_items_that_owe_it() -> None:
    """An item that comes from another instance afterwards is still due, and runs once the clock is right."""
    here = chosen(2, cron="0/10 * * * * ?", max_time_diff_seconds=0)
    here.case.give(1, OTHER)
    here.case.see(here.state)
    here.case.now, here.case.ahead = 10.5, 0.4
    assert here.run_next() is None
    assert [one.again for one in here.said(SayRefused)] == [False]
    here.case.ahead = 0.0
    here.case.give(1, ME)
    here.case.now = 11.0
    here.run_next()
    assert here.claimed == [(FireSource.SCHEDULE, 10.0, [1])]


def test_only_the_first_refused_fire_of_a_series_is_to_be_logged() -> None:
    here = chosen(max_time_diff_seconds=0)
    for now, ahead in ((1.1, 0.4), (2.1, 0.4), (3.1, 0), (4.1, 0.4)):
        here.case.now, here.case.ahead = now, ahead
        here.run_next()
    assert [one.again for one in here.said(SayRefused)] == [False, True, False]
    assert all(isinstance(one.why, ClockSkew) for one in here.said(SayRefused))


def test_orphans_that_are_not_rescued_because_of_the_clock_are_reported_once_for_those_that_wait_together() -> None:
    here = chosen(4, cron="0 0 0 1 1 ? 2090", max_time_diff_seconds=3)
    here.case.ahead = -5.0
    for items in ({1, 2}, {1, 2}, {2}, {2, 3}, set[int](), {1, 2}):
        for item in range(4):
            here.case.drop(LAYOUT.item(item).orphan)
        for item in items:
            here.orphan(item)
        assert here.run_next() is None
    assert len(here.said(SayRefused)) == 3


@pytest.mark.parametrize("error", [Suspended("no connection"), SessionEnded("over")])
def test_without_a_session_no_other_orphan_is_tried(error: RegistryError) -> None:
    here = chosen(2)
    here.orphan(0)
    here.orphan(1)

    def fail(_: Command) -> object:
        raise error

    here.answers[ReadItems] = fail
    with pytest.raises(type(error)):
        here.run_next()
    assert len(here.commands) == 1


def test_if_the_registry_refuses_one_rescue_the_next_orphan_is_rescued() -> None:
    here = chosen(2)
    here.orphan(0)
    here.orphan(1)
    here.run_next()
    (first,) = (items for _, _, items in here.claimed)
    error = NotPermitted("/job")

    def claim(one: ClaimItems) -> object:
        if sorted(one.wanted) == first:
            raise error
        return here.perform(one)

    here.case.done.clear()
    for item in first:
        here.orphan(item)
    here.answers[ClaimItems] = claim
    taken = here.run_next()
    assert taken is not None
    assert [items for _, _, items in here.claimed] == [first, [1 - first[0]]]
    assert here.said(NoteAnswer) == [NoteAnswer(RESCUE, error), NoteAnswer(RESCUE)]


def test_the_mark_of_an_orphan_whose_run_has_ended_is_removed() -> None:
    here = chosen(2, cron="0 0 0 1 1 ? 2090")
    here.orphan(1, completed=True)
    assert here.run_next() is None
    assert [type(one) for one in here.commands] == [ReadItems, RemoveOrphanMark]
    assert here.state.items.keys() == {0}  # another instance holds it


def test_an_orphan_that_was_rescued_too_often_is_left_to_the_leader() -> None:
    here = chosen(2, cron="0 0 0 1 1 ? 2090", max_rescues=2)
    here.orphan(1, rescues=2)
    assert here.run_next() is None
    assert [type(one) for one in here.commands] == [ReadItems]


def test_a_rescue_goes_on_for_the_request_whose_run_was_cut_off() -> None:
    here = chosen(2, cron="0 0 0 1 1 ? 2090")
    here.orphan(1, source="TRIGGER", asked=slot(0), request="r")
    requested = Requested("r", 0, {1: (Progress(slot(0)), 0)})
    here.answers[ReadRequested] = lambda one: dict.fromkeys(one.records, requested)
    here.run_next()
    (claim,) = here.gave(ClaimItems)
    assert isinstance(claim, ClaimItems)
    assert claim.fire.requested == requested


def test_a_rescue_of_an_own_item_is_waited_for_until_the_view_shows_its_end() -> None:
    here = chosen(2, cron="0 0 0 1 1 ? 2090")
    here.orphan(1)
    here.case.give(1, ME)
    here.run_next()
    assert here.commands[-1] == AwaitRescueEnd(frozenset({1}))


def test_an_orphan_whose_record_was_out_of_date_is_decided_anew() -> None:
    here = chosen(2, cron="0 0 0 1 1 ? 2090")
    here.orphan(1)
    tried = list[int]()

    def claim(one: ClaimItems) -> object:
        tried.append(one.fire.slot)
        if len(tried) == 1:
            here.case.was_cut_off(1, 0.25)
        return here.perform(one)

    here.answers[ClaimItems] = claim
    here.run_next()
    assert tried == [slot(0), slot(0.25)]


def test_a_run_that_ends_while_its_rescue_is_prepared_is_not_rescued_and_loses_its_mark() -> None:
    here = chosen(2, cron="0 0 0 1 1 ? 2090")
    here.orphan(1)

    def read(_: ReadOffsets) -> object:
        here.case.ran(1, 0)
        return {}

    here.answers[ReadOffsets] = read
    assert here.run_next() is None
    kinds = [ReadItems, ReadOffsets, ClaimItems, ReadItems, RemoveOrphanMark]
    assert [type(one) for one in here.commands] == kinds


def with_orphans(*items: int, **changes: Any) -> Chosen:
    """Return the choice of the only instance that is up; these items were cut off in the same fire."""
    here = chosen(max(items) + 1, cron="0 0 0 1 1 ? 2090")
    for item in items:
        here.orphan(item, **changes)
    here.case.drop(LAYOUT.instance(OTHER))
    return here


def test_orphans_of_one_fire_are_rescued_in_one_run() -> None:
    here = with_orphans(0, 1, 3)
    here.answers[ReadOffsets] = lambda one: dict.fromkeys(one.items, "there")
    here.run_next()
    assert here.claimed == [(FireSource.FAILOVER, 0.0, [0, 1, 3])]
    (ran,) = here.gave(RunItems)
    assert isinstance(ran, RunItems)
    assert ran.offsets == {0: "there", 1: "there", 3: "there"}
    assert here.state.items.keys() == {2}  # another instance holds them


def test_each_instance_takes_its_share_of_the_orphans() -> None:
    here, shares = chosen(5, cron="0 0 0 1 1 ? 2090"), list[list[int]]()
    for item in range(5):
        here.orphan(item)
    for me in (ME, OTHER):
        for item in range(5):
            here.case.was_cut_off(item, 0)
        here.choose_as(me)
        here.run_next()
        shares += [items for _, _, items in here.claimed]
    assert shares == [[0, 2, 4], [1, 3]]


@pytest.mark.parametrize(
    ("changes", "other"),
    [
        ({}, {"slot": slot(0.25)}),
        ({}, {"asked": slot(0)}),
        ({"asked": slot(0), "parameter": "p"}, {"parameter": "q"}),
        ({}, {"rescues": 2}),
    ],
    ids=["moment", "by an operator", "parameter", "its last rescue"],
)
def test_orphans_of_different_runs_are_not_rescued_together(changes: dict[str, Any], other: dict[str, Any]) -> None:
    here = with_orphans(0, 1, 2, **changes)
    here.orphan(1, **{**changes, **other})
    here.run_next()
    assert [items for _, _, items in here.claimed] == [[0, 2]]
    for item in (0, 2):
        here.case.drop(LAYOUT.item(item).orphan)
    here.run_next()
    assert [items for _, _, items in here.claimed] == [[1]]


@pytest.mark.parametrize(("rescues", "claimed"), [(0, [0, 1]), (1, [0, 1]), (2, [0])])
def test_the_last_rescue_that_an_orphan_may_have_is_made_alone(rescues: int, claimed: list[int]) -> None:
    """Otherwise a handler that ends its process would have those given up that are rescued with it."""
    here = with_orphans(0, 1, rescues=rescues)
    here.case.configure(max_rescues=3)
    here.run_next()
    assert [items for _, _, items in here.claimed] == [claimed]


def test_orphans_that_are_not_rescued_do_not_prevent_the_rescue_of_others() -> None:
    here = with_orphans(0, 1, 2, 3)
    here.orphan(0, completed=True)
    here.orphan(1, rescues=3)
    here.run_next()
    assert here.gave(RemoveOrphanMark) == [RemoveOrphanMark(0, here.case.records[0].version)]
    assert [items for _, _, items in here.claimed] == [[2, 3]]


def test_a_rescue_of_several_items_goes_on_with_their_request() -> None:
    here = with_orphans(0, 1, 2, source="TRIGGER", asked=slot(0), request="r")
    progress = {item: (Progress(slot(0), runs=item), item) for item in range(2)}
    here.answers[ReadRequested] = lambda one: {  # item 2 has run for the request since
        item: Requested("r", 0, {item: progress[item]}) for item in one.records.keys() & progress
    }
    here.run_next()
    (claim,) = here.gave(ClaimItems)
    assert isinstance(claim, ClaimItems)
    assert (set(claim.wanted), claim.fire.requested) == ({0, 1}, Requested("r", 0, progress))


@pytest.mark.parametrize("refused", [ReadItems, ReadOffsets, ClaimItems, None])
def test_if_orphans_cannot_be_rescued_together_each_is_tried_alone(refused: type[Command] | None) -> None:
    here = with_orphans(0, 1, 2)

    def refuse(command: Any) -> object:
        if 0 in (command.wanted if isinstance(command, ClaimItems) else command.items):
            if refused is None:
                return ClaimResult(stale=True)  # another instance has claimed item 0
            raise NotPermitted("/job")
        return here.perform(command)

    here.case.done.clear()
    here.answers[refused or ClaimItems] = refuse
    taken = here.run_next()
    assert taken is not None
    assert taken.claim is not None
    assert list(taken.claim.items) == [1]
    assert [type(one.error) for one in here.said(NoteAnswer)].count(NotPermitted) == (0 if refused is None else 2)


def test_if_the_record_of_one_orphan_was_out_of_date_all_are_decided_anew() -> None:
    here = with_orphans(0, 1)

    def read(_: ReadOffsets) -> object:
        if here.case.record(0).slot == slot(0):
            here.case.was_cut_off(0, 0.25)
        return {}

    here.answers[ReadOffsets] = read
    here.run_next()
    assert here.claimed == [(FireSource.FAILOVER, 0.0, [0, 1]), (FireSource.FAILOVER, 0.25, [0])]


def test_after_a_rescue_the_view_has_to_show_the_end_for_the_own_items_that_were_claimed() -> None:
    here = with_orphans(0, 1, 2, 3)
    for item in (0, 1, 2):
        here.case.give(item, ME)
    here.answers[ClaimItems] = lambda one: here.case.take(one, {0, 1, 3})
    here.run_next()
    assert here.commands[-1] == AwaitRescueEnd(frozenset({0, 1}))
    assert here.state.items.keys() == {0, 1, 2}


def test_a_request_that_was_changed_before_its_listeners_heard_of_it_runs_nothing() -> None:
    here = chosen(cron="0 0 0 1 1 ? 2090")
    here.ask()
    here.answers[JoinRun] = lambda _: False
    assert here.run_next() is None
    assert here.claimed == []


@pytest.mark.parametrize(("misfire", "source"), [(True, FireSource.MISFIRE), (False, FireSource.SCHEDULE)])
def test_backfills_and_scheduled_moments_take_turns(misfire: bool, source: FireSource) -> None:
    here = chosen(misfire=misfire)
    here.case.put(LAYOUT.requests)
    span = Span(slot(-100), slot(-90), schedule("* * * * * ?", dst="quartz"))
    here.case.put(LAYOUT.request("r"), encode(Request("r", FireSource.BACKFILL, 1, slot(-1), span=span)))
    sources, progress = [], LAYOUT.request_item("r", 0)
    for second in (1, 2):
        here.case.now = second + 0.1
        for _ in range(2):
            here.run_next()
            sources += [source for source, *_ in here.claimed]
            if sources[-1] is FireSource.BACKFILL:  # the claim notes how far the item has come
                here.case.put(progress, encode_progress(Progress(slot(-100 + second))))
    assert sources == [FireSource.BACKFILL, source] * 2  # the moment waited for the backfill
    assert here.case.reports == []


def test_an_item_is_not_claimed_again_for_a_request_until_the_view_shows_its_last_claim() -> None:
    here = chosen(cron="0 0 0 1 1 ? 2090")
    here.case.put(LAYOUT.requests)
    here.case.put(LAYOUT.request("r"), encode(Request("r", FireSource.TRIGGER, 1, slot(-1))))

    def claim_later(command: ClaimItems) -> ClaimResult:
        claim = here.case.take(command).claim
        assert claim is not None
        items = {item: replace(seen, zxid=here.case.zxid + 100) for item, seen in claim.items.items()}
        return ClaimResult(replace(claim, items=items))

    here.answers[ClaimItems] = claim_later
    seen = list[int]()
    for shown in (0, 0, 100):
        here.case.zxid += shown
        here.case.put(LAYOUT.requests)
        here.run_next()
        seen.append(len(here.claimed))
    assert seen == [1, 0, 1]


def test_a_moment_that_came_without_a_connection_is_run_late() -> None:
    here = chosen(misfire=True)
    here.case.outages.append((0.8, 1.3))
    here.case.now = 1.4
    here.run_next()
    assert here.claimed == [(FireSource.MISFIRE, 1.0, [0])]
    assert all(why == AWAY for *_, why in here.case.reported())


def one_of_two_has_ended() -> Chosen:
    """Return an instance that runs two independent items, of which item 0 has ended when the next moment comes."""
    here = chosen(2, independent_items=True)
    here.case.now = 1.1
    here.begin_next()
    (claim,) = here.state.open
    ended = records.ended(claim.items[0], Outcome.COMPLETED, slot(1.2))
    here.state.item_ended(0, EndedItem(claim, ended))
    here.case.now = 2.1
    return here


def test_an_independent_item_that_has_ended_is_settled_with_its_next_claim() -> None:
    here = one_of_two_has_ended()
    here.begin_next()
    (command,) = here.gave(ClaimItems)
    assert isinstance(command, ClaimItems)
    assert command.settling.keys() == command.wanted.keys() == {0}
    assert not here.gave(SettleEnded)
    assert not here.state.unsettled
    assert [sorted(claim.items) for claim in here.state.open] == [[0, 1], [0]]


@pytest.mark.parametrize("refused", [Suspended("there is no connection"), ClaimResult(stale=True)])
def test_what_has_ended_is_settled_alone_if_the_claim_that_settles_it_is_not_accepted(
    refused: RegistryError | ClaimResult,
) -> None:
    here = one_of_two_has_ended()
    (first,) = here.state.open

    def claim(_: ClaimItems) -> ClaimResult:
        if isinstance(refused, RegistryError):
            raise refused
        return refused

    here.answers = {ClaimItems: claim}
    if isinstance(refused, RegistryError):
        with pytest.raises(type(refused)):
            here.begin_next()
    else:
        here.begin_next()
    (settle,) = here.gave(SettleEnded)
    assert isinstance(settle, SettleEnded)
    assert settle.records.keys() == settle.claim.items.keys() == {0}
    assert here.state.open == (first, settle.claim)
    assert 0 not in here.state.free()  # until it is settled, nobody claims it
    here.give(here.choice.ended(settle.claim, {}))
    assert here.state.open == (first,)


def test_an_independent_item_that_nobody_here_claims_again_is_settled_alone() -> None:
    here = one_of_two_has_ended()
    here.give(here.choice.settle_unclaimed(here.case.view(), is_claiming=True))
    assert not here.gave(SettleEnded)  # the next moment has come, and is claimed with it
    here.case.give(0, OTHER)
    here.case.see(here.state)
    here.give(here.choice.settle_unclaimed(here.state.view, is_claiming=True))
    (settle,) = here.gave(SettleEnded)
    assert isinstance(settle, SettleEnded)
    assert settle.records.keys() == {0}


def test_a_switch_of_records_waits_until_what_has_ended_is_settled() -> None:
    here = one_of_two_has_ended()
    (claim,) = here.state.open
    here.state.ended({}, claim)
    here.case.configure(monitor_execution=False, failover=False)
    here.case.note()
    view = here.case.view()
    assert here.state.waits_for_runs(view)
    here.give(here.choice.settle(here.state.unsettled))
    (part,) = here.state.open
    assert here.state.waits_for_runs(view)
    here.state.ended({}, part)
    assert not here.state.waits_for_runs(view)
