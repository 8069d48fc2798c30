"""The health of jobs: a group for the tiles, a colour for the dots, a word and the reasons; computed for all pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from aioelasticjob.clock import Clock
from aioelasticjob.console.watching.acknowledgements import Acknowledgement
from aioelasticjob.console.watching.partial_registry import SeenRegistry
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.observers.missed import NOTHING_COUNTED, Count, MissedMoments
from aioelasticjob.operations import JobStatus
from aioelasticjob.operations.attention import MILD, Reason, Seen, changes_at, excused_of, is_restarting, reasons

GROUPS: Final = ("attention", "acknowledged", "running", "waiting", "off")
"""What the tiles count; the group that needs a person comes first."""
_GROUP: Final = {
    "running": "running",
    "waiting": "waiting",
    "assigning": "waiting",
    "finished": "waiting",
    "partly off": "waiting",
    "switched off": "off",
}
_COLOUR: Final = {"running": "run", "waiting": "ok", "assigning": "busy", "partly off": "busy"}
_REASONS_IN_PLACE: Final = (
    "failing",
    "misfiring",
    "unreliable",
    "given up",
    "cut off",
    "running long",
    "not converging",
    "writes refused",
    "clock differs",
    "unusable here",
    "blocked",
    "late",
    "behind",
    "calendar ends",
)
"""Reasons whose word stands in place of the job's state."""
_NO_FIRES: Final = (
    "switched off",
    "nobody there",
    "nobody able",
    "clock differs",
    "calendar missing",
    "faulty",
    "foreign",
)
"""States of a job whose next fire nobody runs."""


MISSED_WINDOW: Final = 3600.0
"""Seconds for which missed moments that the console has seen count; those of an event store count as long."""
AGE: Final = 1.0
"""Seconds after which jobs that do not settle are looked at again, though nothing has changed."""


@dataclass(frozen=True, slots=True)
class Health:
    """How one job is."""

    group: str
    """The tile that counts it."""
    colour: str
    """The style class of its dot."""
    word: str
    """Its state in one or two words; a key of the catalogue."""
    fires: bool
    """Whether its next fire will be run as things are."""
    reasons: tuple[Reason, ...] = ()
    """Why it needs attention."""
    acknowledged: tuple[tuple[Reason, Acknowledgement], ...] = ()
    """Reasons that an operator has acknowledged, which need no attention until then."""

    @property
    def severity(self) -> tuple[int, int]:
        """Its place in lists that have the worst job first: by reasons, then by those that are acknowledged."""
        if self.reasons:
            return 0, self.reasons[0].severity
        if self.acknowledged:
            return 1, min(reason.severity for reason, _ in self.acknowledged)
        return 2, 0


AcknowledgementsByJob: TypeAlias = Mapping[str, Mapping[str, Acknowledgement]]
"""By job, then by subject."""


def health_of(
    status: JobStatus,
    found: tuple[Reason, ...],
    acknowledgements: Mapping[str, Acknowledgement] | None = None,
    *,
    restarting: bool = False,
) -> Health:
    """Return the health of a job that has these reasons to need attention; acknowledgements are by subject.

    ``restarting`` says that nobody is there because of a restart that was announced.
    """
    state = status.state
    by_subject = acknowledgements or {}
    fires = state not in _NO_FIRES
    left = list[Reason]()
    acknowledged = list[tuple[Reason, Acknowledgement]]()
    for reason in found:
        one = by_subject.get(reason.subject)
        if one is not None and one.covers(reason):
            acknowledged.append((reason, one))
        else:
            left.append(reason)
    if not found and restarting:
        return Health("waiting", "busy", "restarting", fires)
    if not found:
        return Health(_GROUP.get(state, "attention"), _COLOUR.get(state, "off"), state, fires)
    gravest = left[0].kind if left else found[0].kind
    word = gravest if gravest in _REASONS_IN_PLACE else state
    if not left:
        return Health("acknowledged", "off", word, fires, (), tuple(acknowledged))
    colour = "warn" if gravest in MILD else "bad"
    return Health("attention", colour, word, fires, tuple(left), tuple(acknowledged))


def _named(health: Health) -> list[tuple[str, ...]]:
    """Return the kind of each reason, and what it is about, such as its items."""
    found = (*health.reasons, *(reason for reason, _ in health.acknowledged))
    return [(reason.kind, *reason.details) for reason in found]


class HealthGroups:
    """The health of a registry's jobs."""

    def __init__(
        self,
        watch: SeenRegistry,
        clock: Clock,
        acknowledgements: Callable[[str], AcknowledgementsByJob] = lambda registry: {},
    ) -> None:
        self._watch = watch
        self._clock = clock
        self._acknowledgements = acknowledgements
        self._snapshot: RegistrySnapshot | None = None
        self._updated = float("-inf")
        """When this was last computed."""
        self._unsettled: dict[str, float] = {}
        """By job, when its assignment was first seen not to stand."""
        self._due: dict[str, float] = {}
        """By job, when its reasons change although nothing happens."""
        self.of: Mapping[str, Health] = {}
        """By job."""
        self.counts: Counter[str] = Counter()
        """Jobs in each group."""

    @property
    def worst(self) -> list[tuple[str, Health]]:
        """The jobs that need attention, by name, the worst first."""
        found = [(name, health) for name, health in self.of.items() if health.reasons]
        return sorted(found, key=lambda one: one[1].severity)

    def update(self, snapshot: RegistrySnapshot) -> HealthGroups:
        """Compute the health of the jobs that have changed since the last snapshot, and of those that are due.

        Due are jobs that do not settle, and those whose reasons change because time has passed.
        """
        old = self._snapshot
        now = self._clock.now()
        timely = {name for name, at in self._due.items() if at <= now}
        if old is snapshot and not timely and (not self._unsettled or 0 <= now - self._updated < AGE):
            return self
        self._updated = now
        known = {} if old is None else old.changed
        before = self.of
        self._note_unsettled(snapshot)
        unchanged = {name for name, version in snapshot.changed.items() if known.get(name) == version}
        due = {*self._unsettled, *timely}
        self._due = {name: at for name, at in self._due.items() if name in unchanged - due}
        found = dict[str, Health]()
        for name, status in snapshot.jobs.items():
            if name in unchanged and name not in due:
                found[name] = before[name]
            else:
                found[name] = self._health(status)
        self.of = found
        self._snapshot = snapshot
        self.counts = Counter(health.group for health in found.values())
        news = [name for name in unchanged & due if _named(found[name]) != _named(before[name])]
        if news:
            self._watch.touch(news)  # rows are rendered again only if their job has changed
        return self

    def _note_unsettled(self, snapshot: RegistrySnapshot) -> None:
        now = self._clock.now()
        unsettled = [name for name, status in snapshot.jobs.items() if status.instances and not status.settled]
        self._unsettled = {name: self._unsettled.get(name, now) for name in unsettled}

    def _health(self, status: JobStatus) -> Health:
        now = self._clock.now()
        seen = self._seen(status)
        if (at := changes_at(status, now, seen)) is not None:
            self._due[status.name] = at
        acknowledgements = self._acknowledgements(self._watch.settings.name).get(status.name)
        found = reasons(status, now, seen)
        return health_of(status, found, acknowledgements, restarting=is_restarting(status, now))

    def reasons(self, status: JobStatus) -> tuple[Reason, ...]:
        """Return why a job needs attention, whether somebody has acknowledged that or not."""
        return reasons(status, self._clock.now(), self._seen(status))

    def excused(self, jobs: Iterable[JobStatus]) -> Count:
        """Return how many moments of jobs were missed in the last hour without a fault."""
        concerned = [status for status in jobs if self._missed(status.name)]
        return sum((excused_of(status, self._seen(status)) for status in concerned), NOTHING_COUNTED)

    def _seen(self, status: JobStatus) -> Seen:
        """Return what the console knows of a job beside its present status."""
        name = status.name
        watch = self._watch
        store = None if watch.store is None else watch.store.snapshot
        return Seen(
            runs=tuple(watch.runs.get(name, ())),
            unsettled_for=self._clock.now() - self._unsettled.get(name, self._clock.now()),
            errors=() if store is None else store.errors.get(name, ()),
            missed=self._missed(name),
            departures=tuple(watch.instances.departures.get(name, ())),
        )

    def _missed(self, name: str) -> Sequence[MissedMoments]:
        """Return the moments of a job that were missed in the last hour: as the event store, or the console, knows."""
        store = None if self._watch.store is None else self._watch.store.snapshot
        if store is not None and store.lost is None:
            return store.missed.get(name, ())
        recent = self._clock.now() - MISSED_WINDOW
        return tuple(one for one in self._watch.missed.get(name, ()) if one.last >= recent)
