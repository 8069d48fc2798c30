"""Credentials and certificates of commands: from options, the environment and profiles."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aioelasticjob.cli.access import access_to
from aioelasticjob.cli.application import application
from aioelasticjob.zookeeper.server import serve
from aioelasticjob.zookeeper.settings import Settings
from aioelasticjob.zookeeper.tls import TlsSettings
from tests.support.certificates import authority


@pytest.mark.parametrize(
    ("given", "profile", "expected"),
    [
        ({}, {}, {}),
        ({"digest": "a:b"}, {}, {"digest": "a:b"}),
        ({"digest_file": "f"}, {"digest": "a:b", "sasl": "c:d"}, {"digest_file": "f", "sasl": "c:d"}),
        ({"tls_ca": "x"}, {"tls": {"ca": "y", "key": "k"}}, {"tls": {"ca": "x", "key": "k"}}),
        ({"tls_key_password": "p"}, {"tls": {"key_password_file": "y"}}, {"tls": {"key_password": "p"}}),
    ],
)
def test_what_is_given_goes_before_the_profile(
    given: dict[str, Any], profile: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert access_to("zks://h", given, profile) == expected


def test_certificates_are_for_encrypted_addresses() -> None:
    assert access_to("zk://h", {"tls_ca": "x", "sasl": "a:b"}) == {"sasl": "a:b"}


def test_a_typed_certificate_for_an_address_without_tls_is_refused() -> None:
    done = CliRunner().invoke(application, ["jobs", "--registry", "zk://h", "--tls-ca", "ca.pem"])
    assert done.exit_code == 2
    assert "zk://h is not encrypted: write zks://" in done.output


@pytest.mark.parametrize("way", ["options", "environment", "profile"])
def test_a_command_gets_in(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = authority(tmp_path, "ca")
    ours, login = ca.issue("server"), tmp_path / "login"
    login.write_text("bob:secret")

    async def main() -> Any:
        tls = TlsSettings(ours.certificate, ours.key, port=0)
        async with serve(settings=Settings(tick_time=500, sasl_users={"bob": "secret"}), tls=tls) as server:
            address = f"zks://localhost:{server.tls_port}/shop"
            profile = f'[it]\nregistry = "{address}"\nsasl_file = "{login}"\ntls = {{ca = "{ca.certificate}"}}\n'
            (tmp_path / "profiles.toml").write_text(profile)
            typed, variables = {
                "options": (["-r", address, "--tls-ca", str(ca.certificate), "--sasl-file", str(login)], {}),
                "environment": (
                    ["-r", address],
                    {"AIOELASTICJOB_TLS__CA": str(ca.certificate), "AIOELASTICJOB_SASL": "bob:secret"},
                ),
                "profile": (["-p", "it"], {"AIOELASTICJOB_PROFILES": str(tmp_path / "profiles.toml")}),
            }[way]
            command = ["jobs", "--json", "--timeout", "60", *typed]
            return await asyncio.to_thread(CliRunner().invoke, application, command, env=variables)

    done = asyncio.run(main())
    assert (done.exit_code, done.exception) == (0, None), done.output
    assert done.stdout.strip() == "[]"
