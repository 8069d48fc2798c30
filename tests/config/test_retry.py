"""How often a failed call is tried again: after which errors, with what pauses, written in code or as text."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from aioelasticjob import ElasticJob, InvalidSetting, ItemContext, JobConfig, Retry


class Busy(Exception):
    """An error of a program of its own."""


class VeryBusy(Busy):
    """One that is derived from it."""


def test_exceptions_are_kept_by_name_and_count_with_their_subclasses() -> None:
    retry = Retry(on=(OSError, Busy))
    assert retry.on == ("OSError", f"{__name__}:Busy")
    assert [retry.applies_to(error) for error in (TimeoutError(), VeryBusy(), OSError())] == [True] * 3
    assert not retry.applies_to(ValueError())
    assert Retry().applies_to(ValueError())


def test_a_class_is_found_by_the_package_that_offers_it_and_no_other_class_of_its_name() -> None:
    inner = type("Refused", (Exception,), {"__module__": "shop.inner.errors"})
    other = type("Refused", (Exception,), {"__module__": "shopping"})
    retry = Retry(on="shop:Refused")
    assert retry.applies_to(inner())
    assert not retry.applies_to(other())
    assert not Retry(on="OSError").applies_to(type("OSError", (Exception,), {"__module__": "shop"})())


@pytest.mark.parametrize(
    "written",
    [
        {"attempts": 5, "backoff": "2s", "on": ["ConnectionError", "TimeoutError"], "longest": "1m"},
        {"attempts": "5", "backoff": 2, "on": (ConnectionError, TimeoutError), "longest": 60},
        '{"attempts": 5, "backoff": 2, "on": ["ConnectionError", "TimeoutError"], "longest": 60}',
    ],
)
def test_it_is_written_in_several_ways_and_stored_in_one(written: object) -> None:
    config = JobConfig.build(job_name="job", retry=written)
    assert config.retry == Retry(5, 2, on=(ConnectionError, TimeoutError), longest=60)
    assert JobConfig.from_json(config.to_json(), "/job/config").retry == config.retry
    assert config.as_json()["retry"] == {
        "attempts": 5,
        "backoff": 2.0,
        "on": ["ConnectionError", "TimeoutError"],
        "longest": 60.0,
    }


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (3, "retry = 3: must be a Retry, or a mapping"),
        ("often", "retry = 'often': must be a Retry, or a mapping"),
        ({"attemps": 3}, "retry.attemps = 3: there is no such setting; known are attempts, backoff, on, longest"),
        ({"attempts": True}, "retry.attempts = True: must be a whole number"),
        ({"attempts": "many"}, "retry.attempts = 'many': must be a whole number"),
        ({"backoff": "soon"}, "retry.backoff = 'soon': must be a number of seconds"),
        ({"backoff": 10**400}, "retry.backoff = 1000"),
        ({"longest": -1}, "retry.longest = -1: must be seconds, 0 or more"),
        ({"on": "Busy"}, "retry.on = 'Busy': must name an exception of Python's, or another one as module:Class"),
        ({"on": "KeyboardInterrupt"}, "retry.on = 'KeyboardInterrupt'"),
        ({"on": []}, "retry.on = []: must be an exception class"),
        ({"on": [5]}, "retry.on = 5: must be an exception class"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(wrong: object, says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        JobConfig.build(job_name="job", retry=wrong)
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize("on", [(), b"", b"ab", ""])
def test_a_retry_after_no_error_at_all_is_refused(on: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"retry\.on = .*: must"):
        Retry(on=on)


def test_names_are_looked_up_where_no_module_has_to_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    there = ("OSError", f"{__name__}:Busy", "wave:Error", "http.client:HTTPException", "email:MessageError")
    Retry(on=there).check_names()
    for wrong, says in (
        ("nowhere:Busy", "there is no module 'nowhere'"),
        ("nowhere.at.all:Busy", "there is no module 'nowhere.at.all'"),
        (f"{__name__}:Bussy", f"the module {__name__!r} has no such class of exceptions"),
        ("sys:path", "the module 'sys' has no such class of exceptions"),
    ):
        with pytest.raises(InvalidSetting, match=says):
            Retry(on=wrong).check_names()
    half: Any = ModuleType("half")
    half.__spec__ = type("Spec", (), {"_initializing": True})()
    monkeypatch.setitem(sys.modules, "half", half)
    Retry(on="half:Busy").check_names()  # its job is declared while the module is being imported


def test_a_class_that_is_given_is_not_looked_up() -> None:
    made = type("Made", (OSError,), {})
    retry = Retry(on=[made, ZeroDivisionError])
    retry.check_names()  # no module has the first one
    assert retry == Retry(on=[f"{__name__}:Made", "ZeroDivisionError"])


def test_a_name_may_be_of_the_program_that_this_process_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    program: Any = ModuleType("__main__")
    program.__spec__, program.__file__, program.Busy = None, "/srv/our_program.py", Busy
    monkeypatch.setitem(sys.modules, "__main__", program)
    Retry(on="our_program:Busy").check_names()
    with pytest.raises(InvalidSetting, match="'our_program' has no such class of exceptions"):
        Retry(on="our_program:Bussy").check_names()


@pytest.mark.anyio
async def test_names_in_code_are_looked_up_when_the_application_starts() -> None:
    job, flow = ElasticJob("embedded://"), ElasticJob("embedded://")
    job.add(lambda context: None, name="job", retry=Retry(on=f"{__name__}:Bussy"))

    @flow.dataflow(retry=Retry(on=f"{__name__}:Bussy"))
    async def records(context: ItemContext) -> list[int]:
        return []

    @records.process
    async def process(context: ItemContext, record: int) -> None: ...

    for app in (job, flow):
        with pytest.raises(InvalidSetting, match=f"retry.on = '{__name__}:Bussy': the module {__name__!r} has no such"):
            async with app.running():
                pass


def test_pauses_double_up_to_the_longest_and_are_shortened_at_random() -> None:
    retry = Retry(2000, 1.0, longest=5.0)
    for attempt, longest in ((1, 1), (2, 2), (3, 4), (4, 5), (1999, 5)):
        pauses = {retry.pause_after(attempt) for _ in range(50)}
        assert all(longest / 2 <= pause <= longest for pause in pauses)
        assert len(pauses) > 1


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"attempt_timeout": 5, "timeout": 3}, "attempt_timeout = 5.0: must not exceed timeout = 3"),
        (
            {"attempt_timeout": 5, "job_type": "DATAFLOW"},
            "attempt_timeout = 5.0: a dataflow job retries single records",
        ),
        ({"items_at_once": 0}, "items_at_once = 0"),
        ({"items_at_once": 2, "per": "instance"}, 'items_at_once = 2: is for per = "item"'),
        ({"items_at_once": 2, "job_type": "DATAFLOW", "streaming": True}, "items_at_once = 2: a streaming job"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        JobConfig.build(job_name="job", **settings)
    assert str(refused.value).startswith(says)
