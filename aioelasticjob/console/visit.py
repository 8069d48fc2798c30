"""One request of one person: what it asks for, who asks, in which language, and how it is answered."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from aioelasticjob.console.accounts import Role
from aioelasticjob.console.audit import Deed, Facts
from aioelasticjob.console.visitor import Visitor
from aioelasticjob.console.words import choose

if TYPE_CHECKING:
    from aioelasticjob.console.application import Console

SESSION, STRANGER, LANGUAGE, NOTICE = "aioej_session", "aioej_form", "aioej_lang", "aioej_notice"
"""The console's cookies, beside the one for the colours."""
ROOT: Final = "aioelasticjob.console.root"
"""Key of a request's scope; ``root_path`` itself grows within our own mounts."""
A_YEAR: Final = 365 * 86_400

Handler = Callable[["Visit"], Awaitable[Response]]


class Forbidden(HTTPException):
    """The person may not do that."""

    def __init__(self, why: str) -> None:
        super().__init__(403, why)


class Visit(Visitor):
    """A request, and how it is answered."""

    @property
    def root(self) -> str:
        """Where the console is mounted; empty where it stands alone."""
        return str(self.request.scope[ROOT])

    @property
    def here_again(self) -> str:
        """The address of this page, for forms that lead back to it."""
        request = self.request
        if request.method != "GET":
            return self.url()
        return request.url.path + (f"?{request.url.query}" if request.url.query else "")

    def asset(self, name: str) -> str:
        """Return the address of a style sheet, a script or a picture."""
        return f"{self.root}/assets/{assets_version()}/{name}"

    @property
    def live(self) -> bool:
        """Whether our script asks, which takes pieces of a page."""
        return self.request.headers.get("hx-request") == "true"

    def url(self, *parts: str, **query: object) -> str:
        """Return the address of a page below the root the console is mounted at."""
        path = "/".join(quote(part, safe="") for part in parts)
        told = "&".join(
            f"{key}={quote(str(value), safe='')}" for key, value in query.items() if value not in ("", None)
        )
        return f"{self.root}/{path}{'?' + told if told else ''}"

    def here(self, *parts: str, **query: object) -> str:
        """Return the address of a page of the registry that this page is about."""
        assert self.registry is not None
        return self.url("r", self.registry.settings.name, *parts, **query)

    def page(self, template: str, status: int = 200, /, **context: object) -> Response:
        """Answer with a page."""
        response = HTMLResponse(self.render(template, **context), status)
        _settle(self, response)
        return response

    def render(self, template: str, **context: object) -> str:
        """Return a piece of HTML."""
        return self.console.templates.get_template(template).render(visit=self, _=self.words, **context)

    def go(self, path: str, notice: str = "", *, error: bool = False) -> Response:
        """Send the browser elsewhere, with something to say there; our script shows it where it is."""
        if self.live:
            return self.say(notice, error=error)
        response = RedirectResponse(path, 303)
        _settle(self, response)
        if notice:
            told = quote(json.dumps([notice[:400], error]))  # browsers drop cookies beyond 4 KB
            remember(self, response, NOTICE, told, 60)
        return response

    def say(self, notice: str, *, error: bool = False, status: int = 200) -> Response:
        """Show something on the page that is open."""
        return HTMLResponse(self.render("notice.html", notice=notice, error=error), status)

    @property
    def notice(self) -> tuple[str, bool] | None:
        """What the last page wanted to be said here."""
        try:
            told = json.loads(unquote(self.request.cookies.get(NOTICE, "")))
            return str(told[0]), bool(told[1])
        except (ValueError, IndexError, TypeError, KeyError):
            return None

    def deed(self, action: str, target: str = "", *, asked: Facts | None = None, before: Facts | None = None) -> Deed:
        """Return what is being done, for the audit log."""
        registry = self.registry.settings.name if self.registry else ""
        return Deed(self.name, self.address, action, target, registry, asked or {}, before or {})


@cache
def assets_version() -> str:
    """Return a digest of all assets, which is part of their address."""
    digest = hashlib.sha256()
    for file in sorted(files("aioelasticjob.console").joinpath("assets").iterdir(), key=lambda one: one.name):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def own_path(path: str, root: str) -> str:
    """Return ``path`` if it leads to a page of this console, else its front page: ``next=`` may be anybody's wish."""
    safe = path.startswith(f"{root}/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if safe else f"{root}/"


def open_to(
    role: Role | None, console: Console, handler: Handler, *, changes: bool = False, registry: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint for those in ``role`` or above (None: for everybody); ``changes`` something in a registry."""

    async def endpoint(request: Request) -> Response:
        visit = await receive(console, request)
        if request.method == "POST":
            await _check_form(visit)
        if role is not None and visit.session is None:
            return _ask_to_sign_in(visit)
        if role is Role.OPERATOR and visit.session is not None and not visit.session.person.operates:
            raise Forbidden(visit.words("Only operators may do that. You are signed in as a viewer."))
        if changes and console.settings.read_only:
            raise Forbidden(visit.words("This console is read-only."))
        if registry:
            visit.registry = console.registries.get(request.path_params["registry"])
            if visit.registry is None:
                raise HTTPException(404, visit.words("There is no such registry."))
        return await handler(visit)

    return endpoint


async def receive(console: Console, request: Request) -> Visit:
    """Find out who asks, and in which language."""
    cookies = request.cookies
    words = choose(cookies.get(LANGUAGE), request.headers.get("accept-language", ""))
    agent = request.headers.get("user-agent", "")[:500]
    session = await console.sessions.find(cookies.get(SESSION), agent)
    stranger = cookies.get(STRANGER, "")[:100] or secrets.token_urlsafe(16)
    return Visit(console, request, words, session, stranger)


async def _check_form(visit: Visit) -> None:
    """Take a form only from a page that we gave to this very visitor.

    Raises: Forbidden
    """
    request = visit.request
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise HTTPException(415, "forms are sent as application/x-www-form-urlencoded")
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "same-origin")
    foreign = origin is not None and origin.partition("://")[2] != request.headers.get("host")
    async with request.form() as sent:
        visit.form = {key: value for key, value in sent.items() if isinstance(value, str)}
    forged = not hmac.compare_digest(visit.form.get("csrf", "").encode(), visit.token.encode())
    if foreign or forged or site not in ("same-origin", "none"):
        raise Forbidden(visit.words("This form has expired. Go back, load the page again and repeat what you did."))


def _ask_to_sign_in(visit: Visit) -> Response:
    request = visit.request
    if request.headers.get("accept", "").startswith("text/event-stream") or request.url.path.endswith("/live"):
        return Response(status_code=401)
    where = visit.url("login", next=visit.here_again if request.method == "GET" else "")
    if visit.live:
        return Response(status_code=401, headers={"HX-Redirect": where})
    return RedirectResponse(where, 303)


def remember(visit: Visit, response: Response, name: str, value: str, age: int) -> None:
    """Set a cookie for the console's pages only, which no script reads; ``age`` is seconds."""
    response.set_cookie(
        name,
        value,
        max_age=age,
        path=visit.root or "/",
        secure=visit.request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def forget(visit: Visit, response: Response, name: str) -> None:
    """Drop a cookie."""
    response.delete_cookie(name, path=visit.root or "/")


def _settle(visit: Visit, response: Response) -> None:
    if visit.session is None and visit.request.cookies.get(STRANGER) != visit.stranger:
        remember(visit, response, STRANGER, visit.stranger, 86_400)
    if visit.notice is not None:
        forget(visit, response, NOTICE)
