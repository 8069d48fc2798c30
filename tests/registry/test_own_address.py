"""A server's own address: as given, as the variable says, as the registry sees it, or towards the outside."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.registry import own_address as module
from aioelasticjob.registry.own_address import VARIABLE, outward_address, own_address


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(module, "outward_address", lambda: "10.0.0.7")


@pytest.mark.parametrize(
    ("given", "seen", "one_machine", "expected"),
    [
        ("10.0.0.9", "10.0.0.8", False, "10.0.0.9"),
        (None, "10.0.0.8", False, "10.0.0.8"),
        (None, "127.0.0.1", False, "10.0.0.7"),
        (None, "::1", False, "10.0.0.7"),
        (None, "127.0.0.1", True, "127.0.0.1"),
        (None, "", False, ""),
    ],
)
def test_the_first_that_says_something_counts(given: str | None, seen: str, one_machine: bool, expected: str) -> None:
    assert own_address(given, seen, one_machine=one_machine) == expected


def test_the_variable_counts_unless_the_address_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "fd00::7")
    assert own_address(None, "10.0.0.8", one_machine=True) == "fd00::7"
    assert own_address("10.0.0.9", "10.0.0.8", one_machine=True) == "10.0.0.9"
    monkeypatch.setenv(VARIABLE, "host")
    with pytest.raises(InvalidSetting, match="AIOELASTICJOB_IP = 'host': an address of this host"):
        own_address(None, "10.0.0.8", one_machine=True)


def test_without_a_way_to_the_outside_loopback_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "outward_address", lambda: None)
    assert own_address(None, "127.0.0.1", one_machine=False) == "127.0.0.1"


def test_the_outward_address_is_one_of_this_hosts_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = outward_address()
    if found is not None:
        assert not ipaddress.ip_address(found).is_loopback
        socket.create_server((found, 0), family=socket.AF_INET6 if ":" in found else socket.AF_INET).close()

    def no_route(*_: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(module.socket, "socket", no_route)
    assert outward_address() is None
