"""The addresses that administrators may add on the page: those that the command line allows, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from aioelasticjob.console.settings import RegistrySettings
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.registry.settings import DEFAULT_PORTS

EXPECTED: Final = "an address that the console's command line allows: start it with --allow-address for another one"


def check_allowed(registry: RegistrySettings, patterns: Sequence[str]) -> None:
    """Refuse a registry or an event store that is not allowed, before anything connects to it.

    In a pattern ``*`` stands for characters other than ``/ ? @ ,``.

    Raises:
        InvalidSetting: no pattern allows it.
    """
    allowed = [re.compile("[^/?@,]*".join(map(re.escape, pattern.split("*")))) for pattern in patterns]

    def matches(spellings: Sequence[str]) -> bool:
        return any(pattern.fullmatch(one) for pattern in allowed for one in spellings)

    if not all(map(matches, _servers(registry))):
        raise InvalidSetting("address", registry.address, EXPECTED)
    if registry.event_store is not None and not matches([_database(registry.event_store)]):
        raise InvalidSetting("event_store", "…", EXPECTED)  # it may hold a password


def _servers(registry: RegistrySettings) -> Iterator[Sequence[str]]:
    """Yield the spellings of each server of a registry: with and without its namespace and the usual port."""
    address = registry.parsed_address()
    if address.shared is not None:  # the console would start that server and make its files
        yield [address.text]
        return
    for host, port in address.settings.hosts:
        shown = f"[{host}]" if ":" in host else host
        schemes = ("zk",) if address.settings.tls is None else ("zk", "zks")
        bases = [f"{scheme}://{shown}:{port}" for scheme in schemes]
        bases += [f"{scheme}://{shown}" for scheme in schemes if port == DEFAULT_PORTS[scheme]]
        yield [*bases, *(f"{base}/{address.settings.namespace}" for base in bases)]


def _database(url: str) -> str:
    """Return the address of a database without driver, user and password."""
    from sqlalchemy import make_url

    parsed = make_url(url)
    host = f"[{parsed.host}]" if parsed.host and ":" in parsed.host else parsed.host or ""
    port = f":{parsed.port}" if parsed.port else ""
    query = f"?{parsed.query}" if parsed.query else ""  # some drivers take the host from there: no pattern allows it
    return f"{parsed.get_backend_name()}://{host}{port}/{parsed.database or ''}{query}"
