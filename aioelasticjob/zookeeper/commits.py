"""Group commit: output waits for the disk, and what arrives while the disk works goes into the next commit."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from aioelasticjob.zookeeper.store import Changes, Store

Release = Callable[[], None]


class Commits:
    """Writes batches one after the other in a thread, and releases in order the output that depends on them."""

    def __init__(self, store: Store, executor: ThreadPoolExecutor, on_failure: Callable[[Exception], None]) -> None:
        self._store = store
        self._executor = executor
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._changes: Changes | None = None  # of the batch that gathers
        self._releases: list[Release] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self.failed = False

    def submit(self, changes: Changes | None, release: Release) -> None:
        """Have output released once these changes, and all before them, are on the disk."""
        if changes is not None:
            if self._changes is None:
                self._changes = changes
            else:
                self._changes.add(changes)
        self._releases.append(release)
        if self._idle.is_set():
            self._next()

    async def drain(self) -> None:
        """Wait until everything submitted is on the disk."""
        await self._idle.wait()

    def _next(self) -> None:
        changes = self._changes
        self._changes = None
        releases = self._releases
        self._releases = []
        if changes is None:
            # Nothing depends on the disk, or only what is there already.
            self._idle.set()
            for release in releases:
                release()
            return
        self._idle.clear()
        future = self._loop.run_in_executor(self._executor, self._store.commit, changes)
        future.add_done_callback(lambda done: self._committed(done, releases))

    def _committed(self, done: asyncio.Future[None], releases: list[Release]) -> None:
        error = done.exception()
        if error is not None:
            self.failed = True
            self._idle.set()
            self._on_failure(error if isinstance(error, Exception) else RuntimeError(str(error)))
            return
        for release in releases:
            release()
        self._next()
