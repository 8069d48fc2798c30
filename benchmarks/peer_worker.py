"""One task queue of the Python world, moving records one task each; run by the Python of a venv that holds it alone.

``python peer_worker.py '{"peer": "arq", "redis": "redis://127.0.0.1:6379", "records": 2000, "concurrency": 100,
"seconds": 0.0}'`` prints what it took as JSON.  Imports nothing of ours: the peers' requirements exclude one another.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

Spent = dict[str, float]


class Sink:
    """Counts what has been moved, and tells when all of it has."""

    def __init__(self, records: int, seconds: float) -> None:
        self.left, self.seconds, self.done = records, seconds, asyncio.Event()

    async def take(self) -> None:
        if self.seconds:
            await asyncio.sleep(self.seconds)
        self.left -= 1
        if not self.left:
            self.done.set()


async def _measured(enqueue: Callable[[], Awaitable[object]], work: Callable[[], Awaitable[object]]) -> Spent:
    """Fill the queue, then time how long working it off takes: rates of the consuming side alone, its best case."""
    await enqueue()
    began, cpu = time.perf_counter(), time.process_time()
    await work()
    return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}


async def arq(load: dict[str, Any], sink: Sink) -> Spent:
    from arq.connections import RedisSettings, create_pool
    from arq.worker import Worker, func

    async def move(_context: dict[Any, Any], _record: int) -> None:
        await sink.take()

    settings = RedisSettings.from_dsn(load["redis"])
    pool = await create_pool(settings)
    worker = Worker(
        functions=[func(move, name="move", keep_result=0)],
        redis_pool=pool,
        burst=True,
        max_jobs=load["concurrency"],
        poll_delay=0,
        handle_signals=False,
    )

    async def enqueue() -> None:
        for record in range(load["records"]):
            await pool.enqueue_job("move", record)

    return await _measured(enqueue, worker.async_run)


async def taskiq(load: dict[str, Any], sink: Sink) -> Spent:
    from concurrent.futures import ThreadPoolExecutor

    from taskiq.receiver import Receiver
    from taskiq_redis import ListQueueBroker

    broker = ListQueueBroker(load["redis"])

    @broker.task
    async def move(_record: int) -> None:
        await sink.take()

    await broker.startup()

    async def enqueue() -> None:
        for record in range(load["records"]):
            await move.kiq(record)

    async def work() -> None:
        with ThreadPoolExecutor(1) as executor:
            finish = asyncio.Event()
            receiver = Receiver(broker, executor, max_async_tasks=load["concurrency"])
            listening = asyncio.ensure_future(receiver.listen(finish))
            await sink.done.wait()
            finish.set()
            listening.cancel()

    return await _measured(enqueue, work)


async def taskiq_in_memory(load: dict[str, Any], sink: Sink) -> Spent:
    from taskiq import InMemoryBroker

    broker = InMemoryBroker(max_async_tasks=load["concurrency"])

    @broker.task
    async def move(_record: int) -> None:
        await sink.take()

    async def nothing() -> None: ...

    async def work() -> None:
        for record in range(load["records"]):
            await move.kiq(record)
        await sink.done.wait()

    return await _measured(nothing, work)


async def saq(load: dict[str, Any], sink: Sink) -> Spent:
    from saq import Queue, Worker

    queue = Queue.from_url(load["redis"])

    async def move(_context: dict[str, Any], *, record: int) -> None:
        await sink.take()

    await queue.connect()
    worker = Worker(queue, functions=[("move", move)], concurrency=load["concurrency"])

    async def enqueue() -> None:
        for record in range(load["records"]):
            await queue.enqueue("move", record=record, ttl=-1)

    async def work() -> None:
        working = asyncio.ensure_future(worker.start())
        await sink.done.wait()
        working.cancel()

    return await _measured(enqueue, work)


PEERS: dict[str, Callable[[dict[str, Any], Sink], Awaitable[Spent]]] = {
    "arq": arq,
    "taskiq, Redis list": taskiq,
    "taskiq, in memory": taskiq_in_memory,
    "SAQ": saq,
}


async def _main(load: dict[str, Any]) -> Spent:
    return await PEERS[load["peer"]](load, Sink(load["records"], load["seconds"]))


if __name__ == "__main__":
    logging.disable(logging.ERROR)
    print(json.dumps(asyncio.run(_main(json.loads(sys.argv[1])))), flush=True)
