"""All commands together, and the one place where an error becomes a line on stderr and an exit code."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from aioelasticjob.cli import actions, config, cron, demo, dump, events, jobs, requests, run, settings, web, zookeeper
from aioelasticjob.cli.terminal import print_error
from aioelasticjob.errors import ElasticJobError, InvalidSetting

WRONG_SETTING, FAILED = 2, 1
"""Exit codes: the request makes no sense, like a wrong option; or it could not be done."""


class Commands(TyperGroup):
    """The group of all commands: it prints an error of this package as one line on stderr, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the given command."""
        try:
            return super().invoke(ctx)
        except ElasticJobError as error:
            print_error(str(error))
            wrong = isinstance(error, InvalidSetting) or isinstance(error.__cause__, InvalidSetting)
            raise typer.Exit(WRONG_SETTING if wrong else FAILED) from None


application = typer.Typer(
    name="aioelasticjob",
    cls=Commands,
    help="Distributed cron for asyncio: sharded jobs over ZooKeeper.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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
    _: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Distributed cron for asyncio: sharded jobs over ZooKeeper."""


START, LOOK, ACT = "Start", "Look", "Act"
application.command(rich_help_panel=START)(run.run)
application.command(rich_help_panel=START)(zookeeper.zookeeper)
application.command(rich_help_panel=START)(web.console)
application.command(rich_help_panel=START)(demo.demo)
application.command(rich_help_panel=LOOK)(jobs.jobs)
application.command(rich_help_panel=LOOK)(jobs.job)
application.command(rich_help_panel=LOOK)(jobs.servers)
application.command(rich_help_panel=LOOK)(jobs.watch)
application.command(rich_help_panel=LOOK)(dump.dump)
application.command(rich_help_panel=LOOK)(cron.cron)
application.add_typer(config.config, rich_help_panel=LOOK)
application.add_typer(events.events, rich_help_panel=LOOK)
application.add_typer(requests.requests, rich_help_panel=LOOK)
application.command(rich_help_panel=ACT)(requests.trigger)
application.command(rich_help_panel=ACT)(requests.backfill)
application.command(rich_help_panel=ACT)(requests.rerun)
application.command(rich_help_panel=ACT)(requests.cancel)
application.command(rich_help_panel=ACT)(actions.pause)
application.command(rich_help_panel=ACT)(actions.resume)
application.command(rich_help_panel=ACT)(actions.disable)
application.command(rich_help_panel=ACT)(actions.enable)
application.command("set", rich_help_panel=ACT)(settings.set_)
application.command(rich_help_panel=ACT)(actions.shutdown)
application.command(rich_help_panel=ACT)(actions.remove)
application.command(rich_help_panel=ACT)(settings.export)
application.command("import", rich_help_panel=ACT)(settings.import_)


def main() -> None:
    """Run the command line and exit."""
    application()
