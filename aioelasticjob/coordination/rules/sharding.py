"""Which instance holds which items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aioelasticjob.coordination.effects import Assign, MarkNecessary
from aioelasticjob.coordination.rules.situation import Situation
from aioelasticjob.coordination.strategies import Allotment, allot
from aioelasticjob.coordination.view import JobView


def wanted(view: JobView) -> Mapping[int, str]:
    """Return the assignment that the job's strategy gives, for at least one eligible instance."""
    given = Allotment(view.layout.job, view.eligible, view.config.sharding_total_count, view.assignment)
    return allot(view.config.sharding_strategy, given)


def require(now: Situation) -> Iterator[MarkNecessary]:
    """The leader asks for an assignment whenever the present one is not the strategy's."""
    if now.leading and now.view.necessary is None and now.view.eligible and wanted(now.view) != now.view.assignment:
        yield MarkNecessary("the assignment is not the strategy's")


def assign(now: Situation) -> Iterator[Assign]:
    """The leader answers the mark once membership has rested."""
    view = now.view
    if now.leading and now.quiet and view.eligible and (view.necessary is not None or view.processing):
        yield Assign(wanted(view))
