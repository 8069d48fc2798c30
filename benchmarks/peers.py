"""Task queues of the Python world moving the same records as our dataflow: ``python -m benchmarks.peers``.

Their requirements exclude one another, so each gets a venv of its own in a temporary directory, with the versions
below; those that need Redis get Debian's ``redis-server`` on a free port, without persistence.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console

from benchmarks import dataflow
from benchmarks.report import Figure, save, show
from benchmarks.servers import HOST
from tests.support.ports import reserved_ports
from tests.support.processes import ChildProcess

NAME: Final = "a task queue's worker, one record a task"
WORKER: Final = Path(__file__).with_name("peer_worker.py")
TIMEOUT: Final = 300.0
"""Seconds for one peer and one load."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A package, and what a venv needs for it."""

    name: str
    requirements: tuple[str, ...]


PEERS: Final = (
    Peer("arq", ("arq==0.28.0",)),
    Peer("taskiq, Redis list", ("taskiq==0.13.0", "taskiq-redis==1.2.4")),
    Peer("taskiq, in memory", ("taskiq==0.13.0", "taskiq-redis==1.2.4")),
    Peer("SAQ", ("saq[redis]==0.26.4", "typing_extensions==4.16.0")),
)
LOADS: Final = ((100, 0.0), (1, 0.01), (64, 0.01), (1000, 0.01))
"""Concurrency, and seconds that the handler waits for."""


def measure(*, quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    with TemporaryDirectory(prefix="peers-") as directory:
        for peer in PEERS:
            python = _installed(Path(directory), peer)
            for concurrency, wait in LOADS[:1] if quick else LOADS:
                records = 200 if quick else _records(concurrency, wait)
                with _redis(Path(directory)) as url:
                    yield from _moved(python, peer, url, (concurrency, wait), records)


def _records(concurrency: int, wait: float) -> int:
    return 10_000 if not wait else min(10_000, 500 * concurrency)


def _moved(python: Path, peer: Peer, url: str, load: tuple[int, float], records: int) -> Iterator[Figure]:
    concurrency, wait = load
    asked = {"peer": peer.name, "redis": url, "records": records, "concurrency": concurrency, "seconds": wait}
    done = subprocess.run([python, WORKER, json.dumps(asked)], capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode:
        raise RuntimeError(f"{peer.name} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    spent = json.loads(done.stdout.splitlines()[-1])
    case = f"{'no-op' if not wait else f'{1000 * wait:g} ms'}, concurrency {concurrency:,}"
    yield Figure(NAME, case, f"{peer.name}: records per second", records / spent["seconds"], "/s")
    yield Figure(NAME, case, f"{peer.name}: processor time per record", 1e6 * spent["cpu"] / records, "µs")


def _installed(directory: Path, peer: Peer) -> Path:
    """Return the Python of a venv that holds the peer alone."""
    place = directory / "-".join(peer.requirements).replace("=", "").replace("[", "-").replace("]", "-")
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *peer.requirements], check=True)
    return python


@contextmanager
def _redis(directory: Path) -> Iterator[str]:
    """Run an empty Redis that forgets."""
    server = shutil.which("redis-server")
    if server is None:
        raise SystemExit("needs redis-server: install Debian's package of that name")
    with reserved_ports(1) as (port,):
        command = [server, "--port", str(port), "--bind", HOST, "--save", "", "--appendonly", "no"]
        process = ChildProcess([*command, "--dir", str(directory)], directory / "redis.log")
        try:
            process.wait_for_output("Ready to accept connections")
            yield f"redis://{HOST}:{port}"
        finally:
            process.kill()
            (directory / "redis.log").unlink()


def main() -> None:
    """Measure our dataflow and what it is compared with in one process, then all peers."""
    parser = argparse.ArgumentParser("python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="see that everything works; the figures mean little")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    asked = parser.parse_args()
    figures = [*dataflow.measure(quick=asked.quick), *measure(quick=asked.quick)]
    show(figures, Console(width=None if sys.stdout.isatty() else 150))
    if asked.json:
        save(figures, asked.json, quick=asked.quick)


if __name__ == "__main__":
    main()
