"""What people read: text of others is shown, and never obeyed."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Group
from rich.text import Text

from aioelasticjob.cli.tables import TextTable
from aioelasticjob.cli.terminal import SafeConsole, confirm, out, print_error, print_warning, write_json

HOSTILE = "a\x1b[2J\x1b]0;owned\x07b\x9b31m\rc\x7f\td\n"


def test_a_terminal_obeys_no_text_of_others() -> None:
    rows = TextTable("Job", "Host")
    rows.add(Text(HOSTILE, style="red"), HOSTILE)
    console = SafeConsole(file=io.StringIO(), force_terminal=True, color_system=None, width=100)
    for one in (Text(HOSTILE), rows, Group(Text(HOSTILE, style="bold"), HOSTILE)):
        console.print(one, markup=False)
    output = console.file.getvalue()  # type: ignore[attr-defined]
    assert not set(output) & set("\x1b\x07\x9b\r\x7f")
    assert "a␛[2J␛]0;owned" in output


def test_colours_of_our_own_stay() -> None:
    console = SafeConsole(file=io.StringIO(), force_terminal=True, color_system="standard", width=100)
    console.print(Text("failed", style="red"))
    assert console.file.getvalue() == "\x1b[31mfailed\x1b[0m\n"  # type: ignore[attr-defined]


def test_errors_and_results_go_that_way(capsys: pytest.CaptureFixture[str]) -> None:
    out().print(Text(HOSTILE))
    print_error(HOSTILE)
    captured = capsys.readouterr()
    assert "\x1b[2J" not in captured.out + captured.err
    assert "␛[2J" in captured.out
    assert "␛[2J" in captured.err


def test_json_for_programs_has_escapes_that_a_terminal_does_not_obey(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"host": HOSTILE}, line=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.isprintable()
    assert json.loads(line) == {"host": HOSTILE}


def test_a_question_controls_no_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    confirm(f"Disable {HOSTILE.strip()}?", sure=False)
    captured = capsys.readouterr()
    assert not set(captured.out + captured.err) & set("\x1b\x07\x9b\r\x7f")
    assert "Disable a␛[2J" in captured.out + captured.err


def test_a_warning_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_warning("look\nout")
    assert capsys.readouterr().err == "warning: look out\n"
