"""Examinations on a machine of any speed: a slow answer is no finding here."""

from __future__ import annotations

from math import inf

import pytest


@pytest.fixture(autouse=True)
def any_speed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let no verdict depend on how fast this machine is, but for the tests of those verdicts."""
    if request.module.__name__.endswith("test_judgement"):
        return
    monkeypatch.setattr("aioelasticjob.doctor.judgement.SLOW", inf)
    monkeypatch.setattr("aioelasticjob.doctor.members.WORDS_TIMEOUT", 60.0)
