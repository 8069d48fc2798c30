"""Contexts for handlers that are called alone: all that a handler may read is there, and offsets are kept."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import anyio
import pytest
from anyio import from_thread, to_thread

from aioelasticjob import FireSource, InstanceContext, InvalidSetting, ItemContext
from aioelasticjob.jobs.context import described
from aioelasticjob.testing import instance_context, item_context

SEVEN = datetime(2026, 3, 30, 7, tzinfo=ZoneInfo("Europe/Berlin"))


def test_without_arguments_it_is_the_first_run_of_the_only_item() -> None:
    context = item_context()
    assert type(context) is ItemContext
    assert (context.item, context.parameter, context.sharding_total_count) == (0, None, 1)
    assert (context.job_parameter, context.request, context.offset) == ("", None, None)
    assert (context.attempt, context.source, context.monitor_execution) == (1, FireSource.SCHEDULE, True)
    assert context.fire_time == datetime(2026, 1, 1, tzinfo=UTC)
    assert context.run_id == "job@20260101T000000Z"
    assert '"taskId": "job@-@0@-@READY@-@10.0.1.1@-@1-00000000@-@20260101T000000Z.1"' in described(context)


def test_what_is_given_is_what_the_handler_reads(caplog: pytest.LogCaptureFixture) -> None:
    context = item_context(
        item=2,
        parameter="Beijing",
        offset="97",
        fence=17,
        job_name="remind",
        job_parameter="nightly",
        sharding_total_count=6,
        fire_time=SEVEN,
        source=FireSource.FAILOVER,
        attempt=2,
        instance="10.0.0.5@-@4711-ab",
    )
    assert (context.item, context.parameter, context.offset, context.fence) == (2, "Beijing", "97", 17)
    assert (context.job_parameter, context.sharding_total_count) == ("nightly", 6)
    assert (context.fire_time.isoformat(), context.source) == ("2026-03-30T07:00:00+02:00", FireSource.FAILOVER)
    assert (context.run_id, context.instance) == ("remind@20260330T050000Z", "10.0.0.5@-@4711-ab")
    with caplog.at_level(logging.INFO):
        context.log.info("reminded")
    assert vars(caplog.records[0])["attempt"] == 2


def test_a_request_is_the_parameter_as_in_a_real_run() -> None:
    context = item_context(request={"day": "Monday"}, job_parameter="nightly")
    assert context.request == {"day": "Monday"}
    assert (context.job_parameter, context.source) == ('{"day": "Monday"}', FireSource.TRIGGER)


def test_an_offset_that_is_saved_is_read_from_the_context() -> None:
    context, other = item_context(offset="97"), item_context()
    anyio.run(context.save_offset, "98")
    assert (context.offset, other.offset) == ("98", None)


def test_a_plain_handler_saves_offsets_if_it_is_called_in_a_thread() -> None:
    def pages(context: ItemContext) -> None:
        from_thread.run(context.save_offset, "98")

    context = item_context()
    anyio.run(to_thread.run_sync, pages, context)
    assert context.offset == "98"


def test_an_instance_has_all_its_items() -> None:
    context = instance_context(
        items=[4, 1], item_parameters={1: "Beijing"}, offsets={4: "97"}, fence=3, fire_time=SEVEN
    )
    assert type(context) is InstanceContext
    assert (context.items, context.item_parameters, context.sharding_total_count) == ((1, 4), {1: "Beijing"}, 5)
    assert (context.fence, context.fences) == (3, {1: 3, 4: 3})
    anyio.run(context.save_offset, 1, "5")
    assert context.offsets == {1: "5", 4: "97"}
    with pytest.raises(InvalidSetting, match="item = 0"):
        anyio.run(context.save_offset, 0, "5")
    assert instance_context().items == (0,)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: item_context(fire_time=datetime(2026, 1, 1)), "fire_time = .*: must be a datetime with a time zone"),
        (lambda: item_context(request={"day": SEVEN}), "must be text, or a mapping that JSON can spell"),
        (lambda: anyio.run(item_context().save_offset, 98), "offset = 98: must be text"),
    ],
)
def test_what_no_run_could_have_is_refused(wrong: Callable[[], object], says: str) -> None:
    with pytest.raises(InvalidSetting, match=says):
        wrong()


def test_a_field_that_no_context_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(TypeError, match="a context has no field parametr: known are attempt, fire_time, instance, "):
        item_context(parametr="Beijing")  # type: ignore[call-arg]
