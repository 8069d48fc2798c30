"""SASL DIGEST-MD5: every step of a login, what ends it, and what scheme sasl allows."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import pytest

from aioelasticjob.zookeeper.digest_md5 import answer

from .scenario import Servers, on_both
from .servers import Pace, embedded, is_newer, real
from .wire import Op, Record, acl
from .world import Client, World

pytestmark = pytest.mark.zookeeper

ALL, READ = 31, 1
USERS = {"bob": "bob's secret", "carol": 'a"b:c', "super": "admin"}
PROVIDER = "-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"

DIGEST_MD5 = "-Dzookeeper.fips-mode=false"  # else ZooKeeper 3.9 refuses it


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, pace: Pace) -> Iterator[Servers]:
    directory = tmp_path_factory.mktemp("sasl")
    users, jaas = directory / "users", directory / "jaas.conf"
    users.write_text("".join(f"{user}:{password}\n" for user, password in USERS.items()))
    lines = "".join('\n user_{}="{}"'.format(user, password.replace('"', '\\"')) for user, password in USERS.items())
    jaas.write_text(f"Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required{lines}; }};\n")
    flags = (f"-Djava.security.auth.login.config={jaas}", PROVIDER, DIGEST_MD5)
    with real(directory, pace, flags) as theirs, embedded(pace, more=("--sasl-users", str(users))) as ours:
        yield Servers(real=theirs, ours=ours, newer=is_newer(theirs))


def token(client: Client, message: bytes) -> bytes:
    """Exchange one message for one, which is not compared."""
    reply = client.exchange(Op.SASL, message)
    (length,) = struct.unpack_from(">i", reply, 16)
    return reply[20 : 20 + length]


def challenged(w: World, client: Client, first: bytes = b"") -> bytes:
    challenge = token(client, first)
    w.say(re.sub(rb'nonce="[^"]+"', b"nonce", challenge).decode())
    return challenge


def log_in(w: World, client: Client, user: str = "bob", password: str | None = None) -> None:
    proof, expected = answer(challenged(w, client), user, password or USERS[user], "cnonce")
    w.say(f"{user} is in: {token(client, proof) == expected}")
    client.call(Op.WHO_AM_I)


@on_both
def test_every_user_gets_in_and_is_told_so(w: World) -> None:
    for user in USERS:
        client = w.client(user)
        log_in(w, client, user)
        client.call(Op.PING)


@on_both
def test_the_first_message_may_be_any_but_none(w: World) -> None:
    challenged(w, w.client("any"), b"anything")
    w.client("none").call(Op.SASL, None)


CHANGES = [
    (b"bob", b"eve"), (b"bob", b"carol"), (b"nc=00000001", b"nc=00000002"),
    (b"qop=auth", b"qop=auth-int"), (b"zookeeper/", b"http/"), (b"zookeeper/", b"ZooKeeper/"),
    (b'realm="zk-sasl-md5"', b'realm="x"'), (rb'realm="[^"]*",', b""),
    (rb'cnonce="[^"]*",', b""), (rb'nonce="[^"]*"', b'nonce="x"'), (rb"response=\w+", b"response=0"),
    (rb"response=\w+,", b""), (b"charset=utf-8", b"charset=latin-1"), (b"charset=utf-8,", b""), (b",qop=auth", b""),
    (b"maxbuf=65536,", b""), (rb"^.*$", b""), (rb"^.*$", b"nonsense"), (b"charset=", b'authzid="bob",charset='),
]  # fmt: skip


@on_both
def test_an_answer_that_was_changed_is_refused_or_not(w: World) -> None:
    for number, (old, new) in enumerate(CHANGES):
        client = w.client(f"c{number}")
        proof, _ = answer(challenged(w, client), "bob", USERS["bob"], "cnonce")
        changed = re.sub(old, new, proof, count=1)
        assert changed != proof
        client.send(Op.SASL, changed)
        client.send(Op.PING)
        data = client.link.read_frame()
        w.say(f"{old!r} to {new!r}: {data and (struct.unpack_from('>iqi', data), len(data))}")
        w.say(f"then {data is not None and client.link.read_frame() is not None}")


@on_both
def test_a_second_login_on_a_connection_is_refused(w: World) -> None:
    client = w.client()
    log_in(w, client)
    client.call(Op.SASL, b"")
    client.read_to_end()


@on_both
def test_a_session_goes_on_after_a_refused_login(w: World) -> None:
    client = w.client()
    challenged(w, client)
    client.call(Op.SASL, b"nonsense")
    client.read_to_end()
    again = client.reconnect("again")
    again.call(Op.WHO_AM_I)
    log_in(w, again)


@on_both
def test_nodes_are_open_to_whom_their_lists_name(w: World) -> None:
    bob, carol, admin, stranger = (w.client(name) for name in ("bob", "carol", "super", "stranger"))
    for client in (bob, carol, admin):
        log_in(w, client, client.name)
    for number, entries in enumerate(
        (
            [acl(ALL, "auth", "")],
            [acl(ALL, "sasl", "bob")],
            [acl(READ, "sasl", "carol"), acl(ALL, "sasl", "bob")],
            [acl(ALL, "sasl", "super")],
            [acl(ALL, "digest", "bob:x")],
        )
    ):
        node = f"{w.root}/{number}"
        bob.call(Op.CREATE, node, b"x", entries, 0)
        for client in (bob, carol, admin, stranger):
            client.call(Op.GET_DATA, node, False)
            client.call(Op.SET_DATA, node, b"y", -1)
            client.call(Op.GET_ACL, node)


@on_both
def test_lists_of_scheme_sasl_are_checked(w: World) -> None:
    names = ["bob", "", "bob@REALM", "bob/host@REALM", "bob/host", "a/b/c", "a/b/c@R", "a@b@c", "@", "ä", "a b", None]
    client = w.client()
    for number, name in enumerate(names):
        entries: list[Record] = [acl(ALL, "sasl", name)]
        client.call(Op.CREATE, f"{w.root}/{number}", b"", entries, 0)
    client.send(Op.AUTH, 0, "sasl", b"bob:x")
    client.read(2)
