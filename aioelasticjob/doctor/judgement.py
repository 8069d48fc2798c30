"""Judges the facts about a registry: a finding for each topic.  It asks nothing and reads no clock."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import timedelta
from operator import itemgetter
from statistics import median
from typing import Final

from aioelasticjob.core.clock_skew import ASTRAY
from aioelasticjob.doctor.facts import Facts, Member
from aioelasticjob.doctor.permission_judgement import not_asked, permissions, quotas
from aioelasticjob.doctor.report import Finding, Verdict
from aioelasticjob.errors import TlsFailed
from aioelasticjob.ground.plural import counted
from aioelasticjob.ground.times import time_text

OLDEST: Final = (3, 6)
"""The oldest ZooKeeper that jobs run on: persistent recursive watches came with it."""
SLOW = 0.1
"""Seconds from which on a write is slow."""
TOO_SLOW = 1.0
"""Seconds from which on runs begin late because of a slow write."""
SOON = timedelta(days=14)
"""A certificate that ends before this is worth a warning."""
VERY_SOON = timedelta(days=3)
"""A certificate that ends before this is bad."""
WORDS_TO_ALLOW: Final = "4lw.commands.whitelist=srvr,ruok,isro,conf,mntr"


def judge(facts: Facts) -> tuple[Finding, ...]:
    """Return a finding for each topic, in the order in which a person looks for a fault."""
    return tuple(judged(facts) for judged in _TOPICS)


def connection(facts: Facts) -> Finding:
    """Judge which servers answer, and whether they take writes."""
    topic = "connection"
    members = facts.members
    failed = [one for one in members if one.failure is not None]
    alone = [one.server for one in members if one.read_only]
    good = len(members) - len(failed) - len(alone)
    failures = [f"{one.server}: {one.failure}" for one in failed]
    seen = ". ".join([f"Usable servers: {good} of {len(members)}", *failures])
    if alone:
        seen += f". Read-only, since they have lost contact to the others: {', '.join(alone)}"
    if good == len(members):
        return Finding(topic, Verdict.GOOD, _sentence(seen))
    if alone:
        advice = "See whether these servers reach the others, at the ports that server.N in zoo.cfg names."
    elif all(isinstance(one.failure, TlsFailed) for one in failed):
        advice = "The servers can be reached. See below what is wrong with the encryption."
    else:
        advice = (
            "Check the address, and start the servers or take them out of it. A port that expects TLS needs zks://."
        )
    verdict = Verdict.WARNING if good else Verdict.BAD
    return Finding(topic, verdict, _sentence(seen), advice)


def encryption(facts: Facts) -> Finding:
    """Judge whether connections are encrypted, and how long the certificates are valid."""
    topic = "TLS"
    members = facts.members
    for one in members:
        if isinstance(one.failure, TlsFailed):
            advice = "Correct what this says. The page 'Encrypt and authenticate the connection' explains each setting."
            return Finding(topic, Verdict.BAD, _sentence(str(one.failure)), advice)
    if facts.settings.tls is None:
        if all(_is_loopback(one.server) for one in members):
            return Finding(topic, Verdict.GOOD, "Connections are not encrypted, and stay on this host.")
        seen = "Connections are not encrypted: anybody between this host and the registry can read and change them."
        return Finding(topic, Verdict.WARNING, seen, "Set up secureClientPort in zoo.cfg, and write zks://.")
    agreed = [(one, one.encryption) for one in members if one.encryption is not None]
    if not agreed:
        return not_asked(topic, facts)
    ends = [(f"the certificate of {one.server}", found.expires) for one, found in agreed]
    if facts.own_certificate is not None:
        ends.append((f"our certificate in {facts.settings.tls.certificate}", facts.own_certificate))
    agreements = {f"{found.version} with {found.cipher}" for _, found in agreed}
    what = "; ".join(sorted(agreements))
    until = "; ".join(f"{name} is valid until {time_text(end)}" for name, end in ends)
    seen = f"{what}; {until}."
    first, end = min(ends, key=itemgetter(1))
    left = end - facts.now
    if left >= SOON:
        return Finding(topic, Verdict.GOOD, seen)
    verdict = Verdict.BAD if left < VERY_SOON else Verdict.WARNING
    return Finding(topic, verdict, seen, f"Renew {first}: replace the file, no restart is needed.")


def version(facts: Facts) -> Finding:
    """Judge which release the servers run."""
    topic = "version"
    upgrade = "Jobs need ZooKeeper 3.6 or newer, since they use persistent recursive watches: upgrade the servers."
    versions = dict[str, str]()
    for one in facts.members:
        found = _version(one)
        if found is not None:
            versions[one.server] = found
    if versions:
        servers = ", ".join(f"{server} runs ZooKeeper {found}" for server, found in versions.items())
        seen = f"{servers}; {facts.client}."
        if any(_numbers(found) < OLDEST for found in versions.values()):
            return Finding(topic, Verdict.BAD, seen, upgrade)
        if len(set(versions.values())) > 1:
            return Finding(topic, Verdict.WARNING, seen, "Bring all servers to the same release.")
        return Finding(topic, Verdict.GOOD, seen)
    allowed = facts.permissions
    if allowed is None:
        return not_asked(topic, facts)
    if allowed.identities is not None or allowed.multi_read:
        newer = "3.7" if allowed.identities is not None else "3.6"
        return Finding(topic, Verdict.GOOD, f"ZooKeeper {newer} or newer, as its operations show; {facts.client}.")
    return Finding(topic, Verdict.BAD, f"The servers lack an operation of ZooKeeper 3.6; {facts.client}.", upgrade)


def session_timeout(facts: Facts) -> Finding:
    """Judge whether sessions last as long as jobs ask for."""
    topic = "session timeout"
    wanted = facts.settings.session_timeout
    limits = {one.server: one.timeouts for one in facts.members if one.timeouts is not None}
    if not limits:
        return not_asked(topic, facts)
    shortest = max(low for low, _ in limits.values())
    longest = min(high for _, high in limits.values())
    seen = f"The servers grant {shortest:g} to {longest:g} s; jobs ask for {wanted:g} s"
    for one in facts.members:
        tick = _configured(one, "tickTime")
        least = _configured(one, "minSessionTimeout")
        if tick is not None and least is not None and least < 2 * tick:
            seen = f"{one.server} grants {least:g} ms, less than two of its ticks ({tick:g} ms)."
            advice = "Jobs cannot know when such a session ends. " + _two_ticks(least / 1000)
            return Finding(topic, Verdict.BAD, seen, advice)
    if wanted > longest:
        advice = f"Set maxSessionTimeout={wanted * 1000:.0f} in zoo.cfg of all servers, or session_timeout={longest:g}."
        return Finding(topic, Verdict.BAD, f"{seen} and get {longest:g} s.", advice)
    if wanted < shortest:
        seen += f" and get {shortest:g} s: the items of a process that dies wait so long."
        return Finding(topic, Verdict.WARNING, seen, f"{_two_ticks(wanted)} Or set session_timeout={shortest:g}.")
    return Finding(topic, Verdict.GOOD, f"{seen} and get that.")


def _two_ticks(seconds: float) -> str:
    """Say how servers are set up to grant a timeout: a session has two ticks at least, which the lease relies on."""
    tick = f"tickTime={seconds * 500:.0f} (and no minSessionTimeout) in zoo.cfg of all servers"
    return f"Set {tick}: a session lasts at least two ticks."


def _configured(member: Member, name: str) -> float | None:
    """Return a number from a server's answer to ``conf``; None if it does not answer that."""
    found = re.search(rf"^{name}=(\d+)$", member.words.get("conf", ""), re.MULTILINE)
    return None if found is None else float(found[1])


def clock(facts: Facts) -> Finding:
    """Judge how far this host's clock and the registry's are apart."""
    topic = "clock"
    found = facts.writes
    if found is None or found.failure or not found.seconds:
        return not_asked(topic, facts)
    direction = "ahead of" if found.skew > 0 else "behind"
    seen = f"This host's clock is {abs(found.skew):.3f} s {direction} the registry's (± {found.uncertainty:.3f} s)"
    if abs(found.skew) <= ASTRAY + found.uncertainty:
        return Finding(topic, Verdict.GOOD, f"{seen}.")
    advice = (
        "Set both clocks by NTP. Until then jobs use the registry's clock, and max_time_diff_seconds may refuse them."
    )
    return Finding(topic, Verdict.BAD, f"{seen}; it should be at most {ASTRAY:g} s.", advice)


def write_latency(facts: Facts) -> Finding:
    """Judge how long a write takes."""
    topic = "write latency"
    found = facts.writes
    if found is None:
        return not_asked(topic, facts)
    if found.failure:
        return Finding(topic, Verdict.BAD, _sentence(found.failure), "See what is said about permissions and quotas.")
    middle = median(found.seconds)
    longest = max(found.seconds)
    took = f"median {_ms(middle)}, longest {_ms(longest)}"
    seen = f"{counted(len(found.seconds), 'write')} to an ephemeral node, {took}."
    if middle <= SLOW:
        return Finding(topic, Verdict.GOOD, seen)
    advice = (
        "Give dataLogDir of the servers a fast disk of its own, and look at the network between this host and them."
    )
    verdict = Verdict.BAD if middle > TOO_SLOW else Verdict.WARNING
    return Finding(topic, verdict, seen, advice)


def request_size(facts: Facts) -> Finding:
    """Judge whether the servers take the largest requests that jobs send."""
    topic = "request size"
    wanted = facts.settings.max_request
    taken = [one.max_request for one in facts.members if one.max_request is not None]
    if not taken:
        return not_asked(topic, facts)
    least = min(taken)
    if least >= wanted:
        return Finding(topic, Verdict.GOOD, f"Requests of {wanted:,} bytes are taken, the largest that jobs send.")
    seen = f"Requests of more than about {least:,} bytes end the connection; jobs send up to {wanted:,} bytes."
    advice = f"Start all servers with -Djute.maxbuffer={wanted + 48_575}, or set max_request={least}."
    return Finding(topic, Verdict.BAD, seen, advice)


def words(facts: Facts) -> Finding:
    """Judge which four-letter words the servers answer."""
    topic = "four-letter words"
    reached = [one for one in facts.members if one.failure is None]
    if not reached:
        return not_asked(topic, facts)
    seen = "; ".join(f"{one.server} answers {', '.join(one.words) or 'none'}" for one in reached)
    if all("srvr" in one.words for one in reached):
        return Finding(topic, Verdict.GOOD, f"{seen}.")
    seen += ". Jobs do not need them, but nobody can ask these servers for their release, role and load."
    return Finding(topic, Verdict.WARNING, seen, f"Write {WORDS_TO_ALLOW} into zoo.cfg.")


_TOPICS: Final[tuple[Callable[[Facts], Finding], ...]] = (
    connection,
    encryption,
    version,
    permissions,
    session_timeout,
    clock,
    write_latency,
    quotas,
    request_size,
    words,
)


def _version(member: Member) -> str | None:
    answer = member.words.get("srvr", "") or member.words.get("mntr", "")
    found = re.search(r"(?:Zookeeper version: |zk_version\t)(\d[\w.]*(?:-\w+)?)", answer)
    return None if found is None else found[1]


def _numbers(version: str) -> tuple[int, ...]:
    numbers = re.findall(r"\d+", version)
    return tuple(int(number) for number in numbers[:2])


def _is_loopback(server: str) -> bool:
    """Whether the address of ``host:port`` or ``host:port (address)`` is of this host."""
    found = re.search(r"\(([^)]+)\)$", server)
    if found is not None:
        address = found[1]
    else:
        host, _, _ = server.rpartition(":")
        address = host.strip("[]")
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
