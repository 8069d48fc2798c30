"""Who may do what, and who has done what: users, and the audit log."""

from __future__ import annotations

from starlette.responses import Response

from aioelasticjob.console.accounts import INVITATION, Role
from aioelasticjob.console.visit import Visit
from aioelasticjob.errors import InvalidSetting

LINES = 50
"""Entries of the log on a page."""


async def users(visit: Visit) -> Response:
    """Show everybody."""
    return visit.page("users.html", people=await visit.console.accounts.everybody(), link="", invited="", tab="users")


async def invite(visit: Visit) -> Response:
    """Make a one-time link for somebody new, or for somebody who has forgotten a password; shown this once."""
    name, console = visit.form.get("name", "").strip(), visit.console
    role = _role(visit.form.get("role", "viewer"))
    async with console.audit.doing(visit.deed("invite", name, asked={"role": role.value})):
        token = await console.accounts.invite(name, role)
    base = visit.request.base_url
    link = f"{base.scheme}://{base.netloc}{visit.url('welcome', token)}"
    people = await console.accounts.everybody()
    return visit.page("users.html", people=people, link=link, invited=name, hours=INVITATION / 3600, tab="users")


async def change(visit: Visit) -> Response:
    """Give somebody another role, or let them in no more, or again."""
    name, console = visit.request.path_params["name"], visit.console
    role = _role(visit.form["role"]) if "role" in visit.form else None
    disabled = visit.form["disabled"] == "1" if "disabled" in visit.form else None
    found = next((person for person in await console.accounts.everybody() if person.name == name), None)
    if found is None:
        raise InvalidSetting("user", name[:100], "there is nobody of that name")
    before = {"role": found.role.value, "disabled": found.disabled}
    asked = {key: visit.form[key] for key in ("role", "disabled") if key in visit.form}
    async with console.audit.doing(visit.deed("change a user", name, asked=asked, before=before)) as result:
        await console.accounts.change(name, role=role, disabled=disabled)
        result.after = {
            "role": (role or found.role).value,
            "disabled": found.disabled if disabled is None else disabled,
        }
    return visit.go(visit.url("users"), visit.words("{name} has been changed and signed out.", name=name))


async def audit(visit: Visit) -> Response:
    """Show the log, newest first."""
    query = visit.request.query_params
    text, below = query.get("q", "")[:200], query.get("below", "")
    start = int(below) if below.isascii() and below.isdecimal() and len(below) < 16 else None
    entries = await visit.console.audit.entries(below=start, text=text, most=LINES + 1)
    more = entries[LINES - 1].id if len(entries) > LINES else None
    return visit.page("audit.html", entries=entries[:LINES], more=more, text=text, tab="audit")


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise InvalidSetting("role", text[:40], f"one of {', '.join(Role)}") from None
