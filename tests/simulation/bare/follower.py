"""What shows a job of the bare simulation the registry."""

from __future__ import annotations

from collections.abc import Callable, Collection

from aioelasticjob.latest import Latest
from aioelasticjob.registry.tree import Tree
from tests.simulation.bare.session import BareSession


class BareFollower:
    """Follows the tree as the package's own follower does, without its reads."""

    def __init__(
        self, session: BareSession, _roots: Collection[str], _shallow: Collection[str], _news: Callable[[], None]
    ) -> None:
        self._session = session
        self.trees = Latest(Tree())
        self._closed = self._caught_up = False
        session.trees.listen(self._show)

    @property
    def has_read(self) -> bool:
        """Whether something has been seen."""
        return self._caught_up

    @property
    def is_behind(self) -> bool:
        """Whether nothing has been seen yet."""
        return not self._caught_up

    async def catch_up(self) -> None:
        """Wait until there is something to see for the first time; after that every change is shown at once."""
        while not self._caught_up:
            newest = self._session.trees.value
            if not newest.outdated and len(newest):
                self._caught_up = True
                self._show()
            else:
                self._session.hear()
                await self._session.trees.changed()

    def close(self) -> None:
        """Show nothing any more."""
        self._closed = True

    def _show(self) -> None:
        if self._caught_up and not self._closed:
            self.trees.set(self._session.trees.value)
