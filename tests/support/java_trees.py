"""The nodes of jobs of Elastic-Job for Java, as its releases write them, with and without an instance that is up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from aioelasticjob.core.layout import Layout
from aioelasticjob.registry.transaction import Create, Op

ID = "192.0.2.2@-@31385"
IP = "192.0.2.2"
CONFIG_1 = {
    "jobClass": b"com.example.Report",
    "cron": b"0/5 * * * * ?",
    "shardingTotalCount": b"3",
    "shardingItemParameters": b"0=A,1=B,2=C",
    "jobParameter": b"",
    "monitorExecution": b"true",
    "failover": b"true",
    "misfire": b"true",
    "description": b"",
}
CONFIG_2 = json.dumps(
    {
        "jobName": "job",
        "jobClass": "com.example.Report",
        "jobType": "SIMPLE",
        "cron": "0/5 * * * * ?",
        "shardingTotalCount": 3,
        "shardingItemParameters": "0=A,1=B,2=C",
        "jobParameter": "",
        "failover": True,
        "misfire": True,
        "description": "",
        "jobProperties": {
            "job_exception_handler": "com.dangdang.ddframe.job.executor.handler.impl.DefaultJobExceptionHandler",
            "executor_service_handler": "com.dangdang.ddframe.job.executor.handler.impl.DefaultExecutorServiceHandler",
        },
        "monitorExecution": True,
        "maxTimeDiffSeconds": -1,
        "monitorPort": -1,
        "jobShardingStrategyClass": "",
        "reconcileIntervalMinutes": 10,
        "disabled": False,
        "overwrite": False,
    },
    separators=(",", ":"),
).encode()
CONFIG_3 = b"""cron: 0/5 * * * * ?
description: ''
disabled: false
failover: true
jobName: job
jobParameter: ''
maxTimeDiffSeconds: -1
misfire: true
monitorExecution: true
overwrite: false
reconcileIntervalMinutes: 10
shardingItemParameters: ''
shardingTotalCount: 3
staticSharding: false
"""

LASTING: Mapping[str, Mapping[str, bytes]] = {
    "1.x": {
        "config": b"",
        **{f"config/{key}": data for key, data in CONFIG_1.items()},
        f"servers/{IP}/hostName": b"java",
        f"servers/{IP}/sharding": b"0,1,2",
        "execution/0/completed": b"",
        "execution/0/lastBeginTime": b"1447000000000",
        "leader/sharding": b"",
        "leader/execution": b"",
    },
    "2.x": {
        "config": CONFIG_2,
        f"servers/{IP}": b"",
        "sharding/0/instance": ID.encode(),
        "sharding/1/instance": ID.encode(),
        "sharding/2/instance": ID.encode(),
        "leader/sharding": b"",
    },
    "3.x": {
        "config": CONFIG_3,
        f"servers/{IP}": b"ENABLED",
        "sharding/0/instance": ID.encode(),
        "sharding/1/instance": ID.encode(),
        "sharding/2/instance": ID.encode(),
        "leader/sharding": b"",
    },
}
"""By release, the nodes that outlive the instances, and their data."""
EPHEMERAL: Mapping[str, Mapping[str, bytes]] = {
    "1.x": {
        f"servers/{IP}/status": b"RUNNING",
        "leader/election/host": IP.encode(),
        "leader/election/latch/_c_f-latch-0000000000": b"",
        "execution/1/running": b"",
    },
    "2.x": {
        f"instances/{ID}": b"",
        "leader/election/instance": ID.encode(),
        "sharding/1/running": b"",
    },
    "3.x": {
        f"instances/{ID}": f"jobInstanceId: {ID}\nserverIp: {IP}\n".encode(),
        "leader/election/instance": ID.encode(),
        "leader/election/latch/_c_f-latch-0000000000": b"",
    },
}
"""By release, the nodes of an instance that is up."""
RELEASES: Sequence[str] = tuple(LASTING)


def java_job(release: str, *, is_up: bool, name: str = "job") -> list[Op]:
    """Return the operations that make a job as Java does; if its instance ``is_up``, it lives as long as a session."""
    root = Layout(name).root
    kept, ephemeral = LASTING[release], EPHEMERAL[release] if is_up else {}
    made: dict[str, Op] = {root: Create(root, b"com.example.Report" if release == "3.x" else b"")}
    for path, data in {**kept, **ephemeral}.items():
        *above, _ = path.split("/")
        for depth in range(1, len(above) + 1):
            parent = f"{root}/{'/'.join(above[:depth])}"
            made.setdefault(parent, Create(parent))
        made[f"{root}/{path}"] = Create(f"{root}/{path}", data, ephemeral=path in ephemeral)
    return [made[path] for path in sorted(made)]
