"""Examines a registry before jobs rely on it: what is seen, whether it is good, and what to change.

It leaves nothing behind: its sessions are ended, the node that it measures writes with is ephemeral, and it asks for
permissions by transactions that always fail.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

from aioelasticjob.clock import Clock, SystemClock
from aioelasticjob.doctor.facts import Facts, Member
from aioelasticjob.doctor.judgement import judge
from aioelasticjob.doctor.line import FAILURES, Target, line, prove_identity
from aioelasticjob.doctor.members import look_at, targets
from aioelasticjob.doctor.report import Finding, Report, Verdict
from aioelasticjob.doctor.session import permissions, writes
from aioelasticjob.errors import InvalidSetting, TlsFailed
from aioelasticjob.ground.times import moment
from aioelasticjob.registry.access import Access, read_access
from aioelasticjob.registry.addresses import Address
from aioelasticjob.registry.certificates import check_validity
from aioelasticjob.registry.codec import Codec
from aioelasticjob.registry.settings import ConnectionSettings

__all__ = ["Finding", "Report", "Verdict", "examine"]


async def examine(address: Address, *, clock: Clock | None = None) -> Report:
    """Look at a registry and return what was found; a registry that cannot be reached is a finding too.

    The server of ``embedded://host:port`` is not started: its first process does that.

    Raises: InvalidSetting if the address stands for a private registry, or a file of secrets cannot be used.
    """
    if address.private:
        raise InvalidSetting(
            "address",
            address.text,
            "a private registry exists only inside its own process, so nobody else can examine it",
        )
    clock = clock or SystemClock()
    settings = address.settings
    facts = Facts(settings, moment(clock.now()), _client(), ())
    try:
        access = await read_access(settings, clock.now())
    except TlsFailed as error:
        failed = tuple(Member(f"{host}:{port}", error) for host, port in settings.hosts)
        return Report(address.text, judge(replace(facts, members=failed)))
    found, nameless = await targets(settings, access)
    members = await look_at(found)
    facts = replace(facts, members=(*members, *nameless), own_certificate=_own_certificate(settings, clock.now()))
    usable = [target for target, member in zip(found, members, strict=True) if _is_usable(member)]
    if usable:
        facts = await _with_session(facts, usable[0], access, clock)
    return Report(address.text, judge(facts))


async def _with_session(facts: Facts, target: Target, access: Access, clock: Clock) -> Facts:
    """Add what can be learnt only by a session that has logged in."""
    settings = facts.settings
    namespace = Codec(settings.namespace, private=False).absolute("/")
    codec = Codec("", private=settings.authenticated)
    try:
        async with line(target, settings.session_timeout) as session:
            await prove_identity(session, access)
            allowed = await permissions(session, codec, namespace)
            facts = replace(facts, permissions=allowed)
            if not allowed.refused:
                facts = replace(facts, writes=await writes(session, codec, allowed.place, clock))
    except FAILURES as error:
        return replace(facts, login=error)
    return facts


def _is_usable(member: Member) -> bool:
    return member.failure is None and not member.read_only


def _own_certificate(settings: ConnectionSettings, now: float) -> datetime | None:
    """Return until when our own certificate is valid; None if there is none, or it has been taken away meanwhile."""
    if settings.tls is None or settings.tls.certificate is None:
        return None
    with suppress(TlsFailed):
        return check_validity(settings.tls.certificate, "tls.certificate", now)
    return None


def _client() -> str:
    """Return what this program is."""
    python = ".".join(map(str, sys.version_info[:3]))
    try:
        return f"aioelasticjob {version('aioelasticjob')} on Python {python}"
    except PackageNotFoundError:
        return f"aioelasticjob (run from its sources) on Python {python}"
