"""`aioelasticjob schedule`: the sentence, the next moments, and what is wrong with a wrong one."""

import json

import pytest

from aioelasticjob.cli.schedule import duration_text
from aioelasticjob.clock import SystemClock
from aioelasticjob.config.job import JobConfig
from aioelasticjob.cron import fire_times
from aioelasticjob.ground.times import moment
from tests.cli.conftest import Command


def test_the_sentence_and_the_next_fires_are_shown(command: Command) -> None:
    result = command("cron", "0 0 2 ? * MON-FRI", "--time-zone", "Europe/Berlin", "--count", "3")
    assert result.exit_code == 0
    sentence, *fires = result.stdout.splitlines()
    assert sentence == "At 02:00:00, Monday to Friday, Europe/Berlin"
    assert len(fires) == 3
    assert all("T02:00:00+0" in fire for fire in fires)
    assert not any(day in result.stdout for day in ("Sat ", "Sun "))


def test_programs_get_json(command: Command) -> None:
    before = SystemClock().now()
    result = command("cron", "@daily", "-z", "Asia/Tokyo", "-n", "2", "--json")
    printed = json.loads(result.stdout)
    assert (printed["cron"], printed["timeZone"], printed["dst"]) == ("@daily", "Asia/Tokyo", "cron")
    assert printed["sentence"] == "At 00:00:00, Asia/Tokyo"
    possible = [fire_times("@daily", "Asia/Tokyo", moment(now), 2) for now in (before, SystemClock().now())]
    assert printed["fires"] in [[fire.isoformat() for fire in fires] for fires in possible]


def test_every_kind_of_schedule_is_shown(command: Command) -> None:
    shown = command("schedule", "0 6 * * *", "0 18 * * *", "-n", "2").stdout.splitlines()
    assert shown[0] == "At 06:00:00; At 18:00:00, UTC"
    assert {fire.split()[1][11:19] for fire in shown[1:]} == {"06:00:00", "18:00:00"}
    interval = command("schedule", "--every", "1h 30m", "--start-at", "2190-01-01T00:15", "-z", "Asia/Tokyo", "-n", "2")
    sentence, first, second = interval.stdout.splitlines()
    assert sentence == "Every 1h 30m, from 2190-01-01T00:15"
    assert [one.split()[1] for one in (first, second)] == ["2190-01-01T00:15:00+09:00", "2190-01-01T01:45:00+09:00"]
    single = command("schedule", "--at", "2190-01-01", "--at", "2190-02-01", "--at", "2020-01-01", "--json")
    printed = json.loads(single.stdout)
    assert printed["at"] == ["2190-01-01", "2190-02-01", "2020-01-01"]
    assert printed["fires"] == ["2190-01-01T00:00:00+00:00", "2190-02-01T00:00:00+00:00"]
    delayed = command("schedule", "--at", "2190-01-01", "--jitter", "30s", "--job", "report")
    begins = JobConfig.build(job_name="report", at="2190-01-01", jitter=30).schedule.start_of(moment(6_942_585_600))
    assert delayed.stdout.splitlines()[1].endswith(f"begins {begins.isoformat(timespec='milliseconds')}")
    half = command("schedule", "--every", "1.5s", "--start-at", "2190-01-01", "-n", "2")
    assert [one.split()[1] for one in half.stdout.splitlines()[1:]] == [
        "2190-01-01T00:00:00+00:00",
        "2190-01-01T00:00:01.500+00:00",
    ]


def test_the_rule_for_daylight_saving_can_be_chosen(command: Command) -> None:
    assert command("cron", "0 30 2 * * ?", "--dst", "quartz", "--json").stdout.count('"quartz"') == 1
    assert command("cron", "0 2 * * *", "--dst", "quartz").exit_code == 2  # five fields are not Quartz's


def test_a_schedule_that_has_ended_says_so(command: Command) -> None:
    assert "All its moments are over." in command("cron", "0 0 0 1 1 ? 2020").stdout
    assert "It never fires." in command("cron", "0 0 0 30 2 ?").stdout
    assert "That is the last one." in command("cron", "0 0 0 1 1 ? 2199").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("0 0 2 ? * MON-FRX",), "day-of-week 'MON-FRX'"),
        (("* * *",), "(crontab, minutes first), not 3"),
        (("",), "(crontab, minutes first), not 0"),
        (("@daly",), "@daly"),
        (("@daily", "-z", "Europe/Nowhere"), "there is no such time zone"),
        (("@daily", "--every", "5m"), "a job has one of cron, every and at"),
        (("--at", "soon"), "at = 'soon': must be a time such as"),
        ((), "give an expression, --every, --at, or the name of a job"),
    ],
)
def test_a_wrong_schedule_is_one_line_and_exit_code_2(command: Command, arguments: tuple[str, ...], said: str) -> None:
    result = command("cron", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (3_600, "1 h"),
        (3_605, "1 h"),
        (90_000, "1 d 1 h"),
        (200 * 86_400, "200 d"),
    ],
)
def test_a_while_is_said_in_its_two_largest_units(seconds: float, words: str) -> None:
    assert duration_text(seconds) == words
