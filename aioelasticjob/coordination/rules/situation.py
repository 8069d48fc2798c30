"""All that a rule may look at."""

from __future__ import annotations

from dataclasses import dataclass

from aioelasticjob.coordination.view import JobView


@dataclass(frozen=True, slots=True)
class Situation:
    """A view, who looks at it, and what only time can tell."""

    view: JobView
    me: str
    quiet: bool = True
    """Whether membership has rested for ``sharding_quiet``."""
    tick: bool = False
    """Whether this is the periodic look that also tidies up."""

    @property
    def present(self) -> bool:
        """Whether I am registered."""
        return self.me in self.view.instances

    @property
    def leading(self) -> bool:
        """Whether the leader's seat is mine."""
        return self.view.leader == self.me and self.present
