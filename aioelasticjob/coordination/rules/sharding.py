"""The rules of assignment: which instance holds which items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aioelasticjob.coordination.effects import Assign, RequireAssignment, SayStrategyFailed
from aioelasticjob.coordination.rules.rule_input import RuleInput
from aioelasticjob.coordination.strategies import AssignmentInput, assignment_of
from aioelasticjob.coordination.view import JobView


def wanted_assignment(view: JobView) -> Mapping[int, str]:
    """Return the assignment that the job's strategy computes.  There must be an eligible instance."""
    return _computed(view)[0]


def require_assignment(now: RuleInput) -> Iterator[RequireAssignment | SayStrategyFailed]:
    """The leader requires an assignment if the present one differs from the strategy's."""
    view = now.view
    if now.leading and view.necessary is None and view.eligible:
        wanted, failure = _computed(view)
        if failure:
            yield SayStrategyFailed(failure)
        if wanted != view.assignment:
            yield RequireAssignment()


def assign_items(now: RuleInput) -> Iterator[Assign | SayStrategyFailed]:
    """The leader writes the assignment that is required, once the instances have not changed for ``sharding_quiet``."""
    view = now.view
    if now.leading and now.quiet and view.eligible and (view.necessary is not None or view.processing):
        wanted, failure = _computed(view)
        if failure:
            yield SayStrategyFailed(failure)
        yield Assign(wanted)


def _computed(view: JobView) -> tuple[Mapping[int, str], str]:
    given = AssignmentInput(view.layout.job, view.eligible, view.config.sharding_total_count, view.assignment)
    return assignment_of(view.config.sharding_strategy, given)
