"""The writer in virtual time, before a table that is slow, absent or choosy: no job waits for it, and nothing is lost
without being counted."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from anyio import create_task_group, move_on_after, sleep, sleep_forever

from aioelasticjob import ItemContext
from aioelasticjob.events import Ended, Events, Refused
from aioelasticjob.ground.limited_log import INTERVAL, MOST
from aioelasticjob.model import Outcome
from aioelasticjob.observers.settings import EventStoreSettings
from aioelasticjob.observers.sql.rows import Batch
from aioelasticjob.observers.sql.store import EventStoreUnreachable
from aioelasticjob.observers.sql.writer import LATE, LOSS_SHOWN, SILENT, Writer
from aioelasticjob.testing import run
from tests.observers.sample_events import NOON, batch, beginning, end, raised
from tests.support.simulated_jobs import SimulatedJobs, simulate

SETTINGS = EventStoreSettings("sqlite://", batch_size=100, backlog=1000)


@dataclass
class Table:
    """Keeps what is written, if it is in the mood."""

    up: bool = True
    seconds: float = 0.0
    hated: set[int] = field(default_factory=set)
    """Items whose rows it does not take."""
    batches: list[Batch] = field(default_factory=list)
    attempts: int = 0

    async def write(self, batch: Batch) -> None:
        self.attempts += 1
        await sleep(self.seconds)
        if not self.up:
            raise EventStoreUnreachable("postgresql://me:s3cret@db/events", "gone")
        if self.hated & {row["sharding_item"] for row in batch.ended.values()}:
            raise EventStoreUnreachable("sqlite://", "not to my liking", refused=True)
        self.batches.append(batch)

    @property
    def ended(self) -> list[object]:
        return [row["sharding_item"] for batch in self.batches for row in batch.ended.values()]


def scene(table: Table, act: Callable[[Events, Writer], Awaitable[None]]) -> Writer:
    async def main() -> Writer:
        events = Events()
        with events.listen(SETTINGS.backlog) as listener:
            writer = Writer(table, listener, SETTINGS)
            async with create_task_group() as tasks:
                tasks.start_soon(writer.gather)
                tasks.start_soon(writer.write)
                await act(events, writer)
                tasks.cancel_scope.cancel()
            with move_on_after(5):
                await writer.flush()
        return writer

    return run(main)


def test_events_of_a_quarter_second_are_one_transaction_and_a_short_run_is_one_row() -> None:
    table = Table()

    async def act(events: Events, writer: Writer) -> None:
        for event in [*beginning(), end()]:
            events.put(event)
        await sleep(0.2)
        assert table.batches == []
        await sleep(0.1)
        assert len(table.batches) == 1

    writer = scene(table, act)
    (written,) = table.batches
    assert (len(written.begun), len(written.ended), len(written.states)) == (0, 1, 3)
    assert (writer.counts.written, writer.counts.waiting, writer.counts.dropped) == (3, 0, 0)


def test_many_events_are_several_transactions_of_bounded_size() -> None:
    table = Table()

    async def act(events: Events, writer: Writer) -> None:
        for item in range(450):
            events.put(end(item=item))
        await sleep(2)

    scene(table, act)
    assert sorted(table.ended, key=str) == sorted(range(450), key=str)
    assert max(map(len, table.batches)) <= SETTINGS.batch_size + 2 * 100  # and what one slice of events adds


def test_an_absent_table_is_asked_again_and_gets_everything_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    table = Table(up=False)
    caplog.set_level(logging.INFO, "aioelasticjob.observers")

    async def act(events: Events, writer: Writer) -> None:
        for item in range(100):
            events.put(end(item=item))
        await sleep(60)
        assert writer.counts.waiting == 100
        assert "gone" in writer.counts.trouble
        assert 4 <= table.attempts <= 10  # ever more patiently
        table.up = True
        await sleep(40)

    writer = scene(table, act)
    assert sorted(table.ended, key=str) == sorted(range(100), key=str)
    assert (writer.counts.written, writer.counts.dropped, writer.counts.trouble) == (100, 0, "")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2  # however often it was asked
    assert "jobs go on" in lines[0]
    assert "s3cret" not in lines[0]
    assert "can be written again" in lines[1]


def test_what_the_backlog_cannot_hold_is_dropped_the_oldest_first_and_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = Table(up=False)

    async def act(events: Events, writer: Writer) -> None:
        for second in range(30):
            for item in range(100):
                events.put(end(NOON + 1000 * second, item=second * 100 + item))
            await sleep(1)
        assert writer.counts.dropped > 0
        assert writer.counts.dropped + writer.counts.waiting == 3000
        assert full in caplog.messages[1]
        table.up = True
        await sleep(40)
        counts = writer.counts
        assert caplog.messages[2:] == [
            f"the event store can be written again; dropped meanwhile: {counts.dropped:,} events,"
            f" from 2027-01-15T08:00:03.020+00:00 to 2027-01-15T08:00:{counts.dropped // 100 + 2:02d}.020+00:00"
        ]
        table.up = False  # the next outage counts what it drops itself
        events.put(end(item=4000))
        await sleep(1)
        table.up = True
        await sleep(40)
        assert caplog.messages[-1] == "the event store can be written again; dropped meanwhile: 0 events"

    full = "the events that wait for the event store are more than its backlog of 1,000: the oldest are dropped"
    writer = scene(table, act)
    assert writer.counts.written + writer.counts.dropped == 3001
    assert writer.counts.written <= SETTINGS.backlog + 1
    assert set(range(2900, 3000)) <= set(table.ended)  # type: ignore[arg-type]


def test_a_table_that_is_silent_counts_as_not_written_long_before_its_time_limit() -> None:
    table = Table(seconds=1000.0)

    async def act(events: Events, writer: Writer) -> None:
        events.put(end())
        await sleep(1)
        assert writer.unwritten is None
        assert writer.counts.trouble == ""
        await sleep(LATE)
        assert writer.unwritten is not None
        assert writer.unwritten.why == writer.counts.trouble == SILENT
        assert writer.unwritten.seconds == pytest.approx(1 + LATE - SETTINGS.batch_age)

    scene(table, act)


def test_a_table_that_is_written_but_too_slowly_counts_as_not_written_too() -> None:
    table = Table(seconds=2.0)

    async def act(events: Events, writer: Writer) -> None:
        for item in range(1000):
            events.put(end(item=item))
        await sleep(2)
        assert writer.unwritten is None
        await sleep(3)
        assert writer.unwritten is not None
        await sleep(60)
        assert writer.unwritten is None

    scene(table, act)


def test_it_is_known_since_when_an_absent_table_has_not_been_written_and_what_was_lost() -> None:
    table = Table(up=False)

    async def act(events: Events, writer: Writer) -> None:
        for second in range(30):
            for item in range(100):
                events.put(end(NOON + 1000 * second, item=second * 100 + item))
            await sleep(1)
        assert writer.unwritten is not None
        assert writer.unwritten.seconds == pytest.approx(30 - SETTINGS.batch_age)
        table.up = True
        await sleep(40)
        assert writer.unwritten is None
        lost = writer.lost
        assert lost is not None
        assert lost.number == writer.counts.dropped
        assert (lost.first.timestamp(), lost.last.timestamp()) == pytest.approx(
            (NOON / 1000 + 3.02, NOON / 1000 + lost.number // 100 + 2.02)
        )
        await sleep(LOSS_SHOWN)
        assert writer.lost is None

    scene(table, act)


def test_a_row_that_is_not_taken_is_a_loss() -> None:
    async def act(events: Events, writer: Writer) -> None:
        events.put(end(item=17))
        events.put(end(item=18))
        await sleep(2)
        assert writer.lost is not None
        assert writer.lost.number == 1

    scene(Table(hated={17}), act)


def test_failures_are_let_go_of_while_the_table_is_absent() -> None:
    async def act(events: Events, writer: Writer) -> None:
        events.put(end(outcome=Outcome.FAILED, failure=raised()))
        await sleep(1)
        assert len(writer._listener) == 0
        assert writer._in_hand is not None
        (row,) = writer._in_hand.ended.values()
        assert "no luck" in str(row["failure_stack"])
        assert not any(isinstance(value, BaseException) for value in row.values())

    scene(Table(up=False), act)


def test_one_row_that_is_not_taken_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    table = Table(hated={17})

    async def act(events: Events, writer: Writer) -> None:
        for item in range(50):
            events.put(end(item=item))
        await sleep(2)

    writer = scene(table, act)
    assert set(table.ended) == set(range(50)) - {17}
    assert writer.counts.rejected == 1
    assert sum(len(one.states) for one in table.batches) == 50
    (line,) = caplog.messages
    start = "the event store refuses a row, which is lost (not to my liking): the end of a run: id="
    assert line.startswith(start)
    assert "job_name=report, " in line
    assert "sharding_item=17, " in line
    assert "fire_time=2027-01-15 08:00:00, " in line


def test_what_is_left_at_the_end_is_written_if_that_does_not_take_long() -> None:
    table = Table(seconds=1)

    async def act(events: Events, writer: Writer) -> None:
        for item in range(20):
            events.put(end(item=item))

    writer = scene(table, act)
    assert len(table.ended) == 20
    assert writer.counts.waiting == 0
    stuck = scene(Table(seconds=100), act)
    assert stuck.counts.waiting == 20


def test_an_event_that_cannot_be_handled_does_not_end_the_handling(caplog: pytest.LogCaptureFixture) -> None:
    table = Table()

    async def act(events: Events, writer: Writer) -> None:
        events.put(Ended("job", "me", NOON, "nonsense", 0, Outcome.COMPLETED, 1.0))  # type: ignore[arg-type]
        events.put(Refused("job", "me", "clock"))
        events.put(end())
        await sleep(1)

    writer = scene(table, act)
    assert (table.ended, writer.counts.rejected) == ([0], 1)


def test_events_and_rows_that_are_not_taken_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    table = Table(hated=set(range(100)))

    async def act(events: Events, writer: Writer) -> None:
        for job in ("a", "b"):
            for _ in range(10):
                events.put(Ended(job, "me", NOON, "nonsense", 0, Outcome.COMPLETED, 1.0))  # type: ignore[arg-type]
        for item in range(100):
            events.put(end(item=item))
        await sleep(INTERVAL + 10)

    assert scene(table, act).counts.rejected == 20 + 100
    text = "the event Ended cannot be converted to rows of the event store, and is lost"
    assert caplog.messages[:2] == [text] * 2
    assert all("refuses a row, which is lost" in line for line in caplog.messages[2:-2])
    assert len(caplog.messages[2:-2]) == MOST
    assert caplog.messages[-2:] == [
        f"18 more lines were left out, about 2 jobs: {text}",
        f"{100 - MOST} more lines were left out: the event store refuses a row, which is lost",
    ]


def test_a_table_that_comes_and_goes_fills_no_log_and_the_newest_state_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = Table()

    async def act(events: Events, writer: Writer) -> None:
        for item in range(30):
            table.up = False
            events.put(end(item=item))
            await sleep(0.5)
            table.up = True
            await sleep(1)
        await sleep(INTERVAL)

    scene(table, act)
    *lines, count = caplog.messages
    assert len(lines) == MOST
    newest = "the event store can be written again; dropped meanwhile: 0 events"
    assert lines[1::2] == [newest] * (MOST // 2)
    assert count == f"{60 - MOST} more lines were left out: the event store comes and goes; the newest: {newest}"


def test_a_batch_is_halved_without_losing_or_repeating_a_row() -> None:
    whole = batch(*beginning(), *beginning(item=1), end(item=2), end(item=3, outcome=Outcome.FAILED, failure=raised()))
    rows = len(whole)
    from aioelasticjob.observers.sql.rows import halved

    parts = [whole]
    while any(len(part) > 1 for part in parts):
        parts = [half for part in parts for half in (halved(part) if len(part) > 1 else (part,))]
    assert sum(map(len, parts)) == rows
    assert sum(part.events for part in parts) == whole.events


@pytest.mark.parametrize("table", [Table(up=False), Table(seconds=1000.0)], ids=["absent", "slow"])
def test_no_fire_is_later_for_a_table_that_is_absent_or_slow(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """In virtual time, where a fire that waited for anything at all would be late."""

    async def whole(here: SimulatedJobs, events_kept: bool) -> None:
        async def handler(context: ItemContext) -> None:
            here.runs.append((here.now(), context.item, context.source.value, context.fire_time.timestamp()))
            if context.item == 1:
                raise ValueError("no luck")

        app = here.app(handler, cron="* * * * * ?", sharding_total_count=3)
        if not events_kept:
            async with app.running():
                await here.until(120)
            return
        with app._events.listen(SETTINGS.backlog) as listener:
            writer = Writer(table, listener, SETTINGS)
            async with create_task_group() as tasks:
                tasks.start_soon(writer.gather)
                tasks.start_soon(writer.write)
                async with app.running():
                    await here.until(120)
                tasks.cancel_scope.cancel()
            assert writer.counts.waiting + writer.counts.dropped == 119 * 7

    without, kept = (simulate(lambda here, on=on: whole(here, on)) for on in (False, True))  # type: ignore[misc]
    assert [run for run in kept.runs if run[0] < 119] == [run for run in without.runs if run[0] < 119]
    assert len(kept.runs) > 350


def test_a_table_that_never_answers_is_left_alone() -> None:
    class Silent(Table):
        async def write(self, batch: Batch) -> None:
            await sleep_forever()

    async def act(events: Events, writer: Writer) -> None:
        events.put(end())
        await sleep(100)

    assert scene(Silent(), act).counts.waiting == 1
