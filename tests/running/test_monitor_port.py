"""The monitor port by itself."""

from __future__ import annotations

import socket
from asyncio import sleep
from typing import Any, cast

import pytest
from anyio import create_task_group

from aioelasticjob.layout import Layout
from aioelasticjob.running.monitor_port import HERE, MonitorPort
from tests.support.ports import reserved_ports


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.anyio
async def test_a_port_is_free_again_if_its_job_is_cancelled_in_the_midst_of_taking_it(steps: int) -> None:
    nothing = cast(Any, None)  # nobody asks
    with reserved_ports(1) as (port,):
        monitor = MonitorPort(nothing, Layout("job"), nothing)
        async with create_task_group() as tasks:
            tasks.start_soon(lambda: monitor.move(port, strict=False))
            for _ in range(steps):
                await sleep(0)
            tasks.cancel_scope.cancel()
        monitor.close()
        with socket.socket() as client:
            assert client.connect_ex((HERE, port))
