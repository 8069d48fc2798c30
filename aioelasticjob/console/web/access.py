"""Who may open which page and send which form."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from aioelasticjob.console.state import ConsoleState
from aioelasticjob.console.storage.audit import AuditEntry
from aioelasticjob.console.storage.database import DatabaseUnwritable
from aioelasticjob.console.users.permissions import Permission
from aioelasticjob.console.web.request import (
    Forbidden,
    Handler,
    PageRequest,
    PermissionMissing,
    read_request,
    require,
    viewer_of,
)

MAX_FIELDS: Final = 10_000
"""Fields of a form: each job that is selected is one."""


def restricted(
    state: ConsoleState,
    handler: Handler,
    *,
    needs: Permission | None,
    signed_in: bool = True,
    changes: bool = False,
    registry: bool = False,
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint for those who have a permission, who have signed in, or for everybody.

    ``changes``: it changes something in a registry; ``registry``: its address names a registry.
    """

    async def endpoint(http: Request) -> Response:
        request = await read_request(state, http)
        session = request.viewer.session
        if http.method == "POST":
            await _check_form(request)
        if signed_in and session is None:
            return _ask_to_sign_in(request)
        if registry:
            _choose_registry(request, http.path_params["registry"])
        try:
            if needs is not None:
                require(request, needs)
            if changes and state.settings.read_only:
                raise Forbidden(request.translate("This console is read-only."))
            return await handler(request)
        except PermissionMissing:
            await _note_refusal(request)
            raise

    return endpoint


async def _note_refusal(request: PageRequest) -> None:
    """Write into the audit log what somebody has asked for who has no permission for it."""
    viewer = request.viewer
    target = f"{request.http.method} {request.http.url.path}"
    entry = AuditEntry(viewer.name, viewer.address, "ask for", target, viewer.registry)
    with suppress(DatabaseUnwritable):  # it is refused all the same
        await request.state.storage.roles_refused.note(entry, f"the role {viewer.role.value} does not allow it")


def _choose_registry(request: PageRequest, name: str) -> None:
    """Note the registry that a page is about.  What this person may not see is not there: a registry, or a job."""
    watch = request.state.registries.get(name)
    request.viewer = replace(request.viewer, registry=name)
    if watch is None or not request.viewer.has(Permission.SEE):
        raise HTTPException(404, request.translate("There is no such registry."))
    labels = request.viewer.labels_seen
    request.registry = request.state.seen(watch, labels)
    job = request.http.path_params.get("job", "")
    if labels and job and job not in request.registry.snapshot.value.jobs:
        raise HTTPException(404, request.translate("There is no such job."))
    request.viewer = viewer_of(request, job)


async def _check_form(request: PageRequest) -> None:
    """Take a form only from a page that we gave to this very viewer.

    Raises:
        Forbidden: the form comes from elsewhere, or has expired.
    """
    http = request.http
    if http.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise HTTPException(415, "forms are sent as application/x-www-form-urlencoded")
    origin = http.headers.get("origin")
    site = http.headers.get("sec-fetch-site", "same-origin")
    foreign = origin is not None and origin.partition("://")[2] != http.headers.get("host")
    async with http.form(max_fields=MAX_FIELDS) as sent:
        request.form = {key: value for key, value in sent.items() if isinstance(value, str)}
    token = request.viewer.form_token
    forged = not hmac.compare_digest(request.form.get("csrf", "").encode(), token.encode())
    if foreign or forged or site not in ("same-origin", "none"):
        message = "This form has expired. Go back, load the page again and repeat what you did."
        raise Forbidden(request.translate(message))


def _ask_to_sign_in(request: PageRequest) -> Response:
    http = request.http
    if http.headers.get("accept", "").startswith("text/event-stream") or http.url.path.endswith("/live"):
        return Response(status_code=401)
    where = request.url("login", next=request.own_url if http.method == "GET" else "")
    if request.is_fragment:
        return Response(status_code=401, headers={"HX-Redirect": where})
    return RedirectResponse(where, 303)
