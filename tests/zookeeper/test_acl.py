"""Who may do what."""

import pytest

from aioelasticjob.zookeeper.acl import OPEN_UNSAFE, SUPER, Acl, Identity, digest, masked, permitted, require, resolve
from aioelasticjob.zookeeper.codes import ErrorCode, Perms, RequestError

LOCAL = Identity("ip", "127.0.0.1")
BOB = digest(b"bob:secret")


def test_a_digest_is_the_one_of_zookeeper() -> None:
    # the hash kazoo and zkCli compute for super:test
    assert digest(b"super:test") == Identity("digest", "super:D/InIHSb7yEEbrWz8b9l71RjZJU=")


def test_the_world_may_what_the_entry_says() -> None:
    acl = (Acl(Perms.READ, "world", "anyone"),)
    assert permitted(acl, Perms.READ, [LOCAL])
    assert not permitted(acl, Perms.WRITE, [LOCAL])


def test_a_digest_entry_admits_its_owner_only() -> None:
    acl = (Acl(Perms.ALL, *BOB),)
    assert permitted(acl, Perms.ADMIN, [LOCAL, BOB])
    assert not permitted(acl, Perms.READ, [LOCAL, digest(b"bob:wrong")])


def test_super_may_everything() -> None:
    assert permitted((Acl(0, *BOB),), Perms.ALL, [LOCAL, SUPER])


def test_an_empty_list_forbids_nothing() -> None:
    assert permitted((), Perms.ALL, [])


@pytest.mark.parametrize(
    ("entry", "address", "admitted"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.2", "127.0.0.1", False),
        ("127.9.9.9/8", "127.0.0.1", True),
        ("126.0.0.0/8", "127.0.0.1", False),
        ("1.2.3.4/0", "127.0.0.1", True),
        ("127.0.0.1/32", "::1", False),
    ],
)
def test_addresses_are_compared_up_to_the_bits_of_the_network(entry: str, address: str, admitted: bool) -> None:
    assert permitted((Acl(Perms.READ, "ip", entry),), Perms.READ, [Identity("ip", address)]) is admitted


def test_who_may_not_is_refused() -> None:
    with pytest.raises(RequestError) as refused:
        require((Acl(Perms.READ, *BOB),), Perms.READ, [LOCAL])
    assert refused.value.code is ErrorCode.NO_AUTH


def test_auth_stands_for_everything_the_client_has_proved() -> None:
    other = digest(b"eve:x")
    assert resolve([Acl(Perms.READ, "auth", "ignored")], [LOCAL, BOB, other]) == (
        Acl(Perms.READ, *BOB),
        Acl(Perms.READ, *other),
    )


def test_auth_needs_no_id() -> None:
    assert resolve([Acl(Perms.ALL, "auth", None)], [LOCAL, BOB]) == (Acl(Perms.ALL, *BOB),)


def test_an_absent_id_is_malformed_where_it_is_looked_at() -> None:
    for scheme in ("world", "digest", "ip"):
        with pytest.raises(RequestError) as refused:
            resolve([Acl(31, scheme, None)], [LOCAL])
        assert refused.value.code is ErrorCode.MARSHALLING_ERROR


def test_duplicates_are_dropped_and_the_open_list_is_shared() -> None:
    assert resolve([Acl(31, "world", "anyone")] * 2, [LOCAL]) is OPEN_UNSAFE


@pytest.mark.parametrize(
    "entries",
    [
        [],
        None,
        [Acl(31, "world", "somebody")],
        [Acl(31, None, "x")],
        [Acl(31, "auth", "")],
        [Acl(31, "sasl", "bob")],
        [Acl(31, "digest", "bob")],
        [Acl(31, "digest", "bob:")],
        [Acl(31, "digest", "a:b:c")],
        [Acl(31, "ip", "::1")],
        [Acl(31, "ip", "1.2.3")],
        [Acl(31, "ip", "1.2.3.256")],
        [Acl(31, "ip", "1.2.3.4/33")],
        [Acl(31, "ip", "localhost")],
        [Acl(31, "world", "anyone"), Acl(31, "foo", "bar")],
    ],
)
def test_entries_that_mean_nothing_are_refused(entries: list[Acl] | None) -> None:
    with pytest.raises(RequestError) as refused:
        resolve(entries, [LOCAL])
    assert refused.value.code is ErrorCode.INVALID_ACL


def test_hashes_are_hidden_and_nothing_else() -> None:
    assert masked((Acl(1, *BOB), Acl(2, "ip", "1.2.3.4"))) == (Acl(1, "digest", "bob:x"), Acl(2, "ip", "1.2.3.4"))
