"""Decides when an instance coordinates its job next, and what it has to look up: ticks, quiet membership, records."""

from __future__ import annotations

from asyncio import get_running_loop
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from aioelasticjob.core.view import JobView

PAUSE_AFTER_REMOVAL = 0.3
"""Seconds without a write after somebody has removed a node that no rule removes.

An operator who removes a whole job removes node after node.  Nodes that we made again in between would prevent that."""
LINGERING_RUNS_INTERVAL = 1.0
"""Seconds between two looks at items that are run by instances which are not registered any more."""


class Due(NamedTuple):
    """What is due in one turn."""

    quiet: bool
    """Whether membership has not changed for as long as an assignment waits for that."""
    tick: bool
    """Whether this is a tick."""
    counts: bool
    """Whether the counts of runs that have ended are to be written."""
    records: bool
    """Whether the leader has to look for runs that were cut off; if the job is not monitored, for records to remove."""

    @property
    def waits(self) -> bool:
        """Whether the registry has to be asked, which needs waiting, before the rules decide."""
        return self.tick or self.counts or self.records


@dataclass(slots=True)
class Pacing:
    """When membership last changed, and when a tick and a write of counts are due next, by the loop's clock."""

    me: str
    members: tuple[str, ...] = ()
    since: float = field(default_factory=lambda: get_running_loop().time())
    tick_at: float = inf
    """The first tick, like the first write of counts, comes a whole interval after the first look."""
    counts_at: float = inf
    held_until: float = -inf
    """No effect is written before this time."""
    looked_up: tuple[bool, frozenset[str], int, frozenset[int]] | None = None
    """The part of the view for which the leader has looked at the records; None if it has to look again."""
    lingering: bool = False

    def see(self, before: JobView, view: JobView) -> None:
        """Compare two views, and note whether somebody has removed a node that no rule removes."""
        if _is_damaged(before, view):
            self.hold(PAUSE_AFTER_REMOVAL)

    def hold(self, seconds: float) -> None:
        """Let no effect be written for so many seconds."""
        self.held_until = get_running_loop().time() + seconds

    @property
    def is_held(self) -> bool:
        """Whether no effect is to be written now."""
        return get_running_loop().time() < self.held_until

    def look(self, view: JobView) -> Due:
        """Return what is due now."""
        now = get_running_loop().time()
        config = view.config
        if view.eligible != self.members:
            self.members = view.eligible
            self.since = now
        self.tick_at = min(self.tick_at, now + config.reconcile_interval)  # the interval may be shorter now
        self.counts_at = min(self.counts_at, now + config.statistics_interval)
        tick = now >= self.tick_at
        counts = now >= self.counts_at
        if tick:
            self.tick_at = now + config.reconcile_interval
        if counts:
            self.counts_at = now + config.statistics_interval
        quiet = now >= self.since + config.sharding_quiet  # summed as in ``pause``, for rounding
        return Due(quiet, tick, counts, self.looks_at_records(view, tick))

    def looks_at_records(self, view: JobView, tick: bool) -> bool:
        """Return whether the leader has to look at the records.

        It does so if the instances, the item count or the orphans have changed, and on every tick.  Orphans count,
        because one may have been rescued too often already: then nobody rescues it, and the leader gives it up.
        """
        config = view.config
        if view.leader != self.me or (config.monitor_execution and not config.failover):
            self.looked_up = None
            self.lingering = False
            return False
        seen = (config.failover, frozenset(view.instances), config.sharding_total_count, view.orphans)
        due = tick or seen != self.looked_up
        self.looked_up = seen
        return due

    def look_again(self) -> None:
        """Look at the records again, say because the connection was lost before the rules could use them."""
        self.looked_up = None

    def pause(self, view: JobView, quiet: bool) -> float:
        """Return the seconds until the next turn, if no node changes before."""
        if self.is_held:
            return self.held_until - get_running_loop().time()
        until = min(self.tick_at, self.counts_at)
        if not quiet:
            until = min(until, self.since + view.config.sharding_quiet)
        if self.lingering:
            until = min(until, get_running_loop().time() + LINGERING_RUNS_INTERVAL)
        return max(0.0, until - get_running_loop().time())


def _is_damaged(before: JobView, now: JobView) -> bool:
    """Whether a node has gone that only a person removes."""
    layout = now.layout
    missing = (*now.missing_parents, *now.tree.missing((layout.config, layout.epoch)))
    removed = any(path in before.tree for path in missing)
    stepped_down = before.leader in now.staying and now.leader is None  # other leaders step down themselves
    same = before.sharding_version == now.sharding_version  # an assignment, which may take items, would raise it
    unassigned = before.assignment.keys() - now.assignment.keys()
    return removed or stepped_down or (same and bool(unassigned))
