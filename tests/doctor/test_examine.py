"""Examinations of registries that are well and of registries that are not; nothing is left behind in any of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from aioelasticjob.clock import SystemClock
from aioelasticjob.doctor import Report, Verdict, examine, session
from aioelasticjob.doctor.line import Line
from aioelasticjob.doctor.members import RESOLUTION
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.registry.addresses import Address
from aioelasticjob.registry.session import ConnectionSettings, open_session
from aioelasticjob.registry.transaction import Create, Op
from aioelasticjob.zookeeper import fourletter
from aioelasticjob.zookeeper import tls as server_tls
from aioelasticjob.zookeeper.processor import Processor
from aioelasticjob.zookeeper.server import Server, serve
from aioelasticjob.zookeeper.settings import Settings
from tests.support import real_zookeeper
from tests.support.certificates import Authority, authority
from tests.support.loops import LoopKind, run_async
from tests.support.ports import reserved_ports
from tests.support.real_zookeeper import Access, Changes, Ensemble, RealServer

GOOD, BAD, WARNING, UNKNOWN = Verdict.GOOD, Verdict.BAD, Verdict.WARNING, Verdict.UNKNOWN
AFTER_SESSION = ("clock", "write latency")


def verdicts(report: Report, *besides: Verdict) -> dict[str, Verdict]:
    """Return the verdicts that are not good, by topic."""
    return {one.topic: one.verdict for one in report.findings if one.verdict not in (GOOD, *besides)}


def said(report: Report, topic: str) -> str:
    (finding,) = (one for one in report.findings if one.topic == topic)
    return f"{finding.seen} {finding.advice}"


async def examined(server: Server, scheme: str = "zk", **options: Any) -> Report:
    """Examine an embedded server, and see that it is as it was."""
    before = set(server.processor.tree.nodes)
    port = server.port if scheme == "zk" else server.tls_port
    address = f"{scheme}://localhost:{port}/shop" if scheme == "zks" else f"{scheme}://127.0.0.1:{port}/shop"
    report = await examine(Address.parse(address, connection_timeout=30.0, **options))
    assert set(server.processor.tree.nodes) == before
    assert not server.processor.sessions.timeouts
    return report


@asynccontextmanager
async def embedded(*, tick_time: int = 2000, **settings: Any) -> AsyncIterator[Server]:
    async with serve(settings=Settings(tick_time=tick_time, **settings)) as server:
        yield server


async def make_namespace(server: Server, **options: Any) -> None:
    settings = ConnectionSettings.parse(f"zk://{server.address}/shop", **options)
    async with open_session(settings) as session:
        await session.commit([Create("/job"), Create("/job/config", b"{}")], incarnation=session.incarnation)


# The embedded server


def test_a_good_registry_is_good_in_all_topics(real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with embedded() as server:
            report = await examined(server)
            assert (report.verdict, verdicts(report)) == (GOOD, {})
            assert "does not exist yet" in said(report, "permissions")
            await make_namespace(server)
            report = await examined(server)
            assert (report.verdict, verdicts(report)) == (GOOD, {})
            assert "may read, create and delete at /shop, and at 1 node directly below it." in said(
                report, "permissions"
            )

    run_async(real_loop_kind, main)


def test_a_registry_that_cannot_be_reached_is_a_finding() -> None:
    with reserved_ports(1) as (port,):
        report = asyncio.run(examine(Address.parse(f"zk://127.0.0.1:{port}/shop")))
    assert report.verdict is BAD
    assert verdicts(report, UNKNOWN) == {"connection": BAD}
    assert f"127.0.0.1:{port}: Connection refused." in said(report, "connection")


def test_a_server_that_is_no_zookeeper_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioelasticjob.doctor.members.WORDS_TIMEOUT", 0.1)

    async def main() -> Report:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await examine(Address.parse(f"zk://127.0.0.1:{port}/shop", connection_timeout=0.1))

    assert "no answer within 0.1 s" in said(asyncio.run(main()), "connection")


def test_a_name_without_an_address_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(name: str, port: int) -> list[str]:
        raise OSError(f"{name} has no address: unknown")

    monkeypatch.setattr("aioelasticjob.doctor.members.addresses", none)
    report = asyncio.run(examine(Address.parse("zk://zk1.example/shop")))
    assert "zk1.example:2181: zk1.example has no address: unknown." in said(report, "connection")


@pytest.mark.parametrize("options", [{}, {"digest": "eve:guess"}])
def test_a_namespace_of_somebody_elses_is_not_permitted(options: dict[str, str]) -> None:
    async def main() -> None:
        async with embedded() as server:
            await make_namespace(server, digest="bob:secret")
            report = await examined(server, **options)
            assert verdicts(report, UNKNOWN) == {"permissions": BAD}
            assert "At /shop, our session (" in said(report, "permissions")
            assert "may not: read (not permitted" in said(report, "permissions")
            assert "guess" not in repr(report)
            own = await examined(server, digest="bob:secret")
            assert (own.verdict, verdicts(own)) == (GOOD, {})

    asyncio.run(main())


def test_what_may_only_be_read_is_not_written() -> None:
    async def main() -> None:
        async with embedded() as server:
            await asyncio.to_thread(make_read_only, server.address)
            report = await examined(server)
            assert verdicts(report, UNKNOWN) == {"permissions": BAD}
            text = said(report, "permissions")
            assert "create (not permitted" in text
            assert "read (" not in text
            assert not server.processor.tree.nodes["/shop"].children

    asyncio.run(main())


def make_read_only(address: str, path: str = "/shop") -> None:
    client = KazooClient(address)
    client.start(60)
    try:
        client.create(path, acl=[make_acl("world", "anyone", read=True)])
    finally:
        client.stop()
        client.close()


def test_a_job_of_somebody_elses_is_named() -> None:
    async def main() -> None:
        async with embedded() as server:
            await make_namespace(server)
            await asyncio.to_thread(make_closed, server.address)
            report = await examined(server)
            assert verdicts(report) == {"permissions": BAD}
            assert "/shop/theirs, of 2 nodes" in said(report, "permissions")

    asyncio.run(main())


def make_closed(address: str) -> None:
    client = KazooClient(address)
    client.start(60)
    try:
        client.create("/shop/theirs", acl=[make_digest_acl("bob", "secret", all=True)])
    finally:
        client.stop()
        client.close()


def test_a_clock_that_is_off_is_noticed(real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with serve(clock=lambda: SystemClock().now() + 300) as server:
            report = await examined(server)
            assert verdicts(report) == {"clock": BAD}
            assert "s behind the registry's" in said(report, "clock")

    run_async(real_loop_kind, main)


def test_sessions_that_are_too_short_are_noticed() -> None:
    async def main() -> None:
        async with embedded(tick_time=250, min_session_timeout=500, max_session_timeout=4000) as server:
            report = await examined(server)
            assert verdicts(report) == {"session timeout": BAD}
            assert "grant 0.5 to 4 s; jobs ask for 30 s and get 4 s." in said(report, "session timeout")
            assert (await examined(server, session_timeout=4.0)).verdict is GOOD

    asyncio.run(main())


def test_a_small_jute_maxbuffer_is_measured(real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with embedded(max_frame=64 * 1024) as server:
            report = await examined(server)
            assert verdicts(report) == {"request size": BAD}
            advised = int(said(report, "request size").rpartition("max_request=")[2].rstrip("."))
            assert 64 * 1024 - RESOLUTION - 8 <= advised <= 64 * 1024 - 8
            assert (await examined(server, max_request=advised)).verdict is GOOD

    run_async(real_loop_kind, main)


def test_four_letter_words_may_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fourletter, "_REFUSED", frozenset(fourletter._WORDS))

    async def main() -> None:
        async with embedded() as server:
            report = await examined(server)
            assert (report.verdict, verdicts(report)) == (WARNING, {"four-letter words": WARNING})
            assert "ZooKeeper 3.7 or newer, as its operations show" in said(report, "version")

    asyncio.run(main())


def test_a_wrong_sasl_password_is_told_apart() -> None:
    async def main() -> None:
        async with embedded(sasl_users={"bob": "secret"}) as server:
            report = await examined(server, sasl="bob:guess")
            assert verdicts(report) == {"permissions": BAD, "quotas": UNKNOWN, **dict.fromkeys(AFTER_SESSION, UNKNOWN)}
            assert "refused the SASL user 'bob'" in said(report, "permissions")
            assert "guess" not in repr(report)
            right = await examined(server, sasl="bob:secret")
            assert right.verdict is GOOD
            assert "sasl bob" in said(right, "permissions")

    asyncio.run(main())


def test_a_connection_that_ends_meanwhile_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(line: Line, codec: object, ops: Sequence[Op]) -> str:
        if ops[-1].path.startswith("/shop/job"):
            raise ConnectionError("gone")
        return ""

    monkeypatch.setattr("aioelasticjob.doctor.session._refusal", gone)

    async def main() -> None:
        async with embedded() as server:
            await make_namespace(server)
            report = await examined(server)
            assert verdicts(report, UNKNOWN) == {"permissions": BAD}
            assert "The session ended: gone." in said(report, "permissions")

    asyncio.run(main())


def test_a_server_that_answers_no_more_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with embedded() as server:
            monkeypatch.setattr(Processor, "_log_in", lambda *_: None)
            where = Address.parse(f"zk://{server.address}", sasl="bob:secret", connection_timeout=2.0)
            report = await examine(where)
            assert "no answer to the login within 2 s" in said(report, "permissions")

    asyncio.run(main())


def test_a_quota_that_is_used_up_is_noticed() -> None:
    async def main() -> None:
        async with embedded() as server:
            await make_namespace(server)
            await asyncio.to_thread(limit, server.address, "/shop", b"count=3,bytes=-1")
            report = await examined(server)
            assert verdicts(report) == {"quotas": BAD}
            assert "/shop uses 3 of 3 nodes (count)" in said(report, "quotas")

    asyncio.run(main())


def test_a_quota_that_is_no_number_of_the_server_is_left_out() -> None:
    data = b"count=" + b"9" * 5000 + "=;bytes=٧;countHardLimit=-1".encode()
    assert session._numbers(data) == {"countHardLimit": -1}


def make_node(address: str, path: str) -> None:
    client = KazooClient(address)
    client.start(60)
    try:
        client.create(path)
    finally:
        client.stop()
        client.close()


def limit(address: str, path: str, limits: bytes) -> None:
    client = KazooClient(address)
    client.start(60)
    try:
        client.ensure_path(f"/zookeeper/quota{path}")
        client.create(f"/zookeeper/quota{path}/zookeeper_limits", limits)
        client.create(f"/zookeeper/quota{path}/zookeeper_stats", b"count=0,bytes=0")
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ours"), "our CA")


def test_certificates_are_looked_at(ours: Authority, tmp_path: Path, real_loop_kind: LoopKind) -> None:
    theirs, of_server = authority(tmp_path / "theirs", "their CA"), ours.issue("server")
    of_client = ours.issue("client", days=10)
    own = {"certificate": of_client.certificate, "key": of_client.key}

    async def main() -> None:
        tls = server_tls.TlsSettings(of_server.certificate, of_server.key, ours.certificate, 0)
        async with serve(tls=tls) as server:
            report = await examined(server, "zks", tls={"ca": ours.certificate, **own})
            assert verdicts(report) == {"TLS": WARNING}
            assert "TLSv1.3 with TLS_" in said(report, "TLS")
            assert f"Renew our certificate in {of_client.certificate}" in said(report, "TLS")
            for options, text in (
                ({"ca": theirs.certificate, **own}, f"was not issued by a CA in {theirs.certificate}"),
                ({"ca": ours.certificate}, "set tls.certificate and tls.key"),
                ({"ca": tmp_path / "missing.pem"}, f"{tmp_path / 'missing.pem'} cannot be read"),
            ):
                report = await examined(server, "zks", tls=options)
                assert verdicts(report, UNKNOWN) == {"connection": BAD, "TLS": BAD}
                assert text in said(report, "TLS")

    run_async(real_loop_kind, main)


def test_a_port_that_takes_tls_only_is_told_apart(ours: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioelasticjob.doctor.members.WORDS_TIMEOUT", 0.1)  # such a port answers no word
    of_server = ours.issue("server of a port for TLS")

    async def main() -> Report:
        tls = server_tls.TlsSettings(of_server.certificate, of_server.key, port=0)
        async with serve(tls=tls) as server:
            return await examine(Address.parse(f"zk://127.0.0.1:{server.tls_port}/shop", connection_timeout=30.0))

    report = asyncio.run(main())
    assert verdicts(report, UNKNOWN)["connection"] is BAD
    assert "write zks://" in said(report, "connection")


def test_the_server_of_a_machine_is_not_started(tmp_path: Path) -> None:
    with reserved_ports(1) as (port,):
        address = Address.parse(f"embedded://127.0.0.1:{port}/shop?data_dir={tmp_path / 'registry'}")
        report = asyncio.run(examine(address))
    assert verdicts(report, UNKNOWN) == {"connection": BAD}
    assert not list(tmp_path.iterdir())


def test_a_private_registry_has_nothing_to_examine() -> None:
    with pytest.raises(InvalidSetting, match="private"):
        asyncio.run(examine(Address.parse("embedded://")))


# Debian's ZooKeeper


@pytest.fixture(scope="module")
def badly_configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server with short sessions, small requests, and one four-letter word."""
    settings = {"maxSessionTimeout": 5000, "4lw.commands.whitelist": "srvr"}
    changes = Changes(settings, {"jute.maxbuffer": 65_536})
    with real_zookeeper.standalone(tmp_path_factory.mktemp("bad"), changes=changes) as server:
        yield server


def of(server: RealServer | Ensemble, name: str = "doctor", **options: Any) -> Report:
    addresses = server.address if isinstance(server, RealServer) else server.addresses
    return asyncio.run(examine(Address.parse(f"zk://{addresses}/{name}", connection_timeout=30.0, **options)))


@pytest.mark.zookeeper
def test_a_good_zookeeper_is_good_in_all_topics(real_zookeeper: RealServer) -> None:
    report = of(real_zookeeper)
    assert (report.verdict, verdicts(report)) == (GOOD, {})
    assert f"runs ZooKeeper {real_zookeeper.version};" in said(report, "version")
    ephemerals = real_zookeeper.ask("dump").partition("ephemeral nodes dump:")[2]
    assert "~doctor" not in ephemerals
    client = KazooClient(real_zookeeper.address)
    client.start(60)
    try:
        assert "doctor" not in client.get_children("/")
        assert not [name for name in client.get_children("/") if name.startswith("~")]
    finally:
        client.stop()
        client.close()


@pytest.mark.zookeeper
def test_a_zookeeper_that_may_only_be_read_is_told_apart(real_zookeeper: RealServer) -> None:
    make_read_only(real_zookeeper.address, "/doctor-read-only")
    report = of(real_zookeeper, "doctor-read-only")
    assert verdicts(report, UNKNOWN) == {"permissions": BAD}
    assert "create (not permitted" in said(report, "permissions")


@pytest.mark.zookeeper
def test_a_quota_of_zookeeper_is_read(real_zookeeper: RealServer) -> None:
    limit(real_zookeeper.address, "/doctor-quota", b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=1")
    report = of(real_zookeeper, "doctor-quota")
    assert "/doctor-quota uses 0 of 1 nodes (countHardLimit)" in said(report, "quotas")


@pytest.mark.zookeeper
def test_a_quota_of_zookeeper_that_is_used_up_is_no_lack_of_permission(real_zookeeper: RealServer) -> None:
    limit(real_zookeeper.address, "/doctor-full", b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=1")
    make_node(real_zookeeper.address, "/doctor-full")
    report = of(real_zookeeper, "doctor-full")
    assert verdicts(report) == {"clock": UNKNOWN, "write latency": BAD, "quotas": BAD}
    assert "/doctor-full uses 1 of 1 nodes (countHardLimit)" in said(report, "quotas")
    assert "the quota that somebody set in the registry is used up" in said(report, "write latency")
    assert "nothing could be written" in said(report, "clock")


@pytest.mark.zookeeper
def test_a_badly_configured_zookeeper_is_told_what_to_change(badly_configured: RealServer) -> None:
    report = of(badly_configured)
    assert verdicts(report) == {"session timeout": BAD, "request size": BAD}
    assert "jobs ask for 30 s and get 5 s" in said(report, "session timeout")
    assert f"127.0.0.1:{badly_configured.port} answers srvr." in said(report, "four-letter words")
    advised = int(said(report, "request size").rpartition("max_request=")[2].rstrip("."))
    assert advised < 65_536
    report = of(badly_configured, max_request=advised, session_timeout=5.0)
    assert (report.verdict, verdicts(report)) == (GOOD, {})


@pytest.mark.zookeeper
def test_a_zookeeper_with_users_and_certificates_is_examined_as_one_of_them(ours: Authority, tmp_path: Path) -> None:
    of_server, keystore = ours.issue("zookeeper"), tmp_path / "keystore.pem"
    keystore.write_bytes(of_server.key.read_bytes() + of_server.certificate.read_bytes())
    access = Access(keystore, None, {"bob": "secret"})
    with real_zookeeper.standalone(tmp_path, access) as server:

        def examined(password: str) -> Report:
            tls = {"ca": ours.certificate}
            address = f"zks://{server.secure_address}/shop"
            where = Address.parse(address, tls=tls, sasl=f"bob:{password}", connection_timeout=30.0)
            return asyncio.run(examine(where))

        report = examined("secret")
        assert (report.verdict, verdicts(report)) == (GOOD, {})
        assert "sasl bob" in said(report, "permissions")
        assert "TLSv1." in said(report, "TLS")
        assert verdicts(examined("guess"), UNKNOWN) == {"permissions": BAD}
