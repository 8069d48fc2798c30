"""Ways to break created jobs on purpose, one at a time."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest import mock

from aioelasticjob import operations
from aioelasticjob.config.job import JobConfig
from aioelasticjob.engine import created_jobs
from aioelasticjob.operations.removal import remove
from aioelasticjob.operations.results import OperationResult
from aioelasticjob.registry.session import Session


def remove_at_once() -> AbstractContextManager[object]:
    """Remove a created job without waiting for its instances."""

    async def forced(session: Session, job: str, *, timeout: float | None = None, by: str = "") -> OperationResult:
        return await remove(session, job, force=True, by=by)

    return mock.patch.object(operations, "remove_created", forced)


def run_what_is_being_removed() -> AbstractContextManager[object]:
    """Go on with a job that is being removed."""
    return mock.patch.object(created_jobs, "is_being_removed", return_value=False)


def write_what_was_removed() -> AbstractContextManager[object]:
    """Write the configuration of a created job again that was removed while a process was away."""
    return mock.patch.object(JobConfig, "is_created", False)


def hear_of_no_new_jobs() -> AbstractContextManager[object]:
    """Look at the index of a handler once, and never again."""
    note_changes = created_jobs._JobsOfHandler._note_changes

    def once(self: created_jobs._JobsOfHandler) -> None:
        if not self.first_look.is_set():
            note_changes(self)

    return mock.patch.object(created_jobs._JobsOfHandler, "_note_changes", once)


def publish_once() -> AbstractContextManager[object]:
    """Say in the first session only that the process has a handler."""
    publish = created_jobs._JobsOfHandler._write_note

    async def write_note(self: created_jobs._JobsOfHandler, incarnation: int) -> None:
        if not self.first_note.is_set():
            await publish(self, incarnation)

    return mock.patch.object(created_jobs._JobsOfHandler, "_write_note", write_note)
