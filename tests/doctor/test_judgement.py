"""What is said of facts about a registry: a verdict, a sentence, and what to change."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aioelasticjob.doctor.facts import Encryption, Facts, Member, Permissions, Quota, Writes
from aioelasticjob.doctor.judgement import judge
from aioelasticjob.doctor.report import Finding, Report, Verdict
from aioelasticjob.errors import AuthenticationFailed, CertificateRefused
from aioelasticjob.registry.settings import ConnectionSettings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SRVR = "Zookeeper version: {}-b99a7f2, built on 2022-02-25 08:49 UTC\nMode: follower\n"
ALLOWED = Permissions(("ip 10.0.0.9",), True, True, "/shop", {}, False, 3, (), ())
GOOD = Verdict.GOOD


def member(number: int, version: str = "3.8.0", **changes: Any) -> Member:
    words = {"srvr": SRVR.format(version)} if version else {}
    return replace(Member(f"127.0.0.{number}:2181", None, words, (4.0, 40.0), False, None, 1_000_000), **changes)


FACTS = Facts(
    ConnectionSettings.parse("zk://127.0.0.1,127.0.0.2/shop"),
    NOW,
    "aioelasticjob 1.0 on Python 3.12.1",
    (member(1), member(2)),
    permissions=ALLOWED,
    writes=Writes((0.001, 0.002, 0.003), 0.01, 0.001),
)


def found(topic: str, **changes: Any) -> Finding:
    (finding,) = (one for one in judge(replace(FACTS, **changes)) if one.topic == topic)
    return finding


def judged(topic: str, **changes: Any) -> tuple[Verdict, str, str]:
    finding = found(topic, **changes)
    return finding.verdict, finding.seen, finding.advice


def test_a_good_registry_has_nothing_to_change() -> None:
    findings = judge(FACTS)
    assert {finding.verdict for finding in findings} == {GOOD}
    assert not any(finding.advice for finding in findings)
    assert Report("zk://h", findings).verdict is GOOD


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        ((GOOD, Verdict.WARNING, Verdict.BAD), Verdict.BAD),
        ((GOOD, Verdict.UNKNOWN), Verdict.WARNING),
        ((GOOD, Verdict.WARNING), Verdict.WARNING),
    ],
)
def test_a_report_is_as_good_as_its_worst_finding(verdicts: tuple[Verdict, ...], worst: Verdict) -> None:
    assert Report("zk://h", tuple(Finding("x", verdict, "") for verdict in verdicts)).verdict is worst


def test_servers_that_do_not_answer_are_named_with_the_reason() -> None:
    silent = member(2, failure=OSError("Connection refused"))
    verdict, seen, advice = judged("connection", members=(member(1), silent))
    assert (verdict, seen) == (Verdict.WARNING, "Usable servers: 1 of 2. 127.0.0.2:2181: Connection refused.")
    assert "start the servers" in advice
    assert judged("connection", members=(silent,))[0] is Verdict.BAD


def test_what_no_server_can_answer_is_said_to_be_unknown() -> None:
    silent = (member(1, "", failure=OSError("Connection refused"), timeouts=None, max_request=None),)
    findings = judge(replace(FACTS, members=silent, permissions=None, writes=None))
    assert [finding.topic for finding in findings if finding.verdict is Verdict.UNKNOWN] == [
        *("version", "permissions", "session timeout", "clock", "write latency", "quotas", "request size"),
        "four-letter words",
    ]
    assert {finding.seen for finding in findings if finding.verdict is Verdict.UNKNOWN} == {
        "This could not be asked: no server can be used."
    }


def test_a_read_only_server_has_lost_the_others() -> None:
    verdict, seen, advice = judged("connection", members=(member(1), member(2, read_only=True)))
    assert verdict is Verdict.WARNING
    assert "Read-only, since they have lost contact to the others: 127.0.0.2:2181." in seen
    assert "server.N" in advice
    assert judged("connection", members=(member(2, read_only=True),))[0] is Verdict.BAD


def test_connections_that_leave_this_host_should_be_encrypted() -> None:
    assert judged("TLS")[0] is GOOD
    assert judged("TLS", members=(replace(member(1), server="localhost:2181 (::1)"),))[0] is GOOD
    verdict, _, advice = judged("TLS", members=(replace(member(1), server="zk1:2181 (10.0.0.1)"),))
    assert (verdict, "zks://" in advice) == (Verdict.WARNING, True)


@pytest.mark.parametrize(("days", "verdict"), [(100, GOOD), (10, Verdict.WARNING), (2, Verdict.BAD)])
def test_a_certificate_that_ends_soon_is_to_be_renewed(days: int, verdict: Verdict) -> None:
    settings = ConnectionSettings.parse("zks://h", tls={"certificate": "/etc/own.pem"})
    agreed = Encryption("TLSv1.3", "TLS_AES_256_GCM_SHA384", NOW + timedelta(days=days))
    members = (member(1, encryption=agreed),)
    finding = found("TLS", settings=settings, members=members, own_certificate=NOW + timedelta(days=300))
    assert finding.verdict is verdict
    assert "TLSv1.3 with TLS_AES_256_GCM_SHA384; the certificate of 127.0.0.1:2181 is valid until 2026-" in finding.seen
    assert "our certificate in /etc/own.pem is valid until 2026-10-28T00:00:00+00:00" in finding.seen
    assert ("Renew the certificate of 127.0.0.1:2181" in finding.advice) is (verdict is not GOOD)
    late = Encryption("TLSv1.3", "x", NOW + timedelta(days=300))
    own = found(
        "TLS", settings=settings, members=(member(1, encryption=late),), own_certificate=NOW + timedelta(days=days)
    )
    assert (own.verdict, "Renew our certificate in /etc/own.pem" in own.advice) == (verdict, verdict is not GOOD)


@pytest.mark.parametrize("address", ["zks://h", "zk://h"])
def test_a_wrong_certificate_is_said_in_its_own_topic(address: str) -> None:
    """Also for an address without TLS: its port may take nothing else."""
    settings = ConnectionSettings.parse(address)
    broken = (member(1, failure=CertificateRefused("tls.ca: ca.pem is not the right one")),)
    assert judged("TLS", settings=settings, members=broken)[:2] == (
        Verdict.BAD,
        "tls.ca: ca.pem is not the right one.",
    )
    assert "See below" in found("connection", settings=settings, members=broken).advice


@pytest.mark.parametrize(
    ("versions", "verdict"),
    [(("3.8.0", "3.8.0"), GOOD), (("3.8.0", "3.9.1"), Verdict.WARNING), (("3.8.0", "3.5.9"), Verdict.BAD)],
)
def test_the_servers_run_one_release_that_is_new_enough(versions: tuple[str, str], verdict: Verdict) -> None:
    finding = found("version", members=tuple(member(n, version) for n, version in enumerate(versions, 1)))
    assert finding.verdict is verdict
    assert finding.seen.startswith("127.0.0.1:2181 runs ZooKeeper 3.8.0")
    assert finding.seen.endswith("; aioelasticjob 1.0 on Python 3.12.1.")


@pytest.mark.parametrize(
    ("identities", "multi_read", "verdict", "said"),
    [(("ip",), True, GOOD, "3.7 or newer"), (None, True, GOOD, "3.6 or newer"), (None, False, Verdict.BAD, "lack")],
)
def test_a_release_that_no_server_reports_shows_in_what_it_can_do(
    identities: tuple[str, ...] | None, multi_read: bool, verdict: Verdict, said: str
) -> None:
    allowed = replace(ALLOWED, identities=identities, multi_read=multi_read)
    finding = found("version", members=(member(1, ""),), permissions=allowed)
    assert (finding.verdict, said in finding.seen) == (verdict, True)


@pytest.mark.parametrize(
    ("limits", "verdict", "advice"),
    [
        ((4.0, 40.0), GOOD, ""),
        ((0.4, 4.0), Verdict.BAD, "Set maxSessionTimeout=30000 in zoo.cfg of all servers, or session_timeout=4."),
        (
            (60.0, 90.0),
            Verdict.WARNING,
            "Set tickTime=15000 (and no minSessionTimeout) in zoo.cfg of all servers: a session lasts at least two"
            " ticks. Or set session_timeout=60.",
        ),
    ],
)
def test_sessions_last_as_long_as_jobs_ask_for(limits: tuple[float, float], verdict: Verdict, advice: str) -> None:
    finding = found("session timeout", members=(member(1), member(2, timeouts=limits)))
    assert (finding.verdict, finding.advice) == (verdict, advice)


@pytest.mark.parametrize(("least", "verdict"), [(3_999, Verdict.BAD), (4_000, GOOD)])
def test_a_server_that_grants_less_than_two_ticks_is_not_fit(least: int, verdict: Verdict) -> None:
    words = {"srvr": SRVR.format("3.8.0"), "conf": f"clientPort=2181\ntickTime=2000\nminSessionTimeout={least}\n"}
    finding = found("session timeout", members=(member(1, words=words),))
    assert finding.verdict is verdict
    assert ("grants 3999 ms, less than two of its ticks (2000 ms)" in finding.seen) is (verdict is Verdict.BAD)


@pytest.mark.parametrize(
    ("skew", "verdict", "said"),
    [
        (0.9, GOOD, "0.900 s ahead of"),
        (-300.0, Verdict.BAD, "300.000 s behind"),
        (1.5, Verdict.BAD, "1.500 s ahead of"),
    ],
)
def test_clocks_agree_to_a_second(skew: float, verdict: Verdict, said: str) -> None:
    finding = found("clock", writes=Writes((0.01,), skew, 0.005))
    assert (finding.verdict, said in finding.seen, "NTP" in finding.advice) == (verdict, True, verdict is not GOOD)


@pytest.mark.parametrize(("took", "verdict"), [(0.05, GOOD), (0.5, Verdict.WARNING), (2.0, Verdict.BAD)])
def test_a_write_is_quick_in_the_median(took: float, verdict: Verdict) -> None:
    finding = found("write latency", writes=Writes((took, took, 60.0), 0.0, 0.0))
    assert finding.verdict is verdict
    assert f"median {took * 1000:.1f} ms, longest 60000.0 ms" in finding.seen


def test_a_write_that_failed_says_why() -> None:
    assert judged("write latency", writes=Writes(failure="the quota is used up"))[:2] == (
        Verdict.BAD,
        "the quota is used up.",
    )
    assert judged("clock", writes=Writes(failure="the quota is used up"))[0] is Verdict.UNKNOWN


def test_a_request_that_is_taken_by_one_server_only_is_too_large() -> None:
    verdict, seen, advice = judged("request size", members=(member(1), member(2, max_request=65_000)))
    assert verdict is Verdict.BAD
    assert "more than about 65,000 bytes end the connection; jobs send up to 1,000,000" in seen
    assert advice == "Start all servers with -Djute.maxbuffer=1048575, or set max_request=65000."


def test_four_letter_words_are_no_condition_of_jobs() -> None:
    verdict, seen, advice = judged("four-letter words", members=(member(1), member(2, "")))
    assert verdict is Verdict.WARNING
    assert "127.0.0.1:2181 answers srvr; 127.0.0.2:2181 answers none. Jobs do not need them" in seen
    assert "4lw.commands.whitelist=srvr" in advice


def test_a_refused_login_comes_before_all_permissions() -> None:
    refused = AuthenticationFailed("the registry refused the SASL user 'bob': check user and password")
    verdict, seen, _ = judged("permissions", login=refused, permissions=None, writes=None)
    assert (verdict, seen) == (Verdict.BAD, "The registry refused the SASL user 'bob': check user and password.")
    for topic in ("clock", "write latency", "quotas"):
        assert "the login was refused" in found(topic, login=refused, permissions=None, writes=None).seen
    gone = OSError("gone")
    assert judged("permissions", login=gone)[1] == "The session ended: gone."
    assert "the session ended before it" in found("quotas", login=gone, permissions=None, writes=None).seen


def test_each_right_that_lacks_is_named() -> None:
    lacking = replace(ALLOWED, refused={"create": "not permitted"})
    verdict, seen, advice = judged("permissions", permissions=lacking, writes=None)
    assert verdict is Verdict.BAD
    assert seen == "At /shop, our session (ip 10.0.0.9) may not: create (not permitted)."
    assert "let this user read, create and delete there" in advice
    assert "may not write" in found("write latency", permissions=lacking, writes=None).seen


def test_a_namespace_that_does_not_exist_may_be_made() -> None:
    verdict, seen, _ = judged("permissions", permissions=replace(ALLOWED, exists=False, place="/"))
    assert (verdict, "does not exist yet" in seen) == (GOOD, True)


def test_nodes_of_somebody_elses_are_named() -> None:
    closed = tuple(f"/shop/job{number}" for number in range(7))
    verdict, seen, _ = judged("permissions", permissions=replace(ALLOWED, closed=closed, children=9))
    assert verdict is Verdict.BAD
    assert "/shop/job4 and 2 more, of 9 nodes" in seen


def test_credentials_for_an_open_namespace_are_worth_a_warning() -> None:
    allowed = replace(ALLOWED, open_to_all=True)
    assert judged("permissions", permissions=allowed)[0] is GOOD
    with_digest = ConnectionSettings.parse("zk://127.0.0.1/shop", digest="bob:secret")
    assert judged("permissions", permissions=allowed, settings=with_digest)[0] is Verdict.WARNING


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [({"count": 100}, GOOD), ({"count": 60}, Verdict.WARNING), ({"count": -1, "countHardLimit": 50}, Verdict.BAD)],
)
def test_a_quota_is_good_until_most_of_it_is_used(limits: dict[str, int], verdict: Verdict) -> None:
    quota = Quota("/shop", {"bytes": -1, **limits}, {"count": 50, "bytes": 7})
    finding = found("quotas", permissions=replace(ALLOWED, quotas=(quota,)))
    assert finding.verdict is verdict
    assert f"/shop uses 50 of {max(limits.values())} nodes" in finding.seen


def test_a_quota_that_may_not_be_read_is_unknown() -> None:
    assert judged("quotas", permissions=replace(ALLOWED, quotas=None))[0] is Verdict.UNKNOWN
