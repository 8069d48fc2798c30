"""The health of jobs: a group for the tiles and a colour for the dots, computed once for all open pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from aioelasticjob.console.registry_watch import RegistrySnapshot
from aioelasticjob.operations import JobStatus

GROUPS: Final = ("attention", "running", "waiting", "off")
"""What the tiles count; the group that needs a person comes first."""
_GROUP: Final = {"running": "running", "waiting": "waiting", "assigning": "waiting", "switched off": "off"}
_TONE: Final = {"running": "run", "waiting": "ok", "assigning": "busy", "nobody there": "warn", "nobody able": "bad"}


def group_of(status: JobStatus) -> str:
    """Return the tile that counts a job."""
    last = status.last
    failed = last is not None and last.completed and last.outcome not in ("completed", "")
    if status.fault is not None or status.orphans or not status.instances or failed:
        return "attention"
    return _GROUP.get(status.state, "attention")


def tone_of(status: JobStatus) -> str:
    """Return the style class of a job's state."""
    return "bad" if status.fault is not None else _TONE.get(status.state, "off")


class HealthGroups:
    """The groups of a registry's jobs."""

    def __init__(self) -> None:
        self._picture: RegistrySnapshot | None = None
        self.groups: Mapping[str, str] = {}
        """By job."""
        self.counts: Counter[str] = Counter()
        """Jobs in each group."""

    def update(self, snapshot: RegistrySnapshot) -> HealthGroups:
        """Compute the groups of the jobs that have changed since the last snapshot, and return all groups."""
        old = self._picture
        if old is not snapshot:
            known = {} if old is None else old.changed
            self.groups = {
                name: self.groups[name] if known.get(name) == snapshot.changed[name] else group_of(status)
                for name, status in snapshot.jobs.items()
            }
            self._picture, self.counts = snapshot, Counter(self.groups.values())
        return self
