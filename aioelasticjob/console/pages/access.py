"""The door: signing in and out, one-time links, one's own password, language and colours."""

from __future__ import annotations

import math

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from aioelasticjob.console.accounts import InvitationSpent
from aioelasticjob.console.audit import Deed
from aioelasticjob.console.visit import A_YEAR, LANGUAGE, SESSION, Visit, forget, own_path, remember
from aioelasticjob.console.visitor import THEME
from aioelasticjob.console.words import NAMES
from aioelasticjob.errors import InvalidSetting


async def front(visit: Visit) -> Response:
    """Lead to the first registry's jobs, or to where registries are added."""
    first = next(iter(visit.console.registries), None)
    return RedirectResponse(
        visit.url("registries") if first is None else visit.url("r", first.settings.name, "jobs"), 303
    )


async def sign_in_page(visit: Visit) -> Response:
    """Ask for name and password."""
    back = visit.request.query_params.get("next", "")
    if visit.session is not None:
        return RedirectResponse(_back(visit, back), 303)
    fresh = await visit.console.accounts.nobody_there()
    return visit.page("login.html", back=back, name="", problem="", fresh=fresh)


async def sign_in(visit: Visit) -> Response:
    """Let somebody in, or say that it was wrong, but not too often."""
    console, words = visit.console, visit.words
    name, back = visit.form.get("name", "")[:100], visit.form.get("next", "")
    if (wait := console.guesses.wait(name, visit.address)) > 0:
        problem = words("Too many attempts. Try again in {seconds} seconds.", seconds=math.ceil(wait))
        response = visit.page("login.html", 429, back=back, name=name, problem=problem, fresh=False)
        response.headers["Retry-After"] = str(math.ceil(wait))
        return response
    person = await console.accounts.check(name, visit.form.get("password", ""))
    if person is None:
        console.guesses.failed(name, visit.address)
        await console.audit.note(Deed(name, visit.address, "sign in"), "wrong name or password", done=False)
        problem = words("That name and password do not belong together.")
        return visit.page("login.html", 401, back=back, name=name, problem=problem, fresh=False)
    console.guesses.forgive(name, visit.address)
    await console.audit.note(Deed(person.name, visit.address, "sign in"))
    response = RedirectResponse(_back(visit, back), 303)
    cookie = await console.sessions.begin(person, visit.agent)
    remember(visit, response, SESSION, cookie, int(console.settings.lifetime))
    return response


async def sign_out(visit: Visit) -> Response:
    """End the session, here or everywhere."""
    assert visit.session is not None
    everywhere = visit.form.get("everywhere") == "1"
    await visit.console.sessions.end(visit.session, everywhere=everywhere)
    await visit.console.audit.note(visit.deed("sign out"), "everywhere" if everywhere else "")
    response = RedirectResponse(visit.url("login"), 303)
    forget(visit, response, SESSION)
    return response


async def welcome_page(visit: Visit) -> Response:
    """Ask whoever holds a one-time link for a password.  Looking at it does not spend it."""
    invitation = await visit.console.accounts.invitation(visit.request.path_params["token"])
    if invitation is None:
        raise HTTPException(410, visit.words("This link has been used or has expired. Ask for a new one."))
    return visit.page("welcome.html", user=invitation.user, name=invitation.user or "", problem="")


async def welcome(visit: Visit) -> Response:
    """Spend a one-time link: set a password and sign in with it."""
    console, token = visit.console, visit.request.path_params["token"]
    invitation = await console.accounts.invitation(token)
    name, password = visit.form.get("name", ""), visit.form.get("password", "")
    try:
        if password != visit.form.get("again"):
            raise InvalidSetting("password", "…", visit.words("the two are not the same"))
        person = await console.accounts.accept(token, name, password)
    except InvalidSetting as error:
        user = invitation.user if invitation else None
        return visit.page("welcome.html", 400, user=user, name=name, problem=visit.words(error.expected))
    except InvitationSpent:
        raise HTTPException(410, visit.words("This link has been used or has expired. Ask for a new one.")) from None
    console.invitation = None
    await console.audit.note(Deed(person.name, visit.address, "set a password", person.name))
    response = RedirectResponse(visit.url(), 303)
    remember(
        visit, response, SESSION, await console.sessions.begin(person, visit.agent), int(console.settings.lifetime)
    )
    return response


async def account_page(visit: Visit) -> Response:
    """Show who one is."""
    return visit.page("account.html", problem="", tab="account")


async def change_password(visit: Visit) -> Response:
    """Set another password of one's own; everybody with the old one is signed out."""
    assert visit.session is not None
    person, new = visit.session.person, visit.form.get("password", "")
    if (wait := visit.console.guesses.wait(person.name, visit.address)) > 0:
        problem = visit.words("Too many attempts. Try again in {seconds} seconds.", seconds=math.ceil(wait))
        return visit.page("account.html", 429, problem=problem, tab="account")
    try:
        if new != visit.form.get("again"):
            raise InvalidSetting("password", "…", "the two are not the same")
        await visit.console.accounts.change_password(person, visit.form.get("old", ""), new)
    except InvalidSetting as error:
        visit.console.guesses.failed(person.name, visit.address)
        return visit.page("account.html", 400, problem=visit.words(error.expected), tab="account")
    await visit.console.audit.note(visit.deed("change the password", person.name))
    return visit.go(visit.url("login"), visit.words("Your password has been changed. Sign in with it."))


async def prefer(visit: Visit) -> Response:
    """Remember a language or colours."""
    response = RedirectResponse(_back(visit, visit.form.get("next", "")), 303)
    if (code := visit.form.get("language")) in NAMES:
        remember(visit, response, LANGUAGE, str(code), A_YEAR)
    if (theme := visit.form.get("theme")) in ("light", "dark", "auto"):
        remember(visit, response, THEME, str(theme), A_YEAR)
    return response


def _back(visit: Visit, path: str) -> str:
    return own_path(path, visit.root)
