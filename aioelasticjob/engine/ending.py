"""That a job ends in this process: how far its end has come, and why.

A job keeps one such value from one session to the next (``History.ending``), and all who ask look at it.  The following
are no part of it, because they say something else:

* ``Life.is_over`` and ``TaskScope.over``: a life ends with its session, or because of an error, and the job goes on in
  the next life.  The first says that the end was asked for, the second that the tasks were cancelled.
* ``Runs.cancel`` lets no handler begin any more.  That is also said at the end of a life whose job goes on.
* ``StreamControl.end`` ends one run of a job that may stay.
* ``JobView.instances`` shows which instances leave according to the registry.  Other processes see only that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum


class Stage(IntEnum):
    """How far the end of a job has come.  No stage is followed by an earlier one."""

    STAYS = 0
    """Nobody has asked the job to leave."""
    LEAVES = 1
    """The job claims nothing more.  It leaves once no handler runs."""
    GIVEN_UP = 2
    """The job has not left, but its process waits no longer for that."""
    GONE = 3
    """The job does not come back in this process."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How far the end of a job has come, and why it leaves.  Both reasons may apply, one after the other."""

    stage: Stage = Stage.STAYS
    process_stops: bool = False
    """Whether the job leaves because its process stops."""
    dismissal: str = ""
    """Why the job has to leave even if its process goes on; empty if it does not have to."""

    @property
    def leaves(self) -> bool:
        """Whether the job was asked to leave."""
        return self.stage >= Stage.LEAVES

    @property
    def is_awaited(self) -> bool:
        """Whether there is still something to wait for."""
        return self.stage < Stage.GIVEN_UP

    def with_process(self) -> Ending:
        """Return what holds when the process stops."""
        return replace(self, stage=max(self.stage, Stage.LEAVES), process_stops=True)

    def dismissed(self, why: str) -> Ending:
        """Return what holds when an operator has asked for it, or has removed the job or the instance's node."""
        return replace(self, stage=max(self.stage, Stage.LEAVES), dismissal=why)

    def given_up(self) -> Ending:
        """Return what holds when the process waits no longer."""
        return replace(self, stage=max(self.stage, Stage.GIVEN_UP))

    def gone(self) -> Ending:
        """Return what holds when the job has left, or has lost its session for good."""
        return replace(self, stage=Stage.GONE)
