"""One request to a page: what it asks for, who asks, in which language, and how it is answered."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Final
from urllib.parse import quote, unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from aioelasticjob.console.connections.proxies import USER
from aioelasticjob.console.language.i18n import Language, choose
from aioelasticjob.console.settings import is_zone
from aioelasticjob.console.state import ConsoleState
from aioelasticjob.console.storage.audit import AuditEntry, AuditOutcome, Facts
from aioelasticjob.console.users.permissions import Permission
from aioelasticjob.console.users.sessions import SignedIn
from aioelasticjob.console.users.viewer import Viewer
from aioelasticjob.console.watching.partial_registry import SeenRegistry
from aioelasticjob.ground.credentials import hide_in_text
from aioelasticjob.ground.nesting import read_json

SESSION_COOKIE: Final = "aioej_session"
FORM_COOKIE: Final = "aioej_form"
LANGUAGE_COOKIE: Final = "aioej_lang"
NOTICE_COOKIE: Final = "aioej_notice"
THEME_COOKIE: Final = "aioej_theme"
ZONE_COOKIE: Final = "aioej_zone"
DEVICE_COOKIE: Final = "aioej_device"
ROOT: Final = "aioelasticjob.console.root"
"""Key of a request's scope; ``root_path`` itself grows within our own mounts."""
A_YEAR: Final = 365 * 86_400
"""Seconds for which the browser keeps a preference."""

Handler = Callable[["PageRequest"], Awaitable[Response]]


class Forbidden(HTTPException):
    """The person may not do that."""

    def __init__(self, why: str) -> None:
        super().__init__(403, why)


class PermissionMissing(Forbidden):
    """The person has no permission for that.  The refusal is written into the audit log."""


@dataclass
class PageRequest:
    """A request, and how it is answered."""

    state: ConsoleState
    http: Request
    translate: Language
    viewer: Viewer
    form: Mapping[str, str] = field(default_factory=dict)
    registry: SeenRegistry | None = None
    """The registry that the page is about."""

    @property
    def root(self) -> str:
        """Where the console is mounted; empty where it stands alone."""
        return str(self.http.scope[ROOT])

    @property
    def own_url(self) -> str:
        """The address of this page, for forms that lead back to it."""
        if self.http.method != "GET":
            return self.url()
        url = self.http.url
        return f"{url.path}?{url.query}" if url.query else url.path

    @property
    def registries_shown(self) -> Sequence[SeenRegistry]:
        """The registry that the page is about; all of them on a page that is about none."""
        return [self.registry] if self.registry is not None else self.registries

    @property
    def registries(self) -> Sequence[SeenRegistry]:
        """All registries that this person may see, or parts of them."""
        session = self.viewer.session
        if session is None:
            return ()
        grants = session.person.grants
        found = list[SeenRegistry]()
        for one in self.state.registries:
            name = one.settings.name
            if Permission.SEE in grants.permissions(name):
                found.append(self.state.seen(one, grants.labels_seen(name)))
        return found

    @property
    def is_fragment(self) -> bool:
        """Whether our script asks, which takes pieces of a page."""
        return self.http.headers.get("hx-request") == "true"

    def asset(self, name: str) -> str:
        """Return the address of a style sheet, a script or a picture."""
        return f"{self.root}/assets/{assets_version()}/{name}"

    def url(self, *parts: str, **query: object) -> str:
        """Return the address of a page below the root the console is mounted at."""
        path = "/".join(quote(part, safe="") for part in parts)
        url = f"{self.root}/{path}"
        pairs = [f"{key}={quote(str(value), safe='')}" for key, value in query.items() if value not in ("", None)]
        if pairs:
            url += "?" + "&".join(pairs)
        return url

    def registry_url(self, *parts: str, **query: object) -> str:
        """Return the address of a page of the registry that this page is about."""
        return self.url("r", registry_of(self).settings.name, *parts, **query)

    def page(self, template: str, status: int = 200, /, **context: object) -> Response:
        """Answer with a page."""
        response = HTMLResponse(self.render(template, **context), status)
        _set_page_cookies(self, response)
        return response

    def shown(self, text: str | None) -> str:
        """Return text that may contain credentials as this viewer may see it."""
        return text or "" if self.viewer.sees_credentials else hide_in_text(text or "")

    def render(self, template: str, **context: object) -> str:
        """Return a piece of HTML."""
        return self.state.templates.get_template(template).render(request=self, _=self.translate, **context)

    def redirect(self, path: str, notice: str = "", *, error: bool = False) -> Response:
        """Send the browser to another page with a notice; our script shows the notice where it is."""
        if self.is_fragment:
            return self.show_notice(notice, error=error)
        response = RedirectResponse(path, 303)
        _set_page_cookies(self, response)
        if notice:
            text = quote(json.dumps([notice[:400], error]))  # browsers drop cookies beyond 4 KB
            set_cookie(self, response, NOTICE_COOKIE, text, 60)
        return response

    def show_notice(self, notice: str, *, error: bool = False, status: int = 200) -> Response:
        """Show a notice on the page that is open."""
        return HTMLResponse(self.render("notice.html", notice=notice, error=error), status)

    @property
    def notice(self) -> tuple[str, bool] | None:
        """The notice that the last page left for this one, and whether it is an error."""
        try:
            text, error = read_json(unquote(self.http.cookies.get(NOTICE_COOKIE, "")))
            return str(text), bool(error)
        except (ValueError, TypeError):
            return None

    def audited(
        self, action: str, target: str = "", *, asked: Facts | None = None, before: Facts | None = None
    ) -> AbstractAsyncContextManager[AuditOutcome]:
        """Write an action of this viewer into the audit log: before the block that does it, and with its outcome."""
        registry = self.registry.settings.name if self.registry else ""
        viewer = self.viewer
        entry = AuditEntry(viewer.name, viewer.address, action, target, registry, asked or {}, before or {})
        return self.state.storage.audit.record(entry)


@cache
def assets_version() -> str:
    """Return a digest of all assets, which is part of their address."""
    digest = hashlib.sha256()
    assets = files("aioelasticjob.console").joinpath("assets")
    for file in sorted(assets.iterdir(), key=lambda one: one.name):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


async def read_request(state: ConsoleState, http: Request, *, signed_in: bool = True) -> PageRequest:
    """Find out who asks, and in which language; without ``signed_in`` nobody is looked up."""
    cookies = http.cookies
    agent = http.headers.get("user-agent", "")[:500]
    session = await find_session(state, http, agent) if signed_in else None
    form_key = cookies.get(FORM_COOKIE, "")[:100] or secrets.token_urlsafe(16)
    theme = cookies.get(THEME_COOKIE, "")
    zone = unquote(cookies.get(ZONE_COOKIE, ""))[:60]
    viewer = Viewer(
        session=session,
        address=http.client.host if http.client else "",
        agent=agent,
        theme=theme if theme in ("light", "dark") else "auto",
        zone=zone if is_zone(zone) else state.settings.time_zone,
        form_key=form_key,
        form_token=session.token if session else state.storage.sessions.form_token(form_key),
        read_only=state.settings.read_only,
    )
    language = choose(cookies.get(LANGUAGE_COOKIE), http.headers.get("accept-language", ""))
    return PageRequest(state, http, language, viewer)


def require(request: PageRequest, permission: Permission, viewer: Viewer | None = None) -> None:
    """Refuse a person who has not this permission where the page is, or as ``viewer`` of another job.

    Raises:
        PermissionMissing: the person has not.
    """
    viewer = viewer or request.viewer
    if not viewer.has(permission):
        translate = request.translate
        sentence = "That needs the permission “{needed}”, which your role, {role}, does not have."
        raise PermissionMissing(
            translate(sentence, needed=translate(permission.value), role=translate(viewer.role.value))
        )


def viewer_of(request: PageRequest, job: str) -> Viewer:
    """Return the viewer as they look at a job of the registry that the page is about."""
    status = registry_of(request).snapshot.value.jobs.get(job)
    return request.viewer if status is None else request.viewer.on(status.config.labels)


async def find_session(state: ConsoleState, http: Request, agent: str) -> SignedIn | None:
    """Return the session that a request belongs to: that of a trusted proxy's user, or that of its cookie."""
    storage = state.storage
    name = str(http.scope.get(USER, ""))
    if not name:
        return await storage.sessions.find(http.cookies.get(SESSION_COOKIE), agent)
    person, is_new = await storage.accounts.from_proxy(name)
    if person is None:
        return None
    if is_new:
        entry = AuditEntry(name, http.client.host if http.client else "", "sign in", name)
        await storage.audit.note(entry, "the proxy names somebody new, who is a viewer")
    return storage.sessions.from_proxy(person)


def job_name(request: PageRequest) -> str:
    """Return the job that the page's address names."""
    return str(request.http.path_params["job"])


def registry_of(request: PageRequest) -> SeenRegistry:
    """Return the registry that the page's address names."""
    assert request.registry is not None, "this page is not about a registry"
    return request.registry


def set_cookie(request: PageRequest, response: Response, name: str, value: str, age: int) -> None:
    """Set a cookie for the console's pages only, which no script reads; ``age`` is seconds."""
    response.set_cookie(
        name,
        value,
        max_age=age,
        path=request.root or "/",
        secure=request.http.url.scheme == "https" or request.state.settings.public_url.startswith("https://"),
        httponly=True,
        samesite="lax",
    )


def delete_cookie(request: PageRequest, response: Response, name: str) -> None:
    """Delete a cookie."""
    response.delete_cookie(name, path=request.root or "/")


def _set_page_cookies(request: PageRequest, response: Response) -> None:
    viewer = request.viewer
    if viewer.session is None and request.http.cookies.get(FORM_COOKIE) != viewer.form_key:
        set_cookie(request, response, FORM_COOKIE, viewer.form_key, 86_400)
    if request.notice is not None:
        delete_cookie(request, response, NOTICE_COOKIE)
