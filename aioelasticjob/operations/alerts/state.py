"""The state of one alert: since when it fires, what people were notified of, and what could not be delivered.

Times are in seconds since the epoch, by the registry's clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pydantic import TypeAdapter

from aioelasticjob.config.types import AlertKind
from aioelasticjob.ground.nesting import read_json

MAX_EPISODES: Final = 10
"""So many episodes that no message has reported are kept with their times; of more, only the number."""
MAX_TEXT: Final = 1_000
"""Characters of a text in a state: a fault may quote an error of any length."""
FIRST_PAUSE: Final = 15.0
"""Seconds until the first new attempt of a delivery; twice as long each time, up to ``LONGEST_PAUSE``."""
LONGEST_PAUSE: Final = 600.0
CLAIM_SECONDS: Final = 60.0
"""How long a command may take to send a message before another one sends it."""
INTERVAL: Final = 600.0
"""The limits count the messages of so many seconds."""


@dataclass(frozen=True, slots=True, order=True)
class AlertKey:
    """What an alert is about, within its registry."""

    kind: AlertKind
    job: str = ""
    """Empty for a fault that belongs to no job."""

    @property
    def name(self) -> str:
        """The name of the alert's node."""
        return f"{self.kind}:{self.job}" if self.job else self.kind


@dataclass(frozen=True, slots=True)
class Episode:
    """A time in which an alert fired, and that is over."""

    since: float
    until: float


@dataclass(frozen=True, slots=True)
class Notification:
    """What the last message that was delivered has said."""

    since: float
    over: bool
    at: float


@dataclass(frozen=True, slots=True)
class Claim:
    """A command that sends a message about the alert now."""

    by: str
    until: float
    message: float
    """When it was claimed: all alerts of one message have the same time."""


@dataclass(frozen=True, slots=True)
class AlertState:
    """One alert.  It fires until ``resolved``, and is kept for a while after that."""

    kind: AlertKind
    job: str
    since: float
    text: str
    """What is so, for people, as of the last message."""
    run: str = ""
    """The name of the run that shows the fault, as of the last message; empty if no single one does."""
    resolved: float | None = None
    notified: Notification | None = None
    """None if no message was delivered yet."""
    unreported: tuple[Episode, ...] = ()
    """Earlier episodes that no message has reported, or not to their end; the newest of them."""
    left_out: int = 0
    """How many more of them there were."""
    tries: int = 0
    """How many times in a row the delivery has failed."""
    again: float = 0.0
    """When it is tried again."""
    trouble: str = ""
    """Why the last attempt has failed."""
    claim: Claim | None = None
    messages: tuple[float, ...] = ()
    """When messages about it were delivered, in the last ``INTERVAL`` seconds."""
    target: str = ""
    """To whom the last message went: the name of the error handler, and a digest of its options."""

    @property
    def key(self) -> AlertKey:
        """What it is about."""
        return AlertKey(self.kind, self.job)

    @property
    def fires(self) -> bool:
        """Whether the fault is there now."""
        return self.resolved is None

    @property
    def is_notified(self) -> bool:
        """Whether people know how it is."""
        newest = self.notified
        if newest is None or self.unreported:
            return False
        return (newest.since, newest.over) == (self.since, not self.fires)

    def changes_at(self, repeat: float) -> float:
        """Return when the next message is due if nothing else happens: now or earlier if one is due."""
        due = 0.0
        if self.is_notified:
            assert self.notified is not None
            due = self.notified.at + repeat if self.fires else float("inf")
        if self.claim is not None:
            due = max(due, self.claim.until)
        return max(due, self.again)

    def over(self, now: float) -> AlertState:
        """Return the state when the fault is gone."""
        return replace(self, resolved=now)

    @property
    def run_id(self) -> str:
        """The ``run_id`` of that run, as log records and the history have it; empty without one."""
        return f"{self.job}@{self.run}" if self.run else ""

    def begun_again(self, since: float, text: str, run: str) -> AlertState:
        """Return the state when the fault is there again; an episode that was not reported to its end is kept."""
        assert self.resolved is not None
        unreported = self.unreported
        if not self.is_notified:
            unreported = (*unreported, Episode(self.since, self.resolved))
        left_out = self.left_out + max(0, len(unreported) - MAX_EPISODES)
        return replace(
            self,
            since=since,
            text=shortened(text),
            run=run,
            resolved=None,
            unreported=unreported[-MAX_EPISODES:],
            left_out=left_out,
        )

    def claimed(self, claim: Claim, target: str) -> AlertState:
        """Return the state while a command sends a message about it."""
        return replace(self, claim=claim, target=target)

    def delivered(self, sent: AlertState, now: float) -> AlertState:
        """Return the state after a message was delivered that reported it as ``sent``; it may have changed since."""
        recent = tuple(at for at in self.messages if at > now - INTERVAL)
        message = now if sent.claim is None else sent.claim.message
        return replace(
            self,
            notified=Notification(sent.since, not sent.fires, now),
            unreported=tuple(episode for episode in self.unreported if episode not in sent.unreported),
            left_out=max(0, self.left_out - sent.left_out),
            tries=0,
            again=0.0,
            trouble="",
            claim=None,
            messages=(*recent, message),
        )

    def undelivered(self, trouble: str, now: float) -> AlertState:
        """Return the state after a message could not be delivered."""
        pause = min(FIRST_PAUSE * 2.0 ** min(self.tries, 20), LONGEST_PAUSE)
        return replace(self, tries=self.tries + 1, again=now + pause, trouble=shortened(trouble), claim=None)


_STATES: TypeAdapter[AlertState] = TypeAdapter(AlertState)


def encode(state: AlertState) -> bytes:
    """Return the data of an alert's node."""
    return _STATES.dump_json(state, exclude_defaults=True)


def decode(data: bytes) -> AlertState | None:
    """Return the state in a node; None if it holds none, because somebody has made it by hand."""
    try:
        return _STATES.validate_python(read_json(data))
    except ValueError:
        return None


def shortened(text: str) -> str:
    """Return a text for a state, which is in one line and not longer than it may be."""
    line = " ".join(text[: 2 * MAX_TEXT].split())
    return line if len(line) <= MAX_TEXT else f"{line[:MAX_TEXT]}…"
