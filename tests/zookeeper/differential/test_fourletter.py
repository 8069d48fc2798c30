"""Four-letter words: the form of the answers; numbers, names and versions are each server's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from .scenario import Servers
from .wire import OPEN, Address, Link, Op
from .world import world

pytestmark = pytest.mark.zookeeper


@contextmanager
def _busy(address: Address) -> Iterator[None]:
    """Two sessions, a watch, an ephemeral."""
    with world(address, "/words") as w:
        a = w.client()
        a.call(Op.EXISTS, w.root, True)
        a.call(Op.CREATE, f"{w.root}/e", b"", OPEN, 1)
        a.call(Op.ADD_WATCH, w.root, 1)
        yield


def _ask(address: Address, word: bytes) -> str:
    with Link(address) as link:
        link.write(word)
        return link.read_all().decode()


def _form(answer: str) -> str:
    """The answer without its numbers, dates and versions."""
    answer = re.sub(r"(?m)^(Zookeeper version|zookeeper\.version|zk_version)(.).*$", r"\1\2*", answer)
    answer = re.sub("lop=[A-Z]+", "lop=OP", answer)  # the last operation, a ping or not
    answer = re.sub(r"\w{3} \w{3} \d\d [\d:]{8} \w+ \d{4}", "DATE", answer)
    return re.sub(r"-?(0x[0-9a-f]+|\d+(\.\d+)?(E-?\d+)?)", "N", answer)


SHORT = ["ruok", "srvr", "isro", "wchs", "ruok\n", "nope", "RUOK", "wchc", "wchp", "crst", "srst"]


@pytest.mark.parametrize("word", SHORT)
def test_short_answers_have_the_same_form(servers: Servers, word: str) -> None:
    with _busy(servers.real), _busy(servers.ours):
        assert _form(_ask(servers.ours, word.encode())) == _form(_ask(servers.real, word.encode()))


@pytest.mark.parametrize("word", ["stat", "cons", "dump"])
def test_answers_that_list_have_the_same_kinds_of_lines(servers: Servers, word: str) -> None:
    with _busy(servers.real), _busy(servers.ours):
        forms = [_form(_ask(address, word.encode())) for address in (servers.ours, servers.real)]
        ours, theirs = (set(form.split("\n")) for form in forms)
        assert ours == theirs


@pytest.mark.parametrize(("word", "separator"), [("conf", "="), ("envi", "=")])
def test_settings_have_the_same_names(servers: Servers, word: str, separator: str) -> None:
    platform = ("java.", "python.", "os.memory")

    def names(address: Address) -> list[str]:
        lines = _ask(address, word.encode()).split("\n")
        return [line.partition(separator)[0] for line in lines if not line.startswith(platform)]

    assert names(servers.ours) == names(servers.real)


def test_monitored_values_have_known_names(servers: Servers) -> None:
    def names(address: Address) -> set[str]:
        return {line.partition("\t")[0] for line in _ask(address, b"mntr").split("\n")}

    with _busy(servers.real), _busy(servers.ours):
        assert names(servers.ours) <= names(servers.real)
        assert names(servers.ours) >= {
            "zk_version", "zk_server_state", "zk_ephemerals_count", "zk_num_alive_connections", "zk_avg_latency",
            "zk_outstanding_requests", "zk_znode_count", "zk_global_sessions", "zk_packets_sent", "zk_packets_received",
            "zk_watch_count", "zk_min_latency", "zk_max_latency", "zk_approximate_data_size", "zk_uptime",
            "zk_max_file_descriptor_count", "zk_open_file_descriptor_count", "zk_local_sessions",
        }  # fmt: skip


def test_a_word_may_come_in_pieces(servers: Servers) -> None:
    for address in (servers.real, servers.ours):
        with Link(address) as link:
            for byte in b"ruok":
                link.write(bytes([byte]))
            assert link.read_all() == b"imok"
