"""Offsets of items: the texts that a run saves for the next one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from aioelasticjob.engine.commit import write
from aioelasticjob.engine.item_reader import ItemReader
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.membership import restore_parent
from aioelasticjob.errors import Conflict, Fenced, InvalidSetting, SessionEnded
from aioelasticjob.model import NONE, Claim
from aioelasticjob.registry.transaction import Check, Create, Op, Set
from aioelasticjob.registry.tree import Node

MAX_OFFSET_BYTES = 512 * 1024
"""The largest offset in bytes.  An offset is a position; larger data belongs in a database."""


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

    def __init__(self, member: Member, reader: ItemReader) -> None:
        self._member = member
        self._reader = reader
        self._there = set[int]()
        """The items that had an offset when that was read or written last."""
        self._possible = set[int]()
        """The items that have an offset, or may have one: their run may have been cut off while it saved one."""

    def possible(self, items: frozenset[int]) -> frozenset[int]:
        """Return those of some items that may have an offset."""
        return items & self._possible if self._possible else NONE

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
        for known in (self._there, self._possible):
            known.difference_update(items)
            known.update(found)
        return found

    async def save(self, claim: Claim, item: int, value: str) -> None:
        """Save an offset under the fence of a claim.

        Raises:
            Fenced: the run was cut off, so another instance may run the item.
            InvalidSetting: the value is not text, or larger than ``MAX_OFFSET_BYTES``.
            RegistryError: the registry refuses the write; nothing was saved.
        """
        data = encoded(value)
        self._possible.add(item)
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
                if conflict.reason == "exists":
                    self._there.add(item)
                elif item in self._there:
                    self._there.discard(item)
                elif not await restore_parent(self._member, self._member.layout.offsets):
                    raise Fenced(item) from None
            else:
                self._there.add(item)
                self._possible.add(item)  # a read may have been answered during the save
                return

    def _saving(self, claim: Claim, item: int, data: bytes) -> list[Op]:
        paths = self._member.layout.item(item)
        version = claim.items[item].version
        operations = list[Op]()
        if version is not None:
            operations += [Check(paths.execution, version), Check(paths.running)]
        if item in self._there:
            operations.append(Set(paths.offset, data, -1))
        else:
            operations.append(Create(paths.offset, data))
        return operations

    def _text(self, item: int, node: Node) -> str:
        try:
            return node.data.decode()
        except UnicodeDecodeError as error:
            why = f"is not valid UTF-8, so the bytes that are not are replaced: {error}"
            self._reader.warn(self._member.layout.item(item).offset, node.stat.mzxid, why)
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
