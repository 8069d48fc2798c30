"""Addresses: what they make of the settings that belong to other kinds of registries."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from aioelasticjob.errors import InvalidSetting, RegistryUnreachable
from aioelasticjob.ground.limited_log import MOST, LimitedLog
from aioelasticjob.registry import addresses
from aioelasticjob.registry.addresses import Address, open_registry
from aioelasticjob.registry.shared import SharedServer
from aioelasticjob.registry.tls import TlsSettings
from aioelasticjob.testing import run

SHARED = "embedded://127.0.0.1:2181/test"


@pytest.mark.parametrize("text", ["embedded://", SHARED])
def test_a_registry_on_this_machine_is_not_encrypted(text: str) -> None:
    assert Address.parse(text, tls={"ca": "ca.pem"}).settings.tls is None


def test_a_shared_registry_knows_no_users_of_sasl() -> None:
    for options in ({"sasl": "bob:secret"}, {"sasl_file": "secret"}):
        with pytest.raises(InvalidSetting, match="knows digest only") as refused:
            Address.parse(SHARED, **options)  # type: ignore[arg-type]
        assert "secret" not in str(refused.value)


def test_a_private_registry_lets_everybody_in_who_would_log_in_elsewhere() -> None:
    async def main() -> None:
        async with open_registry("embedded:///test", sasl="bob:secret") as session:
            await session.get("/")

    asyncio.run(main())


def test_settings_of_tls_are_checked_where_they_are_not_used() -> None:
    for address in ("zk://h/a", "embedded://", "embedded://127.0.0.1:2181/a"):
        for wrong in (5, {"cas": "ca.pem"}):
            with pytest.raises(InvalidSetting, match="tls"):
                Address.parse(address, tls=wrong)  # type: ignore[arg-type]


def test_a_changed_address_keeps_its_access() -> None:
    before = Address.parse("zks://h/a", tls={"ca": "ca.pem"}, sasl_file="f", ip="10.0.0.7")
    after = before.changed("zks://g/b", session_timeout=7)
    assert (after.settings.tls, after.settings.sasl_file, after.settings.ip) == (TlsSettings("ca.pem"), "f", "10.0.0.7")
    assert before.changed("embedded://").settings.tls is None


def test_a_shared_server_that_cannot_be_started_for_reasons_that_take_turns_fills_no_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = count()

    async def fail(server: SharedServer) -> None:
        raise RegistryUnreachable("127.0.0.1:2181", 1.0, f"reason {next(numbers) % 2}")

    async def main() -> None:
        limited_log = LimitedLog()
        start = addresses._ServerRestarter(SharedServer.parse("127.0.0.1", 2181, ""), limited_log)
        for _ in range(50):
            await start()
        limited_log.close()

    monkeypatch.setattr(addresses, "ensure_server", fail)
    run(main)
    *lines, counted = caplog.messages
    assert len(lines) == MOST
    assert counted == f"{50 - MOST} more lines were left out: the embedded registry cannot be started again"
