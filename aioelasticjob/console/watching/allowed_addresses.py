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
    allowed = [_compiled(pattern) for pattern in patterns]
    for spellings in _servers(registry):
        if not _matches(allowed, spellings):
            raise InvalidSetting("address", registry.address, EXPECTED)
    if registry.event_store is not None and not _matches(allowed, [_database(registry.event_store)]):
        raise InvalidSetting("event_store", "…", EXPECTED)  # it may hold a password


def _compiled(pattern: str) -> re.Pattern[str]:
    texts = [re.escape(text) for text in pattern.split("*")]
    return re.compile("[^/?@,]*".join(texts))


def _matches(patterns: Sequence[re.Pattern[str]], spellings: Sequence[str]) -> bool:
    """Whether any pattern allows any of the spellings of one address."""
    return any(pattern.fullmatch(one) for pattern in patterns for one in spellings)


def _servers(registry: RegistrySettings) -> Iterator[Sequence[str]]:
    """Yield the spellings of each server of a registry: with and without its namespace and the usual port."""
    address = registry.parsed_address()
    if address.shared is not None:  # the console would start that server and make its files
        yield [address.text]
        return
    for host, port in address.settings.hosts:
        shown = f"[{host}]" if ":" in host else host
        schemes = ("zk",) if address.settings.tls is None else ("zk", "zks")
        spellings = list[str]()
        for scheme in schemes:
            spellings.append(f"{scheme}://{shown}:{port}")
            if port == DEFAULT_PORTS[scheme]:
                spellings.append(f"{scheme}://{shown}")
        with_namespace = [f"{one}/{address.settings.namespace}" for one in spellings]
        yield spellings + with_namespace


def _database(url: str) -> str:
    """Return the address of a database without driver, user and password."""
    from sqlalchemy import make_url

    parsed = make_url(url)
    host = parsed.host or ""
    if ":" in host:
        host = f"[{host}]"
    port = f":{parsed.port}" if parsed.port else ""
    query = f"?{parsed.query}" if parsed.query else ""  # some drivers take the host from there: no pattern allows it
    return f"{parsed.get_backend_name()}://{host}{port}/{parsed.database or ''}{query}"
