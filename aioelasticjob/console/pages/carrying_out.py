"""Carries out an action on a job for somebody, and writes into the audit log what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aioelasticjob import operations
from aioelasticjob.console.actions.job_actions import ACTIONS, Action, Filled
from aioelasticjob.console.web.request import PageRequest, registry_of
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.operations import ChangedMeanwhile, JobStatus, NotPossible, OperationResult, RemovalUnfinished
from aioelasticjob.registry.session import Session

REFUSALS: Final = (InvalidSetting, NotPossible, ChangedMeanwhile, RemovalUnfinished)
"""Errors that say what is wrong with what was typed, or what has to be done first."""


async def carry_out(request: PageRequest, kind: str, name: str, values: Mapping[str, str]) -> OperationResult:
    """Do something to a job as a form says, and write down who did what.

    Raises:
        ElasticJobError: it was refused, or the registry is not there; the log has that as well.
    """
    action = ACTIONS[kind]
    session = registry_of(request).session
    wanted = values.get("request", "")
    clock = request.state.clock
    before = await _state_of(session, name, wanted, clock.now())  # what the pages show may be older
    async with request.audited(kind, name, asked=asked_for(action, values), before=before) as result:
        done = await action.do(session, name, filled(request, values))
        result.summary = done.summary
        result.after = await _state_of(session, name, wanted, clock.now())
    return done


def asked_for(action: Action, values: Mapping[str, str]) -> dict[str, str]:
    """Return what a form asks for of an action, without what was left empty."""
    return {key: values[key] for key in action.carries if values.get(key)}


def filled(request: PageRequest, values: Mapping[str, str]) -> Filled:
    """Return a form as this viewer has filled it in."""
    return Filled(values, request.viewer.name, request.viewer.zone)


def facts(status: JobStatus) -> Mapping[str, object]:
    """Return what actions may change, for the audit log."""
    return {
        "state": status.state,
        "instances": len(status.instances),
        "paused": status.paused,
        "pausedOn": [server.ip for server in status.servers if server.paused],
        "disabledOn": [server.ip for server in status.servers if server.disabled],
        "disabledItems": [item.item for item in status.items if item.disabled],
    }


async def _state_of(session: Session, name: str, wanted: str, now: float) -> Mapping[str, object]:
    """Return what the registry holds now, for the audit log; nothing if it cannot be read."""
    try:
        return {
            **facts(await operations.job(session, name, now=now)),
            **await _request_facts(session, name, wanted),
        }
    except ElasticJobError:  # no such job (any more), or the registry is gone: the action's own outcome says so
        return {}


async def _request_facts(session: Session, job: str, wanted: str) -> Mapping[str, object]:
    """Return what actions may change in a request, for the audit log."""
    if not wanted:
        return {}
    try:
        found = await operations.request(session, job, wanted)
    except InvalidSetting:  # there is no such request, which the action itself reports
        return {}
    return {"request": wanted, "requestState": found.state, "outcomes": dict(found.outcomes)}
