"""Operations: the queries and actions of operators.  They need only a session, not the jobs' code."""

from aioelasticjob.core.processes import ProcessStatus
from aioelasticjob.operations.asking import (
    Asked,
    RunOptions,
    ask,
    cancel_request,
    items_in,
    pause_request,
    resume_request,
)
from aioelasticjob.operations.backfill import BackfillPlan, backfill, plan_backfill, rerun
from aioelasticjob.operations.calendars import (
    CalendarInUse,
    CalendarStatus,
    calendar,
    calendars,
    import_calendar,
    remove_calendar,
    set_calendar,
)
from aioelasticjob.operations.cancelling import cancel
from aioelasticjob.operations.consequences import SERVER_ACTIONS, ServerAction
from aioelasticjob.operations.creation import RemovalUnfinished, create, create_all, is_created, remove_created
from aioelasticjob.operations.instances import shut_down
from aioelasticjob.operations.labels import has_label, label_in, labelled
from aioelasticjob.operations.process_status import processes, processes_of, watch_processes
from aioelasticjob.operations.queries import dump, handler_processes, handlers, job, jobs, listed, names
from aioelasticjob.operations.removal import remove, remove_server
from aioelasticjob.operations.request_status import RequestStatus, ended, job_of_request, request, requests
from aioelasticjob.operations.results import ChangedMeanwhile, NotPossible, OperationResult
from aioelasticjob.operations.servers import (
    HostStatus,
    JobOnServer,
    RunOnServer,
    ServerDetails,
    by_server,
    flags_of,
    host_of,
    server,
    server_details,
)
from aioelasticjob.operations.settings import Preview, configure, preview
from aioelasticjob.operations.status import ActiveRun, InstanceStatus, ItemStatus, JobStatus, ServerStatus
from aioelasticjob.operations.switches import (
    disable,
    disable_server,
    enable,
    enable_server,
    pause,
    pause_server,
    resume,
    resume_server,
)
from aioelasticjob.operations.transfer import ImportedJob, export_jobs, import_jobs, preview_import
from aioelasticjob.operations.watching import StatusStream, watch, watch_all

__all__ = [
    "SERVER_ACTIONS",
    "ActiveRun",
    "Asked",
    "BackfillPlan",
    "CalendarInUse",
    "CalendarStatus",
    "ChangedMeanwhile",
    "HostStatus",
    "ImportedJob",
    "InstanceStatus",
    "ItemStatus",
    "JobOnServer",
    "JobStatus",
    "NotPossible",
    "OperationResult",
    "Preview",
    "ProcessStatus",
    "RemovalUnfinished",
    "RequestStatus",
    "RunOnServer",
    "RunOptions",
    "ServerAction",
    "ServerDetails",
    "ServerStatus",
    "StatusStream",
    "ask",
    "backfill",
    "by_server",
    "calendar",
    "calendars",
    "cancel",
    "cancel_request",
    "configure",
    "create",
    "create_all",
    "disable",
    "disable_server",
    "dump",
    "enable",
    "enable_server",
    "ended",
    "export_jobs",
    "flags_of",
    "handler_processes",
    "handlers",
    "has_label",
    "host_of",
    "import_calendar",
    "import_jobs",
    "is_created",
    "items_in",
    "job",
    "job_of_request",
    "jobs",
    "label_in",
    "labelled",
    "listed",
    "names",
    "pause",
    "pause_request",
    "pause_server",
    "plan_backfill",
    "preview",
    "preview_import",
    "processes",
    "processes_of",
    "remove",
    "remove_calendar",
    "remove_created",
    "remove_server",
    "request",
    "requests",
    "rerun",
    "resume",
    "resume_request",
    "resume_server",
    "server",
    "server_details",
    "set_calendar",
    "shut_down",
    "watch",
    "watch_all",
    "watch_processes",
]
