"""`python -m aioelasticjob.zookeeper`: one server as a process."""

import argparse
import asyncio
import errno
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

from aioelasticjob.zookeeper.server import serve
from aioelasticjob.zookeeper.settings import Settings
from aioelasticjob.zookeeper.store import StoreError


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m aioelasticjob.zookeeper", description="An embedded ZooKeeper server.")
    option = parser.add_argument
    option("--host", default="127.0.0.1", help="the address to listen at (default: %(default)s)")
    option("--port", type=_number(0, 65535), default=2181, metavar="PORT", help="0: a free one (default: %(default)s)")
    option("--data-dir", type=Path, metavar="DIR", help="where to keep everything; without it, in memory only")
    option("--tick-time", type=_number(1, 3_600_000), default=2000, metavar="MS", help="sessions last 2 to 20 ticks")
    option(
        "--container-check",
        type=_number(1, 86_400_000),
        default=60_000,
        metavar="MS",
        help="time between looks for empty containers and outlived nodes",
    )
    return parser.parse_args()


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text)
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{number} is not between {least} and {most}")
        return number

    return read


async def _run(arguments: argparse.Namespace) -> None:
    settings = Settings(tick_time=arguments.tick_time, container_check_interval=arguments.container_check)
    async with serve(arguments.host, arguments.port, data_dir=arguments.data_dir, settings=settings) as server:
        for number in (signal.SIGTERM, signal.SIGINT):
            server.loop.add_signal_handler(number, server.request_stop)
        print(f"zookeeper listening on {server.address}", flush=True)
        await server.ended


def main() -> int:
    """Serve until SIGTERM or SIGINT."""
    arguments = _arguments()
    try:
        asyncio.run(_run(arguments))
    except OSError as error:
        print(f"cannot listen on {arguments.host}:{arguments.port}: {_reason(error)}", file=sys.stderr)
    except (StoreError, sqlite3.Error) as error:
        print(error, file=sys.stderr)
    else:
        return 0
    return 1


def _reason(error: OSError) -> str:
    return "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)


if __name__ == "__main__":
    sys.exit(main())
