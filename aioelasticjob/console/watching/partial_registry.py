"""A part of a registry: what somebody sees of it who may see only its jobs with some labels.

Pages are given a part in place of the whole registry.  So everything on them, also counts, is about these jobs alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar

from aioelasticjob.clock import Clock
from aioelasticjob.console.settings import RegistrySettings
from aioelasticjob.console.watching.instance_log import InstanceLog
from aioelasticjob.console.watching.palette import Palette
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot, RegistryWatch
from aioelasticjob.ground.latest import Latest
from aioelasticjob.observers.missed import MissedMoments
from aioelasticjob.operations import JobStatus, ProcessStatus
from aioelasticjob.operations.labels import has_label, label_in
from aioelasticjob.operations.observed_runs import ObservedRun
from aioelasticjob.operations.process_status import processes_of
from aioelasticjob.registry.session import Session

if TYPE_CHECKING:
    from aioelasticjob.console.watching.store_watch import StoreSnapshot, StoreWatch
    from aioelasticjob.observers.sql import EventStore

T = TypeVar("T")


class SeenStore(Protocol):
    """The event store of a registry, or of a part of it, as pages use it."""

    @property
    def store(self) -> EventStore:
        """The store."""
        ...

    @property
    def snapshot(self) -> StoreSnapshot:
        """What it answered last."""
        ...

    def answering(self) -> EventStore:
        """Return the store for a query of a page, which is not to wait for one that does not answer.

        Raises:
            ElasticJobError: it did not answer when it was last asked.
        """
        ...


class SeenRegistry(Protocol):
    """A registry, or a part of it, as pages use it."""

    epoch: str
    settings: RegistrySettings
    snapshot: Latest[RegistrySnapshot]
    instances: InstanceLog

    @property
    def runs(self) -> Mapping[str, deque[ObservedRun]]:
        """By job, its newest runs."""
        ...

    @property
    def missed(self) -> Mapping[str, deque[MissedMoments]]:
        """By job, the moments that the console has seen reported as missed."""
        ...

    @property
    def palettes(self) -> Mapping[str, Palette]:
        """By job, the colours of its instances."""
        ...

    @property
    def store(self) -> SeenStore | None:
        """The history of its runs; None without an event store."""
        ...

    @property
    def store_problem(self) -> str | None:
        """Why the event store that the settings name cannot be used at all."""
        ...

    @property
    def session(self) -> Session:
        """The session to act with.

        Raises:
            Suspended: the registry is not there.
        """
        ...

    def touch(self, jobs: Iterable[str]) -> None:
        """Let the pages render some jobs again."""
        ...


class PartialRegistry:
    """The jobs of a registry that have one of some labels, such as ``team=billing``."""

    def __init__(self, whole: RegistryWatch, labels: frozenset[str], clock: Clock) -> None:
        self.settings = whole.settings
        self.epoch = whole.epoch
        self.instances = InstanceLog()
        self._whole = whole
        self._labels = [label_in(label) for label in labels]
        self._clock = clock
        self.snapshot = Latest(self._part(whole.snapshot.value))
        self._log_instances()
        whole.snapshot.listen(self._renew)

    def is_of(self, whole: RegistryWatch) -> bool:
        """Whether it is a part of this registry: another one of the same name may have been added since."""
        return self._whole is whole

    @property
    def runs(self) -> Mapping[str, deque[ObservedRun]]:
        """By job, its newest runs."""
        return self._of_jobs(self._whole.runs)

    @property
    def missed(self) -> Mapping[str, deque[MissedMoments]]:
        """By job, the moments that the console has seen reported as missed."""
        return self._of_jobs(self._whole.missed)

    @property
    def palettes(self) -> Mapping[str, Palette]:
        """By job, the colours of its instances."""
        return self._of_jobs(self._whole.palettes)

    @property
    def store(self) -> PartialStore | None:
        """The history of its runs; None without an event store."""
        whole = self._whole.store
        return None if whole is None else PartialStore(whole, frozenset(self.snapshot.value.jobs))

    @property
    def store_problem(self) -> str | None:
        """Why the event store that the settings name cannot be used at all."""
        return self._whole.store_problem

    @property
    def session(self) -> Session:
        """The session to act with.

        Raises:
            Suspended: the registry is not there.
        """
        return self._whole.session

    def touch(self, jobs: Iterable[str]) -> None:
        """Let the pages render some jobs again."""
        self._whole.touch(jobs)

    def _renew(self) -> None:
        before = self.snapshot.value
        self.snapshot.set(self._part(self._whole.snapshot.value))
        if self.snapshot.value.jobs != before.jobs:
            self._log_instances()

    def _log_instances(self) -> None:
        now = self.snapshot.value
        if now.read:
            self.instances.update(tuple(now.jobs.values()), self._clock.now())

    def _part(self, whole: RegistrySnapshot) -> RegistrySnapshot:
        jobs = {name: status for name, status in whole.jobs.items() if self._shows(status)}
        changed = {name: whole.changed[name] for name in jobs}
        processes = dict[str, ProcessStatus]()
        for status in jobs.values():
            processes |= {one.id: one for one in processes_of(status, whole.processes)}
        return replace(
            whole,
            jobs=MappingProxyType(jobs),
            changed=MappingProxyType(changed),
            processes=tuple(_without_other_jobs(one, jobs) for one in processes.values()),
            alerts=tuple(one for one in whole.alerts if not one.job or one.job in jobs),
        )

    def _shows(self, status: JobStatus) -> bool:
        return any(has_label(status, label) for label in self._labels)

    def _of_jobs(self, found: Mapping[str, T]) -> Mapping[str, T]:
        return {name: found[name] for name in self.snapshot.value.jobs if name in found}


class PartialStore:
    """The rows of some jobs in the event store of a registry."""

    def __init__(self, whole: StoreWatch, jobs: frozenset[str]) -> None:
        self._whole = whole
        self._jobs = jobs

    @property
    def store(self) -> EventStore:
        """The store, of which every query finds only these rows."""
        return self._whole.store.of_jobs(self._jobs)

    @property
    def snapshot(self) -> StoreSnapshot:
        """What it answered last."""
        return self._whole.snapshot.of_jobs(self._jobs)

    def answering(self) -> EventStore:
        """Return the store for a query of a page, which is not to wait for one that does not answer.

        Raises:
            ElasticJobError: it did not answer when it was last asked.
        """
        self._whole.answering()
        return self.store


def _without_other_jobs(process: ProcessStatus, jobs: Mapping[str, object]) -> ProcessStatus:
    """Return what a process says of itself without what it says of other jobs."""
    left = tuple(one for one in process.problems.refused if one.job in jobs)
    return replace(process, problems=replace(process.problems, refused=left))
