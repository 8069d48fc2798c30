"""DIGEST-MD5: the example of RFC 2831, a talk of both sides, and everything that must not pass."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.zookeeper.digest_md5 import DigestError, Login, answer, challenge, directives, verify

RFC = Login(
    *(b"chris", b"secret", b"elwood.innosoft.com", b"OA6MG9tEQGm2hh", b"OA6MHXh6VqTrRk"),
    b"imap/elwood.innosoft.com",
)
NONCE = "0a1b2c"
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


def test_the_example_of_rfc_2831_section_4() -> None:
    assert RFC.response() == b"d388dad90d4bbd760a152321f2143af7"
    assert RFC.rspauth() == b"ea40f60335c427b5527b84dbabcdfffd"


def test_a_login_shows_no_password() -> None:
    assert "secret" not in repr(RFC)


def test_directives_may_be_quoted_escaped_and_spaced() -> None:
    read = directives(rb'realm="a,\"b\\",nonce=c , qop="auth,auth-int"')
    assert read == {"realm": 'a,"b\\', "nonce": "c", "qop": "auth,auth-int"}


@pytest.mark.parametrize("message", [b"a", b'a="b', b"a=1,a=2", b"=1", b'charset=utf-8,a="\xff"', b"a=1 2"])
def test_other_messages_are_refused(message: bytes) -> None:
    with pytest.raises(DigestError):
        directives(message)


@given(user=NAMES, password=NAMES)
def test_both_sides_agree_in_any_script(user: str, password: str) -> None:
    reply, end = answer(challenge(NONCE), user, password, "cnonce")
    assert verify(reply, NONCE, {user: password}) == (user, end)


def test_an_answer_without_charset_is_latin_1() -> None:
    login = Login("jürgen".encode("latin-1"), b"x", b"zk-sasl-md5", NONCE.encode(), b"c", b"zookeeper/zk-sasl-md5")
    message = (
        f'username="jürgen",realm="zk-sasl-md5",nonce="{NONCE}",nc=00000001,cnonce="c",'
        f'digest-uri="zookeeper/zk-sasl-md5",response={login.response().decode()}'
    ).encode("latin-1")
    assert verify(message, NONCE, {"jürgen": "x"}) == ("jürgen", b"rspauth=" + login.rspauth())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bob", "eve"),
        ("bob", "super"),
        ("0a1b2c", "0a1b2d"),
        ("charset=utf-8", "charset=latin-1"),
        ("zookeeper/", "http/"),
        ("qop=auth", "qop=auth-conf"),
        ('realm="zk-sasl-md5"', 'realm="other"'),
        ('cnonce="cnonce"', 'cnonce=""'),
        (r"response=\w+", "response=00000000000000000000000000000000"),
        (r"response=\w+,", ""),
        ("charset", "authzid=eve,charset"),
    ],
)
def test_an_answer_that_was_changed_is_refused(old: str, new: str) -> None:
    reply, _ = answer(challenge(NONCE), "bob", "secret", "cnonce")
    changed = re.sub(old, new, reply.decode(), count=1).encode()
    assert changed != reply
    with pytest.raises(DigestError) as refused:
        verify(changed, NONCE, {"bob": "secret", "super": "x"})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("asked", [b"", b'nonce="x"', b'nonce="x",algorithm=md5-sess,qop="auth-conf"'])
def test_a_challenge_that_cannot_be_answered_is_refused(asked: bytes) -> None:
    with pytest.raises(DigestError):
        answer(asked, "bob", "secret", "cnonce")
