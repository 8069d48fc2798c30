"""Operations: the queries and actions of operators.  They need only a session, not the jobs' code."""

from aioelasticjob.operations.actions import shut_down, trigger
from aioelasticjob.operations.queries import dump, job, jobs, listed, names
from aioelasticjob.operations.removal import remove, remove_server
from aioelasticjob.operations.results import ChangedMeanwhile, NotPossible, OperationResult
from aioelasticjob.operations.settings import Preview, configure, preview
from aioelasticjob.operations.status import (
    ActiveRun,
    HostStatus,
    InstanceStatus,
    ItemStatus,
    JobStatus,
    ServerStatus,
    by_server,
)
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
from aioelasticjob.operations.transfer import export_jobs, import_jobs
from aioelasticjob.operations.watching import StatusStream, watch, watch_all

__all__ = [
    "ActiveRun",
    "ChangedMeanwhile",
    "HostStatus",
    "InstanceStatus",
    "ItemStatus",
    "JobStatus",
    "NotPossible",
    "OperationResult",
    "Preview",
    "ServerStatus",
    "StatusStream",
    "by_server",
    "configure",
    "disable",
    "disable_server",
    "dump",
    "enable",
    "enable_server",
    "export_jobs",
    "import_jobs",
    "job",
    "jobs",
    "listed",
    "names",
    "pause",
    "pause_server",
    "preview",
    "remove",
    "remove_server",
    "resume",
    "resume_server",
    "shut_down",
    "trigger",
    "watch",
    "watch_all",
]
