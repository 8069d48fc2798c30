"""All commands together, and the one place where an error becomes a line on stderr and an exit code.

A command's module is imported when the command is used: all of them together take much longer than most commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from errno import EADDRINUSE, EDQUOT, EIO, ENOSPC
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from aioelasticjob.cli import FAILED
from aioelasticjob.errors import ElasticJobError, InvalidSetting

WRONG_SETTING = 2
"""The exit code if the request makes no sense, like a wrong option."""


START, LOOK, ACT = "Start", "Look", "Act"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a command is, and how the list of all commands shows it."""

    panel: str
    help: str
    """The first sentences of its own help; a test compares them."""
    module: str
    name: str
    """The name in its module, of a function or of a group of commands."""

    def load(self, command: str) -> Any:
        """Import the command."""
        found = getattr(import_module(f"aioelasticjob.cli.{self.module}"), self.name)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(command)(found)
            found = alone
        return get_command(found)


COMMANDS: Mapping[str, Source] = {
    "run": Source(
        START, "Run an application's jobs until SIGTERM or Ctrl-C; a second signal stops at once.", "run", "run"
    ),
    "zookeeper": Source(START, "Run an embedded ZooKeeper server until SIGTERM or Ctrl-C.", "zookeeper", "zookeeper"),
    "console": Source(
        START,
        "Serve the web console until SIGTERM or Ctrl-C.  Its first start prints a one-time link to set a password.",
        "web",
        "console",
    ),
    "alert": Source(
        START,
        "Run until SIGTERM or Ctrl-C: tell of each fault when it begins, while it lasts, and when it is over.",
        "alert",
        "alert",
    ),
    "demo": Source(
        START,
        "Show a job at work: an embedded server, three workers, six items, every file of a directory indexed once.",
        "demo",
        "demo",
    ),
    "jobs": Source(
        LOOK,
        "List the jobs of a namespace.",
        "jobs",
        "jobs",
    ),
    "job": Source(
        LOOK, "Show one job: its settings, who leads, which instance holds and runs which item.", "jobs", "job"
    ),
    "servers": Source(
        LOOK, "List the servers of a namespace, and which of them are paused or disabled.", "servers", "servers"
    ),
    "server": Source(
        LOOK,
        "Show one server: each of its jobs with items, instances, counts and flags there, and what runs there now.",
        "servers",
        "server",
    ),
    "watch": Source(
        LOOK,
        "Stay and show every change: of all jobs, or of one. The same as --watch after jobs and job.",
        "jobs",
        "watch",
    ),
    "dump": Source(
        LOOK,
        "Print every node of a job, one line each: path | data | version. To look at, or to send to somebody.",
        "dump",
        "dump",
    ),
    "schedule": Source(
        LOOK,
        "Show the next moments of a job's schedule, or of another one, and describe it in words.",
        "schedule",
        "schedule",
    ),
    "cron": Source(
        LOOK,
        "Show the next moments of a job's schedule, or of another one, and describe it in words.",
        "schedule",
        "schedule",
    ),
    "config": Source(LOOK, "Look at settings files.", "config", "config"),
    "events": Source(LOOK, "The history of runs, from an event store.", "events", "events"),
    "requests": Source(
        LOOK,
        "List what was asked of a job (requests NAME), or of all; cancel or pause a request.",
        "requests",
        "requests",
    ),
    "doctor": Source(
        LOOK,
        "Examine a registry: what is seen, whether it is good, and what to change.  It leaves nothing behind.",
        "doctor",
        "doctor",
    ),
    "trigger": Source(
        ACT, "Run a job once, now or later: all its items, or some; or what one instance holds.", "requests", "trigger"
    ),
    "backfill": Source(
        ACT,
        "Run the scheduled moments of a span again: each item one after another, oldest first.",
        "requests",
        "backfill",
    ),
    "rerun": Source(ACT, "Run one scheduled moment again.", "requests", "rerun"),
    "cancel": Source(
        ACT,
        "Stop the runs of a job that are under way, or the run of one item.",
        "requests",
        "cancel",
    ),
    "pause": Source(
        ACT,
        "Pause a job, a job on one server, or a server in all jobs: nothing is run there, and all items stay there.",
        "actions",
        "pause",
    ),
    "resume": Source(ACT, "Resume what was paused; what is off for another reason stays off.", "actions", "resume"),
    "disable": Source(
        ACT,
        "Disable a server, in one job or in all: its items move. Or disable one item, or a whole job, which pauses it.",
        "actions",
        "disable",
    ),
    "enable": Source(
        ACT, "Enable what was disabled. What is switched off in another way as well stays off.", "actions", "enable"
    ),
    "set": Source(
        ACT,
        "Change settings of a job while it runs, and show what that does: next fires, items that move, warnings.",
        "settings",
        "set_",
    ),
    "create": Source(
        ACT,
        "Create a job, or those of a file, for a handler: every process that has the handler runs them.",
        "creation",
        "create",
    ),
    "calendars": Source(
        ACT,
        "The days on which jobs do not run: list, show, set, import or remove calendars.",
        "calendars",
        "calendars",
    ),
    "shutdown": Source(
        ACT,
        "Let instances leave a job once their runs have ended; a new start of their processes brings them back.",
        "actions",
        "shutdown",
    ),
    "remove": Source(
        ACT,
        "Remove everything that the registry holds of a job; or remove a server from all jobs.",
        "actions",
        "remove",
    ),
    "export": Source(ACT, "Print the configurations of jobs, to keep or to import elsewhere.", "settings", "export"),
    "import": Source(
        ACT, "Write configurations into the registry: all of them, or none if one is wrong.", "settings", "import_"
    ),
}


class Commands(TyperGroup):
    """The group of all commands: it prints an error of this package as one line on stderr, without a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, which is imported for that; None if there is none of this name."""
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            self.commands[cmd_name] = COMMANDS[cmd_name].load(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command.  Typer suggests one for a typo only if it was imported."""
        if args[0] not in COMMANDS and (near := get_close_matches(args[0], COMMANDS)):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {', '.join(map(repr, near))}?")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the list of all commands.  It imports neither the commands nor Rich, which Typer would use."""
        formatter.write_usage(ctx.command_path, "[OPTIONS] COMMAND [ARGS]...")
        formatter.write(f"\n{self.help}\n")
        options = [record for option in self.get_params(ctx) if (record := option.get_help_record(ctx)) is not None]
        lists = {"Options": options}
        for name, source in COMMANDS.items():
            lists.setdefault(source.panel, []).append((name, source.help))
        for title, rows in lists.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        """Run the given command."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as refusal:  # of a choice; the words before it are pydantic's
            refusal.message = refusal.message.removeprefix("Value error, ")
            raise
        except ElasticJobError as error:
            from aioelasticjob.cli.terminal import print_error  # here, so that most commands do not wait for Rich

            print_error(error.with_page())
            wrong = isinstance(error, InvalidSetting) or isinstance(error.__cause__, InvalidSetting)
            raise typer.Exit(WRONG_SETTING if wrong and not _may_work_later(error) else FAILED) from None


def _may_work_later(error: ElasticJobError) -> bool:
    """Whether a setting may be right, because a port is only taken by somebody else, or a disk is full or broken."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in (EADDRINUSE, EDQUOT, EIO, ENOSPC)


application = typer.Typer(
    name="aioelasticjob",
    cls=Commands,
    help="Distributed cron for asyncio: sharded jobs over ZooKeeper.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"aioelasticjob {version('aioelasticjob')}")
        except PackageNotFoundError:
            typer.echo("aioelasticjob (run from its sources, not installed)")
        raise typer.Exit


@application.callback()
def common(
    ctx: typer.Context,
    _: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Distributed cron for asyncio: sharded jobs over ZooKeeper."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(WRONG_SETTING)
