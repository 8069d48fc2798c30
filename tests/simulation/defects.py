"""Ways to break the house on purpose: each is a context in which one load-bearing wall is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from aioelasticjob.coordination import claims, effects, records
from aioelasticjob.coordination.claims import Claims, _ended
from aioelasticjob.coordination.membership import Member
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import RegistryError
from aioelasticjob.model import Claim, Outcome, Record
from aioelasticjob.registry.mirror import _Follower
from aioelasticjob.registry.session import Session
from aioelasticjob.registry.txn import Check, Committed, Create, Op, Set
from aioelasticjob.running.duty import Duty

Defect = Callable[[], AbstractContextManager[object]]

_claiming, _commit = claims._claiming, Session.commit


def no_deadline() -> AbstractContextManager[object]:
    """Let handlers run on when the session can no longer be proven alive."""
    return mock.patch.object(Session, "bind")


def claim_on_hearsay() -> AbstractContextManager[object]:
    """Claim without asking whether record and assignment are still those that were read."""

    def claiming(member: Member, item: int, record: Record, version: int | None) -> list[Op]:
        return [
            Set(op.path, op.data, -1) if isinstance(op, Set) else op for op in _claiming(member, item, record, version)
        ]

    def entitled(member: Member, *_args: object) -> list[Op]:
        return [Check(member.layout.sharding)]

    return mock.patch.multiple(claims, _claiming=claiming, _entitled=entitled)


def claim_without_lock() -> AbstractContextManager[object]:
    """Claim without creating ``running``."""

    def claiming(member: Member, item: int, record: Record, version: int | None) -> list[Op]:
        nothing = Check(member.layout.execution)
        return [
            nothing if isinstance(op, Create) and op.ephemeral else op
            for op in _claiming(member, item, record, version)
        ]

    return mock.patch.object(claims, "_claiming", claiming)


def deaf_mirror() -> AbstractContextManager[object]:
    """Do not read again what was missed while there was no connection."""
    return mock.patch.object(_Follower, "reset")


def settle_in_any_session() -> AbstractContextManager[object]:
    """Settle a run in whatever session there is, as a client that waits out an expiry does."""

    async def settle(self: Claims, claim: Claim, outcomes: Mapping[int, Outcome], now: int, **_options: object) -> bool:
        session, layout = self._member.session, self._member.layout
        for item, seen in claim.items.items():
            ended = _ended(seen, outcomes.get(item), now)
            operation = Set(layout.item(item).execution, records.encode(ended.record), -1)
            try:
                await session.connected()
                await session.commit([operation], incarnation=session.incarnation)
            except RegistryError:
                return False
        return await original(self, claim, outcomes, now, **_options)

    original: Any = Claims.settle
    return mock.patch.object(Claims, "settle", settle)


def commit_in_any_session() -> AbstractContextManager[object]:
    """Write in the present session what was decided in an earlier one."""

    async def commit(self: Session, ops: list[Op], *, incarnation: int, **options: Any) -> Committed:
        await self.connected()
        return await _commit(self, ops, incarnation=self.incarnation, **options)

    return mock.patch.object(Session, "commit", commit)


def lead_without_epoch() -> AbstractContextManager[object]:
    """Let leaders write without showing that they still lead."""
    return mock.patch.object(effects, "_leading", side_effect=lambda _view: [])


def claim_unsettled() -> AbstractContextManager[object]:
    """Claim although an assignment is due."""
    return mock.patch.object(JobView, "settled", property(lambda self: True))


def forget_orphans() -> AbstractContextManager[object]:
    """Claim an item's next moment although its last run was cut off and waits for a rescuer."""
    return mock.patch.object(Duty, "_in_rescue", return_value=frozenset())
