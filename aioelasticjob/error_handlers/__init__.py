"""Error handlers: a run's failure is logged, ignored, raised, or sent to people as an alert.

An error handler is an async function of a failure and its options.  A job's configuration names it; packages add more
by entry points ``aioelasticjob.error_handlers``.  Jobs put failures into a queue and never wait for a handler, so a
mail server that is down delays no job.
"""

from __future__ import annotations

from aioelasticjob.error_handlers.alerts import dingtalk, email, webhook, wecom
from aioelasticjob.error_handlers.dispatcher import ErrorDispatcher, call_handler
from aioelasticjob.error_handlers.failure import (
    AlertPart,
    ErrorHandler,
    Failure,
    Options,
    Undelivered,
    escalate,
    ignore,
    to_log,
)
from aioelasticjob.error_handlers.lookup import check, find

__all__ = [
    "AlertPart",
    "ErrorDispatcher",
    "ErrorHandler",
    "Failure",
    "Options",
    "Undelivered",
    "call_handler",
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
