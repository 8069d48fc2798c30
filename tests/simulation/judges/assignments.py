"""The promise that who holds what is decided as soon as it can be, and not by a tick that mends what was overlooked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import SWITCHES
from aioelasticjob.core.strategies import AssignmentInput, find, in_order
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.encoding import json_object
from aioelasticjob.model import Instance
from tests.simulation.facts import PROMPT, RESENT, Facts, Violation
from tests.support.history import Change, Nonsense, Raised, Written

K = TypeVar("K")
V = TypeVar("V")


def assigned_soon(facts: Facts) -> Iterator[Violation]:
    """An assignment that is due is written once membership has rested, by a leader whom nothing keeps from it."""
    states = {name: _State(name) for name in facts.jobs}
    # or mended, or gone; a node made by hand is no instance
    garbled = [one for one in facts.of_kind(Nonsense) if "/instances/" in one.path and "nonsense" not in one.path]
    as_written = [Written(one.at, 0, 0, (Change(one.path, one.data or None),)) for one in garbled]
    for written in sorted([*facts.of_kind(Written), *as_written], key=lambda one: one.at):
        for name, state in states.items():
            changes = [change for change in written.changes if change.path.startswith((f"/{name}/", f"{SWITCHES}/"))]
            if changes:
                yield from _judged(state, facts, written.at)
                state.take(changes, written.at)
    for state in states.values():
        yield from _judged(state, facts, facts.end)


RULES = (assigned_soon,)


@dataclass(slots=True)
class _State:
    """Who is there and who holds what, as the registry has it while a history is gone through."""

    job: str
    config: JobConfig | None = None
    instances: dict[str, Instance] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    assigned: dict[int, str] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    leader: str = ""
    due: float = inf
    """Since when an assignment has been due under the same members, leader and configuration."""
    reported: bool = False

    def members(self) -> tuple[str, ...]:
        """Return who may hold items: instances that leave only while nobody stays."""
        open_ = self._open()
        return in_order([one for one in open_ if not one.leaving] or open_)

    def deciding(self) -> list[Instance]:
        """Return who may assign: the leader, or while there is none, each instance that may become it."""
        leads = self.instances.get(self.leader)
        return [leads] if leads else [one for one in self._open() if not one.leaving]

    def _open(self) -> list[Instance]:
        required = () if self.config is None else self.config.requires
        known = [one for one in self.instances.values() if one.features.issuperset(required)]
        return [one for one in known if not any(f"{one.ip}/" in flag for flag in self.closed)]

    def take(self, changes: list[Change], at: float) -> None:
        """Take in what a transaction changed."""
        before = self.members(), self.leader, self.config
        seen = [self._take(change.path.removeprefix(f"/{self.job}/"), change) for change in changes]
        if not any(seen):
            return
        now = self.members(), self.leader, self.config
        if now != before or not self._is_due(now[0]):
            self.due, self.reported = inf, False
        if self.due == inf and self._is_due(now[0]):
            self.due = at

    def _take(self, path: str, change: Change) -> bool:
        """Take in one change; return whether it has to do with who holds what."""
        parts, data = path.split("/"), change.data
        match parts:
            case ["config"]:
                self.config = _config(data, self.job) or self.config
            case ["instances", name]:
                _put(self.instances, name, None if data is None else _instance(data, name))
            case ["servers", ip, "disabled"] | ["", "~servers", ip, "disabled"]:
                (self.closed.discard if data is None else self.closed.add)(f"{ip}/{parts[0]}")
            case ["sharding", item, "instance"]:
                _put(self.assigned, int(item), None if data is None else data.decode())
            case ["leader", "election", "host"]:
                self.leader = (data or b"").decode()
            case ["leader", "sharding", "necessary" | "processing"]:
                (self.marks.discard if data is None else self.marks.add)(path)
            case _:
                return False
        return True

    def _is_due(self, members: tuple[str, ...]) -> bool:
        if not members or self.config is None:
            return False
        given = AssignmentInput(self.job, members, self.config.sharding_total_count, self.assigned)
        return bool(self.marks) or find(self.config.sharding_strategy)(given) != self.assigned


def _judged(state: _State, facts: Facts, now: float) -> Iterator[Violation]:
    """Yield an assignment that is overdue, once."""
    quiet = state.config.sharding_quiet if state.config else 0.0
    late = state.due + quiet + PROMPT
    if state.reported or now <= late:
        return
    state.reported = True
    who = state.deciding()
    failed = (one.at for one in facts.of_kind(Raised) if one.job == state.job and one.where == "strategy")
    if any(state.due - RESENT <= at <= late for at in failed):  # then items stay where they are
        return
    if who and all(
        facts.undisturbed(one.ip, state.due - RESENT, late, but="flag") and facts.alive(one.id, late) for one in who
    ):
        yield Violation("assigned soon", late, f"{state.job}: an assignment is due since {state.due:.3f}")


def _put(known: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value


def _config(data: bytes | None, job: str) -> JobConfig | None:
    """Return the configuration, None if it is nonsense, which leaves the one before standing."""
    try:
        return None if data is None else JobConfig.from_json(data, job)
    except InvalidSetting:
        return None


def _instance(data: bytes, name: str) -> Instance:
    fields = json_object(data)
    features, leaving = fields.get("features"), fields.get("leaving") is True
    known = frozenset(features if isinstance(features, list) else ())
    return Instance(name, str(fields.get("ip", name.partition("@-@")[0])), leaving=leaving, features=known)
