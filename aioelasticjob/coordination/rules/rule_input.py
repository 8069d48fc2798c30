"""All that a rule may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aioelasticjob.coordination.view import JobView
from aioelasticjob.model import Record


@dataclass(frozen=True, slots=True)
class RuleInput:
    """A view, who looks at it, and what only time can tell."""

    view: JobView
    me: str
    quiet: bool = True
    """Whether membership has rested for ``sharding_quiet``."""
    tick: bool = False
    """Whether this is the periodic look that also tidies up."""
    time: float = 0.0
    """By the registry's clock, seconds since the epoch; looked at on a tick only."""
    records: Mapping[str, int] = field(default_factory=dict)
    """Nodes of items that nobody runs and whose records nobody wants, by path with their versions."""
    cut_off: Mapping[int, int] = field(default_factory=dict)
    """Items begun, not completed and running nowhere, with their records' versions, as far as they were looked up."""

    runs: Mapping[int, Record] = field(default_factory=dict)
    """What those records say."""
    host: str = ""
    """My host's name; what my node says may be somebody else's word."""

    @property
    def present(self) -> bool:
        """Whether I am registered."""
        return self.me in self.view.instances

    @property
    def holds_seat(self) -> bool:
        """Whether the leader's seat is mine."""
        return self.view.leader == self.me and self.present

    @property
    def leading(self) -> bool:
        """Whether I lead: the seat is mine, and I know all that the job requires."""
        return self.holds_seat and self.me not in self.view.lacking
