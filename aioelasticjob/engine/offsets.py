"""Offsets of items: the texts that a run saves for the next one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from aioelasticjob.engine.commit import until_answered, write
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.membership import restore_parent
from aioelasticjob.engine.record_cache import RecordCache
from aioelasticjob.errors import Conflict, Fenced, InvalidSetting, SessionEnded
from aioelasticjob.model import Claim
from aioelasticjob.registry.transaction import Check, Create, Op, Set
from aioelasticjob.registry.tree import Node

MAX_OFFSET_BYTES = 512 * 1024
"""The largest offset in bytes.  An offset is a position; larger data belongs in a database."""

REREAD = "to read checkpoints"
"""The purpose of reading offsets after a claim, for the log line if the registry refuses it."""


def encoded(value: str) -> bytes:
    """Return an offset as it is stored.

    Raises:
        InvalidSetting: the value is not text, or larger than ``MAX_OFFSET_BYTES``.
    """
    if not isinstance(value, str):
        raise InvalidSetting("offset", value, "must be text; json.dumps makes one of anything else")
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise InvalidSetting("offset", value, "must be text that UTF-8 can spell") from None
    if len(data) > MAX_OFFSET_BYTES:
        raise InvalidSetting("offset", value[:40] + "…", f"must be at most {MAX_OFFSET_BYTES} bytes, is {len(data)}")
    return data


class Offsets:
    """The offsets of the items of this instance.  Items that have no offset cost no request at a fire."""

    def __init__(self, member: Member, cache: RecordCache) -> None:
        self._member, self._cache, self._items = member, cache, cache.items

    async def read(self, items: Collection[int]) -> dict[int, str]:
        """Return the offsets of items, and note which of them have one.

        The offsets with which a run begins are read before its claim.  Nobody saves one in between: an offset is saved
        under a claim, and another claim would change the record on which this claim depends.
        """
        if not items:  # then no connection is needed
            return {}
        offsets = [self._member.layout.item(item).offset for item in items]
        nodes = zip(items, await self._member.session.get_many(offsets), strict=True)
        found = {item: self._text(item, node) for item, node in nodes if node}
        for item in items:
            self._items[item].has_offset = self._items[item].may_have_offset = item in found
        return found

    async def reread(self, items: Collection[int]) -> dict[int, str]:
        """Return the offsets of items just claimed.  This tries until the session ends: the items must be settled.

        Raises:
            SessionEnded: the session was lost, and with it the claim.
        """
        found = await until_answered(self._member, REREAD, lambda: self.read(items))
        self._member.refusals.accepted(REREAD)
        return found

    async def save(self, claim: Claim, item: int, value: str) -> None:
        """Save an offset under the fence of a claim.

        Raises:
            Fenced: the run was cut off, so another instance may run the item.
            InvalidSetting: the value is not text, or larger than ``MAX_OFFSET_BYTES``.
            RegistryError: the registry refuses the write; nothing was saved.
        """
        data, entry = encoded(value), self._items[item]
        entry.may_have_offset = True
        while True:
            try:
                await write(self._member, self._saving(claim, item, data), "to save an offset", wait=True)
            except SessionEnded:
                raise Fenced(item) from None
            except Conflict as conflict:
                if conflict.path != self._member.layout.item(item).offset:
                    raise Fenced(item) from None
                if conflict.reason not in ("exists", "missing"):  # somebody has made nodes by hand
                    raise
                if conflict.reason != "missing" or entry.has_offset:
                    entry.has_offset = conflict.reason == "exists"
                elif not await restore_parent(self._member, self._member.layout.offsets):
                    raise Fenced(item) from None
            else:
                entry.has_offset = entry.may_have_offset = True  # a read may have been answered during the save
                return

    def _saving(self, claim: Claim, item: int, data: bytes) -> list[Op]:
        paths, version = self._member.layout.item(item), claim.items[item].version
        fence: list[Op] = [] if version is None else [Check(paths.execution, version), Check(paths.running)]
        return [*fence, Set(paths.offset, data, -1) if self._items[item].has_offset else Create(paths.offset, data)]

    def _text(self, item: int, node: Node) -> str:
        try:
            return node.data.decode()
        except UnicodeDecodeError as error:
            why = f"is not valid UTF-8, so the bytes that are not are replaced: {error}"
            self._cache.warn(self._member.layout.item(item).offset, node.stat.mzxid, why)
            return node.data.decode("utf-8", "replace")


@dataclass(slots=True)
class RunOffsets:
    """The offsets of one run's items, saved under its claim."""

    offsets: Offsets
    claim: Claim
    known: dict[int, str]

    def get(self, item: int) -> str | None:
        """Return the offset last saved, None if there is none."""
        return self.known.get(item)

    async def save(self, item: int, value: str) -> None:
        """Save an offset, as ``Offsets.save`` does."""
        await self.offsets.save(self.claim, item, value)
        self.known[item] = value
