"""The users of the console, and the audit log."""

from __future__ import annotations

from starlette.responses import Response

from aioelasticjob.console.users.accounts import INVITATION, Role
from aioelasticjob.console.web.request import PageRequest, require_role
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.whole_numbers import whole_number

IN = "in:"
"""Begins the name of a form's field for the role in one registry."""
LINES = 50
"""Entries of the log on a page."""


async def page(request: PageRequest) -> Response:
    """Show everybody."""
    return request.page(
        "users.html",
        people=await request.state.storage.accounts.everybody(),
        roles=tuple(Role),
        link="",
        invited="",
        tab="users",
    )


async def invite(request: PageRequest) -> Response:
    """Make a one-time link for somebody new, or for somebody who has forgotten a password; shown this once."""
    name = request.form.get("name", "").strip()
    state = request.state
    role = _role(request.form.get("role", "viewer"))
    async with request.audited("invite", name, asked={"role": role.value}):
        token = await state.storage.accounts.invite(name, role)
    path = request.url("welcome", token)
    public = state.settings.public_url.rstrip("/")  # never the request's host: anybody can write one
    link = f"{public}{path.removeprefix(request.root)}" if public else path
    people = await state.storage.accounts.everybody()
    return request.page(
        "users.html", people=people, roles=tuple(Role), link=link, invited=name, hours=INVITATION / 3600, tab="users"
    )


async def change(request: PageRequest) -> Response:
    """Give somebody another role, or let them in no more, or again."""
    name = request.http.path_params["name"]
    state = request.state
    form = request.form
    role = _role(form["role"]) if "role" in form else None
    disabled = form["disabled"] == "1" if "disabled" in form else None
    everybody = await state.storage.accounts.everybody()
    found = next((person for person in everybody if person.name == name), None)
    if found is None:
        raise InvalidSetting("user", name[:100], "there is nobody of that name")
    grants = {key.removeprefix(IN): _grant(form[key]) for key in form if key.startswith(IN)}
    asked: dict[str, object] = {key: form[key] for key in form if key in ("role", "disabled") or key.startswith(IN)}
    if not asked:
        raise InvalidSetting("user", name, "the form says neither a role nor whether the person is locked out")
    before: dict[str, object] = {"role": found.role.value, "disabled": found.disabled}
    before |= {registry: found.grants.get(registry) for registry in grants}
    after: dict[str, object] = {"role": found.role.value, "disabled": found.disabled, **grants}
    if role is not None:
        after["role"] = role.value
    if disabled is not None:
        after["disabled"] = disabled
    async with request.audited("change a user", name, asked=asked, before=before) as result:
        await state.storage.accounts.change(name, role=role, disabled=disabled, grants=grants)
        result.after = after
    notice = request.translate("{name} has been changed and signed out.", name=name)
    return request.redirect(request.url("users"), notice)


async def audit_log(request: PageRequest) -> Response:
    """Show the log, newest first; operators see what was done in their registries, administrators everything."""
    if not request.viewer.operates_somewhere:
        require_role(request, Role.OPERATOR)
    registries = None if request.viewer.is_admin else _operated(request)
    query = request.http.query_params
    await request.state.storage.complete_audit()
    text = query.get("q", "")[:200]
    below = query.get("below", "")
    start = whole_number(below)
    records = await request.state.storage.audit.entries(below=start, text=text, most=LINES + 1, registries=registries)
    more = records[LINES - 1].id if len(records) > LINES else None
    return request.page("audit.html", records=records[:LINES], more=more, text=text, tab="audit")


def _operated(request: PageRequest) -> list[str]:
    assert request.viewer.session is not None
    person = request.viewer.session.person
    names = [one.settings.name for one in request.state.registries]
    return [name for name in names if person.role_in(name).includes(Role.OPERATOR)]


def _grant(text: str) -> Role | None:
    """Read the role in one registry; empty for the same one as elsewhere."""
    role = _role(text) if text else None
    if role is Role.ADMIN:
        raise InvalidSetting("role", text, "administrators are so in all registries")
    return role


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise InvalidSetting("role", text[:40], f"one of {', '.join(Role)}") from None
