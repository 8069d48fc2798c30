"""Drives the state of a job: tells it what clocks and nodes say, writes what it commands, and makes its reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from aioelasticjob.core.account import JobState, Past
from aioelasticjob.core.commands import (
    AnyReport,
    NodeCommand,
    NoteAnswer,
    ReadItems,
    ReadOffsets,
    ReadRequested,
    Report,
    SayAhead,
    SayLowered,
    SayRefused,
    WriteAccounts,
)
from aioelasticjob.core.request_runs import matching_request
from aioelasticjob.core.requests import decode
from aioelasticjob.core.view import JobView
from aioelasticjob.engine.accounts import write_accounts
from aioelasticjob.engine.item_reader import ItemReader
from aioelasticjob.engine.member import Member
from aioelasticjob.engine.offsets import Offsets
from aioelasticjob.engine.stats import ExecutionStats
from aioelasticjob.model import Record, Requested


class StateDriver:
    """Reads clocks and nodes for the state of a job, writes what it commands, and makes its reports.

    It decides nothing.
    """

    def __init__(self, member: Member, view: JobView, stats: ExecutionStats, past: Past) -> None:
        self.state = JobState(member.id, view, member.session.read_clocks(), past)
        self.member = member
        self.stats = stats
        self.reader = ItemReader(member)
        self.offsets = Offsets(member, self.reader)

    def now(self) -> int:
        """Read the clocks, and return the time that the job uses, in milliseconds."""
        state = self.state
        refusals = self.member.refusals
        now = state.clock.take(self.member.session.read_clocks())
        if refusals.open or refusals.past:
            state.refusals = refusals.ages(state.clock.now / 1000)
        return now

    def released(self, item: int) -> None:
        """Tell the state that the item's run on another instance has ended."""
        self.now()
        self.state.released(item)
        self.say_all()

    async def perform(self, command: NodeCommand) -> object:
        """Perform a command that reads or writes nodes of the job, and return its answer."""
        member = self.member
        match command:
            case ReadOffsets(items):
                return await self.offsets.read(items)
            case ReadItems(items, are_recorded):
                # first the records: the offsets read next are then those of runs that have ended
                found = await self.reader.read(items) if are_recorded else {}
                await self.offsets.read(items)
                return found
            case WriteAccounts(view, records):
                return await write_accounts(member, view, records)
            case ReadRequested(lost):
                return await _read_requested(member, lost)
            case _:
                assert_never(command)

    def say_all(self) -> None:
        """Make the reports that are left."""
        while self.state.reports:
            self._say(self.state.reports.pop(0))

    def _say(self, report: AnyReport) -> None:
        match report:
            case Report():
                self.stats.missed_reports.put(self.state.view.config, report)
            case SayAhead():
                self.stats.missed_reports.ahead(self.member.layout.job, report)
            case SayLowered():
                self.stats.missed_reports.lowered(self.member.layout.job, report)
            case SayRefused(why, again):
                self.stats.refused(why, again=again)
            case NoteAnswer(purpose, error):
                if error is None:
                    self.member.refusals.accepted(purpose)
                else:
                    self.member.refusals.refused(purpose, error)
            case _:
                assert_never(report)


async def _read_requested(member: Member, lost: Mapping[int, Record]) -> dict[int, Requested]:
    """Return the requests for which lost runs of items were made, without those that are over."""
    layout = member.layout
    found = dict[int, Requested]()
    requests = [layout.request(record.request) for record in lost.values()]
    progress = [layout.request_item(record.request, item) for item, record in lost.items()]
    nodes = await member.session.get_many(requests + progress)
    of_requests = nodes[: len(lost)]
    of_progress = nodes[len(lost) :]
    for (item, record), node, came in zip(lost.items(), of_requests, of_progress, strict=True):
        request = None if node is None else decode(record.request, node)
        requested = matching_request(item, record, request, came)
        if requested is not None:
            found[item] = requested
    return found
