"""Signing in and out, one-time links, one's own password, language and colours."""

from __future__ import annotations

import math
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from aioelasticjob.console.language.i18n import NAMES
from aioelasticjob.console.settings import is_zone
from aioelasticjob.console.storage.audit import AuditEntry
from aioelasticjob.console.users.accounts import InvitationSpent, Person
from aioelasticjob.console.web.request import (
    A_YEAR,
    DEVICE_COOKIE,
    LANGUAGE_COOKIE,
    SESSION_COOKIE,
    THEME_COOKIE,
    ZONE_COOKIE,
    PageRequest,
    delete_cookie,
    set_cookie,
)
from aioelasticjob.errors import InvalidSetting


async def front(request: PageRequest) -> Response:
    """Lead to the jobs of the only registry; if there are several, or none, to the list of registries."""
    registries = request.registries
    if len(registries) == 1:
        path = request.url("r", registries[0].settings.name, "jobs")
    else:
        path = request.url("registries")
    return RedirectResponse(path, 303)


async def sign_in_page(request: PageRequest) -> Response:
    """Ask for name and password."""
    back = request.http.query_params.get("next", "")
    if request.viewer.session is not None:
        return RedirectResponse(_back(request, back), 303)
    fresh = await request.state.storage.accounts.nobody_there()
    return request.page("login.html", back=back, name="", problem="", fresh=fresh)


async def sign_in(request: PageRequest) -> Response:
    """Let somebody in, or say that it was wrong, but not too often."""
    state = request.state
    translate = request.translate
    name = request.form.get("name", "")[:100]
    back = request.form.get("next", "")
    device = state.storage.devices.of(request.http.cookies.get(DEVICE_COOKIE), name)
    if (wait := state.login_throttle.wait(name, request.viewer.address, device)) > 0:
        problem = translate("Too many attempts. Try again in {seconds} seconds.", seconds=math.ceil(wait))
        response = request.page("login.html", 429, back=back, name=name, problem=problem, fresh=False)
        response.headers["Retry-After"] = str(math.ceil(wait))
        return response
    person = await state.storage.accounts.check(name, request.form.get("password", ""))
    if person is None:
        state.login_throttle.failed(name, request.viewer.address, device)
        entry = AuditEntry(name, request.viewer.address, "sign in")
        await state.storage.failed_sign_ins.note(entry, "wrong name or password")
        problem = translate("That name and password do not belong together.")
        return request.page("login.html", 401, back=back, name=name, problem=problem, fresh=False)
    state.login_throttle.reset(name, request.viewer.address, device)
    await state.storage.audit.note(AuditEntry(person.name, request.viewer.address, "sign in"))
    return await _signed_in(request, RedirectResponse(_back(request, back), 303), person)


async def sign_out(request: PageRequest) -> Response:
    """End the session, here or everywhere."""
    assert request.viewer.session is not None
    everywhere = request.form.get("everywhere") == "1"
    await request.state.storage.sessions.end(request.viewer.session, everywhere=everywhere)
    await request.state.storage.audit.note(_entry(request, "sign out"), "everywhere" if everywhere else "")
    response = RedirectResponse(request.url("login"), 303)
    delete_cookie(request, response, SESSION_COOKIE)
    return response


async def welcome_page(request: PageRequest) -> Response:
    """Ask the person who has a one-time link for a password.  The link stays valid until a password was set."""
    invitation = await request.state.storage.accounts.invitation(request.http.path_params["token"])
    if invitation is None:
        raise _invitation_gone(request)
    return request.page("welcome.html", user=invitation.user, name=invitation.user or "", problem="")


async def welcome(request: PageRequest) -> Response:
    """Spend a one-time link: set a password and sign in with it."""
    state = request.state
    token = request.http.path_params["token"]
    invitation = await state.storage.accounts.invitation(token)
    name = request.form.get("name", "")
    password = request.form.get("password", "")
    try:
        if password != request.form.get("again"):
            raise InvalidSetting("password", "…", request.translate("the two are not the same"))
        person = await state.storage.accounts.accept(token, name, password)
    except InvalidSetting as error:
        user = invitation.user if invitation else None
        return request.page("welcome.html", 400, user=user, name=name, problem=request.translate(error.expected))
    except InvitationSpent:
        raise _invitation_gone(request) from None
    state.invitation = None
    await state.storage.audit.note(AuditEntry(person.name, request.viewer.address, "set a password", person.name))
    return await _signed_in(request, RedirectResponse(request.url(), 303), person)


async def account_page(request: PageRequest) -> Response:
    """Show who one is."""
    return request.page("account.html", problem="", tab="account")


async def change_password(request: PageRequest) -> Response:
    """Set another password of one's own; everybody with the old one is signed out."""
    assert request.viewer.session is not None
    person = request.viewer.session.person
    new = request.form.get("password", "")
    throttle = request.state.login_throttle
    key = request.viewer.session.id  # nobody else's guesses count
    if (wait := throttle.wait(person.name, request.viewer.address, key)) > 0:
        problem = request.translate("Too many attempts. Try again in {seconds} seconds.", seconds=math.ceil(wait))
        return request.page("account.html", 429, problem=problem, tab="account")
    try:
        if new != request.form.get("again"):
            raise InvalidSetting("password", "…", "the two are not the same")
        async with request.audited("change the password", person.name):
            await request.state.storage.accounts.change_password(person, request.form.get("old", ""), new)
    except InvalidSetting as error:
        throttle.failed(person.name, request.viewer.address, key)
        return request.page("account.html", 400, problem=request.translate(error.expected), tab="account")
    return request.redirect(request.url("login"), request.translate("Your password has been changed. Sign in with it."))


async def set_preferences(request: PageRequest) -> Response:
    """Remember a language, colours or a time zone."""
    form = request.form
    response = RedirectResponse(_back(request, form.get("next", "")), 303)
    language = form.get("language", "")
    if language in NAMES:
        set_cookie(request, response, LANGUAGE_COOKIE, language, A_YEAR)
    theme = form.get("theme", "")
    if theme in ("light", "dark", "auto"):
        set_cookie(request, response, THEME_COOKIE, theme, A_YEAR)
    zone = form.get("zone", "")[:60]
    if zone and is_zone(zone):
        set_cookie(request, response, ZONE_COOKIE, quote(zone, safe=""), A_YEAR)
    return response


async def _signed_in(request: PageRequest, response: Response, person: Person) -> Response:
    """Begin a session, and know this browser again when this person signs in the next time."""
    state = request.state
    cookie = await state.storage.sessions.begin(person, request.viewer.agent)
    set_cookie(request, response, SESSION_COOKIE, cookie, int(state.settings.lifetime))
    set_cookie(request, response, DEVICE_COOKIE, state.storage.devices.cookie(person.name), A_YEAR)
    return response


def _invitation_gone(request: PageRequest) -> HTTPException:
    return HTTPException(410, request.translate("This link has been used or has expired. Ask for a new one."))


def _back(request: PageRequest, path: str) -> str:
    return own_path(path, request.root)


def _entry(request: PageRequest, action: str, target: str = "") -> AuditEntry:
    return AuditEntry(request.viewer.name, request.viewer.address, action, target)


def own_path(path: str, root: str) -> str:
    """Return ``path`` if it leads to a page of this console, else its front page: anybody can write a ``next=``."""
    is_below = path.startswith(f"{root}/") and not path.startswith("//")  # two slashes begin the name of a host
    is_plain = "\\" not in path and path.isprintable()  # browsers take a backslash for a slash
    return path if is_below and is_plain else f"{root}/"
