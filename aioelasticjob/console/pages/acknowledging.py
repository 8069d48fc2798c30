"""Acknowledging a reason for which a job needs attention: with a note, and until a moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final
from zoneinfo import ZoneInfo

from starlette.exceptions import HTTPException
from starlette.responses import Response

from aioelasticjob.console.acknowledgement_ends import facts, render_again
from aioelasticjob.console.actions.job_actions import Filled
from aioelasticjob.console.language.reason_sentences import reason_sentence
from aioelasticjob.console.watching.acknowledgements import MAX_NOTE_CHARACTERS, Acknowledgement
from aioelasticjob.console.web.request import PageRequest, job_name, registry_of
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.times import moment
from aioelasticjob.operations.attention import Reason

USUAL: Final = timedelta(days=1)
"""The time until the end that the form proposes."""


async def form(request: PageRequest) -> Response:
    """Ask for the note and the end."""
    zone = ZoneInfo(request.viewer.zone)
    until = (moment(request.state.clock.now()) + USUAL).astimezone(zone).strftime("%Y-%m-%dT%H:%M")
    return _ask(request, request.http.query_params.get("reason", ""), {"note": "", "until": until})


async def acknowledge(request: PageRequest) -> Response:
    """Acknowledge a reason, and write down who did."""
    registry = registry_of(request).settings.name
    job = job_name(request)
    subject = request.form.get("reason", "")
    reason = _reason(request, subject)
    known = _known(request, subject)
    try:
        until = Filled(request.form, request.viewer.name, request.viewer.zone).needed("until")
        note = request.form.get("note", "")
        asked = {"reason": subject, "note": note, "until": until.isoformat()}
        async with request.audited("acknowledge", job, asked=asked, before=facts(known) if known else {}) as result:
            one = await request.state.storage.acknowledgements.add(
                registry, job, reason, request.viewer.name, note, until.timestamp()
            )
            result.after = facts(one)
    except InvalidSetting as error:
        return _ask(request, subject, request.form, request.translate.error(error))
    render_again(request.state, one)
    return request.redirect(request.registry_url("job", job), _what_is_left(request))


async def end(request: PageRequest) -> Response:
    """End an acknowledgement before its time."""
    job = job_name(request)
    known = _known(request, request.form.get("reason", ""))
    if known is None:
        raise HTTPException(404, request.translate("It is not acknowledged any more."))
    async with request.audited("end acknowledgement", job, before=facts(known)):
        await request.state.storage.acknowledgements.remove(known)
    render_again(request.state, known)
    notice = request.translate("The acknowledgement has ended.")
    return request.redirect(request.registry_url("job", job), notice)


def _left(request: PageRequest) -> Sequence[Reason]:
    """Return the reasons of the job that nobody has acknowledged."""
    registry = registry_of(request)
    snapshot = registry.snapshot.value
    health = request.state.health_of(registry, snapshot).of.get(job_name(request))
    return () if health is None else health.reasons


def _what_is_left(request: PageRequest) -> str:
    """Return the notice after a reason was acknowledged: whether the job still needs attention, and why."""
    translate = request.translate
    left = [reason_sentence(reason, translate) for reason in _left(request)]
    if not left:
        return translate("Acknowledged: it needs no attention until then.")
    return translate("Acknowledged. It still needs attention: {reasons}", reasons="; ".join(left))


def _ask(request: PageRequest, subject: str, typed: Mapping[str, str], problem: str = "") -> Response:
    return request.page(
        "acknowledge.html",
        409 if problem else 200,
        job=job_name(request),
        reason=_reason(request, subject),
        others=[one for one in _left(request) if one.subject != subject],
        typed=typed,
        problem=problem,
        note_limit=MAX_NOTE_CHARACTERS,
        tab="jobs",
    )


def _reason(request: PageRequest, subject: str) -> Reason:
    """Return the job's present reason of a subject."""
    registry = registry_of(request)
    snapshot = registry.snapshot.value
    status = snapshot.jobs.get(job_name(request))
    if status is not None:
        for reason in request.state.health_of(registry, snapshot).reasons(status):
            if reason.subject == subject:
                return reason
    raise HTTPException(404, request.translate("The job does not need attention for that reason any more."))


def _known(request: PageRequest, subject: str) -> Acknowledgement | None:
    by_job = request.state.storage.acknowledgements.of(registry_of(request).settings.name)
    return by_job.get(job_name(request), {}).get(subject)
