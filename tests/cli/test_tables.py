"""Tables as they are written: as wide as they need, and folded only where a terminal is too narrow."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO

from rich.console import Console, RenderableType
from rich.text import Text

from aioelasticjob import FireSource, JobConfig
from aioelasticjob.cli.job_lists import JobList
from aioelasticjob.cli.jobs import _instances, _items, _list
from aioelasticjob.cli.requests import _table
from aioelasticjob.cli.servers import _servers
from aioelasticjob.cli.tables import TextTable
from aioelasticjob.core.pauses import Pause
from aioelasticjob.core.requests import Request
from aioelasticjob.model import Record
from aioelasticjob.operations import InstanceStatus, ItemStatus, JobStatus, RequestStatus, ServerStatus

NINE = 1_767_258_000.0
"""2026-01-01 at nine."""


def shown(rows: RenderableType, *, terminal: bool, width: int, wide: bool = False) -> list[str]:
    out = StringIO()
    soft_wrap = wide or not terminal
    console = Console(file=out, force_terminal=terminal, width=width, soft_wrap=soft_wrap, color_system=None)
    console.print(rows)
    return [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]


def rows(*names: str) -> TextTable:
    made = TextTable("Job", ">Items", "State", whole=("Job",))
    for number, name in enumerate(names):
        made.add(name, f"{10**number}", Text("waiting", style="green"))
    return made


def test_columns_stand_below_each_other_numbers_at_the_right() -> None:
    for terminal in (True, False):
        assert shown(rows("a", "日报", "[bold]x"), terminal=terminal, width=80) == [
            " Job      Items  State",
            " " + "─" * 23,
            " a            1  waiting",
            " 日报        10  waiting",
            " [bold]x    100  waiting",
        ]


def test_a_file_gets_whole_lines_however_long() -> None:
    long = "x" * 200
    assert any(long in line and "waiting" in line for line in shown(rows(long), terminal=False, width=40))


def test_a_wide_table_is_shown_in_full_however_narrow_the_terminal_is() -> None:
    table = TextTable("Name", "Text", whole=("Name",), spare=("Text",), wide=True)
    table.add("report-of-the-day", "Beijing " * 9)
    assert "report-of-the-day  " + "Beijing " * 9 in shown(table, terminal=True, width=30, wide=True)[-1] + " "


def test_a_narrow_terminal_gets_folded_cells_and_whole_names() -> None:
    lines = shown(rows("report-of-the-day"), terminal=True, width=30)
    assert all(len(line) <= 30 for line in lines)
    assert any("report-of-the-day" in line for line in lines)


def test_text_of_several_lines_stays_in_its_row() -> None:
    assert shown(rows("one\ntwo"), terminal=False, width=80)[-1] == " one ⏎ two      1  waiting"
    item = ItemStatus(0, "Bei\njing", None, None, None, False, False, False, None)
    status = JobStatus(JobConfig(job_name="job"), None, None, True, None, (), (), (item,))
    assert "Bei ⏎ jing" in shown(_items(status, NINE), terminal=False, width=80)[-1]


def test_nothing_is_a_head_alone() -> None:
    assert len(shown(rows(), terminal=True, width=80)) == 2


def test_a_narrow_terminal_gets_no_spare_columns_and_says_so() -> None:
    made = TextTable("Job", "Kind", ">Items", "State", whole=("Job",), spare=("Kind", "Items"))
    made.add("report-of-the-day", "simple", "100,000", "waiting")
    assert shown(made, terminal=True, width=60)[0].split() == ["Job", "Kind", "Items", "State"]
    narrow = shown(made, terminal=True, width=43)
    assert narrow[0].split() == ["Job", "Items", "State"]
    assert narrow[-1] == "left out, for the terminal is narrow: Kind"
    assert any("report-of-the-day" in line and "waiting" in line for line in narrow)
    assert shown(made, terminal=True, width=32)[-1].endswith(": Kind, Items")
    assert shown(made, terminal=False, width=10)[0].split() == ["Job", "Kind", "Items", "State"]


def test_requests_fit_into_eighty_characters_without_broken_words() -> None:
    asked = Request("1a206251d82-e9473082", FireSource.TRIGGER, 4, 1_767_258_000_000, by="operator@scheduler-host")
    found = RequestStatus(asked, "done", {"completed": 4}, (), ())
    lines = shown(_table([("report", found)], of_all=False), terminal=True, width=80)
    assert any("1a206251d82-e9473082" in line and "2026-01-01T09:00:00+00:00" in line for line in lines)
    assert all(len(line) <= 80 for line in lines)
    assert "By" in lines[-1]


def test_jobs_and_servers_fit_into_eighty_characters_without_broken_words() -> None:
    config = JobConfig.build(job_name="report-of-the-day", cron="0 0/15 8-18 ? * MON-FRI", sharding_total_count=12)
    server = ServerStatus("10.200.100.101", "scheduler-host-1", False, False, 1)
    job = JobStatus(config, None, None, True, None, (), (server,), ()).at(NINE)
    lines = shown(_list(JobList(), (job,), NINE), terminal=True, width=80)
    assert any("report-of-the-day" in line and "nobody there" in line for line in lines)
    hosts = shown(_servers((job,), NINE), terminal=True, width=80)
    assert any("10.200.100.101" in line and "scheduler-host-1" in line for line in hosts)
    assert all(len(line) <= 80 for line in [*lines, *hosts])


def test_the_instances_and_items_of_a_job_fit_into_eighty_characters_without_broken_words() -> None:
    holder = "192.168.100.200@-@1234567-3ae223a4"
    config = JobConfig.build(job_name="report", cron="0 0 2 * * ?", sharding_total_count=12)
    record = Record(0, "SCHEDULE", holder, begun=1_767_257_900_000, completed_at=1_767_257_912_345, outcome="completed")
    items = tuple(ItemStatus(item, "Shanghai", holder, None, None, False, False, False, record) for item in range(12))
    joined = datetime.fromtimestamp(NINE - 5000, UTC)
    one = InstanceStatus(holder, "192.168.100.200", "scheduler-host-1", 1_234_567, joined, True, tuple(range(12)), ())
    job = JobStatus(config, None, holder, True, None, (one,), (), items, Pause(NINE - 5000)).at(NINE)
    instances = shown(_instances(job, NINE), terminal=True, width=80)
    assert any(holder in line and line.endswith("switched off") for line in instances)
    assert instances[-1].startswith("left out, for the terminal is narrow: Host")
    lines = shown(_items(job, NINE), terminal=True, width=80)
    assert sum(holder in line for line in lines) == 12
    words = " ".join(lines).split()
    assert all(words.count(word) == 12 for word in ("completed", "(12,345", "ms)"))
    assert all(len(line) <= 80 for line in [*lines, *instances])


def test_of_an_instance_with_thousands_of_items_only_the_first_are_named() -> None:
    joined = datetime.fromtimestamp(NINE - 5000, UTC)
    one = InstanceStatus("i", "10.0.0.1", "host", 7, joined, True, tuple(range(10_000)), tuple(range(22)))
    config = JobConfig.build(job_name="report", sharding_total_count=10_000)
    table = _instances(JobStatus(config, None, "i", True, None, (one,), (), ()), NINE)
    assert isinstance(table, TextTable)
    line = shown(table, terminal=False, width=80)[-1]
    assert ("18, 19 and 9,980 more " in line, "18, 19 and 2 more " in line, len(line) < 300) == (True, True, True)
