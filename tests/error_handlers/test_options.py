"""Options of error handlers are looked at when they are configured, and no error tells a secret."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from aioelasticjob import ElasticJob
from aioelasticjob.error_handlers import Options, check, find, ignore, lookup
from aioelasticjob.error_handlers.options import Email, is_loopback, parse, place
from aioelasticjob.errors import InvalidSetting

MAIL = {"host": "mail.example.org", "sender": "jobs@example.org", "to": "a@example.org, B <b@example.org>"}
LOGIN = {"username": "ops", "password": "s3cret"}
HOOK = {"url": "https://example.org/hook"}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("carrier-pigeon", {}, "error_handler = 'carrier-pigeon': must be one of dingtalk, email, "),
        ("webhok", {}, "did you mean webhook?"),
        ("email", {"host": "x", "sender": "y@z"}, "error_handler_options.to = None: this error handler needs it"),
        ("email", {**MAIL, "to": ""}, ".to = '': must be text, on one line"),
        ("email", {**MAIL, "to": "ops.example.org"}, ".to = 'ops.example.org': must be addresses like ops@example.org"),
        ("email", {**MAIL, "sender": "a@b\nBcc: c@d"}, "must be text, on one line"),
        ("email", {**MAIL, "port": "smtp"}, ".port = 'smtp': must be a port from 1 to 65535"),
        ("email", {**MAIL, "port": "65536"}, ".port = '65536': must be a port from 1 to 65535"),
        ("email", {**MAIL, "use_tls": "maybe"}, '.use_tls = \'maybe\': must be "true" or "false"'),
        ("email", {**MAIL, "pasword": "s3cret"}, ".pasword = '…': there is no such setting; did you mean password?"),
        ("email", {**MAIL, "password": "s3cret"}, ".password = '…': username and password are given together"),
        ("email", {**MAIL, "username": "ops"}, ".username = 'ops': username and password are given together"),
        ("email", {**MAIL, "use_tls": "1", "start_tls": "1"}, ".start_tls = '1': use_tls encrypts from the beginning"),
        ("email", {**MAIL, **LOGIN, "start_tls": "no"}, ".start_tls = 'no': the password would cross the network"),
        ("webhook", {}, ".url = None: this error handler needs it"),
        ("webhook", {"url": "not an address"}, ".url = '…': must be an address like https://host/path"),
        ("webhook", {"url": "https://host:99999999/s3cret"}, ".url = '…': must be an address like"),
        ("webhook", {"url": "http://ops:s3cret@example.org/x"}, ".url = 'http://example.org/…': the password would"),
        ("webhook", {"url": "http://example.org/x", "header.X-Token": "s3cret"}, "the header X-Token would cross"),
        ("webhook", {**HOOK, "header": "X: s3cret"}, ".header = '…': there is no such setting; did you mean header.NA"),
        ("webhook", {**HOOK, "header.X Y": "s3cret"}, ".header.X Y = '…': must be the name of a header"),
        ("webhook", {**HOOK, "header.X": "a\r\nY: s3cret"}, ".header.X = '…': must be the name of a header"),
        ("dingtalk", {"webhook": "https://example.org", "secrets": "s3cret"}, "did you mean secret?"),
        ("wecom", {"webhook": "http://example.org/?key=s3cret"}, ".webhook = 'http://example.org/…': the robot's key"),
    ],
)
def test_what_is_wrong_is_said_when_the_job_is_declared(name: str, options: Options, message: str) -> None:
    app = ElasticJob("embedded://")
    with pytest.raises(InvalidSetting) as caught:
        app.add(lambda context: None, name="job", error_handler=name, error_handler_options=options)
    assert message in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("email", {**MAIL, **LOGIN, "use_tls": "True", "port": "465", "subject": "", "start_tls": "off"}),
        ("email", {**MAIL, **LOGIN, "start_tls": "false", "allow_unencrypted": "yes"}),
        ("email", {**MAIL, **LOGIN, "start_tls": "false", "host": "::1"}),
        ("webhook", {**HOOK, "header.Authorization": "Bearer s3cret"}),
        ("webhook", {"url": "http://example.org/x", "header.X-From": "jobs"}),
        ("webhook", {"url": "http://ops:s3cret@localhost:8080"}),
        ("webhook", {"url": "http://example.org", "header.X-Token": "s3cret", "allow_unencrypted": "true"}),
        ("dingtalk", {"webhook": "https://example.org?access_token=x", "secret": "s3cret", "keyword": "jobs"}),
        ("wecom", {"webhook": "http://127.0.0.1:1/?key=x"}),
        ("log", {"host": "mail.example.org"}),  # those of another handler, to which the job may be switched back
    ],
)
def test_what_is_right_is_taken(name: str, options: Options) -> None:
    check(name, options)


@pytest.mark.parametrize(
    ("more", "upgrade"),
    [
        ({}, None),
        ({"start_tls": "true"}, True),
        ({"start_tls": "false"}, False),
        (LOGIN, True),
        ({**LOGIN, "use_tls": "True"}, None),
        ({**LOGIN, "host": "localhost"}, None),
        ({**LOGIN, "allow_unencrypted": "true"}, None),
    ],
)
def test_a_password_needs_encryption_unless_it_is_permitted_otherwise(more: Options, upgrade: bool | None) -> None:
    assert parse(Email, {**MAIL, **more}).upgrade is upgrade


@pytest.mark.parametrize(
    ("host", "here"), [("127.0.0.9", True), ("LOCALHOST", True), ("::1", True), ("10.0.0.1", False), ("mail", False)]
)
def test_loopback_is_known(host: str, here: bool) -> None:
    assert is_loopback(host) is here


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example.org/services/T0/s3cret", "https://hooks.example.org/…"),
        ("https://a:s3@cret@example.org:8443", "https://example.org:8443"),
        ("https://example.org/?key=s3cret", "https://example.org/…"),
        ("s3cret", "…"),
        ("http://[s3cret", "…"),
    ],
)
def test_an_address_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert place(url) == shown


@pytest.mark.parametrize(
    ("leads_to", "message"),
    [
        ("no.such.module:handler", "error_handler = 'pager': cannot be loaded: ModuleNotFoundError: No module named"),
        ("string:digits", "error_handler = 'pager': its entry point leads to a str, no function"),
    ],
)
def test_a_handler_of_a_package_that_cannot_be_used_is_named(
    leads_to: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("pager", leads_to, "aioelasticjob.error_handlers")
    monkeypatch.setattr(lookup, "_others", lambda: {"pager": point})
    with pytest.raises(InvalidSetting, match=message):
        find("pager")


def test_a_handler_of_a_package_is_found_and_takes_what_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("pager", "aioelasticjob.error_handlers:ignore", "aioelasticjob.error_handlers")
    monkeypatch.setattr(lookup, "_others", lambda: {"pager": point})
    check("pager", {"whom": "me"})
    assert find("pager") is ignore
