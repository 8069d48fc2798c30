"""The nodes of a job, read as what they mean."""

from __future__ import annotations

from math import inf

import pytest

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.layout import SWITCHES, server_switch
from aioelasticjob.core.view import follow, read
from aioelasticjob.registry.transaction import Create, Set
from tests.core.rules.world import LAYOUT, knowing, requiring, world


def test_what_is_required_counts_though_the_rest_makes_no_sense_here() -> None:
    there = world(1, sharding_total_count=2)
    there.registry.commit([knowing(2, "x")], incarnation=2)
    there.settle()
    view = requiring(there, b'{"jobName": "job", "requires": ["x"], "dst": "new"}')
    assert view.fault is not None
    assert (view.eligible, view.config.sharding_total_count) == (("10.0.0.2@-@1",), 2)
    view = requiring(there, b'{"jobName": "job", "requires": [7], "dst": "new"}')
    assert len(view.eligible) == 2  # which says nothing, so the last word holds: it was nothing


@pytest.mark.parametrize("data", [b'{"features": "x"}', b'{"features": {"x": 1}}', b'{"features": [["x"]]}', b"x"])
def test_an_instance_that_does_not_say_what_it_knows_knows_nothing(data: bytes) -> None:
    there = world(0, requires=["x"])
    there.registry.commit([Create(LAYOUT.instance("10.0.0.1@-@1"), data, ephemeral=True)], incarnation=1)
    assert there.settle().eligible == ()


def test_items_are_those_whose_names_are_numbers_as_we_spell_them() -> None:
    here = world(1, sharding_total_count=1)
    here.settle()
    here.registry.commit([Create(f"{LAYOUT.sharding}/{name}") for name in ("7", "007", "x", "1" * 7, "٣", "²")])
    view = here.view()
    assert view.items == {0, 7}
    assert view.assignment.keys() == {0}  # nobody holds the other


def test_who_leaves_holds_items_only_while_nobody_stays() -> None:
    here = world(2)
    leaving = Set(LAYOUT.instance("10.0.0.1@-@1"), b'{"leaving": true}', -1)
    here.registry.commit([leaving])
    assert here.view().staying == here.view().eligible == ("10.0.0.2@-@1",)
    here.registry.expire(2)
    assert (here.view().staying, here.view().eligible) == ((), ("10.0.0.1@-@1",))
    here.registry.commit([Create(LAYOUT.server_disabled("10.0.0.1"))])
    assert here.view().eligible == ()


def test_a_configuration_that_has_not_changed_is_not_read_again() -> None:
    here = world(1)
    before = here.view()
    here.registry.commit([Create(LAYOUT.shutdown("x"))])
    assert follow(before, here.registry.tree(), before.common).config is before.config
    here.registry.commit([Set(LAYOUT.config, before.config.changed(sharding_total_count=7).to_json(), -1)])
    assert follow(before, here.registry.tree(), before.common).config.sharding_total_count == 7


def test_a_process_keeps_one_value_of_a_configuration_that_it_declares_as_it_is_stored() -> None:
    here = world(1)
    same = JobConfig.from_json(here.config.to_json(), "")
    assert read(here.registry.tree(), LAYOUT, same, same.job_type).config is same


ONE, TWO = "10.0.0.1@-@1", "10.0.0.2@-@1"


@pytest.mark.parametrize(
    ("flag", "eligible", "active"),
    [
        (LAYOUT.server_paused("10.0.0.1"), (ONE, TWO), {TWO}),
        (server_switch("10.0.0.1", "paused"), (ONE, TWO), {TWO}),
        (LAYOUT.paused, (ONE, TWO), set()),
        (LAYOUT.server_disabled("10.0.0.1"), (TWO,), {TWO}),
        (server_switch("10.0.0.1", "disabled"), (TWO,), {TWO}),
    ],
)
def test_who_is_paused_holds_and_leads_and_who_is_disabled_does_not(
    flag: str, eligible: tuple[str, ...], active: set[str]
) -> None:
    here = world(2, sharding_total_count=2)
    here.settle()
    here.registry.commit([*map(Create, (SWITCHES, server_switch("10.0.0.1"))), Create(flag)])
    view = here.view()
    assert (view.eligible, view.staying, view.active) == (eligible, eligible, active)
    rests = {item for item, holder in view.assignment.items() if holder in eligible and holder not in active}
    assert view.resting_items == rests


def test_since_when_somebody_has_been_there_is_handed_on_by_those_who_join() -> None:
    here = world(0)
    assert here.view().up_since == inf
    here.registry.now = 2_000.0
    notes = [b'{"upSince": %s}' % since for since in (b"1500", b"9000", b'"then"', b"true")]  # the last three cannot be
    for number, data in enumerate(notes, 1):
        here.registry.commit([Create(LAYOUT.instance(f"10.0.0.{number}@-@1"), data, ephemeral=True)], number)
    assert [one.up_since for one in here.view().instances.values()] == [1_500, 2_000, 2_000, 2_000]
    assert here.view().up_since == 1_500


def test_a_mark_that_cannot_be_removed_is_answered_by_an_assignment_after_it() -> None:
    here = world(1)
    here.settle()
    here.registry.commit([Create(LAYOUT.necessary), Create(f"{LAYOUT.necessary}/x")])
    assert (here.view().necessary, here.view().assignment_stands) == (0, False)
    here.registry.commit([Set(LAYOUT.sharding, b"", -1)])
    assert (here.view().necessary, here.view().assignment_stands) == (None, True)


def test_an_orphan_awaits_rescue_unless_it_is_unwanted_or_what_was_made_by_hand_stands_in_the_way() -> None:
    here = world(1, sharding_total_count=4, failover=True)
    here.settle()
    here.registry.commit([Create(LAYOUT.item(item).orphan) for item in (0, 1, 2, 9)])
    here.registry.commit([Create(f"{LAYOUT.item(1).orphan}/x"), Create(LAYOUT.item(2).failover)])
    assert [item for item in range(10) if here.view().awaits_rescue(item)] == [0]
    assert here.view().rescues == {}  # the mark made by hand is nobody's


@pytest.mark.parametrize(
    ("stored", "fault"),
    [
        (b'{"jobName": "job", "jobType": "DATAFLOW", "shardingTotalCount": 5}', "the job runs as SIMPLE"),
        (b'{"jobName": "other", "shardingTotalCount": 5}', "the job's name is job"),
        (b'{"jobName": "job", "shardingTotalCount": -5}', "shardingTotalCount"),
    ],
)
def test_a_configuration_that_makes_no_sense_here_leaves_the_last_good_one(stored: bytes, fault: str) -> None:
    here = world(1, sharding_total_count=3)
    here.registry.commit([Set(LAYOUT.config, stored, -1)])
    view = read(here.registry.tree(), LAYOUT, here.config, "SIMPLE")
    assert view.config == here.config
    assert fault in str(view.fault)


def test_an_error_handler_that_does_not_work_here_leaves_the_last_good_one_and_nothing_else() -> None:
    here = world(1, sharding_total_count=3, error_handler="ignore")
    stored = b'{"jobName": "job", "jobType": "SIMPLE", "shardingTotalCount": 5, "errorHandler": "carrier-pigeon"}'
    here.registry.commit([Set(LAYOUT.config, stored, -1)])
    view = read(here.registry.tree(), LAYOUT, here.config, "SIMPLE")
    assert (view.config.error_handler, view.config.sharding_total_count) == ("ignore", 5)
    assert "the error handler ignore stays in use" in str(view.fault)
    looked_at = read(here.registry.tree(), LAYOUT, here.config)  # by somebody who runs nothing
    assert (looked_at.config.error_handler, looked_at.fault) == ("carrier-pigeon", None)


def test_an_executor_that_is_unknown_here_leaves_the_last_one_and_nothing_else() -> None:
    here = world(1, sharding_total_count=3)
    stored = b'{"jobName": "job", "jobType": "SIMPLE", "shardingTotalCount": 5, "executor": "fibre"}'
    here.registry.commit([Set(LAYOUT.config, stored, -1)])
    view = read(here.registry.tree(), LAYOUT, here.config, "SIMPLE")
    assert (view.config.executor, view.config.sharding_total_count) == ("thread", 5)
    assert "must be one of thread, process; the executor thread stays in use" in str(view.fault)
