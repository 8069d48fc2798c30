"""A job's status as JSON: Elastic-Job's camelCase keys, times in ISO 8601."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from aioelasticjob import operations
from aioelasticjob.core.pauses import Pause
from aioelasticjob.ground.times import moment
from aioelasticjob.model import Record
from aioelasticjob.observers.missed import total_of
from aioelasticjob.operations import (
    Asked,
    HostStatus,
    InstanceStatus,
    ItemStatus,
    JobOnServer,
    JobStatus,
    OperationResult,
    Preview,
    ProcessStatus,
    RunOnServer,
    ServerDetails,
    ServerStatus,
)
from aioelasticjob.operations.attention import missed_of

Json: TypeAlias = dict[str, object]


def summary_as_json(status: JobStatus, processes: Iterable[ProcessStatus] | None = None) -> Json:
    """Return the summary of a job, for lists, with what its processes cannot do."""
    config = status.config
    return {
        "jobName": config.job_name,
        "jobType": config.job_type,
        "labels": config.labels,
        "schedule": None if status.schedule is None else status.schedule.expression,
        "cron": config.cron,
        "after": list(config.after),
        "timeZone": config.time_zone,
        "shardingTotalCount": config.sharding_total_count,
        "instances": len(status.instances),
        "runningItems": [item.item for item in status.running],
        "state": status.state,
        "foreign": status.foreign,
        "fault": status.fault,
        "leader": status.leader,
        "nextFireTime": status.next_fire,
        "lastRun": None if status.last is None else _record(status.last),
        "orphanedItems": [item.item for item in status.orphans],
        "blockedItems": [item.item for item in status.blocked],
        "misfiredItems": [item.item for item in status.misfired],
        "missedMoments": total_of(missed_of(status)).number,
        "configVersion": status.config_version,
        **_problems(status, processes),
    }


def job_as_json(status: JobStatus, processes: Iterable[ProcessStatus] | None = None) -> Json:
    """Return the whole status of a job, with what its processes cannot do."""
    return {
        "jobName": status.name,
        "state": status.state,
        "paused": status.paused,
        **_pause(status.pause),
        "foreign": status.foreign,
        "fault": status.fault,
        "leader": status.leader,
        "settled": status.settled,
        "nextFireTime": status.next_fire,
        "configVersion": status.config_version,
        "config": status.config.as_json(),
        "ignored": status.ignored,
        "instances": [_instance(one) for one in status.instances],
        "servers": [_server(one) for one in status.servers],
        "items": [_item(one) for one in status.items],
        **_problems(status, processes),
    }


def _pause(pause: Pause | None) -> Json:
    """Return since when something is paused, until when, by whom and why, as far as that is known."""
    return {
        "pausedSince": None if pause is None else moment(pause.since),
        "pausedUntil": None if pause is None or not pause.ends else moment(pause.until),
        "pausedBy": "" if pause is None else pause.by,
        "pauseNote": "" if pause is None else pause.note,
    }


def host_as_json(host: HostStatus) -> Json:
    """Return the status of one server over all jobs."""
    return {
        "ip": host.ip,
        "host": host.host,
        "jobs": host.jobs,
        "instances": host.instances,
        "items": host.holds,
        "disabled": host.disabled,
        "paused": host.paused,
        **_pause(host.pause),
        "disabledIn": host.disabled_in,
        "pausedIn": host.paused_in,
        "runs": host.runs,
    }


def server_as_json(server: ServerDetails) -> Json:
    """Return the status of one server with each of its jobs."""
    return {
        **host_as_json(server.host),
        "flags": [{"flag": flag, "since": since} for flag, since in server.flags],
        "processSuccessCount": server.succeeded,
        "processFailureCount": server.failed,
        "jobs": [_job_on_server(job) for job in server.jobs],
        "runs": [_run_on_server(run) for run in server.runs],
    }


def done_as_json(done: OperationResult) -> Json:
    """Return the result of an action."""
    asked = {"request": done.request} if isinstance(done, Asked) and done.request else {}
    return {"summary": done.summary, "changed": done.changed, "paths": done.paths, "zxid": done.zxid, **asked}


def preview_as_json(preview: Preview) -> Json:
    """Return the preview of a change."""
    return {
        "changed": {name: {"before": before, "after": after} for name, (before, after) in preview.changed.items()},
        "nextFireTimes": preview.next_fires,
        "moves": {item: {"from": source, "to": target} for item, (source, target) in preview.moves.items()},
        "warnings": preview.warnings,
        "configVersion": preview.version,
    }


def _problems(status: JobStatus, processes: Iterable[ProcessStatus] | None) -> Json:
    """Return what the processes of a job cannot do; nothing if they were not read."""
    if processes is None:
        return {}
    found = operations.processes_of(status, processes)
    said = [{"process": one.id, "host": one.host, "pid": one.pid, **one.problems.as_json()} for one in found]
    return {"processProblems": said}


def _instance(one: InstanceStatus) -> Json:
    return {
        "id": one.id,
        "ip": one.ip,
        "host": one.host,
        "pid": one.pid,
        "joined": one.joined,
        "leader": one.leads,
        "holds": one.holds,
        "runs": one.runs,
        "leaving": one.leaving,
        "lacks": one.lacks,
        "handler": one.handler,
        "differs": one.differs,
        "refused": one.refused,
        "clockDiffers": one.clock_differs,
        "unusable": one.unusable or None,
        "zoneDatabase": None if one.zone_rules is None else one.zone_rules.database,
        "incarnation": one.incarnation,
    }


def _server(one: ServerStatus) -> Json:
    return {
        "ip": one.ip,
        "host": one.host,
        "disabled": one.disabled,
        "paused": one.paused,
        "disabledInAllJobs": one.disabled_everywhere,
        "pausedInAllJobs": one.paused_everywhere,
        **_pause(one.pause),
        "instances": one.instances,
        "processSuccessCount": one.succeeded,
        "processFailureCount": one.failed,
    }


def _job_on_server(job: JobOnServer) -> Json:
    return {
        "jobName": job.name,
        "state": job.state,
        "items": job.items,
        "runs": [_run_on_server(run) for run in job.runs],
        "instances": [one.id for one in job.instances],
        "flags": [{"flag": flag, "since": since} for flag, since in operations.flags_of(job.server)],
        "processSuccessCount": job.server.succeeded,
        "processFailureCount": job.server.failed,
    }


def _run_on_server(run: RunOnServer) -> Json:
    return {"jobName": run.job, "item": run.item, "since": run.since}


def _item(one: ItemStatus) -> Json:
    return {
        "item": one.item,
        "parameter": one.parameter,
        "holder": one.holder,
        "runner": None if one.run is None else one.run.instance,
        "runningSince": None if one.run is None else one.run.since,
        "rescuer": one.rescuer,
        "orphaned": one.orphaned,
        "disabled": one.disabled,
        "misfired": one.misfired,
        "blockedBy": one.blocked_by or None,
        "offset": one.offset,
        "record": None if one.record is None else _record(one.record),
    }


def _record(record: Record) -> Json:
    return {
        "slot": _iso(record.slot),
        "source": record.source or None,
        "instance": record.instance or None,
        "lastBeginTime": _iso(record.begun),
        "lastCompleteTime": _iso(record.completed_at),
        "nextFireTime": _iso(record.next_fire),
        "completed": record.completed,
        "outcome": record.outcome or None,
    }


def _iso(milliseconds: int) -> str | None:
    return moment(milliseconds / 1000).isoformat(timespec="milliseconds") if milliseconds else None
