"""Rates: what has flowed over the last ten seconds, read from anywhere."""

from __future__ import annotations

import threading

import anyio
import pytest

from aioelasticjob import ElasticJob
from aioelasticjob.ground.rates import IDLE, WINDOW, Load, Rates
from aioelasticjob.testing import run


def test_records_per_second_are_those_of_the_last_ten_seconds() -> None:
    async def main() -> None:
        rates = Rates()
        meter = rates.meter("orders", 3)
        meter.begin(lambda: Load(2, 5, 0.25))
        for second in range(60):
            await anyio.sleep(1)
            meter.succeeded += 100 if second < 30 else 10
            meter.failed += 1
            meter.sample()
            (rate,) = rates["orders"]
            if second < 30:
                assert rate.per_second == pytest.approx(101)
            if second >= 30 + WINDOW:
                assert rate.per_second == pytest.approx(11)
        assert (rate.succeeded, rate.failed) == (3300, 60)
        assert (rate.in_flight, rate.waiting, rate.lag) == (2, 5, 0.25)
        meter.end()
        (rate,) = rates["orders"]
        assert (rate.per_second, rate.in_flight, rate.succeeded) == (0, 0, 3300)
        meter.begin(lambda: IDLE)  # what was long ago is not of this run
        await anyio.sleep(1)
        meter.succeeded += 7
        meter.sample()
        assert rates["orders"][0].per_second == pytest.approx(7)

    run(main)


def test_rates_are_a_mapping_of_jobs_with_their_items_in_order() -> None:
    rates = Rates()
    for item in (7, 2, 11):
        rates.meter("orders", item)
    rates.meter("all at once", None)
    assert len(rates) == 2
    assert dict(rates).keys() == {"orders", "all at once"}
    assert [rate.item for rate in rates["orders"]] == [2, 7, 11]
    assert rates.meter("orders", 7) is rates.meter("orders", 7)
    assert "nothing" not in rates


def test_an_application_without_dataflows_has_none() -> None:
    assert dict(ElasticJob("embedded://").rates) == {}


def test_reading_in_another_thread_meets_no_half_changed_state() -> None:
    rates, over, failures = Rates(), threading.Event(), list[BaseException]()

    def read() -> None:
        try:
            while not over.is_set():
                for job in rates:
                    assert rates[job]
        except BaseException as error:
            failures.append(error)

    async def main() -> None:
        for n in range(20_000):
            meter = rates.meter("orders", n % 500)
            meter.begin(lambda: IDLE)
            meter.succeeded += 1
            meter.sample()
            if n % 2:
                meter.end()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        run(main)
    finally:
        over.set()
        reader.join()
    assert failures == []
