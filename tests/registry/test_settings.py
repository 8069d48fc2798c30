"""Addresses and settings, right ones and wrong ones."""

from __future__ import annotations

from datetime import timedelta

import pytest

from aioelasticjob.errors import InvalidSetting
from aioelasticjob.registry.addresses import Address
from aioelasticjob.registry.settings import ConnectionSettings


def test_an_address_names_hosts_and_namespace() -> None:
    settings = ConnectionSettings.parse("zk://h1:2182,h2,[::1]:2183,[fe80::1]/billing/eu/", session_timeout=10)
    assert settings.hosts == (("h1", 2182), ("h2", 2181), ("::1", 2183), ("fe80::1", 2181))
    assert settings.namespace == "billing/eu"
    assert settings.session_timeout == 10
    assert settings.servers == "h1:2182,h2:2181,[::1]:2183,[fe80::1]:2181"


def test_a_namespace_may_be_left_out() -> None:
    assert ConnectionSettings.parse("zk://h").namespace == ""


@pytest.mark.parametrize(
    "address",
    [
        *("", "h:2181", "http://h:2181", "zk://", "zk://h:port", "zk://h:0", "zk://h:65536", "zk://h,,g"),
        *("zk://::1:2181/x", "zk://a..b", "zk://h\0:1", f"zk://{'a' * 64}:1"),
    ],
)
def test_a_wrong_address_is_refused_by_name(address: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        ConnectionSettings.parse(address)
    assert caught.value.setting == "address"
    assert caught.value.value == address


@pytest.mark.parametrize("address", ["zk://::1", "zk://::1:2181/x", "zk://[::1/x"])
def test_how_an_ipv6_address_is_written_is_shown(address: str) -> None:
    with pytest.raises(InvalidSetting, match=r"write an IPv6 address in brackets, such as \[::1\]:2181$"):
        ConnectionSettings.parse(address)


def test_a_port_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"is not host:port|999…"):
        ConnectionSettings.parse(f"zk://h:{'9' * 5000}")


@pytest.mark.parametrize(
    "namespace", ["a//b", "a/./b", "..", "a/..", "zookeeper", "zookeeper/jobs", "a\0b", "\a", "\ue000", "\U0001f600"]
)
def test_a_namespace_zookeeper_would_refuse_is_refused_first(namespace: str) -> None:
    with pytest.raises(InvalidSetting, match="namespace"):
        ConnectionSettings.parse(f"zk://h/{namespace}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("session_timeout", 0),
        ("session_timeout", 0.0001),
        ("session_timeout", 2_147_484),
        ("session_timeout", float("nan")),
        ("connection_timeout", "soon"),
        ("connection_timeout", True),
        pytest.param("connection_timeout", 10**400, id="huge"),
        ("base_sleep_time", float("inf")),
        ("base_sleep_time", 4),
        ("max_sleep_time", -1),
        ("max_retries", -1),
        ("max_retries", 1.5),
        ("max_request", 0),
        ("digest", "user"),
        ("digest", ":password"),
        ("sesion_timeout", 10),
        ("digest_file", ""),
        ("digest_file", "\0"),
        ("sasl_file", 5),
    ],
)
def test_a_wrong_setting_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidSetting) as caught:
        ConnectionSettings.parse("zk://h", **{name: value})  # type: ignore[arg-type]
    assert caught.value.setting == name


@pytest.mark.parametrize(
    ("tls", "setting"),
    [({1: 2}, "tls.1"), ({"ca": "\0"}, "tls.ca"), ({"key_password_file": "a\0"}, "tls.key_password_file")],
)
def test_a_wrong_setting_of_tls_is_refused_by_name(tls: dict[str, object], setting: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        ConnectionSettings.parse("zks://h", tls=tls)
    assert caught.value.setting == setting


def test_times_may_be_text_or_a_timedelta() -> None:
    settings = ConnectionSettings.parse("zk://h", session_timeout="1m", connection_timeout=timedelta(seconds=5))
    assert (settings.session_timeout, settings.connection_timeout) == (60, 5)


@pytest.mark.parametrize(
    "address",
    [
        *("zk://user:secret@h:1/x", "zk://h,user:secret@g/x", "embedded://u:secret@h:1/x"),
        *("zks://user:secret/or@h:1/x", "zk://us:er:secret/or@h/x", "embedded://u:secret/or@h:1/x"),
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(InvalidSetting, match="must have no credentials") as caught:
        Address.parse(address)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        *("user:secret?sasl=x@host/ns", "user:secret/or?digest=secret@h:1"),
        *("zks//user:secret@h:1/x", "user:secret@h", "http://user:secret@h", "zk://h/x?password=secret"),
        *("embedded://?password=secret", "embedded://h:1/x?password=secret&data_dir=d"),
        *(
            "zk://h/x?sasl=u:secret",
            "zks://h/x?a=b&digest=u:secret",
            "zk://h/x?SASL=u:secret",
            "zk://h/x?sasl=u:pa@secret",
            "embedded://h:1/x?data_dir=d&sasl=u:secret",
        ),
    ],
)
def test_credentials_are_not_repeated_when_something_else_is_wrong(address: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Address.parse(address)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("address", ["zk://h:2181/x", "zks://h:2281,[::1]:2282/x", "zk://h:2181/"])
def test_settings_can_be_shown_as_the_address_that_they_come_from(address: str) -> None:
    assert ConnectionSettings.parse(address).address == address


def test_bytes_of_the_environment_that_are_no_text_are_refused() -> None:
    for address, digest in (("zk://h/x\udcff", None), ("zk://h/x", "user:\udcff")):
        with pytest.raises(InvalidSetting, match="must be text that UTF-8 can spell"):
            ConnectionSettings.parse(address, digest=digest)


def test_options_in_an_address_are_no_part_of_the_namespace() -> None:
    with pytest.raises(InvalidSetting, match=r"takes no options after a '\?'"):
        ConnectionSettings.parse("zk://h:1/x?foo=1")


def test_a_wrong_digest_is_not_repeated() -> None:
    with pytest.raises(InvalidSetting) as caught:
        ConnectionSettings.parse("zk://h", digest="secret")
    assert "secret" not in str(caught.value)
