"""Items of ours that another instance still runs: they are waited for one by one, and are ours to run again then."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from anyio.abc import TaskGroup

from aioelasticjob.coordination.claims import Claims
from aioelasticjob.coordination.membership import Member, connected
from aioelasticjob.coordination.view import JobView
from aioelasticjob.errors import RegistryError, Suspended
from aioelasticjob.model import Fire, FireSource
from aioelasticjob.running.duty import Duty


class Waiting:
    """Waits until items run nowhere; ``freed`` is called whenever one does."""

    tasks: TaskGroup
    """Where the waiting is done."""

    def __init__(self, member: Member, duty: Duty, claims: Claims, freed: Callable[[], None]) -> None:
        self._member, self._duty, self._claims, self._freed = member, duty, claims, freed

    def follow(self, items: Iterable[int]) -> None:
        """Wait for each of these items."""
        for item in items:
            self.tasks.start_soon(self._until_free, item)

    async def refused(self, view: JobView, fire: Fire, items: frozenset[int]) -> None:
        """Let another instance finish what it runs of ours; then run the newest moment, if misfire is wanted."""
        scheduled = fire.source is not FireSource.TRIGGER  # which is put off
        if scheduled:
            self._duty.miss(items, fire, "another instance still runs it")
        if scheduled and not view.config.misfire:
            self._duty.pass_over(items)
        self._duty.elsewhere |= items
        self.follow(items)  # first of all: nothing else takes them back, should the mark fail
        if scheduled and view.config.misfire:
            await self._claims.mark_misfired(view, items, fire.slot)

    async def _until_free(self, item: int) -> None:
        await self._member.session.wait_deleted(self._member.layout.item(item).running)
        while item in self._duty.ledger.known():
            try:
                await self._duty.ledger.learn([item])  # before the offset, which is then the one that this run left
                await self._duty.offsets.learn([item])
                break
            except Suspended:  # what is known of it says that it runs: nothing would claim it
                if not await connected(self._member.session, self._member.incarnation):
                    return
            except RegistryError:
                return
        self._duty.freed(item)
        self._freed()
