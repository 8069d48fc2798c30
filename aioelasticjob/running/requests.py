"""What somebody asked for by hand.  The claim that runs it removes it, so it is neither lost nor run twice."""

from __future__ import annotations

from collections.abc import Iterable

from aioelasticjob.coordination.membership import Member
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import Conflict
from aioelasticjob.model import Fire, FireSource
from aioelasticjob.registry.txn import Delete
from aioelasticjob.running.duty import Duty
from aioelasticjob.running.schedule import Passed


class Requests:
    """The triggers of one instance, and the items that could not be had when theirs was answered."""

    def __init__(self, member: Member, duty: Duty) -> None:
        self._member, self._duty = member, duty
        self._put_off: dict[int, Fire] = {}

    def newest(self, view: JobView) -> Fire | None:
        """Return what is asked of this instance, None if nothing is, or nothing can be answered yet."""
        path = self._member.layout.trigger(self._member.id)
        asked = view.tree.get(path)
        if asked is None or view.obstructed(path) or not view.settled:
            return None
        parameter = asked.data.decode("utf-8", "replace") or None  # without data the configured one holds
        return Fire(self._duty.now(), FireSource.TRIGGER, parameter, (path, asked.stat.version), asked.stat.mzxid)

    async def drop(self, fire: Fire) -> bool:
        """Remove a request that no claim removes; False if it is another by now, or has been taken."""
        if fire.request is not None:
            path, version = fire.request
            try:
                await self._member.session.commit([Delete(path, version)], incarnation=self._member.incarnation)
            except Conflict:  # the mirror has not heard of it yet
                return False
        return True

    def put_off(self, items: Iterable[int], fire: Fire) -> None:
        """Run items later, for now they run elsewhere."""
        self._put_off.update(dict.fromkeys(items, fire))

    def due(self, view: JobView) -> tuple[Fire, frozenset[int]] | None:
        """Return a fire that was put off, and the items that can be had for it now; tell of those that have moved."""
        held, fires = self._duty.held, self._put_off
        for item in [item for item in fires if item not in held]:
            fire = fires.pop(item)
            why = "it was asked for by hand, and moved to another instance before it could be run"
            self._duty.misses.put([item], Passed(fire.slot, fire.slot), why)
        ready = fires.keys() - self._duty.taken_off() - view.disabled_items
        if not ready or not view.settled or self._member.id not in view.eligible:
            return None
        parameter, asked = fires[min(ready)].parameter, fires[min(ready)].asked
        alike = frozenset(item for item in ready if (fires[item].parameter, fires[item].asked) == (parameter, asked))
        for item in alike:
            del fires[item]
        return Fire(self._duty.now(), FireSource.TRIGGER, parameter, asked=asked), alike
