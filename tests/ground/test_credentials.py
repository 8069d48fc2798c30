"""Credentials are hidden in whatever text or JSON they are, and what is none stays."""

from __future__ import annotations

import time

import pytest

from aioelasticjob.config.job import JobConfig
from aioelasticjob.ground.credentials import hide_all, hide_in_json, hide_in_text, is_secret_name


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("DB_PASSWORD=hunter2 psql -h db", "DB_PASSWORD=… psql -h db"),
        ("PASS='hun ter2'x sh -c y", "PASS='…' sh -c y"),
        (r"PASS=hun\ ter2 go", "PASS=… go"),
        ("mode=fast;pwd=hunter2;x=1", "mode=fast;pwd=…;x=1"),
        ("tool --password hunter2 --host h", "tool --password … --host h"),
        ("tool --api-key=hunter2 h", "tool --api-key=… h"),
        ("password: correct horse\nhost: h", "password: …\nhost: h"),
        (r"sent {\"token\": \"hunter2\"} to h", r"sent {\"token\": … to h"),
        ("curl -H 'Authorization: Bearer hunter2' h", "curl -H 'Authorization: …' h"),
        ("sent Bearer hunter2 and", "sent Bearer … and"),
        ("curl -u bob:hunter2 https://h/x", "curl -u … https://h/x"),
        ("ValueError: no answer, password=hunter2", "ValueError: no answer, password=…"),
        ('message="no answer, password=hunter2 x"', 'message="no answer, password=… x"'),
        ('sh -c "dump --password hunter2 db"', 'sh -c "dump --password … db"'),
        ("sh -c '--token hunter2'", "sh -c '--token …'"),
        ("mysql -uroot -phunter2 shop", "mysql -uroot -p… shop"),
        ("postgres://bob:hunter2@db/x", "postgres://…@db/x"),
        ("postgres://bob:hun/ter@2@db:5432/x", "postgres://…@db:5432/x"),
        ("redis://:hunter2@[::1]:6379/0", "redis://…@[::1]:6379/0"),
        ("https://hooks.slack.com/services/T0/B0/xyz", "https://hooks.slack.com/…"),
        ("https://oapi.dingtalk.com/robot/send?access_token=x", "https://oapi.dingtalk.com/…"),
        ("https://h/a?access_token=hunter2&page=1", "https://h/a?access_token=…&page=1"),
        ("login ghp_abcdefghijklmnop1234", "login …"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "…"),
        ("x 5f4dcc3b5aa765d61d8327deb882cf99 y", "x … y"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "…"),
        ('{"a": {"secret": [1, {"b": "c"}]}, "d": 2}', '{"a": {"secret": ["…", {"b": "…"}]}, "d": 2}'),
    ],
)
def test_a_credential_is_hidden(text: str, hidden: str) -> None:
    assert hide_in_text(text) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "backup --db shop --limit 10 | gzip > /var/backup/2026-11-22T22-38-37-Backup.gz",
        "https://example.org:8443/a/b?page=2#top",
        "http://example.org:80/@user",
        "127.0.0.1@-@4711-0a1b2c3d",
        "0 0/5 12 ? * MON-FRI",
        "KeyError: 'foo'",
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
        "tool -u root -p 80",
        '{"jobName": "report", "pass_context": "header"}',
        "Basic information is missing",
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert hide_in_text(text) == text


def test_no_setting_of_a_job_is_taken_for_a_credential() -> None:
    names = {name for key, one in JobConfig.model_fields.items() for name in (key, one.serialization_alias or key)}
    assert not list(filter(is_secret_name, names))


def test_everything_below_a_marked_name_is_hidden_but_names_and_hosts() -> None:
    value = {"mine": {"a": ["b", 1, None, ""], "to": "https://bob:x@h:1/p?q"}, "other": "b"}
    hidden = {"mine": {"a": ["…", "…", None, ""], "to": "https://h:1/…"}, "other": "b"}
    assert hide_in_json(value, {"mine"}) == hidden
    assert hide_all({"a": True}) == {"a": "…"}


def test_the_word_after_an_option_for_a_credential_is_hidden() -> None:
    assert hide_in_json(["run", "--password", "hunter2", "-u", "x"]) == ["run", "--password", "…", "-u", "x"]
    assert hide_in_json(["/usr/bin/curl", "-u", "a:b", "h"]) == ["/usr/bin/curl", "-u", "…", "h"]


def test_json_too_deep_to_be_read_is_hidden_whole() -> None:
    assert hide_in_text('{"a":' * 100_000 + "1" + "}" * 100_000) == "…"
    assert hide_in_text("[" * 900 + "]" * 900) in ("…", "[" * 900 + "]" * 900)


PIECES = ("a", "a.", "a=", "a:", "://", "a://", "-", '"', "'", "\\", "-p ", "mysql ", "a@", "a:b@", "--x ", "Bearer ")


@pytest.mark.parametrize("piece", [*PIECES, "-----BEGIN PRIVATE KEY-----", "/", 'x="', "x: '", "?a=", "ab12AB-"])
def test_hiding_takes_no_time_to_speak_of(piece: str) -> None:
    began = time.process_time()
    hide_in_text(piece * (100_000 // len(piece)))
    assert time.process_time() - began < 5
