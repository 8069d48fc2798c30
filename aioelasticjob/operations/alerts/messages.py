"""Messages about alerts as error handlers are given them, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from aioelasticjob.config.links import console_link, filled_links
from aioelasticjob.error_handlers import AlertPart, Failure
from aioelasticjob.errors import FaultAlert
from aioelasticjob.ground.plural import counted
from aioelasticjob.ground.times import moment, time_text
from aioelasticjob.operations.alerts.kinds import KINDS
from aioelasticjob.operations.alerts.state import AlertState

NAMED_IN_SUBJECT: Final = 3
"""So many jobs the subject of a message about several alerts names."""


def failure_of(
    alerts: Sequence[AlertState],
    namespace: str,
    console_url: str,
    now: float,
    links: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Failure:
    """Return the message about one or more alerts; ``console_url`` is where the console shows the registry.

    ``links`` are those of the jobs, by job; a message about one alert has them.
    """
    parts = tuple(_part(alert, console_url) for alert in alerts)
    first = alerts[0]
    if len(alerts) == 1:
        job = first.job
        text = _sentence(first)
        note = _unreported(first)
    else:
        job = ""
        text = _summary(parts)
        note = "\n".join(filter(None, map(_untold_of_job, alerts)))
    return Failure(
        job=job,
        instance="",
        items=(),
        task_id="",
        fire_time="",
        error=FaultAlert(text),
        reported_at=now,
        what=first.kind,
        note=note,
        links=filled_links(links.get(job, {}), job=job, run_id=first.run_id),
        link=parts[0].link,
        namespace=namespace,
        alerts=parts,
    )


def _part(alert: AlertState, console_url: str) -> AlertPart:
    who = f"{alert.job}: " if alert.job else ""
    return AlertPart(
        kind=alert.kind,
        job=alert.job,
        status="firing" if alert.fires else "resolved",
        since=_time(alert.since),
        until="" if alert.resolved is None else _time(alert.resolved),
        text=f"{who}{_sentence(alert)}",
        link=console_link(console_url, alert.job, alert.run_id),
    )


def _sentence(alert: AlertState) -> str:
    kind = KINDS[alert.kind]
    if alert.resolved is not None:
        return f"{alert.kind} is over: {kind.over}, from {_time(alert.since)} to {_time(alert.resolved)}"
    verb = "goes on" if alert.notified is not None and alert.notified.since == alert.since else "began"
    return f"{alert.kind} {verb}: {alert.text}; since {_time(alert.since)}"


def _summary(parts: Sequence[AlertPart]) -> str:
    """Return the subject of a message about several alerts."""
    by_status = Counter(part.status for part in parts)
    numbers = ", ".join(f"{number} {status}" for status, number in sorted(by_status.items()))
    names = list(dict.fromkeys(f"{part.kind} {part.job}".rstrip() for part in parts))
    named = ", ".join(names[:NAMED_IN_SUBJECT])
    more = "" if len(names) <= NAMED_IN_SUBJECT else ", …"
    return f"{counted(len(parts), 'alert')} ({numbers}): {named}{more}"


def _unreported(alert: AlertState) -> str:
    """Return what no message has reported before, though one should have."""
    said = list[str]()
    if alert.trouble:
        said.append(f"{counted(alert.tries, 'attempt')} to deliver this failed, the last one because: {alert.trouble}.")
    if alert.resolved is not None and (alert.notified is None or alert.notified.since != alert.since):
        said.append("Nobody was notified when it began.")
    if alert.unreported:
        times = ", ".join(f"{_time(one.since)} to {_time(one.until)}" for one in alert.unreported)
        more = f", and {counted(alert.left_out, 'time')} before" if alert.left_out else ""
        said.append(f"It also fired at these times, which no message has reported yet: {times}{more}.")
    return " ".join(said)


def _untold_of_job(alert: AlertState) -> str:
    unreported = _unreported(alert)
    return f"{alert.key.name}: {unreported}" if unreported else ""


def _time(seconds: float) -> str:
    return time_text(moment(seconds))
