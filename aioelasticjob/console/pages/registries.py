"""The registries: which are watched and how they are; add one, try one out, drop one."""

from __future__ import annotations

import sqlite3

from starlette.responses import Response

from aioelasticjob import operations
from aioelasticjob.addresses import open_registry
from aioelasticjob.console.settings import RegistrySettings
from aioelasticjob.console.visit import Visit
from aioelasticjob.errors import ElasticJobError, InvalidSetting

PATIENCE = 3.0
"""Seconds a registry has to answer when it is tried out."""


async def page(visit: Visit) -> Response:
    """Show all registries."""
    return _page(visit)


async def add(visit: Visit) -> Response:
    """Watch one more, now and after the next start; or only try whether it is there."""
    form, console = visit.form, visit.console
    try:
        settings = _read(visit)
        found = await _try(visit, settings)
        if form.get("try") == "1":
            return _page(visit, told=found)
        if console.registries.get(settings.name) is not None:
            raise InvalidSetting("name", settings.name, "there is a registry of that name")
    except ElasticJobError as error:
        return _page(visit, 400, problem=str(error))
    asked = {"name": settings.name, "address": settings.address}

    def keep(db: sqlite3.Connection) -> None:
        values = (settings.name, settings.address, settings.digest, settings.event_store)
        db.execute("insert into registries (name, address, digest, event_store) values (?, ?, ?, ?)", values)

    async with console.audit.doing(visit.deed("add a registry", settings.name, asked=asked)):
        await console.database.run(keep)
        console.registries.add(settings)
    return visit.go(visit.url("registries"), visit.words("{name} has been added.", name=settings.name))


async def drop(visit: Visit) -> Response:
    """Watch one no more; nothing in it is touched."""
    name, console = visit.request.path_params["name"], visit.console
    if name in {one.name for one in console.settings.registries}:
        raise InvalidSetting("name", name, "was given when the console was started: start it without")
    watched = console.registries.get(name)
    if watched is None:
        raise InvalidSetting("name", name[:100], "there is no such registry")
    async with console.audit.doing(visit.deed("drop a registry", name, before={"address": watched.settings.address})):
        await console.database.run(lambda db: db.execute("delete from registries where name = ?", (name,)))
        console.registries.drop(name)
    return visit.go(visit.url("registries"), visit.words("{name} is watched no more.", name=name))


def _page(visit: Visit, status: int = 200, problem: str = "", told: str = "") -> Response:
    kept = {key: visit.form.get(key, "") for key in ("name", "address", "event_store")}
    fixed = {one.name for one in visit.console.settings.registries}
    context = {"all": list(visit.console.registries), "fixed": fixed, "kept": kept, "problem": problem, "told": told}
    return visit.page("registries.html", status, tab="registries", **context)


def _read(visit: Visit) -> RegistrySettings:
    form = visit.form
    name, address = form.get("name", "").strip(), form.get("address", "").strip()
    return RegistrySettings(name, address, form.get("digest") or None, form.get("event_store", "").strip() or None)


async def _try(visit: Visit, settings: RegistrySettings) -> str:
    async with open_registry(settings.place(PATIENCE), clock=visit.console.clock) as session:
        there = await operations.names(session)
    return visit.words("{name} answers: {jobs} jobs.", name=settings.name, jobs=len(there))
