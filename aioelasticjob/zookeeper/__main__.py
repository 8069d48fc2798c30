"""`python -m aioelasticjob.zookeeper`: one server as a process."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from aioelasticjob.zookeeper.server import serve


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m aioelasticjob.zookeeper", description="An embedded ZooKeeper server.")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (default: %(default)s)")
    parser.add_argument("--port", type=int, default=2181, help="0 picks a free one (default: %(default)s)")
    parser.add_argument("--data-dir", type=Path, help="where to keep everything; without it, in memory only")
    parser.add_argument("--tick-time", type=int, default=2000, help="ms; sessions last 2 to 20 ticks")
    return parser.parse_args()


async def _run(arguments: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with serve(
        arguments.host, arguments.port, data_dir=arguments.data_dir, tick_time=arguments.tick_time
    ) as server:
        print(f"zookeeper listening on {server.address}", flush=True)
        await stopped.wait()


def main() -> int:
    """Serve until SIGTERM or SIGINT."""
    arguments = _arguments()
    try:
        asyncio.run(_run(arguments))
    except OSError as error:
        print(f"cannot listen on {arguments.host}:{arguments.port}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
