"""How jobs stand, in one word for the tiles and in one tone for the dots; found out once for all open pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from aioelasticjob.console.live import Picture
from aioelasticjob.operations import JobStatus

GROUPS: Final = ("attention", "running", "waiting", "off")
"""What the tiles count; what needs a person comes first."""
_GROUP: Final = {
    "running": "running",
    "waiting": "waiting",
    "assigning": "waiting",
    "finished": "waiting",
    "switched off": "off",
}
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


class Standing:
    """The groups of a registry's jobs."""

    def __init__(self) -> None:
        self._picture: Picture | None = None
        self.groups: Mapping[str, str] = {}
        """By job."""
        self.counts: Counter[str] = Counter()
        """Jobs in each group."""

    def see(self, picture: Picture) -> Standing:
        """Look at the jobs that have changed since the last picture, and return all."""
        old = self._picture
        if old is not picture:
            known = {} if old is None else old.changed
            self.groups = {
                name: self.groups[name] if known.get(name) == picture.changed[name] else group_of(status)
                for name, status in picture.jobs.items()
            }
            self._picture, self.counts = picture, Counter(self.groups.values())
        return self
