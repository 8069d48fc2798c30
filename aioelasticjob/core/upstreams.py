"""The jobs that a job follows, as its own mirror shows them: up to when they have ended their moments, and how.

Times are in milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from aioelasticjob.config.following import common_moments
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core import ends
from aioelasticjob.core.foreign import foreign
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.records import decode_ends
from aioelasticjob.core.schedules import AFTER, MARKS, Schedules
from aioelasticjob.errors import ForeignData
from aioelasticjob.model import End, Outcome
from aioelasticjob.registry.tree import Node, Tree
from aioelasticjob.schedules import ScheduleSettings

RIGHT = frozenset({Outcome.COMPLETED.value, ends.OFF, ends.BEGINS, ""})
"""What an item of an upstream may have made of a moment that its followers run; empty if the moment was not its own."""


@dataclass(frozen=True)
class Upstream:
    """A job that is followed."""

    job: str
    problem: str = ""
    """Why nothing comes from it, whatever its items do; empty if all is well."""
    mark: int = 0
    """The transaction that made the follower's mark, because of which items write how they end; 0 without a mark."""
    periods: tuple[tuple[int, ScheduleSettings], ...] = ()
    """Its schedules, oldest first, and since when each has been in force."""
    ends: Mapping[int, tuple[End, ...]] = field(default_factory=dict)
    """How each item below the item count has ended its newest moments; empty as long as nothing says so."""
    written: Mapping[int, int] = field(default_factory=dict)
    """The transaction that has written these ends of each item."""

    @property
    def answers(self) -> bool:
        """Whether it is known of every item how it ends."""
        return not self.problem and bool(self.mark) and all(self.ends.values())

    @cached_property
    def ended(self) -> int:
        """Up to when all items have ended their moments; 0 if that is not known."""
        if self.problem or not self.mark:
            return 0
        return min((known[-1].last if known else 0 for known in self.ends.values()), default=0)

    def in_force(self, time: int) -> ScheduleSettings | None:
        """Return the schedule that is in force just after a time; None if there is none."""
        return next((settings for since, settings in reversed(self.periods) if since <= time), None)

    def outcomes(self, moment: int) -> Mapping[int, str]:
        """Return how each item has ended a moment; the outcome is empty if the moment was not the item's."""
        return {item: _outcome(known, moment) for item, known in self.ends.items()}

    def waiting(self, moment: int) -> tuple[int, ...]:
        """Return the items that have yet to end a moment."""
        return tuple(item for item, known in sorted(self.ends.items()) if not known or known[-1].last < moment)

    def came_by(self, moment: int) -> int:
        """Return the newest transaction that is known to have ended a moment; 0 if it is not known any more."""
        newest = {item: known[-1] for item, known in self.ends.items() if known}
        return max((self.written[item] for item, end in newest.items() if end.first <= moment <= end.last), default=0)


class Upstreams:
    """All jobs that a job follows."""

    def __init__(self, upstreams: Sequence[Upstream], since: int, *, takes_any: bool, agrees: bool) -> None:
        self.upstreams = tuple(upstreams)
        self._since = since
        """Since when they are followed."""
        self._takes_any = takes_any
        """Whether a moment counts as ended whatever its outcome."""
        self._agrees = agrees
        """Whether the leader has noted the schedules that the upstreams have now."""
        self._hindrances = dict[int, str]()
        """What was answered for each moment: all items of a job ask the same."""

    @cached_property
    def ended(self) -> int:
        """Up to when all items of all upstreams have ended their moments, and since when they are followed at least."""
        ended = min(one.ended for one in self.upstreams) if self._agrees else 0
        return max(ended, self._since)

    def came(self, moment: int) -> int:
        """Return when a moment came that the upstreams have ended; the moment itself if that is not known any more."""
        found = [end.at for end in self._all_ends() if end.last == moment]
        return max([moment, *found]) if moment > self._since else moment

    def came_by(self, moment: int) -> int:
        """Return the newest transaction that is known to have ended a moment; 0 if it is not known any more."""
        return max(one.came_by(moment) for one in self.upstreams)

    def has_come(self, time: int) -> int:
        """Return up to when moments had come at a time: up to then, or up to before one that came later."""
        until = min(time, self.ended)
        for end in self._all_ends():
            if end.at > time and self._since < end.first <= until:
                until = end.first - 1
        return max(until, min(time, self._since))

    def hindrance(self, moment: int) -> str:
        """Return why a moment that the upstreams have ended is missed here; empty if it is run."""
        if moment not in self._hindrances:
            self._hindrances[moment] = self._hindrance(moment)
        return self._hindrances[moment]

    def _hindrance(self, moment: int) -> str:
        for one in self.upstreams:
            outcomes = one.outcomes(moment)
            wrong = [item for item, outcome in outcomes.items() if outcome not in RIGHT]
            if wrong and not self._takes_any:
                return _why(one.job, wrong[0], outcomes[wrong[0]])
            if not any(outcomes.values()):
                return f"{one.job}, which comes first, has no run of it"
            if not self._takes_any and Outcome.COMPLETED.value not in outcomes.values():
                return f"{one.job}, which comes first, was switched off"
        return ""

    def causes(self, moment: int) -> Iterator[tuple[int, int, str]]:
        """Yield first and last moments that are missed here because of upstreams, and why.

        ``moment`` is the newest that has come.
        """
        why = self.hindrance(moment) if moment > self._since else ""
        if why:
            yield moment, moment, why
        if self._takes_any:
            return
        for one in self.upstreams:
            for item, known in one.ends.items():
                for end in known:
                    if end.outcome not in RIGHT:
                        yield end.first, end.last, _why(one.job, item, end.outcome)

    def outcomes(self, moment: int) -> Mapping[str, Mapping[int, str]]:
        """Return how each item of each upstream has ended a moment."""
        return {one.job: one.outcomes(moment) for one in self.upstreams}

    def _all_ends(self) -> Iterator[End]:
        for one in self.upstreams:
            for known in one.ends.values():
                yield from known


def upstream_of(tree: Tree, job: str, follower: str) -> Upstream:
    """Return what a tree shows of a job that is followed."""
    layout = Layout(job)
    node = tree.get(layout.config)
    if node is None:
        return Upstream(job, f"there is no job {job}")
    if foreign(tree, layout) is not None:
        return Upstream(job, f"{job} is a job of another program")
    try:
        config = _config(node.data, layout.config)
    except ForeignData:
        return Upstream(job, f"the configuration of {job} cannot be used")
    if not config.monitor_execution:
        return Upstream(job, f"{job} keeps no records (monitor_execution is off)")
    schedules = Schedules.of(config, node, tree.get(layout.schedule))
    mark = tree.get(layout.follower(follower))
    periods = tuple(_periods(schedules))
    problem = "" if periods or config.after else f"{job} has no schedule"
    if mark is None:
        return Upstream(job, problem, periods=periods)
    nodes = {item: tree.get(layout.item(item).followed) for item in range(config.sharding_total_count)}
    known = {item: _ends_in(node, mark) for item, node in nodes.items()}
    written = {item: node.stat.mzxid for item, node in nodes.items() if node is not None}
    return Upstream(job, problem, mark.stat.czxid, periods, known, written)


def upstreams_of(tree: Tree, schedules: Schedules, follower: str, *, takes_any: bool) -> Upstreams | None:
    """Return the jobs that a job follows by its noted schedule; None if it follows none."""
    if not schedules.follows:
        return None
    newest = schedules.noted[-1] if schedules.noted else {}
    found = [upstream_of(tree, job, follower) for job in schedules.follows]
    marks = newest.get(MARKS) == {one.job: one.mark for one in found}
    agrees = marks and ScheduleSettings.of_json(newest) == moments_of(found)
    since = schedules.since
    for one in reversed(schedules.noted):
        if one.get(AFTER) != newest.get(AFTER) or one.get(MARKS) != newest.get(MARKS):
            break
        since = int(one["since"])
    return Upstreams(found, since, takes_any=takes_any, agrees=agrees)


def moments_of(upstreams: Sequence[Upstream], time: int | None = None) -> ScheduleSettings | None:
    """Return the schedule of a follower just after a time, by default now; None if an upstream has none then."""
    found = list[ScheduleSettings]()
    for one in upstreams:
        if time is None:
            schedule = one.periods[-1][1] if one.periods else None
        else:
            schedule = one.in_force(time)
        if schedule is None:
            return None
        found.append(schedule)
    return common_moments(found)


def next_notes(upstreams: Sequence[Upstream], schedules: Schedules, now: int) -> list[Mapping[str, object]]:
    """Return the schedules that the leader of a follower has yet to note, oldest first; none if all are noted.

    A job is followed from now on once all its items write how they end.  What it has changed since then counts from
    when that was in force there: up to then its items have ended the moments of the former schedule.
    """
    newest = schedules.noted[-1] if schedules.is_noted else {}
    marks = {one.job: one.mark for one in upstreams}
    common = {AFTER: list(marks), MARKS: marks, "monitorExecution": True}
    if newest.get(MARKS) != marks:
        if not all(one.answers for one in upstreams):
            return []
        moments = moments_of(upstreams)
        return [] if moments is None else [{**moments.as_json(), **common, "since": now}]
    found = list[Mapping[str, object]]()
    before = ScheduleSettings.of_json(newest)
    changes = {since for one in upstreams for since, _ in one.periods if since > schedules.since}
    for since in sorted(changes):
        moments = moments_of(upstreams, since)
        if moments is not None and moments != before:
            found.append({**moments.as_json(), **common, "since": since})
            before = moments
    return found


def _periods(schedules: Schedules) -> Iterator[tuple[int, ScheduleSettings]]:
    """Yield the schedules of a job that has moments, oldest first."""
    for one in schedules.noted:
        settings = ScheduleSettings.of_json(one)
        if settings.cron is not None or settings.every is not None or settings.at:
            yield int(one["since"]), common_moments([settings])


@lru_cache(maxsize=4096)
def _config(data: bytes, path: str) -> JobConfig:
    return JobConfig.from_json(data, path)


def _ends_in(node: Node | None, mark: Node) -> tuple[End, ...]:
    """Return the ends in a node; none if they were written before the mark was made."""
    if node is None or node.stat.mzxid < mark.stat.czxid:
        return ()
    return decode_ends(node.data)


def _outcome(known: Sequence[End], moment: int) -> str:
    return next((end.outcome for end in reversed(known) if end.first <= moment <= end.last), "")


def _why(job: str, item: int, outcome: str) -> str:
    if outcome == ends.MISSED:
        return f"item {item} of {job}, which comes first, missed it"
    if outcome == ends.FORGOTTEN:
        return f"it is too long ago to know how item {item} of {job}, which comes first, ended it"
    return f"item {item} of {job}, which comes first, ended as {outcome}"
