"""How long a try waits."""

from __future__ import annotations

from random import Random

from aioelasticjob.registry.backoff import Backoff
from aioelasticjob.registry.settings import ConnectionSettings

SETTINGS = ConnectionSettings.parse("zk://h", base_sleep_time=1, max_sleep_time=3)


class Longest(Random):
    """Throws the highest number always."""

    def uniform(self, a: float, b: float) -> float:
        return b


def test_pauses_double_from_30_ms_up_to_the_base_sleep_time_or_the_max() -> None:
    backoff, urgent, patient = Backoff(SETTINGS, Longest()), [], []
    for _ in range(10):
        backoff.ended(0)
        urgent.append(round(backoff.before_connecting(urgent=True), 2))
        patient.append(round(backoff.before_connecting(urgent=False), 2))
    assert urgent == [0.03, 0.06, 0.12, 0.24, 0.48, 0.96, 1, 1, 1, 1]
    assert patient == [0.03, 0.06, 0.12, 0.24, 0.48, 0.96, 1.92, 3, 3, 3]


def test_after_a_connection_that_was_good_there_is_no_pause() -> None:
    backoff = Backoff(SETTINGS, Longest())
    for lived in (0, 0, 0.5):
        backoff.ended(lived)
    assert backoff.before_connecting(urgent=True) == 0.12
    backoff.ended(2)
    assert backoff.before_connecting(urgent=True) == 0


def test_reads_wait_for_the_base_sleep_time_doubling() -> None:
    backoff = Backoff(SETTINGS, Longest())
    assert [backoff.before_reading(retries) for retries in (0, 1, 2, 50)] == [1, 2, 3, 3]


def test_jitter_takes_up_to_half_of_a_pause() -> None:
    backoff = Backoff(SETTINGS, Random(1))
    pauses = [backoff.before_reading(0) for _ in range(200)]
    assert 0.5 <= min(pauses) < 0.55
    assert 0.95 < max(pauses) <= 1
