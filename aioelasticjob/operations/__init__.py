"""What an operator may ask and do, with a session and nothing else."""

from aioelasticjob.operations.reading import (
    InstanceStatus,
    ItemStatus,
    JobStatus,
    Run,
    ServerStatus,
    dump,
    job,
    jobs,
    names,
)

__all__ = ["InstanceStatus", "ItemStatus", "JobStatus", "Run", "ServerStatus", "dump", "job", "jobs", "names"]
