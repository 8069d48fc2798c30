"""The log on stderr: for people and for programs, and one line that switches it on."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import anyio
import pytest

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob import logging as our_logging
from aioelasticjob.testing import VirtualCluster, simulated


def formatted(message: str, *arguments: object, error: BaseException | None = None, **fields: object) -> str:
    about = (type(error), error, None) if error is not None else None
    record = logging.LogRecord("aioelasticjob.x", logging.WARNING, "x.py", 1, message, arguments, about)
    vars(record).update(fields)
    return our_logging.TextFormatter().format(record)


def test_a_line_begins_with_its_time_and_ends_with_the_fields_of_the_event() -> None:
    time, _, line = formatted("items assigned to %s", "a", job="billing", items=3).partition(" ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", time)
    assert line == "WARNING items assigned to a  job=billing items=3"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("", "x=''"),
        ("two words", "x='two words'"),
        ("a=b", "x='a=b'"),
        ("1\n2", r"x='1\n2'"),
        ((1, 2), "x=1,2"),
        (["a", "b"], "x=a,b"),
        (None, "x=None"),
        (0.25, "x=0.25"),
    ],
)
def test_values_are_shown_so_that_it_is_clear_where_they_end(value: object, shown: str) -> None:
    assert formatted("m", x=value).endswith(f"m  {shown}")


def test_an_event_without_fields_ends_with_its_message() -> None:
    assert formatted("registry lost").endswith("WARNING registry lost")


def test_a_message_of_several_lines_becomes_one() -> None:
    assert formatted("a\nb").endswith("a ⏎ b")


def test_a_traceback_follows_its_line() -> None:
    lines = formatted("item failed", error=ValueError("oops"), item=1).splitlines()
    assert lines[0].endswith("item failed  item=1")
    assert lines[-1] == "ValueError: oops"


def test_no_text_controls_the_terminal_of_whoever_reads_the_log() -> None:
    odd = "\x1b[31mred\x1b]0;title\x07\x00\x7f\x9b1mbold"
    shown = "␛[31mred␛]0;title␇␀␡\N{REPLACEMENT CHARACTER}1mbold"
    lines = formatted("item %s failed", odd, error=ValueError(f"{odd}\tafter a tab\nand a line"), job=odd).splitlines()
    assert lines[0].endswith(f"item {shown} failed  job={shown}")
    assert lines[-2:] == [f"ValueError: {shown}\tafter a tab", "and a line"]


def test_a_line_end_of_another_system_is_a_line_end() -> None:
    assert formatted("an answer:\r\nnot found").endswith("WARNING an answer: ⏎ not found")


def test_a_line_for_programs_has_escapes_and_controls_no_terminal_either() -> None:
    odd = "\0 \x1b[31m \r \x7f \x9b1m ä"
    record = logging.LogRecord("aioelasticjob.x", logging.WARNING, "x.py", 1, "%s", (odd,), None)
    vars(record).update(job=odd)
    line = our_logging.JsonFormatter().format(record)
    assert line.isprintable()
    assert [json.loads(line)[name] for name in ("message", "job")] == [odd, odd]


def test_handlers_with_other_formatters_get_messages_that_control_no_terminal() -> None:
    log, shown = our_logging.logger("aioelasticjob.test.control"), list[str]()
    handler = Collecting(shown)
    log.addHandler(handler)
    try:
        log.warning("item %d failed: %s", 3, ValueError("\x1b[2Jgone"))
        log.warning("item %d failed: %s", 3, "plain")
        handler.setFormatter(our_logging.JsonFormatter())
        log.warning("item %d failed: %s", 3, "\x1b[2Jgone")
    finally:
        log.removeHandler(handler)
    assert shown[:2] == ["item 3 failed: ␛[2Jgone", "item 3 failed: plain"]
    assert json.loads(shown[2])["message"] == "item 3 failed: \x1b[2Jgone", "programs get it as it was"


def test_a_line_for_programs_is_one_object_with_the_fields_and_the_stack() -> None:
    record = logging.LogRecord("aioelasticjob.x", logging.ERROR, "x.py", 1, "%s failed", ("täglich",), None)
    vars(record).update(job="täglich", items=frozenset({2, 1}), when=re.compile("x"), level="mine")
    try:
        raise ValueError("oops")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    line = our_logging.JsonFormatter().format(record)
    assert "\n" not in line
    fields = json.loads(line)
    assert (fields["level"], fields["logger"], fields["message"]) == ("ERROR", "aioelasticjob.x", "täglich failed")
    assert (fields["job"], fields["items"]) == ("täglich", [1, 2])
    assert fields["stack"].endswith("ValueError: oops")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", fields["time"])


@pytest.mark.parametrize("form", ["text", "json"])
def test_one_line_switches_info_on_where_nothing_shows_it(
    form: our_logging.Form, capsys: pytest.CaptureFixture[str]
) -> None:
    our_logging.enable(form=form)
    our_logging.enable(form=form)  # again, as a module does that is imported twice
    logging.getLogger("aioelasticjob.engine").info("connected", extra={"job": "report"})
    logging.getLogger("aioelasticjob.engine").debug("not this")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["job"] == "report" if form == "json" else line.endswith("INFO    connected  job=report")


def test_a_level_may_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("aioelasticjob")
    our_logging.enable("WARNING")
    log.info("quiet")
    log.warning("loud")
    assert capsys.readouterr().err.endswith("WARNING loud\n")


class Collecting(logging.Handler):
    """Keeps the lines of a formatter."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


class Failing(logging.Handler):
    """Sends records to a service that is down."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError(f"not delivered: {record.getMessage()}")


def test_what_a_handler_of_the_programs_log_raises_is_shown_and_ends_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)
    log, failing = our_logging.logger("aioelasticjob.test"), Failing()
    assert our_logging.logger("aioelasticjob.test") is log
    log.addHandler(failing)
    try:
        log.error("the job %s failed", "billing")
    finally:
        log.removeHandler(failing)
    shown = capsys.readouterr().err
    assert "ConnectionError: not delivered: the job billing failed" in shown
    assert shown.count("Traceback") == 1


def test_every_logger_of_the_package_is_such_a_logger() -> None:
    package = Path(our_logging.__file__).parent
    plain = [path for path in package.rglob("*.py") if re.search(r"= logging\.getLogger\(__", path.read_text())]
    assert plain == []


@simulated
async def test_a_handler_of_the_log_that_fails_ends_no_run_and_no_application(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    cluster, runs, log, failing = VirtualCluster(), list[int](), logging.getLogger("aioelasticjob"), Failing()
    app = ElasticJob("embedded://")

    @app.job(cron="* * * * * ?")
    async def job(context: ItemContext) -> None:
        runs.append(context.item)
        if len(runs) % 2:
            raise ValueError("this run fails, and the log says so")
        await anyio.sleep(2)  # the next moments are missed, and the log says so

    log.addHandler(failing)
    try:
        await cluster.start(app)
        await anyio.sleep(20)
        assert len(runs) > 5
        await cluster.close()
    finally:
        log.removeHandler(failing)
