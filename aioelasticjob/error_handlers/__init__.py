"""What happens to a run's failure besides its outcome: log, ignore, raise, or tell somebody.

A handler is an async function of a failure and its options, found by name (entry points
``aioelasticjob.error_handlers`` add more).  Failures are put and never awaited: a mail server that is down delays no
job.
"""

from __future__ import annotations

from aioelasticjob.error_handlers.alerts import dingtalk, email, webhook, wecom
from aioelasticjob.error_handlers.complaints import Complaints
from aioelasticjob.error_handlers.failure import ErrorHandler, Failure, Options, Undelivered, escalate, ignore, to_log
from aioelasticjob.error_handlers.known import check, find

__all__ = [
    "Complaints",
    "ErrorHandler",
    "Failure",
    "Options",
    "Undelivered",
    "check",
    "dingtalk",
    "email",
    "escalate",
    "find",
    "ignore",
    "to_log",
    "webhook",
    "wecom",
]
