"""Looks at each server of a registry: its four-letter words, session limits, certificate, and largest request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import anyio

from aioelasticjob.doctor.facts import Encryption, Member
from aioelasticjob.doctor.line import FAILURES, ReadOnly, Target, Unanswered, line
from aioelasticjob.registry.access import Access
from aioelasticjob.registry.certificates import validity
from aioelasticjob.registry.codec import EXISTS, LOST, Codec
from aioelasticjob.registry.connection import Connection
from aioelasticjob.registry.host_names import addresses, is_ip
from aioelasticjob.registry.settings import ConnectionSettings

WORDS: Final = ("srvr", "ruok", "isro", "conf", "mntr")
"""Four-letter words that tell what this examination asks for, and change nothing."""
WORDS_TIMEOUT = 5.0
"""Seconds that the answers of one server to all of these words may take."""
CLOSE_TIMEOUT: Final = 2.0
"""Seconds that the end of a connection may take."""
MAX_ANSWER: Final = 1 << 20
"""Bytes of an answer that are read."""
SHORTEST = 0.001
LONGEST = 2_000_000.0
"""Session timeouts beyond any server's limits, in seconds: it grants the limit."""
RESOLUTION: Final = 1024
"""By how many bytes the largest request that is found may be too small."""


async def targets(settings: ConnectionSettings, access: Access) -> tuple[list[Target], list[Member]]:
    """Return all addresses of all servers, and the servers whose names have none."""
    found = list[Target]()
    nameless = list[Member]()
    for name, port in settings.hosts:
        try:
            with anyio.fail_after(settings.connection_timeout):
                places = [name] if is_ip(name) else await addresses(name, port)
        except OSError as error:
            reason = str(error)
            if isinstance(error, TimeoutError):
                reason = f"no address of {name} within {settings.connection_timeout:g} s"
            nameless.append(Member(f"{name}:{port}", Unanswered(reason)))
            continue
        found += [Target(settings, access, (name, port), place) for place in places]
    return found, nameless


async def look_at(targets: Sequence[Target]) -> list[Member]:
    """Look at all of them at the same time."""
    found: dict[int, Member] = {}

    async def look(number: int, target: Target) -> None:
        found[number] = await _look(target)

    async with anyio.create_task_group() as tasks:
        for number, target in enumerate(targets):
            tasks.start_soon(look, number, target)
    return [found[number] for number in range(len(targets))]


async def _look(target: Target) -> Member:
    member = Member(target.server)
    try:
        async with line(target, LONGEST) as longest:
            member = replace(member, read_only=longest.read_only, encryption=_encryption(longest.connection))
        async with line(target, SHORTEST) as shortest:
            member = replace(member, timeouts=(shortest.timeout, longest.timeout))
        member = replace(member, max_request=await _max_request(target))
    except ReadOnly:
        member = replace(member, read_only=True)
    except FAILURES as error:
        member = replace(member, failure=error)
    if member.encryption is not None or target.settings.tls is None:
        member = replace(member, words=await _words(target))
    return member


def _encryption(connection: Connection) -> Encryption | None:
    found = connection.encryption
    if found is None:
        return None
    certificate = found.getpeercert(True)
    cipher = found.cipher()
    if certificate is None or cipher is None:
        return None
    cipher_name, _, _ = cipher
    _, expires = validity(certificate)
    return Encryption(found.version() or "TLS", cipher_name, expires)


async def _max_request(target: Target) -> int:
    """Return how large a request the server takes, up to the largest one that jobs send.

    The requests ask whether a node with a very long name exists.  So nothing is written; if a request is too large, the
    server ends the connection.
    """
    largest = target.settings.max_request
    if await _takes(target, largest):
        return largest
    taken = 0
    refused = largest
    while refused - taken > RESOLUTION:
        middle = (taken + refused) // 2
        if await _takes(target, middle):
            taken = middle
        else:
            refused = middle
    return taken


async def _takes(target: Target, size: int) -> bool:
    body = Codec("", private=False).long_question(size)
    async with line(target, SHORTEST) as one:
        error, _, _ = await one.call(EXISTS, body)
        return error != LOST


async def _words(target: Target) -> dict[str, str]:
    found = dict[str, str]()
    with anyio.move_on_after(WORDS_TIMEOUT):
        for word in WORDS:
            answer = await _ask(target, word)
            if answer and "not executed because it is not in the whitelist" not in answer:
                found[word] = answer
    return found


async def _ask(target: Target, word: str) -> str:
    """Return the answer to a four-letter word; empty if there is none."""
    host, port = target.host
    tls = target.settings.tls
    name = None
    if tls is not None:
        name = tls.server_name or host
    writer: asyncio.StreamWriter | None = None
    answer = bytearray()
    try:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(
                target.address, port, ssl=target.access.tls, server_hostname=name
            )
            writer.write(word.encode())
            while len(answer) < MAX_ANSWER:
                part = await reader.read(65536)
                if not part:
                    break
                answer += part
    finally:
        if writer is not None:
            writer.close()
            with anyio.move_on_after(CLOSE_TIMEOUT, shield=True), suppress(OSError):
                await writer.wait_closed()
    return answer.decode("utf-8", "replace")
