"""The facts that a rule is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from aioelasticjob.coordination.view import JobView
from aioelasticjob.model import Record


@dataclass(frozen=True, slots=True)
class InterruptedRun:
    """The run of an item that was begun, is not completed, and goes on nowhere."""

    record: Record
    version: int
    """The version of the record's node."""
    fence: int
    """The transaction that has written the record: the claim.  If the run was handed over, the orphan's mark has it."""


@dataclass(frozen=True)
class RuleInput:
    """A view, the instance that decides, and facts that are not in the view."""

    view: JobView
    me: str
    quiet: bool = True
    """Whether the instances have not changed for ``sharding_quiet``."""
    tick: bool = False
    """Whether this is a tick, on which some rules tidy up."""
    time: float = 0.0
    """The time of the registry's clock, in seconds since the epoch."""
    records: Mapping[str, int] = field(default_factory=dict)
    """Records and marks to be removed because the job is not monitored any more: versions by path."""
    cut_off: Mapping[int, InterruptedRun] = field(default_factory=dict)
    """The runs that were cut off, by item, as far as they were looked up."""
    host: str = ""
    """This instance's host name.  It is not read from the instance's node, because somebody may have edited that."""

    @cached_property
    def present(self) -> bool:
        """Whether this instance is registered."""
        return self.me in self.view.instances

    @cached_property
    def is_named_leader(self) -> bool:
        """Whether the registry names this instance as the leader."""
        return self.view.leader == self.me and self.present

    @cached_property
    def leading(self) -> bool:
        """Whether this instance leads: the registry names it, and it knows all features that the job requires."""
        return self.is_named_leader and self.me not in self.view.lacking
