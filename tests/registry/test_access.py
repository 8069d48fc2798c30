"""Logins with SASL and with a digest: who gets in, who is told what, and secrets that change while a session lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from aioelasticjob.errors import AuthenticationFailed, InvalidSetting, NotPermitted
from aioelasticjob.registry.session import ConnectionSettings, Session, SessionState, open_session
from aioelasticjob.registry.transaction import Create
from aioelasticjob.zookeeper import digest_md5
from aioelasticjob.zookeeper.sasl_users import UsersFile
from aioelasticjob.zookeeper.server import Server, serve
from aioelasticjob.zookeeper.settings import Settings
from tests.support import real_zookeeper
from tests.support.loops import LoopKind, run_async
from tests.support.real_zookeeper import Access

USERS = {"bob": "bob's secret", "carol": "x:y"}


@pytest.fixture(scope="module")
def zookeeper_with_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with real_zookeeper.standalone(tmp_path_factory.mktemp("users"), Access(users=USERS)) as server:
        yield server.address


@pytest.fixture(params=["embedded", pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
def outside(request: pytest.FixtureRequest) -> str | None:
    """The address of Debian's ZooKeeper; None for the embedded server, which each test starts in its own loop."""
    return request.getfixturevalue("zookeeper_with_users") if request.param == "zookeeper" else None


@asynccontextmanager
async def registry(outside: str | None, users: digest_md5.Passwords = USERS) -> AsyncIterator[str]:
    if outside is not None:
        yield outside
        return
    async with serve(settings=Settings(tick_time=500, sasl_users=users)) as server:
        yield server.address


def settings(address: str, name: str = "test", **options: Any) -> ConnectionSettings:
    return ConnectionSettings.parse(f"zk://{address}/{name}", connection_timeout=60, **options)


async def cut(session: Session) -> None:
    assert session._keeper.connection is not None
    session._keeper.connection.abort("cut by the test")
    async with asyncio.timeout(60):
        await session.connected()


def test_what_a_user_makes_is_open_to_that_user_alone(outside: str | None, real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with registry(outside) as address:
            mine = settings(address, f"bobs-{real_loop_kind}", sasl="bob:bob's secret")
            async with open_session(mine) as session:
                await session.commit([Create("/a", b"mine")], incarnation=session.incarnation)
                await cut(session)  # every connection needs a login of its own
                assert (await session.get("/a")).data == b"mine"
            async with open_session(settings(address, f"bobs-{real_loop_kind}/a", sasl="bob:bob's secret")) as session:
                assert (await session.get("/")).data == b"mine"
            for others, error in ({"sasl": "carol:x:y"}, AuthenticationFailed), ({}, NotPermitted):
                with pytest.raises(error, match="user"):
                    async with open_session(settings(address, f"bobs-{real_loop_kind}", **others)):
                        pass

    run_async(real_loop_kind, main)


def test_a_wrong_password_is_refused_at_once(outside: str | None, real_loop_kind: LoopKind) -> None:
    async def main() -> None:
        async with registry(outside) as address:
            for login in ("bob:hunter2", "eve:hunter2"):
                with pytest.raises(AuthenticationFailed, match="refused the SASL user") as refused:
                    async with open_session(settings(address, sasl=login)):
                        pass
                assert "hunter2" not in str(refused.value)

    run_async(real_loop_kind, main)


def test_a_registry_without_sasl_is_told_apart(registry_server: str) -> None:
    async def main() -> None:
        with pytest.raises(AuthenticationFailed, match="offers no SASL DIGEST-MD5"):
            async with open_session(settings(registry_server, sasl="bob:secret")):
                pass

    asyncio.run(main())


def test_a_server_that_does_not_know_the_password_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with registry(None) as address:
            monkeypatch.setattr("aioelasticjob.zookeeper.processor.verify", lambda *_: ("bob", b"rspauth=0"))
            with pytest.raises(AuthenticationFailed, match="has not proved"):
                async with open_session(settings(address, sasl="bob:bob's secret")):
                    pass

    asyncio.run(main())


def test_a_refused_session_is_taken_up_again(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Each refused attempt would otherwise leave a session behind, until it expires."""

    async def main() -> None:
        async with serve(settings=Settings(tick_time=500, sasl_users=USERS)) as server:
            with pytest.raises(AuthenticationFailed):
                async with open_session(settings(f"{server.host}:{server.port},127.0.0.1:{server.port}", sasl="bob:x")):
                    pass
            assert len(server.processor.sessions.timeouts) == 1

    asyncio.run(main())


def test_passwords_change_on_both_sides_without_a_restart(
    tmp_path: Path, real_loop_kind: LoopKind, caplog: pytest.LogCaptureFixture
) -> None:
    users, login = tmp_path / "users", tmp_path / "login"
    users.write_text("bob:old\n")
    login.write_text("bob:old\n")

    async def main() -> None:
        async with (
            registry(None, UsersFile(users)) as address,
            open_session(settings(address, sasl_file=str(login), session_timeout=10)) as session,
        ):
            incarnation = session.incarnation
            users.write_text("# changed today\n\nbob:new\n")
            assert session._keeper.connection is not None
            with caplog.at_level(logging.WARNING, "aioelasticjob.registry"):
                session._keeper.connection.abort("cut by the test")
                async with asyncio.timeout(60):
                    while not any("refused the SASL user 'bob'" in line for line in caplog.messages):
                        await asyncio.sleep(0.01)
            login.write_text("bob:new\n")
            async with asyncio.timeout(60):
                await session.status.until(lambda status: status.state is SessionState.CONNECTED)
                await session.get("/")
            assert session.incarnation == incarnation

    run_async(real_loop_kind, main)


def test_a_digest_may_be_in_a_file(registry_server: str, tmp_path: Path, real_loop_kind: LoopKind) -> None:
    file = tmp_path / "digest"
    file.write_text("bob:secret\n")
    name = f"digest-{real_loop_kind}"

    async def main() -> None:
        async with open_session(settings(registry_server, name, digest_file=str(file))) as session:
            await session.commit([Create("/a")], incarnation=session.incarnation)
        client = KazooClient(registry_server, auth_data=[("digest", "bob:secret")])
        await asyncio.to_thread(client.start, 60)
        try:
            acls, _ = await asyncio.to_thread(client.get_acls, f"/{name}/a")
            assert [(one.id.scheme, one.id.id.partition(":")[0]) for one in acls] == [("digest", "bob")]
        finally:
            await asyncio.to_thread(client.stop)
            client.close()

    run_async(real_loop_kind, main)


@pytest.mark.parametrize("name", ["digest", "sasl"])
def test_a_file_amiss_is_named_before_anything_is_tried(name: str, tmp_path: Path) -> None:
    async def main(file: Path) -> InvalidSetting:
        with pytest.raises(InvalidSetting) as refused:
            async with open_session(settings("127.0.0.1:1", **{f"{name}_file": str(file)})):
                pass
        return refused.value

    missing, halved, binary = tmp_path / "missing", tmp_path / "halved", tmp_path / "binary"
    halved.write_text("hunter2")
    binary.write_bytes(b"hunter2\xff:x")
    for file in (missing, halved, binary):
        error = asyncio.run(main(file))
        assert (error.setting, error.value) == (f"{name}_file", str(file))
        assert "hunter2" not in str(error)


@pytest.mark.parametrize("name", ["digest", "sasl"])
def test_a_secret_and_a_file_exclude_each_other(name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{name}_file"):
        ConnectionSettings.parse("zk://h", **{name: "a:b", f"{name}_file": "c"})  # type: ignore[arg-type]


def test_secrets_are_in_no_log_error_or_representation(
    caplog: pytest.LogCaptureFixture, real_loop_kind: LoopKind
) -> None:
    secret = "correct horse"
    given = {"sasl": f"bob:{secret}", "digest": f"bob:{secret}"}
    shown: list[object] = [settings("h", **given)]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)
        async with registry(None, {"bob": secret}) as address, open_session(settings(address, **given)) as session:
            shown.extend((session._keeper.settings, session.settings, session._keeper.status.value))
            await cut(session)
        users = {"bob": f"{secret}!"}
        server: Server
        async with serve(settings=Settings(sasl_users=users)) as server:
            shown.append(server.processor.settings)
            with pytest.raises(AuthenticationFailed) as refused:
                async with open_session(settings(server.address, **given)):
                    pass
            shown.append(refused.getrepr())

    with caplog.at_level(logging.DEBUG):
        run_async(real_loop_kind, main)
    assert caplog.messages
    assert secret not in "".join(map(repr, shown)) + "".join(map(str, shown)) + caplog.text
