"""Operations: the queries and actions of operators.  They need only a session, not the jobs' code."""

from aioelasticjob.operations.acting import (
    disable,
    disable_server,
    enable,
    enable_server,
    pause,
    pause_server,
    resume,
    resume_server,
    shut_down,
    trigger,
)
from aioelasticjob.operations.changing import Preview, configure, preview
from aioelasticjob.operations.outcome import ChangedMeanwhile, Done, Refusal
from aioelasticjob.operations.reading import dump, job, jobs, listed, names
from aioelasticjob.operations.removing import remove, remove_server
from aioelasticjob.operations.status import (
    HostStatus,
    InstanceStatus,
    ItemStatus,
    JobStatus,
    Run,
    ServerStatus,
    by_server,
)
from aioelasticjob.operations.transfer import export_jobs, import_jobs
from aioelasticjob.operations.watching import Newest, watch, watch_all

__all__ = [
    "ChangedMeanwhile",
    "Done",
    "HostStatus",
    "InstanceStatus",
    "ItemStatus",
    "JobStatus",
    "Newest",
    "Preview",
    "Refusal",
    "Run",
    "ServerStatus",
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
