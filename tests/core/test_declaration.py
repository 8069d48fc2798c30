"""What a process declares of a job, beside what applies in the cluster."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from aioelasticjob import Retry
from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.declaration import Difference, differences, other_handlers
from aioelasticjob.core.layout import Layout
from aioelasticjob.operations.settings import settings_from
from aioelasticjob.registry.tree import Node, Stat, Tree

LAYOUT = Layout("report")
STAT = Stat.of((1, 1), (0.0, 0.0), 0)


def config(**settings: Any) -> JobConfig:
    return JobConfig(job_name="report", **settings)


def test_each_setting_that_differs_is_found_also_one_that_is_declared_no_more() -> None:
    found = differences(config(cron="0 0 3 * * ?", overwrite=True), config(cron="0 0 2 * * ?", failover=True))
    assert [(one.setting, one.declared, one.applies) for one in found] == [
        ("cron", "0 0 3 * * ?", "0 0 2 * * ?"),
        ("failover", False, True),
    ]
    assert differences(config(timeout=5), config(timeout=5, requires=("later",))) == ()


def test_the_warning_has_both_values_which_applies_and_what_to_do() -> None:
    assert Difference("cron", "0 0 3 * * ?", "0 0 2 * * ?").text("report") == (
        "report: cron = '0 0 3 * * ?' is declared here, but the registry has '0 0 2 * * ?';"
        " the registry's value applies: to change it, declare overwrite=True,"
        " or run aioelasticjob set report 'cron=0 0 3 * * ?'"
    )
    assert "set report failover=true" in Difference("failover", True, False).text("report")
    parameters = Difference("sharding_item_parameters", {0: "Beijing", 1: "Wuhan"}, {0: "Beijing"}).text("report")
    assert "= {0: 'Beijing', 1: 'Wuhan'} is declared here, but the registry has {0: 'Beijing'};" in parameters


@pytest.mark.parametrize(
    ("declared", "applies", "meaning"),
    [
        (8, 4, "nobody runs items 4 to 7 of this code, and if it divides the work by 8, nobody does their share of it"),
        (5, 4, "nobody runs item 4 of this code, and if it divides the work by 5, nobody does its share of it"),
        (4, 8, "items 4 to 7 are run as well, and if this code divides the work by 4, there is none for them"),
        (1, 2, "item 1 is run as well, and if this code divides the work by 1, there is none for it"),
    ],
)
def test_the_warning_of_another_item_count_says_which_items_nobody_runs(
    declared: int, applies: int, meaning: str
) -> None:
    assert Difference("sharding_total_count", declared, applies).text("report") == (
        f"report: sharding_total_count = {declared} is declared here, but the registry has {applies}: {meaning}"
        " (let it divide by context.sharding_total_count);"
        " the registry's value applies: to change it, declare overwrite=True,"
        f" or run aioelasticjob set report sharding_total_count={declared}"
    )


@pytest.mark.parametrize(
    "declared",
    [
        {"timeout": None},
        {"timeout": 5},
        {"failover": True},
        {"sharding_item_parameters": {0: "Beijing, Haidian", 1: "it's"}, "sharding_total_count": 2},
        {"sharding_item_parameters": {}},
        {"labels": {"team": "billing", "tier": "gold"}},
        {"alert_on": ("failed", "missed")},
        {"alert_on": ()},
        {"retry": Retry(5, on=ConnectionError)},
        {"description": "ends with =…"},
    ],
)
def test_the_command_of_the_warning_sets_what_is_declared(declared: dict[str, Any]) -> None:
    applies = config(sharding_total_count=2, sharding_item_parameters={0: "a"}, timeout=7, labels={"x": "y"})
    for name in declared:
        value = getattr(config(**declared), name)
        command = Difference(name, value, None).text("report").partition("aioelasticjob set report ")[2]
        (typed,) = shlex.split(command)
        setting, _, text = typed.partition("=")
        assert getattr(applies.changed(**settings_from({setting: text})), name) == value


def test_values_of_options_are_not_shown() -> None:
    text = Difference("error_handler_options", {"password": "a", "to": "x"}, {"password": "b", "to": "x"}).text(
        "report"
    )
    assert "other values for password than the registry has" in text
    assert text.endswith("'error_handler_options=…'")
    assert "'a'" not in text
    assert "'b'" not in text


def test_a_long_value_is_shortened() -> None:
    text = Difference("job_parameter", "a" * 5000, "").text("report")
    assert f"'{'a' * 99}… (5,002 characters) is declared here" in text


def test_other_handlers_are_those_that_say_so() -> None:
    fields = {"one": {"handler": "jobs:report"}, "two": {"handler": "old:report"}, "three": {}, "four": {"handler": 5}}
    nodes = {LAYOUT.instance(name): Node.of(json.dumps(data).encode(), STAT) for name, data in fields.items()}
    tree = Tree({LAYOUT.instances: Node.of(b"", STAT), **nodes}, 1)
    assert other_handlers(tree, LAYOUT, "one", "jobs:report") == {"two": "old:report"}
    assert other_handlers(tree, LAYOUT, "one", "") == {}
