"""The rules of assignment: which instance holds which items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aioelasticjob.coordination.effects import Assign, RequireAssignment
from aioelasticjob.coordination.rules.rule_input import RuleInput
from aioelasticjob.coordination.strategies import AssignmentInput, assignment_of
from aioelasticjob.coordination.view import JobView
from aioelasticjob.limited_log import LimitedLog


def wanted_assignment(view: JobView, limited_log: LimitedLog | None = None) -> Mapping[int, str]:
    """Return the assignment that the job's strategy computes.  There must be an eligible instance."""
    given = AssignmentInput(view.layout.job, view.eligible, view.config.sharding_total_count, view.assignment)
    return assignment_of(view.config.sharding_strategy, given, limited_log)


def require_assignment(now: RuleInput) -> Iterator[RequireAssignment]:
    """The leader requires an assignment if the present one differs from the strategy's."""
    view, limited_log = now.view, now.limited_log
    needs_none = view.necessary is not None or not view.eligible
    if now.leading and not needs_none and wanted_assignment(view, limited_log) != view.assignment:
        yield RequireAssignment()


def assign_items(now: RuleInput) -> Iterator[Assign]:
    """The leader writes the assignment that is required, once the instances have not changed for ``sharding_quiet``."""
    view = now.view
    if now.leading and now.quiet and view.eligible and (view.necessary is not None or view.processing):
        yield Assign(wanted_assignment(view, now.limited_log))
