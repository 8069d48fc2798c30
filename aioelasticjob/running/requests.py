"""What somebody asked for by hand.  The claim that runs it removes it, so it is neither lost nor run twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from aioelasticjob.coordination.claims import Taken
from aioelasticjob.coordination.membership import Member
from aioelasticjob.coordination.records import too_large
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import Conflict, OutcomeUnknown, Suspended
from aioelasticjob.jobs.listeners import Listener
from aioelasticjob.model import Fire, FireSource
from aioelasticjob.registry.txn import Delete
from aioelasticjob.running.accounts import Accounts
from aioelasticjob.running.around import enrol
from aioelasticjob.running.duty import Duty
from aioelasticjob.running.schedule import Passed

Fly: TypeAlias = Callable[[JobView, Fire, frozenset[int]], Awaitable[bool]]


class Requests:
    """The triggers of one instance, and the items that could not be had when theirs was answered."""

    def __init__(self, member: Member, duty: Duty, accounts: Accounts, listeners: Sequence[Listener]) -> None:
        self._member, self._duty, self._accounts, self._listeners = member, duty, accounts, listeners
        self._later: dict[int, Fire] = {}

    async def answer(self, view: JobView, fly: Fly) -> bool:
        """Run what was asked for; True if there was something to answer."""
        if (later := self._due(view)) is not None:
            await self._fly_later(view, fly, *later)
            return True
        if (fire := self._newest(view)) is None:
            return False
        duty = self._duty
        refusal = duty.intolerable_skew() or too_large((fire.parameter or "").encode())
        closed = refusal is not None or self._member.id not in view.eligible
        items = frozenset[int]() if closed else duty.held - view.disabled_items
        free = items - duty.taken_off()
        if not await enrol(self._listeners, self._member, fire, items):
            return False
        if not (free and view.config.monitor_execution):  # there is no claim that would remove it
            if not await self._drop(fire):
                return False
            fire = replace(fire, request=None)
        if refusal is not None:  # told once the request is gone, or it would be told again until the mirror knows
            self._accounts.refused(str(refusal))
        self._put_off(items - free, fire)
        if free:
            await fly(view, fire, free)
        return True

    async def claimed(self, fire: Fire, items: frozenset[int], taken: Taken) -> None:
        """See to what the claim for a request could not have."""
        gone = frozenset[int]() if taken.claim is None else taken.claim.items.keys()
        self._put_off(items - gone if taken.stale and fire.request is None else taken.elsewhere, fire)
        if taken.claim is None and not taken.stale:
            await self._drop(fire)

    async def _fly_later(self, view: JobView, fly: Fly, fire: Fire, items: frozenset[int]) -> None:
        """Fly what was put off; what cannot be had even now goes on waiting."""
        if skew := self._duty.intolerable_skew():
            self._accounts.refused(str(skew))
            return
        try:
            await fly(view, fire, items)
        except (Suspended, OutcomeUnknown):
            self._put_off(items, fire)
            raise

    def _newest(self, view: JobView) -> Fire | None:
        """Return what is asked of this instance, None if nothing is, or nothing can be answered yet."""
        path = self._member.layout.trigger(self._member.id)
        asked = view.tree.get(path)
        if asked is None or view.obstructed(path) or not view.settled:
            return None
        parameter = asked.data.decode("utf-8", "replace") or None  # without data the configured one holds
        return Fire(self._duty.now(), FireSource.TRIGGER, parameter, (path, asked.stat.version), asked.stat.mzxid)

    async def _drop(self, fire: Fire) -> bool:
        """Remove a request that no claim removes; False if it is another by now, or has been taken."""
        if fire.request is not None:
            path, version = fire.request
            try:
                await self._member.session.commit([Delete(path, version)], incarnation=self._member.incarnation)
            except Conflict:  # the mirror has not heard of it yet
                return False
        return True

    def _put_off(self, items: Iterable[int], fire: Fire) -> None:
        """Run items later, for now they run elsewhere."""
        self._later.update(dict.fromkeys(items, fire))

    def _due(self, view: JobView) -> tuple[Fire, frozenset[int]] | None:
        """Return a fire that was put off, and the items that can be had for it now; tell of those that have moved."""
        held, fires = self._duty.held, self._later
        for item in [item for item in fires if item not in held]:
            fire = fires.pop(item)
            why = "it was asked for by hand, and moved to another instance before it could be run"
            self._duty.misses.put([item], Passed(fire.slot, fire.slot), why)
        ready = fires.keys() - self._duty.taken_off() - view.disabled_items
        if not ready or not view.settled or self._member.id not in view.eligible:
            return None
        parameter, asked = fires[min(ready)].parameter, fires[min(ready)].request_id
        alike = frozenset(
            item for item in ready if (fires[item].parameter, fires[item].request_id) == (parameter, asked)
        )
        for item in alike:
            del fires[item]
        return Fire(self._duty.now(), FireSource.TRIGGER, parameter, request_id=asked), alike
