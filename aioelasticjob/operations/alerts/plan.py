"""Decides which alerts begin and end, and which messages are due.  Facts come in, a plan goes out; nothing here waits.

Limits bound messages, and never forget a state: of the alerts that are due, a target is sent the first ones singly, and
one message that sums up all others.  Alerts that still have to wait are due again when the limit allows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from aioelasticjob.operations.alerts.kinds import KINDS
from aioelasticjob.operations.alerts.state import (
    CLAIM_SECONDS,
    INTERVAL,
    AlertKey,
    AlertState,
    Claim,
    Notification,
    shortened,
)

MESSAGES: Final = 20
"""So many messages are sent to a target in ``INTERVAL`` seconds."""
MESSAGES_EACH: Final = 4
"""So many of them may be about the same alert: a fault that comes and goes is summed up."""
KEPT: Final = 86_400.0
"""Seconds that an alert which is over is kept, for people who look what there was."""


@dataclass(frozen=True, slots=True)
class Target:
    """To whom messages go: the name of an error handler, and its options."""

    handler: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, handler: str, options: Mapping[str, str]) -> Target:
        """Return the target for the settings of a job."""
        return cls(handler, tuple(sorted(options.items())))

    @property
    def label(self) -> str:
        """The name of the handler, and a digest that shows whether two targets are the same, without their secrets."""
        digest = hashlib.sha256(repr(self.options).encode()).hexdigest()[:8]
        return f"{self.handler} {digest}"


@dataclass(frozen=True, slots=True)
class Condition:
    """A fault that is there now, or may be."""

    key: AlertKey
    text: str
    """What is so, for people."""
    since: float | None = None
    """Since when, if that is known."""
    begins: bool = True
    """Whether an alert begins.  Otherwise one that fires goes on, and none begins: it is not certain yet."""
    run: str = ""
    """The name of the run that shows the fault; empty if no single one does."""
    is_notified: bool = False
    """Whether a worker has notified people already that it began."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message about one or more alerts: they are claimed before it is sent."""

    target: Target
    alerts: tuple[AlertState, ...]


@dataclass(slots=True)
class Plan:
    """What is to be done now."""

    writes: dict[AlertKey, AlertState | None] = field(default_factory=dict)
    """The alerts whose states change without a message; None if the alert is forgotten."""
    messages: list[Message] = field(default_factory=list)
    """The messages to be sent, after the states in them are written."""
    next_look: float = inf
    """When to look again although nothing has happened."""


class Planner:
    """Plans for one command.  It remembers only since when faults have been there that are no alerts yet."""

    def __init__(self, me: str, after: float, repeat: float) -> None:
        self._me = me
        self._after = after
        self._repeat = repeat
        self._since: dict[AlertKey, float] = {}

    def forget(self) -> None:
        """Begin to count again how long faults have lasted: what happened meanwhile is not known."""
        self._since.clear()

    def plan(
        self,
        conditions: Iterable[Condition],
        known: Mapping[AlertKey, AlertState],
        target_of: Callable[[AlertKey], Target | None],
        now: float,
    ) -> Plan:
        """Return what is to be done, given the faults that there are now and the alerts that are known."""
        plan = Plan()
        faults = {condition.key: condition for condition in conditions}
        states = dict(known)
        self._since = {key: since for key, since in self._since.items() if key in faults}
        for condition in faults.values():
            begun = self._begun(condition, known.get(condition.key), now, plan)
            if begun is not None:
                states[condition.key] = begun
        for key, state in known.items():
            if state.fires and key not in faults:
                states[key] = state.over(now)
        plan.writes.update({key: state for key, state in states.items() if state is not known.get(key)})
        kept = dict[AlertKey, AlertState]()
        for key, state in states.items():
            if state.resolved is not None and state.resolved + KEPT <= now:
                plan.writes[key] = None
            else:
                kept[key] = state
        self._add_messages(plan, kept, faults, target_of, now)
        return plan

    def _begun(self, condition: Condition, state: AlertState | None, now: float, plan: Plan) -> AlertState | None:
        """Return the state of an alert that begins now; None if none does."""
        key = condition.key
        if (state is not None and state.fires) or not condition.begins:
            return None
        kind = KINDS[key.kind]
        hold = kind.waits * self._after + kind.hold
        since = self._since.setdefault(key, now if condition.since is None else min(now, condition.since))
        if now < since + hold:
            plan.next_look = min(plan.next_look, since + hold)
            return None
        if state is None:
            begun = AlertState(key.kind, key.job, since, shortened(condition.text), condition.run)
        else:
            begun = state.begun_again(since, condition.text, condition.run)
        return replace(begun, notified=Notification(since, False, now)) if condition.is_notified else begun

    def _add_messages(
        self,
        plan: Plan,
        states: Mapping[AlertKey, AlertState],
        faults: Mapping[AlertKey, Condition],
        target_of: Callable[[AlertKey], Target | None],
        now: float,
    ) -> None:
        """Add the messages that are due and that the limits allow, and when the next one will be."""
        waiting = dict[Target, list[AlertState]]()
        sent = _sent_messages(states.values(), now)
        for key, state in sorted(states.items()):
            target = target_of(key)
            if target is None:
                continue
            due = max(state.changes_at(self._repeat), _allowed(_recent(state, now), MESSAGES_EACH))
            if due > now:
                plan.next_look = min(plan.next_look, due)
                continue
            fault = faults.get(key)
            if fault is not None and state.fires:
                state = replace(state, text=shortened(fault.text), run=fault.run)
            waiting.setdefault(target, []).append(state)
        for target, due_states in waiting.items():
            times = sent.get(target.label, [])
            room = MESSAGES - len(times)
            if room <= 0:
                plan.next_look = min(plan.next_look, _allowed(times, MESSAGES))
                continue
            singly = due_states if len(due_states) <= room else due_states[: room - 1]
            groups = [[state] for state in singly]
            if rest := due_states[len(singly) :]:
                groups.append(rest)
            for number, group in enumerate(groups):
                # messages of one moment are distinguished, since the limit counts them
                claim = Claim(self._me, now + CLAIM_SECONDS, now + number / 1_000_000)
                claimed = tuple(state.claimed(claim, target.label) for state in group)
                plan.messages.append(Message(target, claimed))
                for state in group:
                    plan.writes.pop(state.key, None)


def _sent_messages(states: Iterable[AlertState], now: float) -> dict[str, list[float]]:
    """Return by target when it was sent messages lately, oldest first; those that are on their way count as well."""
    found = dict[str, set[float]]()
    for state in states:
        times = set(_recent(state, now))
        if state.claim is not None and state.claim.until > now:
            times.add(state.claim.message)
        found.setdefault(state.target, set()).update(times)
    return {target: sorted(times) for target, times in found.items()}


def _recent(state: AlertState, now: float) -> Sequence[float]:
    return [at for at in state.messages if at > now - INTERVAL]


def _allowed(times: Sequence[float], most: int) -> float:
    """Return when the next message is allowed after those of these times."""
    return times[-most] + INTERVAL if len(times) >= most else 0.0
