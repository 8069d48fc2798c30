"""What processes cannot do is said at the top of every page, once for all of them."""

from __future__ import annotations

from dataclasses import replace

from aioelasticjob.console.watching.process_notices import notices
from aioelasticjob.core.layout import PROCESSES
from aioelasticjob.core.processes import (
    Author,
    LostEvents,
    ProcessProblems,
    ProcessStatus,
    RefusedToProcess,
    UnwrittenEvents,
    renewal,
)
from tests.console.conftest import Play, Scene
from tests.console.samples import NOW

PROBLEMS = ProcessProblems(
    event_store=UnwrittenEvents(NOW - 60, "the disk is full", 335),
    lost=LostEvents(12, NOW - 50, NOW - 40),
    clock_differs=300.2,
    refused=(RefusedToProcess("to settle items", "no permission", NOW - 9, "report", 1),),
)


def process(number: int, problems: ProcessProblems) -> ProcessStatus:
    return ProcessStatus(f"p{number}", f"10.0.0.{number}", f"web-{number}", number, number, problems)


def test_several_processes_are_one_notice_of_each_kind() -> None:
    one = process(1, PROBLEMS)
    other = process(
        2,
        replace(
            PROBLEMS,
            event_store=UnwrittenEvents(NOW - 90, "it does not answer", 5),
            lost=LostEvents(3, NOW - 80, NOW - 70),
            clock_differs=-400.0,
            refused=(RefusedToProcess("to lead", "no permission", NOW - 5, "report", 1),),
        ),
    )
    said = notices((one, other))
    assert said.unwritten is not None
    assert (said.unwritten.since, said.unwritten.why, said.unwritten.waiting) == (NOW - 90, "it does not answer", 340)
    assert said.lost is not None
    assert (said.lost.number, said.lost.first, said.lost.last) == (15, NOW - 80, NOW - 40)
    assert said.clocks is not None
    assert (said.clocks.seconds, said.clocks.processes[0]) == (-400.0, other)
    assert said.refusals is not None
    assert said.refusals.worst.what == "to settle items"
    assert notices(()) == notices((process(3, ProcessProblems()),))


def test_every_page_says_what_processes_cannot_do_until_they_can(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        session = scene.registry.session
        author = Author("10.0.0.5", "web-1", 4711, session.incarnation)
        await session.commit(renewal(author, None, None, PROBLEMS), incarnation=session.incarnation)
        await scene.seen(lambda seen: len(seen.processes) == 1)
        for path in ("/r/billing/jobs", "/r/billing/job/report", "/r/billing/history", "/registries"):
            page = (await browser.get(path)).text
            assert "The history may be incomplete." in page, path
            assert "events wait to be written to it: 335, of process 4711 on web-1." in page
            assert "the disk is full" in page
            assert "It will never have 12 events of process 4711 on web-1" in page
            assert "The clock of web-1 is wrong." in page
            assert "It is 300.2 s ahead of the registry&#39;s." in page
            assert "The registry refuses requests." in page
        (node,) = await session.get_many([author.path])
        parent = await session.get(PROCESSES)
        operations = renewal(author, parent, node, ProcessProblems())
        await session.commit(operations, incarnation=session.incarnation)
        await scene.seen(lambda seen: not seen.processes)
        assert "may be incomplete" not in (await browser.get("/r/billing/jobs")).text

    play(act)


def test_an_open_page_is_told_at_once(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job()
        browser = await scene.operator()
        session = scene.registry.session
        author = Author("10.0.0.5", "web-1", 4711, session.incarnation)
        async with browser.listening("/r/billing/history/live") as stream:
            await stream.event('id="state"')
            await session.commit(renewal(author, None, None, PROBLEMS), incarnation=session.incarnation)
            await stream.event('id="state"', "The history may be incomplete.")

    play(act)
