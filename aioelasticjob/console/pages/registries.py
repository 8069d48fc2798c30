"""The registries: which are found and how they are; add one, try one out, drop one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from starlette.responses import Response

from aioelasticjob import operations
from aioelasticjob.console.settings import RegistrySettings
from aioelasticjob.console.storage.database import DatabaseUnwritable
from aioelasticjob.console.watching.allowed_addresses import check_allowed
from aioelasticjob.console.watching.health import Health
from aioelasticjob.console.watching.partial_registry import SeenRegistry
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.web.frame import frame_pieces
from aioelasticjob.console.web.request import PageRequest
from aioelasticjob.console.web.stream import Piece, Pieces, stream
from aioelasticjob.errors import ElasticJobError, InvalidSetting
from aioelasticjob.ground.credentials import HIDDEN
from aioelasticjob.operations.alerts.state import AlertState
from aioelasticjob.operations.attention import SEVERITY
from aioelasticjob.registry.addresses import open_registry
from aioelasticjob.registry.settings import address_without_credentials

TLS: Final = "tls_"
SHOWN: Final = (
    "digest_file",
    "sasl_file",
    "tls_ca",
    "tls_certificate",
    "tls_key",
    "tls_key_password_file",
    "tls_server_name",
    "tls_minimum_version",
)
"""Fields of a registry's access that are no secrets: they are shown again, and recorded in the audit log."""
SECRET: Final = ("digest", "sasl", "tls_key_password")
NAMED: Final = 3
"""Jobs and alerts of a registry that the list names: the worst jobs, and the alerts that fire longest."""
CONNECT_TIMEOUT = 3.0
"""Seconds a registry has to answer when it is tried out."""


async def page(request: PageRequest) -> Response:
    """Show all registries."""
    return _page(request)


async def live(request: PageRequest) -> Response:
    """Stream what changes among them."""

    async def render(_: RegistrySnapshot) -> Sequence[Piece]:
        return [*frame_pieces(request), _list(request)]

    return stream(request, Pieces(render))


async def add(request: PageRequest) -> Response:
    """Watch one more, now and after the next start; or only try whether it is there."""
    form = request.form
    state = request.state
    tries = request.form.get("try") == "1"
    asked = {name: value for name, value in _kept(request).items() if value}
    action = "try a registry" if tries else "add a registry"

    def keep(db: sqlite3.Connection) -> None:
        access = json.dumps(settings.access)
        values = (settings.name, settings.address, settings.digest, settings.event_store, access)
        db.execute("insert into registries (name, address, digest, event_store, access) values (?, ?, ?, ?, ?)", values)

    try:
        async with request.audited(action, form.get("name", "").strip(), asked=asked):
            settings = _read(request)
            check_allowed(settings, state.settings.allowed_addresses)
            found = await _try(request, settings)
            if not tries:
                if state.registries.get(settings.name) is not None:
                    raise InvalidSetting("name", settings.name, "there is a registry of that name")
                await state.storage.database.run(keep)
                state.registries.add(settings)
    except DatabaseUnwritable:
        raise
    except ElasticJobError as error:
        return _page(request, 400, problem=request.translate.error(error))
    if tries:
        return _page(request, notice=found)
    return request.redirect(request.url("registries"), request.translate("{name} has been added.", name=settings.name))


async def drop(request: PageRequest) -> Response:
    """Watch one no more; nothing in it is touched."""
    name = request.http.path_params["name"]
    state = request.state
    if name in {one.name for one in state.settings.registries}:
        raise InvalidSetting("name", name, "was given when the console was started: start it without")
    found = state.registries.get(name)
    if found is None:
        raise InvalidSetting("name", name[:100], "there is no such registry")
    async with request.audited("drop a registry", name, before={"address": found.settings.address}):
        await state.storage.database.run(lambda db: db.execute("delete from registries where name = ?", (name,)))
        state.registries.remove(name)
        state.parts.pop(name, None)
    return request.redirect(request.url("registries"), request.translate("{name} is watched no more.", name=name))


def _page(request: PageRequest, status: int = 200, problem: str = "", notice: str = "") -> Response:
    context = {
        "kept": _kept(request),
        "problem": problem,
        "notice": notice,
        "pieces": {"registries": _list(request).html},
    }
    return request.page("registries.html", status, tab="registries", **context)


def _kept(request: PageRequest) -> dict[str, str]:
    """Return what was typed and is no secret."""
    kept = {key: request.form.get(key, "") for key in ("name", *SHOWN)}
    for key in ("address", "event_store"):
        kept[key] = address_without_credentials(request.form.get(key, ""))
    return kept


@dataclass(frozen=True, slots=True)
class RegistryHealth:
    """A registry, and what needs attention in it."""

    watch: SeenRegistry
    is_lost: bool
    worst: Sequence[tuple[str, Health]]
    """Its jobs that need attention, by name, the worst first."""
    firing: Sequence[AlertState]
    """The alerts that fire there, the oldest first."""

    @property
    def colour(self) -> str:
        """The colour of its dot."""
        if self.is_lost or self.firing:
            return "bad"
        return self.worst[0][1].colour if self.worst else "ok"

    @property
    def order(self) -> tuple[bool, tuple[int, int], int, int]:
        """Its place in the list, in which the worst registry comes first."""
        severity = self.worst[0][1].severity if self.worst else (len(SEVERITY), 0)
        return not self.is_lost, severity, -len(self.worst), -len(self.firing)


def _worst_first(request: PageRequest) -> Sequence[RegistryHealth]:
    """Return the registries: those that are not there, then those whose jobs need attention, then the others."""
    found = []
    for watch in request.registries:
        snapshot = watch.snapshot.value
        worst = request.state.health_of(watch, snapshot).worst
        firing = sorted((one for one in snapshot.alerts if one.fires), key=attrgetter("since"))
        found.append(RegistryHealth(watch, snapshot.lost is not None, worst, firing))
    return sorted(found, key=attrgetter("order"))


def _list(request: PageRequest) -> Piece:
    fixed = {one.name for one in request.state.settings.registries}
    context = {"all": _worst_first(request), "fixed": fixed, "named": NAMED}
    return Piece("registries", request.render("registries-list.html", **context))


def _read(request: PageRequest) -> RegistrySettings:
    form = request.form
    for key in ("address", "event_store"):
        if HIDDEN in form.get(key, ""):
            shown = address_without_credentials(form[key])
            raise InvalidSetting(key, shown, "type the credentials in it again: the page does not show them")
    name = form.get("name", "").strip()
    address = form.get("address", "").strip()
    given = {key: form.get(key, "").strip() for key in SHOWN}
    given |= {key: form.get(key, "") for key in SECRET}  # a secret may begin or end with a space
    access = {key: text for key, text in given.items() if text and not key.startswith(TLS)}
    tls = {key.removeprefix(TLS): text for key, text in given.items() if text and key.startswith(TLS)}
    store = form.get("event_store", "").strip() or None
    return RegistrySettings(name, address, event_store=store, tls=tls or None, **access)


async def _try(request: PageRequest, settings: RegistrySettings) -> str:
    async with open_registry(settings.parsed_address(CONNECT_TIMEOUT), clock=request.state.clock) as session:
        there = await operations.names(session)
    jobs = request.translate.count(len(there), "job")
    return request.translate("{name} answers: {jobs}.", name=settings.name, jobs=jobs)
