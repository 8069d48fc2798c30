"""`aioelasticjob set NAME SETTING=VALUE…`, `export` and `import`: the settings of jobs."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from enum import StrEnum
from errno import EACCES, EBUSY, EPERM, EROFS
from pathlib import Path
from secrets import token_hex
from shutil import copymode
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from aioelasticjob import operations
from aioelasticjob.cli import completion, stdout
from aioelasticjob.cli.actions import Yes, as_typed, print_result
from aioelasticjob.cli.describe import done_as_json, preview_as_json
from aioelasticjob.cli.jobs import AsJson, Name
from aioelasticjob.cli.operator_name import operator_name
from aioelasticjob.cli.registry import RegistryOptions, on_a_registry
from aioelasticjob.cli.terminal import confirm, out, write_json
from aioelasticjob.config.job import SCHEDULING
from aioelasticjob.core.declaration import shown
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.plural import counted
from aioelasticjob.ground.times import time_text
from aioelasticjob.operations import OperationResult, Preview
from aioelasticjob.operations.settings import settings_from
from aioelasticjob.registry.session import Session

MAX_MOVES_SHOWN = 20
"""At most so many moves of items are shown one by one."""

MAX_SHOWN = 200
"""At most so many characters of a setting's value are shown."""


class Form(StrEnum):
    """The formats of exported configurations."""

    JSON = "json"
    YAML = "yaml"


@on_a_registry
def set_(
    where: RegistryOptions,
    name: Name,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="SETTING=VALUE…", help="Such as cron='0 0 3 * * ?'.", autocompletion=completion.settings
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it would do.")] = False,
    as_json: AsJson = False,
) -> None:
    """Change settings of a job while it runs, and show what that does: next fires, items that move, warnings."""
    given = pairs(settings)

    async def change(session: Session) -> tuple[Preview, OperationResult | None]:
        seen = await operations.preview(session, name, given)
        if dry_run:
            return seen, None
        return seen, await operations.configure(session, name, given, version=seen.version, by=operator_name())

    preview, done = where.look(change)
    if as_json:
        write_json({"preview": preview_as_json(preview), "done": None if done is None else done_as_json(done)})
        return
    out().print(_picture(preview))
    if done is None:
        out().print("nothing was written", style="dim")
    else:
        print_result(done, as_json=False)


@on_a_registry
def export(
    where: RegistryOptions,
    names: Annotated[
        list[str] | None, typer.Argument(help="The jobs; without any, all jobs.", autocompletion=completion.jobs)
    ] = None,
    form: Annotated[Form, typer.Option(help="The format: JSON or YAML.")] = Form.JSON,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file, not to stdout.")] = None,
) -> None:
    """Print the configurations of jobs, to keep or to import elsewhere."""
    text = where.look(lambda session: operations.export_jobs(session, names or None, form=form.value))
    if output is None:
        print(text, end="", file=stdout())
        return
    try:
        _replace(output, text)
    except OSError as error:
        raise InvalidSetting("output", str(output), f"cannot be written: {error.strerror or error}") from error


@on_a_registry
def import_(
    where: RegistryOptions,
    file: Annotated[Path, typer.Argument(help="What export wrote, JSON or YAML; - is stdin.")],
    overwrite: Annotated[bool, typer.Option(help="Replace the settings of jobs that are there.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Write configurations into the registry: all of them, or none if one is wrong."""
    text = read_text(file)
    if overwrite:
        confirm(f"Replace the settings of jobs that are there by those of {file}?", sure=yes)
    by = operator_name()
    with as_typed(**{"import": ("file", str(file))}):
        done = where.look(
            lambda session: operations.import_jobs(session, text, overwrite=overwrite, by=by), creates=True
        )
    print_result(done, as_json=as_json)


def _replace(file: Path, text: str) -> None:
    """Write a file as a whole.  If that fails, as on a full disk, an earlier file is as it was.

    It is written directly if another file cannot take its place: nothing can be made in its directory, it is a mount
    point, or it belongs to somebody else.

    Raises: OSError.
    """
    if file.exists() and not file.is_file():  # a pipe, a terminal: there is nothing to keep
        file.write_text(text, "utf-8")
        return
    file = file.resolve()
    newer = file.with_name(f".{token_hex(8)}.part")
    try:
        newer.touch()
        if file.exists():  # before anything is in it: settings may hold credentials
            _take_after(newer, file)
        newer.write_text(text, "utf-8")
        newer.replace(file)
    except BaseException as error:
        with suppress(OSError):
            newer.unlink(missing_ok=True)
        if not isinstance(error, OSError) or error.errno not in (EACCES, EPERM, EBUSY, EROFS):
            raise
        file.write_text(text, "utf-8")


def _take_after(newer: Path, file: Path) -> None:
    """Give a file the mode, the owner and the group of another."""
    copymode(file, newer)
    wanted, made = file.stat(), newer.stat()
    if (wanted.st_uid, wanted.st_gid) != (made.st_uid, made.st_gid):
        os.chown(newer, wanted.st_uid, wanted.st_gid)
        copymode(file, newer)  # a change of the owner may have cleared some of it


def pairs(settings: list[str]) -> dict[str, object]:
    """Return settings that were typed as SETTING=VALUE.

    Raises:
        InvalidSetting: one is no such pair, or is given twice.
    """
    given = dict[str, object]()
    for pair in settings:
        setting, equals, value = pair.partition("=")
        if not equals or not setting:
            raise InvalidSetting("setting", pair, "write setting=value, as shardingTotalCount=6")
        if setting in given:
            raise InvalidSetting("setting", pair, "is given twice")
        if not value.strip() and next(iter(settings_from({setting: value}).values())) in (None, ()):
            raise InvalidSetting(setting, value, f"write {setting}=none if the job is to have none")
        given[setting] = value
    return given


def _picture(preview: Preview) -> RenderableType:
    table = Table.grid(padding=(0, 3))
    for name, (before, after) in preview.changed.items():
        table.add_row(
            Text(name, style="bold"), Text(shown(before, MAX_SHOWN), style="dim"), Text(f"→ {shown(after, MAX_SHOWN)}")
        )
    if preview.changed.keys() & SCHEDULING:
        for number, fire in enumerate(preview.next_fires):
            table.add_row(Text("" if number else "next fires", style="bold"), Text(time_text(fire)))
    for number, (item, (source, target)) in enumerate(preview.moves.items()):
        if number == MAX_MOVES_SHOWN:
            table.add_row("", Text(f"and {counted(len(preview.moves) - MAX_MOVES_SHOWN, 'item')} more"))
            break
        table.add_row(
            Text("" if number else "moves", style="bold"),
            f"item {item}",
            Text(f"{source or 'new'} → {target or 'gone'}"),
        )
    return Group(table, *(Text(f"mind: {warning}", style="yellow") for warning in preview.warnings))


def read_text(file: Path) -> str:
    """Return the text of a file, or of standard input.

    Raises:
        InvalidSetting: it cannot be read.
    """
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except OSError as error:
        raise InvalidSetting("file", str(file), f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InvalidSetting("file", str(file), f"is no text: {error}") from None
