"""The users of the console, and the audit log."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from aioelasticjob.console.users.accounts import INVITATION
from aioelasticjob.console.users.permissions import MEANINGS, Permission, Role
from aioelasticjob.console.web.request import PageRequest, require
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.operations.labels import label_in

IN = "in:"
"""Begins the name of a form's field for the role in one registry, as ``in:billing``, or as ``in:billing:team=ads``."""
LABEL_ROLES = tuple(role for role in Role if role.permissions and role is not Role.ADMIN)
"""The roles that somebody can have for labelled jobs."""
LINES = 50
"""Entries of the log on a page."""


async def page(request: PageRequest) -> Response:
    """Show everybody."""
    return await _page(request)


async def invite(request: PageRequest) -> Response:
    """Make a one-time link for somebody new, or for somebody who has forgotten a password; shown this once."""
    name = request.form.get("name", "").strip()
    state = request.state
    role = _role(request.form.get("role", "viewer"))
    known = await state.storage.accounts.find(name)
    if known is not None:  # an invitation changes no role
        name = known.name
        role = known.grants.role
    async with request.audited("invite", name, asked={"role": role.value}):
        token = await state.storage.accounts.invite(name, role)
    path = request.url("welcome", token)
    public = state.settings.public_url.rstrip("/")  # never the request's host: anybody can write one
    link = f"{public}{path.removeprefix(request.root)}" if public else path
    return await _page(request, link=link, invited=name, kept_role=None if known is None else role)


async def change(request: PageRequest) -> Response:
    """Give somebody another role, or let them in no more, or again."""
    name = request.http.path_params["name"]
    state = request.state
    form = request.form
    role = _role(form["role"]) if "role" in form else None
    disabled = form["disabled"] == "1" if "disabled" in form else None
    found = await state.storage.accounts.find(name)
    if found is None:
        raise InvalidSetting("user", name[:100], "there is nobody of that name")
    grants = _grants_in(form)
    asked: dict[str, object] = {key: form[key] for key in form if key in ("role", "disabled")}
    asked |= {_in_words(where): granted.value if granted else "" for where, granted in grants.items()}
    if not asked:
        raise InvalidSetting("user", name, "the form says neither a role nor whether the person is locked out")
    before: dict[str, object] = {"role": found.grants.role.value, "disabled": found.disabled}
    before |= {_in_words(where): found.grants.granted(*where) for where in grants}
    after: dict[str, object] = {"role": found.grants.role.value, "disabled": found.disabled}
    after |= {_in_words(where): granted for where, granted in grants.items()}
    if role is not None:
        after["role"] = role.value
    if disabled is not None:
        after["disabled"] = disabled
    async with request.audited("change a user", name, asked=asked, before=before) as result:
        await state.storage.accounts.change(name, role=role, disabled=disabled, grants=grants)
        result.after = after
    notice = request.translate("{name} has been changed and signed out.", name=name)
    return request.redirect(request.url("users"), notice)


async def _page(request: PageRequest, *, link: str = "", invited: str = "", kept_role: Role | None = None) -> Response:
    """Show everybody, and the link for whom was invited, who has ``kept_role`` if that was somebody known."""
    return request.page(
        "users.html",
        people=await request.state.storage.accounts.everybody(),
        roles=tuple(Role),
        label_roles=LABEL_ROLES,
        meanings=MEANINGS,
        link=link,
        invited=invited,
        kept_role=kept_role,
        hours=INVITATION / 3600,
        tab="users",
    )


async def audit_log(request: PageRequest) -> Response:
    """Show the log, newest first; operators see what was done in their registries, administrators everything."""
    if not request.viewer.operates_somewhere:
        require(request, Permission.OPERATE)
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
    grants = request.viewer.session.person.grants
    names = [one.settings.name for one in request.state.registries]
    return [name for name in names if Permission.OPERATE in grants.permissions(name)]


def _grants_in(form: Mapping[str, str]) -> dict[tuple[str, str], Role | None]:
    """Read the roles in registries and for labelled jobs, by registry and label; None takes a role back."""
    found = dict[tuple[str, str], Role | None]()
    for key, value in form.items():
        if key.startswith(IN):
            registry, _, label = key.removeprefix(IN).partition(":")
            found[registry, label] = _grant(value, label)
    if typed := form.get("label", "").strip():
        name, wanted = label_in(typed)
        if wanted is None:
            raise InvalidSetting("label", typed[:200], "write NAME=VALUE, such as team=billing")
        label = f"{name}={wanted}"
        found[form.get("label_registry", ""), label] = _grant(form.get("label_role", ""), label)
    return found


def _grant(text: str, label: str) -> Role | None:
    """Read the role in one registry, or for its jobs with a label; empty for none of its own."""
    if not text:
        return None
    role = _role(text)
    if role is Role.ADMIN:
        raise InvalidSetting("role", text, "administrators are so in all registries")
    if label and role not in LABEL_ROLES:
        raise InvalidSetting("role", text, f"for labelled jobs one of {', '.join(LABEL_ROLES)}")
    return role


def _in_words(where: tuple[str, str]) -> str:
    """Return a registry, or a registry and a label, as the audit log shows it."""
    registry, label = where
    return f"in {registry}, {label}" if label else f"in {registry}"


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise InvalidSetting("role", text[:40], f"one of {', '.join(Role)}") from None
