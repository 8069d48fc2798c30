"""The web console with 500 readers: how soon an operator's action is answered, and when all readers see the change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from aiohttp import ClientSession, CookieJar, TCPConnector

from benchmarks.operations_list import ITEMS, filled
from benchmarks.report import Figure, percentile
from benchmarks.servers import Server, measured_server
from benchmarks.web_console import FORM, PAGE, PASSWORD, Visitor, running_console

NAME: Final = "web console with readers"
WINDOWS: Final = 4
"""Live pages of one reader's session: of more they would take turns."""
ADDRESSES: Final = ("127.0.0.2", "127.0.0.3")
"""The readers' own: from one address only 300 live pages may be open."""
MARK: Final = b"switched off"
SEEN: Final = 30.0
"""Seconds after which everybody must have seen a change."""


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    jobs, readers, actions = (10, 4, 1) if quick else (1000, 500, 20)
    with measured_server(quick=quick) as server:
        yield from asyncio.run(_look(server, jobs, readers, actions))


@dataclass
class Readers:
    """Open live pages, and when each of them was sent a change."""

    job: bytes = b""
    """The job whose change they wait for."""
    arrivals: list[float] = field(default_factory=list)

    async def read(self, visitor: Visitor, opened: asyncio.Semaphore) -> None:
        """Keep a page open, and note each change."""
        async with visitor.listening(PAGE) as stream:
            opened.release()
            job, seen = b"", b""
            while True:
                chunk = await stream.readany()  # type: ignore[attr-defined]
                job, seen = self.job, (seen if job == self.job else b"") + chunk
                if job and job in seen and MARK in seen:
                    self.arrivals.append(time.perf_counter())
                    seen = b""

    async def all_have_seen(self, count: int) -> float:
        """Wait until as many have seen the change, and return when the last of them did."""
        async with asyncio.timeout(SEEN):
            while len(self.arrivals) < count:
                await asyncio.sleep(0.01)
        return self.arrivals[count - 1]


async def _look(server: Server, jobs: int, count: int, actions: int) -> list[Figure]:
    case = f"{jobs:,} jobs × {ITEMS} items, {count} readers, {server.name}"
    async with filled(server, jobs), running_console(server) as operator, AsyncExitStack() as stack:
        while f"<b>{jobs}</b> all" not in (await operator.get(f"{PAGE}?q=no such job"))[0]:
            await asyncio.sleep(0.1)
        visitors = [await stack.enter_async_context(_viewer(operator, n)) for n in range(count // WINDOWS)]
        readers, opened = Readers(), asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(readers.read(visitors[n // WINDOWS], opened)) for n in range(count)]
            for _ in range(count):
                await opened.acquire()
            await asyncio.sleep(2)
            took, late, pages = await _act(operator, readers, count, actions)
            for one in reading:
                one.cancel()
    return [
        Figure(NAME, case, "an operator's action is answered, median", median(took), "ms", "< 1000"),
        Figure(NAME, case, "an operator's action is answered, slowest", max(took), "ms", "< 1000"),
        Figure(NAME, case, "first page, median", median(pages), "ms", "< 1000"),
        Figure(NAME, case, "the last reader is sent the change, median", median(late), "ms"),
        Figure(NAME, case, "the last reader is sent the change, p95", percentile(late, 0.95), "ms"),
    ]


async def _act(
    operator: Visitor, readers: Readers, count: int, actions: int
) -> tuple[list[float], list[float], list[float]]:
    """Pause jobs; return the milliseconds of each answer, until the last reader has it, and of a page meanwhile."""
    took, late, pages = list[float](), list[float](), list[float]()
    found = FORM.search((await operator.get(PAGE))[0])
    form = {"csrf": found[1] if found else ""}
    for number in range(actions):
        job = f"job-{number:04}"
        readers.job, readers.arrivals = job.encode(), []
        begun = time.perf_counter()
        await _send(operator, f"/r/operations/job/{job}/do/pause", form)
        took.append(1000 * (time.perf_counter() - begun))
        pages.append((await operator.get(PAGE))[1])
        late.append(1000 * (await readers.all_have_seen(count) - begun))
        await asyncio.sleep(0.5)
    return took, late, pages


@asynccontextmanager
async def _viewer(operator: Visitor, number: int) -> AsyncIterator[Visitor]:
    """Sign in a viewer with a browser of its own."""
    if number == 0:
        text = await _post(operator, "/users", "/users", {"name": "vera", "role": "viewer"})
        link = text.partition("/welcome/")[2].partition("<")[0].partition('"')[0]
        async with _browser(operator.url, 0) as visitor:
            form = {"name": "vera", "password": PASSWORD, "again": PASSWORD}
            await _post(visitor, f"/welcome/{link}", f"/welcome/{link}", form)
    async with _browser(operator.url, number) as visitor:
        await _post(visitor, "/login", "/login", {"name": "vera", "password": PASSWORD})
        yield visitor


@asynccontextmanager
async def _browser(url: str, number: int) -> AsyncIterator[Visitor]:
    connector = TCPConnector(limit=0, local_addr=(ADDRESSES[number % len(ADDRESSES)], 0))
    async with ClientSession(cookie_jar=CookieJar(unsafe=True), connector=connector) as http:
        yield Visitor(http, url)


async def _post(visitor: Visitor, page: str, to: str, form: dict[str, str]) -> str:
    """Send the form of a page."""
    text, _ = await visitor.get(page)
    found = FORM.search(text)
    return await _send(visitor, to, {"csrf": found[1] if found else "", **form})


async def _send(visitor: Visitor, to: str, form: dict[str, str]) -> str:
    headers = {"origin": visitor.url}
    async with visitor.http.post(f"{visitor.url}{to}", data=form, headers=headers, allow_redirects=False) as answer:
        answer.raise_for_status()
        return await answer.text()
