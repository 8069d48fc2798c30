"""After how many seconds is a fault seen, and where?  ``python -m tests.truth [--code DIR] [--only WORD] [--limit S]``.

It breaks one thing after another on real processes: an ensemble of three ZooKeepers, two workers, PostgreSQL, the web
console with a page in a real browser, and the alert command with a receiver for its messages.  It prints a table: a row
for each fault, and a column for each surface.  ``never`` is not within the limit.  With ``--code`` the package under
test is that of another directory, such as an older release: both are measured on one machine then.

It needs Debian's ZooKeeper, PostgreSQL and chromium; for the full disk it has to be root, which may mount a small one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from playwright.sync_api import Page, sync_playwright

from aioelasticjob.clock import SystemClock
from tests.console.browsing import CHROMIUM, QUIETLY
from tests.support import real_postgres
from tests.support.processes import ROOT, TIMEOUT, ChildProcess
from tests.support.real_postgres import RealPostgres
from tests.support.real_zookeeper import ensemble
from tests.truth.stage import SESSION_TIMEOUT, Program, Proxies, Stage, stage
from tests.truth.surfaces import (
    NO_ANSWER,
    PAUSE,
    Look,
    Shown,
    Watcher,
    Webhook,
    answer_of,
    output_of,
    page_of,
    watched_here,
)

SURFACES: Final = ("page", "command", "health", "metrics", "alert")
LIMIT: Final = 75.0
"""Seconds after which a fault counts as never seen: an alert may take sixty."""
SETTLE: Final = 8.0
"""Seconds between two faults, in which everything is well."""
AHEAD: Final = 300.0
FULL_DISK: Final = "event store on a full disk"


@dataclass(frozen=True)
class Fault:
    """A fault, how it is made and mended, and how each surface shows it."""

    name: str
    make: Callable[[], object]
    mend: Callable[[], object]
    shown: Mapping[str, Shown]
    """By surface; a surface that is left out is not looked at."""
    worker: int = 0
    """Whose health and metrics are looked at."""


@dataclass
class Measurement:
    """What is looked at, and what was measured."""

    stage: Stage
    page: Page
    limit: float
    console: ChildProcess
    rows: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    def measure(self, fault: Fault) -> None:
        """Make the fault, wait until every surface shows it, mend it, and note the seconds."""
        print(f"  {fault.name} …", file=sys.stderr, flush=True)
        looks = self._looks(fault)
        took = {surface: _wait_until_well(surface, look, fault.shown[surface]) for surface, look in looks.items()}
        sent = len(self.stage.webhook)
        fault.make()
        began = time.monotonic()
        looks["alert"] = lambda: self.stage.webhook.begun_since(sent)
        watchers = {
            surface: Watcher(looks[surface], shown, began, self.limit)
            for surface, shown in fault.shown.items()
            if surface != "page"
        }
        others = list(watchers.values())
        seconds = {"page": watched_here(looks["page"], fault.shown["page"], began, self.limit, others)}
        seconds |= {surface: watcher.seconds for surface, watcher in watchers.items()}
        texts = {surface: _text(seconds, surface) for surface in SURFACES}
        if "command" in took:  # on a busy machine that is most of the time
            texts["command"] += f" (a command takes {took['command']:.1f})"
        self.rows.append((fault.name, texts))
        print(f"    {self.rows[-1][1]}", file=sys.stderr, flush=True)
        fault.mend()
        time.sleep(SETTLE)

    def _looks(self, fault: Fault) -> dict[str, Look]:
        """Return how to look at the surfaces that show the fault, but for the messages of alerts."""
        stage = self.stage
        port = stage.ports[2 + fault.worker]
        health = f"http://127.0.0.1:{port}/health"
        metrics = f"http://127.0.0.1:{port}/metrics"
        if fault.name.startswith("console"):
            health = f"http://127.0.0.1:{stage.ports[0]}/healthz"
            metrics = f"http://127.0.0.1:{stage.ports[1]}/metrics"
        command = stage.program.command("job", "tick", "-r", stage.address)
        looks = {
            "page": page_of(self.page),
            "command": output_of(command, stage.program.environment),
            "health": answer_of(health),
            "metrics": answer_of(metrics),
        }
        return {surface: look for surface, look in looks.items() if surface in fault.shown}


def _wait_until_well(surface: str, look: Look, shown: Shown) -> float:
    """Wait until a surface does not show a fault, as the one before may have caused it; return how long a look takes.

    Raises: AssertionError if it goes on showing it.
    """
    end = time.monotonic() + TIMEOUT
    while True:
        began = time.monotonic()
        seen = look()
        if not shown(seen):
            return time.monotonic() - began
        assert time.monotonic() < end, f"the {surface} shows a fault before it is made: {seen[:2000]}"
        time.sleep(PAUSE)


def _text(seconds: Mapping[str, float | None], surface: str) -> str:
    if surface not in seconds:
        return "–"
    found = seconds[surface]
    return "never" if found is None else f"{found:.1f}"


def has(*texts: str) -> Shown:
    """Return whether a surface shows one of some texts."""
    return lambda seen: any(text in seen for text in texts)


def measures(name: str, holds: Callable[[float], bool], label: str = "") -> Shown:
    """Return whether metrics have a sample of a name, and with a label, whose value holds."""

    def shown(seen: str) -> bool:
        for line in seen.splitlines():
            sample, _, value = line.rpartition(" ")
            if sample.startswith(f"aioelasticjob_{name}") and label in sample:
                return holds(float(value))
        return False

    return shown


def is_zero(value: float) -> bool:
    """Whether a value is 0."""
    return value == 0


def lost_worker(pid: int) -> Mapping[str, Shown]:
    """Return how surfaces show that a worker is not there any more."""
    return {
        "page": lambda seen: f"@-@{pid}-" not in seen,
        "command": lambda seen: "exit code 0" in seen and not any(_names(line, pid) for line in seen.splitlines()),
        "health": has(NO_ANSWER),
        "metrics": has(NO_ANSWER),
    }


def _names(line: str, pid: int) -> bool:
    """Whether a line of the table of instances is that of a worker."""
    return line.lstrip().startswith(f"127.0.0.1@-@{pid}-")


CUT_OFF: Final = {
    "health": has('"status": "suspended"'),
    "metrics": measures("session_state", is_zero, 'state="connected"'),
}
"""How a worker without a registry shows that."""
NO_REGISTRY: Final = {
    "page": has("is not there"),
    "command": lambda seen: "exit code 0" not in seen,
    **CUT_OFF,
    "alert": has("registry"),
}
UNWRITTEN: Final = {
    "page": has("may be incomplete", "does not answer"),
    "command": has("event store has not been written"),
    "health": has('"eventStore"'),
    "metrics": measures("event_store_up", is_zero),
    "alert": has("event store", "event-store"),
}
WRONG_CLOCK: Final = {
    "page": has("The clock of"),
    "command": has("s ahead of the registry's"),
    "health": lambda seen: '"clockDiffers"' in seen and _is_next_fire_right(seen),
    "metrics": measures("clock_skew_seconds", lambda skew: abs(skew - AHEAD) < 1),
    "alert": has("clock"),
}
SILENT_CONSOLE: Final = {"page": has("does not answer"), "health": has(NO_ANSWER), "metrics": has(NO_ANSWER)}


def _is_next_fire_right(health: str) -> bool:
    """Whether a worker's next fire, which is within a second, is so by our clock, too."""
    try:
        next_fire = json.loads(health)["jobs"][0]["next_fire"]
    except (ValueError, KeyError, IndexError):
        return False
    if next_fire is None:
        return False
    seconds = datetime.fromisoformat(next_fire).timestamp() - SystemClock().now()
    return abs(seconds) < AHEAD / 2


def with_postgres(here: Measurement, proxies: Proxies, server: RealPostgres, only: str) -> None:
    """Measure everything but the full disk."""
    stage = here.stage
    members = stage.ensemble.members
    registries = [proxies.to(one.host, one.port) for one in members]
    database = proxies.to("127.0.0.1", server._port)
    through = f"zk://{','.join(one.address for one in registries)}/{stage.namespace}"
    store = stage.event_store.replace(f"127.0.0.1:{server._port}", database.address)
    stage.start_worker(1)
    worker = stage.start_worker(0, address=through, event_store=store)

    def all_members(act: Callable[[ChildProcess], object]) -> Callable[[], object]:
        return lambda: [act(member.process) for member in members]

    def another_worker() -> None:
        nonlocal worker
        worker = stage.start_worker(0, address=through, event_store=store)

    def made_by(act: Callable[[ChildProcess], object]) -> Callable[[], object]:
        return lambda: act(worker)

    def lose_quorum() -> None:
        for member in members[1:]:
            member.kill()

    wrong: list[ChildProcess] = []
    faults = [
        lambda: Fault("worker kill -9", made_by(ChildProcess.kill), another_worker, lost_worker(worker.pid)),
        lambda: Fault(
            "worker SIGSTOP", made_by(ChildProcess.pause), made_by(ChildProcess.resume), lost_worker(worker.pid)
        ),
        lambda: Fault(
            "worker cut from the registry",
            lambda: proxies.silence(*registries),
            lambda: proxies.heal(*registries),
            {**lost_worker(worker.pid), **CUT_OFF},
        ),
        lambda: Fault("registry kill -9", all_members(ChildProcess.kill), stage.ensemble.repair, NO_REGISTRY),
        lambda: Fault("registry SIGSTOP", all_members(ChildProcess.pause), stage.ensemble.repair, NO_REGISTRY),
        lambda: Fault(
            "registry quorum lost",
            lose_quorum,
            stage.ensemble.repair,
            NO_REGISTRY,
        ),
        lambda: Fault("PostgreSQL kill -9", server.stop, server.start, UNWRITTEN),
        lambda: Fault(
            "PostgreSQL silent to one worker",
            lambda: proxies.silence(database),
            lambda: proxies.heal(database),
            UNWRITTEN,
        ),
        lambda: Fault(
            "clock 5 min ahead",
            lambda: wrong.append(stage.start_worker(2, ahead=AHEAD)),
            lambda: wrong[0].kill(),
            WRONG_CLOCK,
            worker=2,
        ),
        lambda: Fault("console SIGSTOP", here.console.pause, here.console.resume, SILENT_CONSOLE),
    ]
    for make in faults:
        fault = make()
        if only in fault.name:
            here.measure(fault)


@contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    """Yield a directory on a disk of its own, which has sixteen megabytes."""
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def with_small_disk(here: Measurement, disk: Path) -> None:
    """Measure the full disk."""
    here.stage.start_worker(0)
    filler = disk / "filler"

    def fill() -> None:
        with filler.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                return

    here.measure(Fault(FULL_DISK, fill, filler.unlink, UNWRITTEN))


def measured(code: Path, directory: Path, limit: float, only: str) -> list[tuple[str, Mapping[str, str]]]:
    """Return the row of each fault whose name has a word in it."""
    program = Program(code, directory)
    with ExitStack() as stack:
        proxies = Proxies()
        stack.callback(proxies.close)
        webhook = Webhook()
        stack.callback(webhook.close)
        members = stack.enter_context(ensemble(directory))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIETLY)
        stack.callback(browser.close)
        rows = list[tuple[str, Mapping[str, str]]]()

        def opened(namespace: str, event_store: str) -> Measurement:
            made = stack.enter_context(stage(program, members, namespace, event_store, webhook))
            first = made.start_worker(3)  # so that there is a job
            console = made.start_console()
            page = made.open_page(browser, console)
            first.terminate()
            made.start_alert()
            return Measurement(made, page, limit, console, rows)

        if not only or only not in FULL_DISK:
            server = stack.enter_context(real_postgres.postgres())
            with_postgres(opened("truth", server.url()), proxies, server, only)
        if only in FULL_DISK:
            disk = stack.enter_context(small_disk(directory / "disk"))
            with_small_disk(opened("disk", f"sqlite:///{disk}/events.db"), disk)
        return rows


def table(rows: list[tuple[str, Mapping[str, str]]]) -> str:
    """Return rows as a table in Markdown."""
    lines = [f"| fault | {' | '.join(SURFACES)} |", "|---" * (1 + len(SURFACES)) + "|"]
    lines += [f"| {name} | {' | '.join(seconds[one] for one in SURFACES)} |" for name, seconds in rows]
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.truth", description=__doc__)
    parser.add_argument("--code", type=Path, default=ROOT, help="the directory of the package under test")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds after which a fault counts as never seen")
    parser.add_argument("--only", default="", help="only faults with this word in their names")
    given = parser.parse_args()
    directory = Path(mkdtemp(prefix="truth-"))
    directory.chmod(0o755)  # PostgreSQL runs as another user
    rows = measured(given.code.resolve(), directory, given.limit, given.only)
    print(f"Seconds until a fault is shown, with a session timeout of {SESSION_TIMEOUT} s:\n\n{table(rows)}")
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
