"""Addresses and names of hosts are masked wherever they stand, and nothing else is."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob.core.masking import Mask
from tests.cli.conftest import command as command
from tests.cli.conftest import root_log as root_log
from tests.engine.test_dump import text_of, tree
from tests.support.simulated_jobs import LAYOUT


def instance(ip: str, host: str) -> str:
    return json.dumps({"id": f"{ip}@-@1-a", "ip": ip, "host": host, "pid": 1})


def test_addresses_are_masked_wherever_they_are_and_the_same_everywhere() -> None:
    text = text_of(
        tree(
            {
                "/job/servers/10.0.0.5": "db-1.example.com",
                "/job/servers/10.0.0.5/paused": "",
                "/job/servers/10.0.0.50": "db-1",
                "/job/servers/fe80::1": "größe",
                "/job/servers/by-hand": "",
                "/job/instances/10.0.0.5@-@1-a": instance("10.0.0.5", "DB-1.example.com"),
                "/job/instances/fe80::1@-@1-a": instance("fe80::1", "größe"),
                "/job/sharding/0/instance": "10.0.0.5@-@1-a",
                "/job/offset/0": "FE80:0:0::1%eth0 ::ffff:10.0.0.5 [fe80::1]:80 192.168.7.9:1 12:30:45 1.2.3 by-hand",
                "/job/config": '{"jobName": "db-10", "cron": "0 0 12 * * ?"}',
            }
        ),
        LAYOUT,
        masked=True,
    )
    assert "10.0.0" not in text
    assert not re.search("fe80|example|größe|gr.u00f6|168|hand", text, re.IGNORECASE)
    assert "/job/servers/ip1 | host1 | v3\n/job/servers/ip1/paused |  | v3\n/job/servers/ip2 | host2 | v3" in text
    assert '/job/instances/ip1@-@1-a | {"id": "ip1@-@1-a", "ip": "ip1", "host": "host1", "pid": 1}' in text
    assert "/job/sharding/0/instance | ip1@-@1-a" in text
    assert '"jobName": "db-10", "cron": "0 0 12 * * ?"' in text
    assert "/job/offset/0 | ip4 ip1 [ip4]:80 ip5:1 12:30:45 1.2.3 ip3" in text


AROUND = (
    *("{} ", '"{}"', "[{}]:80", "a={},b", "{}@-@4711-ab", "/x/{}/y"),
    *("tcp:{}", "addr:{}.", "node_{}", "{}_a", "({})", "{}-"),
)


@settings(deadline=None)
@given(st.ip_addresses(), st.sampled_from(AROUND))
def test_no_address_gets_through(address: object, around: str) -> None:
    text = text_of(tree({"/job/offset/0": around.format(address)}), LAYOUT, masked=True)
    assert around.format("ip1") in text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("ip10.0.0.5x v10.0.0.5", "ipip1x vip1"),
        ("010.000.000.005 10.0.0.5", "ip1 ip1"),
        ("1.2.3.4.5 1.2.3 256.1.1.1", "1.2.3.4.5 1.2.3 256.1.1.1"),
        (r"a\n10.0.0.5\t2001:db8::5\nabcd::1", r"a\nip1\tip2\nip3"),
        ("node:fe80::1 fe80::1 x2001:db8::5x", "node:ip1 ip1 xip2x"),
        ("fe80::1. ::ffff:10.0.0.5, 1::2::3", "ip1. ip2, ip3::3"),
        ("std::cout a:b 12:30:45 aa:bb:cc:dd:ee:ff", "std::cout a:b 12:30:45 aa:bb:cc:dd:ee:ff"),
        ("1:2:3:4:5:6:7:8:9::", "ip1:ip2"),
    ],
)
def test_an_address_is_found_where_it_touches_words(text: str, masked: str) -> None:
    assert text_of(tree({"/job/x": ""}), LAYOUT, masked=True) == "/job/x |  | v3"
    assert Mask(tree({}), LAYOUT)(text) == masked


def test_a_servers_name_is_masked_with_its_domain_and_where_it_touches_an_underscore() -> None:
    mask = Mask(tree({"/job/servers": "", "/job/servers/10.0.0.5": "web1"}), LAYOUT)
    assert mask("web1.example.com WEB1. my_web1_db") == "host1 host1. my_host1_db"
    assert mask("web10 web1-old oweb1 x.web1") == "web10 web1-old oweb1 x.web1"


def test_what_an_instance_says_of_itself_in_vain_is_masked_too() -> None:
    nodes = {"/job/instances/10.0.0.5@-@1": '{"ip": "10.0.0.77", "host": "web1"}', "/job/instances/x": '{"ip": ""}'}
    text = text_of(tree({"/job/instances": "", **nodes, "/job/offset/0": "web1"}), LAYOUT, masked=True)
    assert '/job/instances/ip1@-@1 | {"ip": "ip2", "host": "host1"}' in text
    assert "/job/offset/0 | host1 |" in text


@pytest.mark.parametrize("piece", ["::", "a", "a:", "1.", "a::b:", "1:2:3:4:5:6:7:8:", "10.0.0.5:", "z::"])
def test_masking_takes_no_time_to_speak_of(piece: str) -> None:
    began = time.process_time()
    Mask(tree({}), LAYOUT)(piece * (100_000 // len(piece)))
    assert time.process_time() - began < 5


def _dump_of(config: dict[str, object], **nodes: str) -> str:
    at = {f"/job/{name}": data for name, data in nodes.items()}
    return text_of(tree({LAYOUT.config: json.dumps(config), **at}), LAYOUT, masked=True)


def test_what_a_kind_marks_as_secret_is_hidden_with_everything_below_it() -> None:
    http = {
        "url": "https://example.org/trigger/s3cret",
        "headers": {"X-Any": "s3cret"},
        "body": {"pin": 1, "token": "s3cret"},
    }
    text = _dump_of({"jobName": "job", "jobType": "HTTP", "options": http})
    assert "s3cret" not in text
    assert "example.org/…" in text
    assert "X-Any" in text
    script = {"command": "DB_PASSWORD=s3cret backup --db shop", "environment": {"ANY": "s3cret"}}
    text = _dump_of({"jobName": "job", "jobType": "SCRIPT", "options": script})
    assert "s3cret" not in text
    assert "backup --db shop" in text


def test_of_a_kind_that_is_not_installed_only_the_names_of_its_options_are_shown() -> None:
    text = _dump_of(
        {"jobName": "job", "jobType": "NOWHERE", "options": {"statement": "s3cret", "more": [{"a": "s3cret"}]}}
    )
    assert "s3cret" not in text
    assert "statement" in text


def test_credentials_are_hidden_in_alerts_parameters_offsets_and_nonsense() -> None:
    alerts = {"webhook": "https://example.org/robot/s3cret", "header.X-Any": "s3cret", "password": "s3cret"}
    config: dict[str, object] = {
        "jobName": "job",
        "errorHandlerOptions": alerts,
        "jobParameter": "mode=fast;token=s3cret",
    }
    config["shardingItemParameters"] = {"0": "postgres://bob:s3cret@db/x"}
    text = _dump_of(config, trigger="--password s3cret", offset='{"apiKey": "s3cret"}')
    assert "s3cret" not in text
    assert "mode=fast" in text
    assert "s3cret" not in text_of(tree({LAYOUT.config: '{"token": "s3cret"'}), LAYOUT, masked=True)
    assert "s3cret" in text_of(tree({LAYOUT.config: json.dumps(config)}), LAYOUT)


def test_the_hosts_of_operators_are_masked() -> None:
    nodes = {
        "/job/servers/10.0.0.5": "db-1",
        "/job/leader/operator": '{"by": "anna@Desk.example.com", "paths": []}',
        "/job/requests": "",
        "/job/requests/r": '{"by": "bert@db-1"}',
        "/job/requests/s": '{"by": "report"}',
        "/job/requests/t": "[]",
        "/job/requests/u": '{"by": "carl@other"}',
        "/job/config": '{"jobName": "report"}',
    }
    text = text_of(tree(nodes), LAYOUT, masked=True)
    assert '"by": "anna@operatorhost2"' in text
    assert '"by": "bert@host1"' in text
    assert '"by": "carl@operatorhost3"' in text
    assert '"jobName": "report"' in text  # somebody without a host may be called like anything
