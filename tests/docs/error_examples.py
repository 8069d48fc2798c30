"""One error of each class, made as the code that raises it makes it: the pages of errors show their texts."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aioelasticjob.cli.target import ImportFailed
from aioelasticjob.config.job import JobConfig
from aioelasticjob.console.connections.live_pages import LivePageLimits, LivePages, Reader, Turn
from aioelasticjob.console.storage.database import DatabaseUnwritable, DataUnusable
from aioelasticjob.console.users.accounts import InvitationSpent, LastAdmin
from aioelasticjob.core.foreign import leave_alone
from aioelasticjob.core.layout import Layout
from aioelasticjob.core.reasons import BUSY
from aioelasticjob.demo.cluster import Stalled
from aioelasticjob.demo.database import Superseded
from aioelasticjob.demo.processes import ProcessEnded
from aioelasticjob.demo.show import BrokenOff
from aioelasticjob.demo.snapshot import Item, Snapshot
from aioelasticjob.engine.executors import ProcessDied
from aioelasticjob.engine.process_worker import Unsendable
from aioelasticjob.error_handlers.failure import Undelivered
from aioelasticjob.errors import (
    AuthenticationFailed,
    ClockSkew,
    Conflict,
    ElasticJobError,
    FaultAlert,
    Fenced,
    GivenUp,
    InvalidState,
    JobConflict,
    MissedRuns,
    NodeTooLarge,
    NotAnException,
    OutcomeUnknown,
    RegistryUnreachable,
    Suspended,
)
from aioelasticjob.host.guard import Unguarded
from aioelasticjob.jobs.dataflow import RecordFailed, TooManyFailures
from aioelasticjob.jobs.dependencies import ProviderFailed
from aioelasticjob.jobs.http import RequestFailed
from aioelasticjob.jobs.script import ScriptFailed, ScriptStillRuns
from aioelasticjob.observers.sql.store import EventStoreUnreachable
from aioelasticjob.operations.calendars import CalendarInUse
from aioelasticjob.operations.creation import RemovalUnfinished
from aioelasticjob.operations.results import ChangedMeanwhile, NotPossible
from aioelasticjob.registry import tls
from aioelasticjob.registry.certificates import read
from aioelasticjob.registry.codec import failure
from aioelasticjob.registry.connection import CLOSED
from aioelasticjob.registry.group_commit import HOW_TO_FIND_OUT
from aioelasticjob.registry.tls import TlsSettings
from aioelasticjob.registry.tree import UNREAD_NODE, Node, Tree
from aioelasticjob.settings import Mistake, WrongSettings
from tests.support.java_trees import CONFIG_2

SERVER = "zk1:2281"
OURS = TlsSettings(certificate="/etc/billing/client.pem")
CONFIG = "/billing/report/config"
REPORT = Layout("report")
NO_SERVER = "[Errno 111] Connect call failed ('10.0.0.7', 2181)"
LOGS = Path("/tmp/aioelasticjob-demo-1f3b")


def raised(call: Callable[..., Any], *arguments: Any, **named: Any) -> ElasticJobError:
    """Return the error that a call raises."""
    with pytest.raises(ElasticJobError) as error:
        call(*arguments, **named)
    return error.value


def refused(reason: str) -> ssl.SSLError:
    """Return what Python raises if the server has answered the handshake with an alert."""
    error = ssl.SSLError()
    error.reason = reason
    return error


def explained(reason: str) -> ElasticJobError:
    """Return the error for such an alert, if we have shown a certificate."""
    error = tls.explained(refused(reason), OURS, SERVER)
    assert error is not None
    return error


async def one_live_page_too_many() -> ElasticJobError:
    """Return the error for a page beyond the 300 from one address."""
    pages, most = LivePages(LivePageLimits()), LivePageLimits().per_address
    readers = [Reader(f"session {number}", "10.0.0.9", is_operator=False) for number in range(most + 1)]
    with ExitStack() as opened:
        for reader in readers[:most]:
            opened.enter_context(pages.opened(reader, Turn()))
        return raised(opened.enter_context, pages.opened(readers[most], Turn()))


def not_moving() -> Stalled:
    return Stalled(LOGS, Snapshot("", 75.0, 310, 620, (), (Item(2, "worker 1", "worker 1", 64.0, 310, 620),), ()))


ERRORS = (
    raised(JobConfig.build, job_name="report", cron="* * * * * ?", sharding_total_count=0),
    WrongSettings([Mistake("jobs.yaml", 6, "defaults.time_zone", "Europe/Berln", "did you mean 'Europe/Berlin'?")]),
    JobConflict("job_name", "report", "is already a SCRIPT job in this namespace: choose another name"),
    raised(leave_alone, Tree({REPORT.config: Node.of(CONFIG_2, UNREAD_NODE.stat)}), REPORT),
    ImportFailed("shop.jobs", "shop/jobs.py:3", "No module named 'httpx'"),
    failure(-125, "/billing/report/execution/2/running"),
    RegistryUnreachable("zk1:2181", 15, NO_SERVER),
    tls.unencrypted(SERVER),
    raised(read, "/etc/billing/ca.pem", "tls.ca"),
    explained("SSLV3_ALERT_CERTIFICATE_EXPIRED"),
    explained("TLSV1_ALERT_UNKNOWN_CA"),
    AuthenticationFailed("the digest does not open /billing: check user and password"),
    failure(-102, CONFIG),
    failure(-112, CONFIG),
    Suspended(f"no connection to the registry ({NO_SERVER}), after 3 retries"),
    failure(-127, CONFIG),
    Fenced(2),
    OutcomeUnknown(f"the connection was lost ({CLOSED}) before the reply: {HOW_TO_FIND_OUT}"),
    failure(-101, CONFIG),
    NodeTooLarge(CONFIG, 2_000_000, 1_000_000),
    Conflict(0, CONFIG, "version"),
    InvalidState("this application runs already: enter app.running() once"),
    ClockSkew(timedelta(seconds=7.2), timedelta(seconds=5)),
    NotAnException("the handler", SystemExit(3), is_cancelled=False),
    GivenUp(3, "10.0.0.5@-@7-0a1b2c3d"),
    MissedRuns(f"item 2 missed the run of 2026-11-20T02:00:00+00:00: {BUSY}; it is not run", BUSY),
    FaultAlert(
        "nobody-there began: no instance is up: its runs are missed, the next one at 2026-11-20T02:00:00+00:00;"
        " since 2026-11-20T01:00:00+00:00"
    ),
    ProcessDied("shop.report", -9),
    Unguarded("[Errno 12] Cannot allocate memory"),
    Unsendable("the result cannot be pickled: TypeError: cannot pickle '_thread.lock' object"),
    ProviderFailed("database", ConnectionRefusedError(111, "Connection refused")),
    ScriptFailed("cannot start './backup.sh': Permission denied (see execve(2))"),
    ScriptStillRuns("the script could not be killed"),
    RequestFailed("POST https://shop.example/close answered 503, expected 2xx: try later", 503),
    RecordFailed(),
    TooManyFailures(11, 10),
    Undelivered("e-mail through mail.example.org: [Errno 111] Connection refused"),
    EventStoreUnreachable("sqlite:///events.db", "OperationalError: database is locked"),
    ChangedMeanwhile(CONFIG, "was changed"),
    NotPossible("report: is paused: resume it first"),
    CalendarInUse("de-holidays", ["report"]),
    RemovalUnfinished("report-17", "10.0.0.7@-@4711-1a2b3c4d runs item 0", 60),
    InvitationSpent("this link has been used or has expired"),
    LastAdmin("nobody would be left who may let others in"),
    asyncio.run(one_live_page_too_many()),
    DataUnusable(Path("/var/lib/console"), "[Errno 13] Permission denied: '/var/lib/console'"),
    DatabaseUnwritable("database or disk is full"),
    not_moving(),
    ProcessEnded("worker 2", -9, "", LOGS / "worker-2.log"),
    Superseded(2, 17, 18),
    BrokenOff(OSError(28, "No space left on device")),
)

EXAMPLES = {type(error): error for error in ERRORS}
