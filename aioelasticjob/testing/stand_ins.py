"""What simulated processes have in place of the real world: an application each, and no threads or processes."""

from __future__ import annotations

import contextvars
import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

from anyio import from_thread, to_thread

from aioelasticjob.app import ElasticJob
from aioelasticjob.engine import application
from aioelasticjob.engine.application import RunningApp
from aioelasticjob.engine.executors import OwnExecutors, Processes
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.jobs.dependencies import Provider
from aioelasticjob.registry.addresses import Address
from aioelasticjob.registry.session import ConnectionSettings
from aioelasticjob.testing.errors import refusing
from aioelasticjob.testing.loop import VirtualClock

started_app: contextvars.ContextVar[tuple[ElasticJob, ElasticJob] | None] = contextvars.ContextVar(
    "started", default=None
)
"""In the code of a simulated process: the application that the test has started, and the one that the process runs."""


def stand_in(
    app: ElasticJob,
    settings: ConnectionSettings,
    overrides: Mapping[Provider, Provider],
    jobs: Iterable[str] | None = None,
) -> ElasticJob:
    """Return the same application as another process would have it: all that it does at run time is its own.

    Raises: InvalidSetting when the application has no job of a name in ``jobs``.
    """
    twin = copy.copy(app)
    twin._registry = Address(settings.address, settings)
    declared = app._here.declared
    here = RunningApp(VirtualClock())  # no event store, no endpoint: databases and ports are of the real world
    here.declared = dict(declared)
    here.handlers = dict(app._here.handlers)
    twin._here = here
    if jobs is not None:
        names = frozenset[str]() if isinstance(jobs, str) else frozenset(jobs)
        if isinstance(jobs, str) or not names <= declared.keys():
            raise InvalidSetting("jobs", jobs, f"must be a list of names of its jobs: {', '.join(sorted(declared))}")
        here.declared = {name: job for name, job in declared.items() if name in names}
        twin._from_outside = None  # the settings file is applied already, and may name the jobs that are left out
    twin.dependency_overrides = {**app.dependency_overrides, **overrides}
    return twin


class _OfTheProcess:
    """What an application is in one process.

    Handlers name the application that their module declares, as in ``app.trigger(…)``.  The test has started it, and
    each process runs a stand-in, so code of a process that names it means the stand-in.
    """

    def __get__(self, app: ElasticJob, _: type[ElasticJob]) -> RunningApp:
        started, own = started_app.get() or (None, None)
        meant = own if app is started else app
        here: RunningApp = vars(meant)["_here"]
        return here

    def __set__(self, app: ElasticJob, here: RunningApp) -> None:
        vars(app)["_here"] = here


@contextmanager
def real_world_replaced() -> Iterator[None]:
    """Call in the loop a function that would run in a thread, a process or an executor: they cannot be simulated."""

    async def run_sync(function: Callable[..., Any], *args: Any, **_options: Any) -> Any:
        return contextvars.copy_context().run(function, *args)

    async def call(_processes: Processes, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return contextvars.copy_context().run(functools.partial(function, *args, **named))

    async def call_own(
        _own: OwnExecutors, _name: str, _job: str, function: Callable[..., Any], *args: Any, **named: Any
    ) -> Any:
        return contextvars.copy_context().run(functools.partial(function, *args, **named))

    def call_in_loop(function: Callable[..., Any], *args: Any, **_options: Any) -> Any:
        return function(*args)

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(to_thread, "run_sync", run_sync))
        patches.enter_context(mock.patch.object(from_thread, "run_sync", call_in_loop))
        patches.enter_context(mock.patch.object(from_thread, "run", refusing("from_thread.run")))
        # Nothing can cancel a run while its function is called in the loop.
        patches.enter_context(mock.patch.object(from_thread, "check_cancelled", return_value=None))
        patches.enter_context(mock.patch.object(Processes, "call", call))
        patches.enter_context(mock.patch.object(Processes, "prepare"))
        patches.enter_context(mock.patch.object(OwnExecutors, "call", call_own))
        patches.enter_context(mock.patch.object(ElasticJob, "_here", _OfTheProcess(), create=True))
        patches.enter_context(mock.patch.object(application, "watchdog", nullcontext))  # no loop is blocked in here
        yield
