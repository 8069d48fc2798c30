"""What a running application may ask of the jobs of its namespace, on its own session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Unpack

from aioelasticjob.engine.application import RunningApp
from aioelasticjob.errors import InvalidState
from aioelasticjob.registry.session import Session

if TYPE_CHECKING:
    from aioelasticjob.operations import Asked, OperationResult, RequestStatus, RunOptions


class Asking:
    """Asks for runs of any job of the namespace, also of jobs that other programs run."""

    _here: RunningApp

    async def trigger(
        self,
        name: str,
        parameter: str | Mapping[str, object] | None = None,
        **options: Unpack[RunOptions],
    ) -> Asked:
        """Ask for one run of a job's items, at once, ``at`` a time, or after a ``delay``: seconds, or ``"10m"``.

        The ``items`` are all if none are named.  The runs begin as soon as an instance can make them, however late that
        is, unless the request ``expires``: at a time, or so long after it is due.  A ``parameter`` replaces the job's
        parameter for these runs; a mapping is passed on as JSON, and is ``context.request`` there.  A second request
        with the same ``id`` is the same request, until 7 days after its end.

        Raises:
            TypeError: there is no such option.
            InvalidState: the application does not run.
            InvalidSetting: there is no such job, an argument makes no sense, or the job
                does not allow it: without ``monitor_execution`` only a whole job can be triggered, at once.
            NotPossible: nobody can answer it, or workers are too old for that.
            ChangedMeanwhile: others have changed the job meanwhile.
            RegistryError: the registry could not be read or written.
        """
        from aioelasticjob import operations

        session = self._session("trigger", name)
        return await operations.ask(session, name, parameter=parameter, by=session.host, **options)

    async def backfill(
        self,
        name: str,
        start: datetime,
        end: datetime,
        items_at_once: int | None = None,
        *,
        items: Iterable[int] | None = None,
        id: str | None = None,
    ) -> Asked:
        """Ask for runs of all scheduled moments from ``start`` (included) to ``end`` (not included, not after now).

        Each item runs its moments one after another, oldest first, in turns with the scheduled ones, with the source
        ``BACKFILL``.  Moments that ran before run again.  The schedule is the one of now.  At most ``items_at_once``
        items run at a time in the whole cluster.

        Raises: as ``trigger`` does.
        """
        from aioelasticjob import operations

        session = self._session("backfill", name)
        return await operations.backfill(
            session, name, start, end, items=items, items_at_once=items_at_once, id=id, by=session.host
        )

    async def rerun(
        self, name: str, fire_time: datetime, *, items: Iterable[int] | None = None, id: str | None = None
    ) -> Asked:
        """Ask for another run of one scheduled moment, which must be one of the schedule's: a backfill of one moment.

        Raises: as ``trigger`` does.
        """
        from aioelasticjob import operations

        session = self._session("rerun", name)
        return await operations.rerun(session, name, fire_time, items=items, id=id, by=session.host)

    async def requests(self, name: str) -> tuple[RequestStatus, ...]:
        """Return the requests of a job, and how far each has come; those that have ended are shown for a while.

        Raises:
            InvalidState: the application does not run.
            InvalidSetting: there is no such job.
            RegistryError: the registry could not be read.
        """
        from aioelasticjob import operations

        return await operations.requests(self._session("requests", name), name)

    async def cancel(self, name: str, *, item: int | None = None) -> OperationResult:
        """Stop the runs of a job that are under way, or the run of one item; they end as ``stopped``.

        They are neither rescued nor run again.  An item stays locked until its handler has returned, and until those of
        the other items that its instance runs have.

        Raises:
            InvalidState: the application does not run.
            InvalidSetting: there is no such job or item, or its execution is not
                monitored.
            NotPossible: nothing runs, or workers are too old for that.
            ChangedMeanwhile: others have changed the job meanwhile.
            RegistryError: the registry could not be read or written.
        """
        from aioelasticjob import operations

        session = self._session("cancel", name)
        return await operations.cancel(session, name, item=item, by=session.host)

    async def cancel_request(self, name: str, id: str) -> OperationResult:
        """Cancel a request: nothing more of it is begun.  Runs that have begun go on.

        Raises:
            InvalidState: the application does not run.
            InvalidSetting: there is no such job or request.
            ChangedMeanwhile: others have changed the request meanwhile.
            RegistryError: the registry could not be read or written.
        """
        from aioelasticjob import operations

        session = self._session("cancel_request", name)
        return await operations.cancel_request(session, name, id, by=session.host)

    def _session(self, what: str, job: str) -> Session:
        if self._here.session is None:
            raise InvalidState(f"{what} of {job}: the application must be running: this needs its session")
        return self._here.session
