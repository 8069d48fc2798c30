"""Which runs of an event store belong to a registry: several registries may have the same store."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from aioelasticjob.console.settings import RegistrySettings

if TYPE_CHECKING:
    from aioelasticjob.observers.sql.history import Filter


def scope_of(registry: RegistrySettings, *, shared: bool) -> Filter:
    """Return which rows of its event store belong to a registry: those of its namespace.

    Rows without a namespace, which older releases and Elastic-Job have written, do if it has the store to itself.
    """
    from aioelasticjob.observers.sql.history import Filter  # SQLAlchemy, where there is a store to ask

    return Filter(namespace=registry.parsed_address().settings.namespace, unnamed=not shared)


def sharing(registries: Collection[RegistrySettings]) -> frozenset[str]:
    """Return the names of the registries whose event store another one seems to have, too.

    A server has many spellings, so two databases of one name count as one: a mistake hides old rows and shows none.
    """
    stores = {one.name: _store(one.event_store) for one in registries if one.event_store is not None}
    users = Counter(stores.values())
    return frozenset(name for name, store in stores.items() if users[store] > 1)


def _store(url: str) -> tuple[str, str]:
    from sqlalchemy import make_url

    parsed = make_url(url)
    kind = parsed.get_backend_name().replace("mariadb", "mysql")
    name = parsed.database or ""
    if kind == "sqlite":
        return kind, os.path.realpath(name.removeprefix("file:"))
    return kind, name.lower()
