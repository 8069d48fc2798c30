"""What the console's tests share: a registry with a job, a console beside it, and people at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from anyio.abc import TaskGroup

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.console import Console, ConsoleSettings, RegistrySettings
from aioelasticjob.console.users.permissions import Role
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.errors import unwrapped
from aioelasticjob.operations import InstanceStatus
from tests.console.browsing import ada, chromium, nothing_goes_wrong_unseen, open_page, there, workers
from tests.console.client import PASSWORD, Browser, invitation_of
from tests.console.site import CHEAP, BentClock
from tests.observers.conftest import sqlite_url
from tests.support.embedded import EmbeddedServer

__all__ = ["ada", "chromium", "nothing_goes_wrong_unseen", "open_page", "sqlite_url", "there", "workers"]
"""Fixtures that other modules define."""

NEVER = "0 0 0 1 1 ? 2099"


@dataclass
class Scene:
    """A console and what it shows."""

    console: Console
    address: str
    clock: BentClock
    _tasks: TaskGroup
    runs: list[ItemContext] = field(default_factory=list)
    store: str | None = None
    """The event store of the console and of the jobs."""
    work: Callable[[], Awaitable[None]] | None = None
    """What each run does."""

    @property
    def registry(self) -> Any:
        found = self.console.state.registries.get("billing")
        assert found is not None
        return found

    async def seen(self, holds: Callable[[RegistrySnapshot], bool]) -> RegistrySnapshot:
        """Wait until the console sees what it should."""
        with anyio.fail_after(90):
            snapshot: RegistrySnapshot = await self.registry.snapshot.until(holds)
            return snapshot

    async def run_job(self, name: str = "report", **settings: Any) -> anyio.Event:
        """Run an instance of a job until the scene ends, or until the event returned is set."""
        app = ElasticJob(self.address, event_store=self.store)

        async def note(context: ItemContext) -> None:
            self.runs.append(context)
            if self.work is not None:
                await self.work()

        app.add(note, name=name, **{"cron": NEVER, "sharding_quiet": 0, **settings})
        leave, there = anyio.Event(), len(self.instances(name))

        async def run() -> None:
            async with app.running():
                await leave.wait()

        self._tasks.start_soon(run)
        await self.seen(lambda now: len(self.instances(name)) > there and now.jobs[name].settled)
        return leave

    def instances(self, name: str = "report") -> Sequence[InstanceStatus]:
        """Return the instances of a job that the console sees."""
        status = self.registry.snapshot.value.jobs.get(name)
        return () if status is None else status.instances

    async def operator(self, **traits: Any) -> Browser:
        """Return the administrator, who has set the first password or signs in with it."""
        browser = Browser(self.console, **traits)
        if self.console.state.invitation is not None:
            await browser.accept(invitation_of(self.console))
        else:
            await browser.sign_in()
        return browser

    async def viewer(self, **traits: Any) -> Browser:
        """Return somebody who may only look."""
        return await self.person("vera", Role.VIEWER, **traits)

    async def person(self, name: str, role: Role, **traits: Any) -> Browser:
        """Return somebody with a role who has signed in."""
        if self.console.state.invitation is not None:
            await self.operator()
        accounts = self.console.state.storage.accounts
        await accounts.accept(await accounts.invite(name, role), name, PASSWORD)
        browser = Browser(self.console, **traits)
        await browser.sign_in(name)
        return browser


Play = Callable[..., None]


@pytest.fixture
def play(embedded: EmbeddedServer, tmp_path: Path) -> Play:
    """Runs a scene: ``play(act)``, where ``act`` is a coroutine function of the scene; settings are the console's."""

    def play(act: Callable[[Scene], Awaitable[None]], **settings: Any) -> None:
        async def main() -> None:
            async with scene(f"zk://{embedded.address}/test-{uuid4().hex}", tmp_path / "data", **settings) as stage:
                await act(stage)

        asyncio.run(main())

    return play


@asynccontextmanager
async def scene(address: str, data: Path, **settings: Any) -> AsyncIterator[Scene]:
    """Open a console for one registry."""
    clock, store = BentClock(), settings.pop("event_store", None)
    registry = RegistrySettings("billing", address, event_store=store)
    console = Console(ConsoleSettings((registry,), data, **settings), clock=clock, hasher=CHEAP)
    with unwrapped():
        async with console.running(), anyio.create_task_group() as tasks:
            stage = Scene(console, address, clock, tasks, store=store)
            await stage.seen(lambda now: now.read)
            yield stage
            tasks.cancel_scope.cancel()
