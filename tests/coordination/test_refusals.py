"""What the registry refuses is shown while it is refused, and logged in moderation."""

from __future__ import annotations

import pytest

from aioelasticjob.coordination.refusals import Refusals
from aioelasticjob.registry.codec import failure


def test_a_refusal_is_logged_once_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    refusals = Refusals("report", lambda: now[0])
    for _ in range(5):
        refusals.refused("to settle items", failure(-125, "/job/execution/0"))
        now[0] += 1
    (one,) = refusals.present
    assert (one.what, one.since, one.times) == ("to settle items", 100.0, 5)
    refusals.accepted("to claim items")
    refusals.accepted("to settle items")
    assert refusals.present == ()
    for _ in range(3):  # it goes on and off
        refusals.refused("to settle items", failure(-125, "/job/execution/0"))
        refusals.accepted("to settle items")
    said = [entry.getMessage() for entry in caplog.records]
    assert said == [
        "report: the registry refuses to settle items: /job/execution/0: the quota that somebody set in the registry is"
        " used up: raise it (setquota), or remove nodes (-125) (docs: errors/RegistryError)",
        "report: the registry accepts to settle items again; it had refused that 5 times in 5.0 s",
    ]
    refusals.refused("to leave", failure(-102, "/job"))
    now[0] += 61  # nobody asks for it any more
    assert refusals.present == ()


def test_the_end_of_a_refusal_that_was_logged_more_than_once_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    refusals = Refusals("report", lambda: now[0])
    for _ in range(70):
        refusals.refused("to settle items", failure(-125, "/job/execution/0"))
        now[0] += 1
    refusals.accepted("to settle items")
    said = [entry.getMessage() for entry in caplog.records]
    assert [text.split()[3] for text in said] == ["refuses", "refuses", "accepts"]
    assert said[-1].endswith("it had refused that 70 times in 70.0 s")
