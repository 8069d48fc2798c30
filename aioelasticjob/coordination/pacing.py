"""Decides when an instance coordinates its job next, and what it has to look up: ticks, quiet membership, orphans."""

from __future__ import annotations

from dataclasses import dataclass, field

from anyio import current_time

from aioelasticjob.coordination.member import Member
from aioelasticjob.coordination.unmonitored import NOBODY_YET, AccountedMoment
from aioelasticjob.coordination.view import JobView

PAUSE_AFTER_REMOVAL = 0.3
"""Seconds without a write after somebody has removed a node that no rule removes.

An operator who removes a whole job removes node after node.  Nodes that we made again in between would prevent that."""
LINGERING_RUNS_INTERVAL = 1.0
"""Seconds between two looks at items that are run by instances which are not registered any more."""


@dataclass(slots=True)
class Pacing:
    """When membership last changed and when the next tick is due, by the loop's clock."""

    members: frozenset[str] = frozenset()
    since: float = field(default_factory=current_time)
    tick_at: float = 0.0
    removed_at: float = float("-inf")
    orphans_looked_up: tuple[frozenset[str], int, frozenset[int]] | None = None
    lingering: bool = False
    unmonitored: bool = False
    accounted: AccountedMoment = NOBODY_YET

    def see(self, before: JobView, view: JobView) -> None:
        """Compare two views, and note whether somebody has removed a node that no rule removes."""
        if _is_damaged(before, view):
            self.removed_at = current_time()

    @property
    def waits_after_removal(self) -> bool:
        """Whether somebody has removed a node by hand just now."""
        return current_time() < self.removed_at + PAUSE_AFTER_REMOVAL

    def look(self, view: JobView) -> tuple[bool, bool]:
        """Return whether membership is quiet, and whether this is a tick."""
        now = current_time()
        if (members := frozenset(view.eligible)) != self.members:
            self.members, self.since = members, now
        self.tick_at = min(self.tick_at, now + view.config.reconcile_interval)  # the interval may be shorter now
        tick = now >= self.tick_at
        if tick:
            self.tick_at = now + view.config.reconcile_interval
        return now >= self.since + view.config.sharding_quiet, tick  # summed as in ``pause``, for rounding

    def looks_for_orphans(self, member: Member, view: JobView, tick: bool) -> bool:
        """Return whether the leader has to look for items whose run was cut off.

        It does so if the instances, the item count or the orphans have changed, and on every tick.  Orphans count,
        because one may have been rescued too often already: then nobody rescues it, and the leader gives it up.
        """
        if view.leader != member.id or not view.config.failover:
            self.orphans_looked_up, self.lingering = None, False
            return False
        seen = (frozenset(view.instances), view.config.sharding_total_count, view.orphans)
        due = tick or seen != self.orphans_looked_up
        self.orphans_looked_up = seen
        return due

    def looks_for_unwanted_records(self, member: Member, view: JobView, tick: bool) -> bool:
        """Return whether the leader has to look for records to remove: once monitoring is off, and then on ticks."""
        unmonitored = view.leader == member.id and not view.config.monitor_execution
        due = unmonitored and (tick or not self.unmonitored)
        self.unmonitored = unmonitored
        return due

    def look_again(self) -> None:
        """Forget what was looked up, because the connection was lost before the rules could use it."""
        self.orphans_looked_up, self.unmonitored = None, False

    def pause(self, view: JobView, quiet: bool) -> float:
        """Return the seconds until the next turn, if no node changes before."""
        if self.waits_after_removal:
            return self.removed_at + PAUSE_AFTER_REMOVAL - current_time()
        until = self.tick_at if quiet else min(self.tick_at, self.since + view.config.sharding_quiet)
        if self.lingering:
            until = min(until, current_time() + LINGERING_RUNS_INTERVAL)
        return max(0.0, until - current_time())


def _is_damaged(before: JobView, now: JobView) -> bool:
    """Whether a node has gone that only a person removes."""
    layout = now.layout
    lasting = (layout.config, layout.epoch, *layout.mirrored_parents)
    parents = any(path in before.tree and path not in now.tree for path in lasting)
    seat = before.leader in now.staying and now.leader is None  # other leaders step down themselves
    same = before.sharding_version == now.sharding_version  # an assignment, which may take items, would raise it
    return parents or seat or (same and bool(before.assignment.keys() - now.assignment.keys()))
