"""An orphan's mark says whose run of which moment was cut off, and a run that nobody can make up for is named."""

from __future__ import annotations

import anyio
import pytest

from aioelasticjob.core import records
from aioelasticjob.model import Record
from aioelasticjob.registry.transaction import Create
from tests.engine.test_settings_changes import start_processes
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate


def test_a_run_cut_off_whose_item_goes_with_a_lower_count_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", work=300, cron="0 * * * * ?", sharding_total_count=4, failover=True)
        await here.until(61)
        dead, slot = await them.id_of("b"), (await here.record(3)).slot
        them.people["b"].kill()
        await here.until(80)  # and the living one is busy, so that the orphans wait
        mark = (await here.observer.get(LAYOUT.item(3).orphan)).data
        assert records.decode_mark(mark) == (slot, dead, 0)
        await them.change(shardingTotalCount=2)
        await anyio.sleep(5)
        said = [one for one in caplog.records if "the item was removed" in one.getMessage()]
        assert [vars(one)["items"] for one in said] == [(2, 3)]
        assert {vars(one)["slot"] for one in said} == {slot}
        assert all(f"it ran on {dead}; it is not run again" in one.getMessage() for one in said)
        assert await here.names(LAYOUT.orphans) == ()

    simulate(scene)


def test_an_item_that_goes_with_a_lower_count_in_peace_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", sharding_total_count=4, failover=True)
        await here.until(15)
        await them.change(shardingTotalCount=2)
        await anyio.sleep(5)
        assert await here.names(LAYOUT.sharding) == ("0", "1")
        assert not [text for text in caplog.messages if "the item was removed" in text]

    simulate(scene)


def test_what_hands_an_item_over_says_whose_it_was() -> None:
    async def scene(here: SimulatedJobs) -> None:
        them = await start_processes(here, "ab", work=300, cron="0 * * * * ?", sharding_total_count=4, failover=True)
        await here.until(61)
        leaver, slot = await them.id_of("b"), (await here.record(3)).slot
        await here.write(Create(LAYOUT.shutdown(leaver)))
        await here.until(120)  # its items have had their grace
        assert set(await here.names(LAYOUT.orphans)) == {"2", "3"}
        mark = (await here.observer.get(LAYOUT.item(2).orphan)).data
        *run, fence = records.decode_mark(mark) or ()
        assert run == [slot, leaver]
        assert fence > 0

    simulate(scene)


NONE_OF_OURS = (
    *(b"", b"x", b"[]", b"7", b'{"slot": 1}', b'{"slot": -1, "instance": "x"}'),
    *(b'{"slot": 1, "instance": 7}', b'{"slot": 1, "instance": "\\ud800"}'),
)


@pytest.mark.parametrize("data", NONE_OF_OURS)
def test_a_mark_that_is_none_of_ours_names_nothing(data: bytes) -> None:
    assert records.decode_mark(data) is None


@pytest.mark.parametrize("fence", [b"null", b'"7"', b"true", b"[]"])
def test_a_fence_that_is_no_number_counts_as_none(fence: bytes) -> None:
    assert records.decode_mark(b'{"slot": 1, "instance": "x", "fence": ' + fence + b"}") == (1, "x", 0)


def test_a_mark_names_the_moment_that_somebody_asked_for_by_hand() -> None:
    assert records.decode_mark(records.encode_mark(Record(slot=5, instance="me", asked=7))) == (7, "me", 0)
