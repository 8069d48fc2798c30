"""Judges what our session may do in the registry: its login, its permissions, and the quotas on the namespace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aioelasticjob.doctor.facts import Facts, Permissions, Quota
from aioelasticjob.doctor.report import Finding, Verdict
from aioelasticjob.errors import AuthenticationFailed
from aioelasticjob.ground.plural import counted

NEARLY: Final = 0.8
"""The part of a quota beyond which it is worth a warning."""
MAX_NAMED: Final = 5
"""How many nodes are named at most."""
_LIMITS: Final = {
    "count": "count",
    "countHardLimit": "count",
    "bytes": "bytes",
    "byteHardLimit": "bytes",
}
"""Which number each limit is about."""


def permissions(facts: Facts) -> Finding:
    """Judge whether our session is let in, and may do at the namespace what jobs do."""
    topic = "permissions"
    found = facts.permissions
    if facts.login is not None:
        if isinstance(facts.login, AuthenticationFailed):
            refused = str(facts.login)
            advice = "Correct digest or sasl, or the file that holds it."
            return Finding(topic, Verdict.BAD, f"{refused[0].upper()}{refused[1:]}.", advice)
        seen = f"The session ended: {facts.login}."
        return Finding(topic, Verdict.BAD, seen, "Run this again; see the server's log.")
    if found is None:
        return not_asked(topic, facts)
    who = ", ".join(found.identities) if found.identities else "an unnamed client"
    if found.refused:
        lacking = "; ".join(f"{right} ({why})" for right, why in found.refused.items())
        seen = f"At {found.place}, our session ({who}) may not: {lacking}."
        advice = (
            f"Give the digest or SASL user that made {found.place}, or let this user read, create and delete there."
        )
        return Finding(topic, Verdict.BAD, seen, advice)
    if not found.exists:
        seen = f"Our session ({who}) may make the namespace, which does not exist yet, below {found.place}."
        return Finding(topic, Verdict.GOOD, seen)
    if found.closed:
        return _closed(topic, found, who)
    below = counted(found.children, "node")
    seen = f"Our session ({who}) may read, create and delete at {found.place}, and at {below} directly below it."
    if found.open_to_all and facts.settings.authenticated:
        seen += " So may everybody else: the namespace was made without credentials."
        advice = "Set an access control list on the namespace (setAcl of zkCli.sh), since what exists stays open."
        return Finding(topic, Verdict.WARNING, seen, advice)
    if found.open_to_all:
        seen += " So may everybody else."
    return Finding(topic, Verdict.GOOD, seen)


def quotas(facts: Facts) -> Finding:
    """Judge how much of the quotas is used."""
    topic = "quotas"
    found = facts.permissions
    if found is None:
        return not_asked(topic, facts)
    if found.quotas is None:
        return Finding(topic, Verdict.UNKNOWN, "This could not be asked: our session may not read /zookeeper/quota.")
    if not found.quotas:
        return Finding(topic, Verdict.GOOD, "There is no quota on the namespace, above it, or directly below it.")
    uses = [use for quota in found.quotas for use in _uses(quota)]
    seen = "; ".join(text for _, text in uses)
    part = max((part for part, _ in uses), default=0.0)
    if part < NEARLY:
        return Finding(topic, Verdict.GOOD, f"{seen or 'The quotas set no limit'}.")
    advice = "Raise the quota (setquota of zkCli.sh), or remove jobs that are not needed: jobs wait when it is used up."
    verdict = Verdict.BAD if part >= 1 else Verdict.WARNING
    return Finding(topic, verdict, f"{seen}.", advice)


def not_asked(topic: str, facts: Facts) -> Finding:
    """Return the finding for a topic that the registry could not be asked about."""
    usable = [one for one in facts.members if one.failure is None and not one.read_only]
    if not usable:
        why = "no server can be used"
    elif facts.login is not None:
        is_refused = isinstance(facts.login, AuthenticationFailed)
        why = "the login was refused" if is_refused else "the session ended before it"
    elif facts.permissions is not None and facts.permissions.refused:
        why = "our session may not write there"
    elif facts.writes is not None and facts.writes.failure:
        why = "nothing could be written"
    else:
        why = "no server reported it"
    return Finding(topic, Verdict.UNKNOWN, f"This could not be asked: {why}.")


def _uses(quota: Quota) -> Iterator[tuple[float, str]]:
    """Yield for each limit which part of it is used, and a text that says it."""
    for name, number in _LIMITS.items():
        limit = quota.limits.get(name, -1)
        used = quota.used.get(number, 0)
        if limit >= 0:
            noun = "nodes" if number == "count" else "bytes"
            part = used / limit if limit else 1.0
            yield part, f"{quota.path} uses {used:,} of {limit:,} {noun} ({name})"


def _closed(topic: str, found: Permissions, who: str) -> Finding:
    named = ", ".join(found.closed[:MAX_NAMED])
    if len(found.closed) > MAX_NAMED:
        named += f" and {len(found.closed) - MAX_NAMED} more"
    nodes = counted(found.children, "node")
    seen = f"Our session ({who}) may not read, create and delete at {named}, of {nodes}."
    advice = "Give the credentials that made these nodes: all processes of an installation need the same ones."
    return Finding(topic, Verdict.BAD, seen, advice)
