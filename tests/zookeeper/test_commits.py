"""Group commit: what waits for the disk, what does not, and in which order."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from aioelasticjob.zookeeper.commits import Commits
from aioelasticjob.zookeeper.store import Changes, Store


class SlowDisk:
    """A store whose commits wait to be let through."""

    def __init__(self, error: Exception | None = None) -> None:
        self.commits: list[list[int]] = []
        self.through = threading.Semaphore(0)
        self._error = error

    def commit(self, changes: Changes) -> None:
        self.through.acquire(timeout=90)
        if self._error is not None:
            raise self._error
        self.commits.append(sorted(changes.sessions))


def run(disk: SlowDisk, story: Callable[[Commits, list[Exception]], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        failures: list[Exception] = []
        with ThreadPoolExecutor(1) as executor:
            try:
                await story(Commits(cast("Store", disk), executor, failures.append), failures)
            finally:
                disk.through.release(100)

    asyncio.run(main())


def test_output_without_changes_goes_out_at_once() -> None:
    async def story(commits: Commits, _: list[Exception]) -> None:
        released: list[int] = []
        commits.submit(None, lambda: released.append(1))
        assert released == [1]

    run(SlowDisk(), story)


def test_what_arrives_while_the_disk_works_goes_into_the_next_commit_and_nothing_overtakes() -> None:
    disk = SlowDisk()

    async def story(commits: Commits, _: list[Exception]) -> None:
        released: list[int] = []
        commits.submit(Changes(1, {}, {1: 1}), lambda: released.append(1))
        commits.submit(Changes(2, {}, {2: 1}), lambda: released.append(2))
        commits.submit(None, lambda: released.append(3))
        commits.submit(Changes(3, {}, {4: 1}), lambda: released.append(4))
        assert released == []
        disk.through.release(2)
        await commits.drain()
        assert released == [1, 2, 3, 4]
        assert disk.commits == [[1], [2, 4]]

    run(disk, story)


def test_a_read_waits_for_the_write_it_may_have_seen() -> None:
    disk = SlowDisk()

    async def story(commits: Commits, _: list[Exception]) -> None:
        released: list[str] = []
        commits.submit(Changes(1, {}, {1: 1}), lambda: released.append("write"))
        commits.submit(None, lambda: released.append("read"))
        assert released == []
        disk.through.release()
        await commits.drain()
        assert released == ["write", "read"]

    run(disk, story)


def test_nothing_is_acknowledged_once_the_disk_failed() -> None:
    disk = SlowDisk(OSError("disk full"))

    async def story(commits: Commits, failures: list[Exception]) -> None:
        released: list[int] = []
        commits.submit(Changes(1, {}, {1: 1}), lambda: released.append(1))
        commits.submit(Changes(2, {}, {2: 1}), lambda: released.append(2))
        disk.through.release(2)
        await commits.drain()
        assert released == []
        assert [str(failure) for failure in failures] == ["disk full"]
        assert commits.failed

    run(disk, story)
