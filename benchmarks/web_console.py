"""The web console over a thousand jobs: how soon a page is there, what an open one costs, when it shows a change."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median
from typing import Final

from aiohttp import ClientSession, ClientTimeout, CookieJar

from aioelasticjob import operations
from aioelasticjob.registry.session import Session
from benchmarks.operations_list import ITEMS, filled
from benchmarks.report import Figure, percentile
from benchmarks.servers import Server, measured_servers

NAME: Final = "web console"
PASSWORD: Final = "correct horse battery"
FORM: Final = re.compile(r'name="csrf" value="([^"]+)"')
STREAM: Final = re.compile(r'hx-sse:connect="([^"]+)"')
ALL: Final = "/r/operations/jobs?size=2000"
PAGE: Final = "/r/operations/jobs"


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    jobs, times, seconds = (10, 1, 1) if quick else (1000, 30, 20)
    for start in measured_servers(quick=quick):
        with start() as server:
            yield from asyncio.run(_look(server, jobs, times, seconds))


@dataclass(frozen=True, slots=True)
class Visitor:
    """A browser at the console, signed in."""

    http: ClientSession
    url: str

    async def get(self, path: str) -> tuple[str, float]:
        """Return a page and the milliseconds until all of it was there."""
        begun = time.perf_counter()
        async with self.http.get(f"{self.url}{path}") as answer:
            text = await answer.text()
            answer.raise_for_status()
        return text, 1000 * (time.perf_counter() - begun)

    async def sign_up(self, link: str) -> None:
        """Set the first password."""
        text, _ = await self.get(link)
        found = FORM.search(text)
        form = {"csrf": found[1] if found else "", "name": "ada", "password": PASSWORD, "again": PASSWORD}
        async with self.http.post(f"{self.url}{link}", data=form, headers={"origin": self.url}) as answer:
            answer.raise_for_status()

    @asynccontextmanager
    async def listening(self, page: str) -> AsyncIterator[asyncio.StreamReader]:
        """Open a page's stream, as its script does."""
        text, _ = await self.get(page)
        found = STREAM.search(text)
        path = found[1].replace("&amp;", "&") if found else ""
        async with self.http.get(f"{self.url}{path}", timeout=ClientTimeout(total=None)) as answer:
            answer.raise_for_status()
            yield answer.content  # type: ignore[misc]  # reads alike


async def _look(server: Server, jobs: int, times: int, seconds: int) -> list[Figure]:
    case = f"{jobs:,} jobs × {ITEMS} items, {server.name}"
    async with filled(server, jobs) as (session, _), running_console(server) as visitor:
        while f"<b>{jobs}</b> all" not in (await visitor.get(f"{PAGE}?q=no such job"))[0]:
            await asyncio.sleep(0.1)
        figures = []
        for path, what, goal in ((PAGE, "first page", "< 100"), (ALL, "all jobs on one page", "< 200")):
            text, first = await visitor.get(path)
            again = [(await visitor.get(path))[1] for _ in range(times)]
            figures += [
                Figure(NAME, case, f"{what}: rows rendered for the first time", first, "ms", goal),
                Figure(NAME, case, f"{what}: median", median(again), "ms", goal),
                Figure(NAME, case, f"{what}: p95", percentile(again, 0.95), "ms", goal),
                Figure(NAME, case, f"{what}: size", len(text.encode()) / 1000, "KB"),
            ]
        for path, what in ((PAGE, "first page"), (ALL, "all jobs on one page")):
            rate = await _idle(visitor, path, seconds)
            figures.append(Figure(NAME, case, f"{what} left open, nothing runs", rate, "KB/s", "< 50"))
        late = await _late(visitor, session, times)
        figures.append(
            Figure(NAME, case, "a change in the registry is on the page, median", median(late), "ms", "< 200")
        )
        figures.append(
            Figure(NAME, case, "a change in the registry is on the page, p95", percentile(late, 0.95), "ms", "< 200")
        )
        return figures


async def _idle(visitor: Visitor, page: str, seconds: float) -> float:
    """Return how many kilobytes a second a page is sent while nobody does anything."""
    async with visitor.listening(page) as stream:
        taken, begun = 0, time.perf_counter()
        try:
            async with asyncio.timeout(seconds):
                while True:
                    taken += len(await stream.readany())  # type: ignore[attr-defined]
        except TimeoutError:
            return taken / 1000 / (time.perf_counter() - begun)


async def _late(visitor: Visitor, session: Session, times: int) -> list[float]:
    """Return the milliseconds from a committed change until its event has been received."""
    late = []
    async with visitor.listening(PAGE) as stream:
        await asyncio.sleep(1)
        for number in range(times):
            job = f"job-{number % 20:04}"
            act, mark = (operations.pause, b"switched off") if number < 20 else (operations.resume, b"waiting")
            begun = time.perf_counter()
            await act(session, job)
            seen = b""
            async with asyncio.timeout(10):
                while job.encode() not in seen or mark not in seen:
                    seen += await stream.readany()  # type: ignore[attr-defined]
            late.append(1000 * (time.perf_counter() - begun))
            await asyncio.sleep(0.25)
    return late


@asynccontextmanager
async def running_console(server: Server) -> AsyncIterator[Visitor]:
    """Run the console as a process of its own and sign in."""
    registry = f"zk://{server.address}/operations"
    with tempfile.TemporaryDirectory() as data:
        words = ["-m", "aioelasticjob", "console", "--registry", registry, "--port", "0", "--data-dir", data]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdout=PIPE, env={**os.environ, "COLUMNS": "300", "PYTHONUNBUFFERED": "1"}
        )
        try:
            url, link = await _address(process)
            async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as http:
                visitor = Visitor(http, url)
                await visitor.sign_up(link)
                yield visitor
        finally:
            process.terminate()
            await process.wait()


async def _address(process: Process) -> tuple[str, str]:
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    found = re.search(r"(http://[^/]+)(/welcome/\S+)", line)
    if found is None:
        raise RuntimeError(f"the console did not start: {line}")
    return found[1], found[2]
