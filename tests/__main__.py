"""Set up and run every test: ``python3 -m tests``.  Needs one of the Pythons 3.11 to 3.15 and nothing else.

Makes ``.venv``, installs the project with the tools pinned in pyproject.toml, installs Debian's ``zookeeper``,
``postgresql``, ``chromium`` and ``prometheus`` where apt can, and runs the checks one after another.  A suite that
should run and was skipped is a failure.

The fast suites run on the other Pythons of this machine too, with the lowest or the newest allowed versions of the
dependencies; a Python that the machine does not have is named at the end.

``python3 -m tests --long`` runs what a landing must not wait for, or depend on: random seeds of the simulations in the
thousands, ten minutes of chaos on an ensemble, and the Pythons and the ZooKeeper of Debian sid, in a chroot.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path

from tests import sid
from tests.support import pythons

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PACKAGES = {
    "zookeeper": "/usr/share/java/zookeeper.jar",
    "postgresql": "/usr/lib/postgresql/*/bin/initdb",
    "chromium": "/usr/bin/chromium",
    "prometheus": "/usr/bin/promtool",
}
"""Debian's packages that suites need, and what tells that one is there."""
PACKAGES_OF_SID = {"debootstrap": "/usr/sbin/debootstrap"}
"""What the checks in Debian sid need besides."""

CHECKS: dict[str, Sequence[str]] = {
    "ruff": ("ruff", "check", "."),
    "format": ("ruff", "format", "--check", "."),
    "mypy": ("mypy",),
    "layers": ("lint-imports",),
    "pytest": ("pytest", "-n", "6", "--dist", "worksteal", "-q", "--durations=10"),
    "docs": ("zensical", "build", "--clean", "--strict"),
    "wheel": ("python", "-m", "tests.wheel"),
}
SIMULATION = ("python", "-m", "tests.simulation", "-j", "2", "--seeds", "random", "--count", "500")
BARE = ("python", "-m", "tests.simulation.bare")
SID: dict[str, Sequence[str]] = {f"sid-{check}": ("python", "-m", "tests.sid", check) for check in sid.CHECKS}
LONG: dict[str, Sequence[str]] = {
    "seeds": SIMULATION,
    "seeds-failover": (*SIMULATION, "--failover"),
    "seeds-wild": (*SIMULATION, "--wild"),
    "seeds-wild-failover": (*SIMULATION, "--wild", "--failover"),
    "seeds-retries": (*SIMULATION, "--retries", "--failover", "--requests"),
    "seeds-streams": (*SIMULATION, "--streams", "--failover"),
    "seeds-schedules": (*SIMULATION, "--schedules", "--requests", "--failover"),
    "seeds-at-run-time": (*SIMULATION, "--at-run-time", "--failover", "--requests"),
    "seeds-created": (*SIMULATION, "--created", "--failover"),
    "seeds-chains": (*SIMULATION, "--chains", "--failover"),
    "seeds-independent": (*SIMULATION, "--independent", "--failover", "--requests"),
    "bare": (*BARE, "-j", "2", "--seeds", "random", "--count", "20000"),
    "chaos": ("python", "-m", "tests.chaos", "--minutes", "10"),
    **SID,
}
PYTHONS = {f"python{version}": version for version in pythons.besides(sys.version_info[:2])}
"""Each runs the fast suites in an environment of its own."""
CHECKS |= dict.fromkeys(PYTHONS, ())


def main() -> int:
    """Run the checks asked for, all by default; return the number that failed."""
    given = arguments()
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else hundreds of processes would each compile all modules
    if not given.allow_skips:
        environment["AIOELASTICJOB_REQUIRE_ALL"] = "1"
    asked = given.checks or list(LONG if given.long else CHECKS)
    if not given.no_setup:
        packages = PACKAGES | PACKAGES_OF_SID if SID.keys() & set(asked) else PACKAGES
        set_up(given.allow_skips, packages, environment)
    absent = [name for name in asked if name in PYTHONS and pythons.interpreter(PYTHONS[name]) is None]
    failed = [name for name in asked if name not in absent and not passes(name, commands(name), environment)]
    print(f"\n{'FAILED: ' + ', '.join(failed) if failed else 'all checks passed'}", flush=True)
    for name in absent:
        print(f"NOT RUN: {name}, for this machine does not have it, neither on the path nor in pyenv", flush=True)
    return len(failed)


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    every = [*CHECKS, *LONG]
    parser = argparse.ArgumentParser(prog="python3 -m tests", description=__doc__)
    parser.add_argument(
        "checks", nargs="*", metavar="CHECK", help=f"any of {', '.join(every)}; by default the first {len(CHECKS)}"
    )
    parser.add_argument("--long", action="store_true", help=f"all but the first {len(CHECKS)}: an hour or two")
    parser.add_argument("--no-setup", action="store_true", help="use .venv and the machine as they are")
    parser.add_argument("--allow-skips", action="store_true", help=f"pass without Debian's {', '.join(PACKAGES)}")
    given = parser.parse_args()
    if unknown := [name for name in given.checks if name not in every]:
        parser.error(f"no such check: {', '.join(unknown)}")
    return given


def commands(name: str) -> Iterator[Sequence[str | Path]]:
    """Yield what a check runs: tools of ours, or the fast suites on another Python."""
    if name in PYTHONS:
        yield from pythons.commands(PYTHONS[name], ROOT, BIN)
        return
    program, *options = (CHECKS | LONG)[name]
    yield [BIN / program, *options]


def set_up(allow_skips: bool, packages: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Bring the virtual environment, Debian's packages and what pytest makes of the tests to where they should be."""
    if not (BIN / "python").exists():
        venv.create(VENV, with_pip=True)
    subprocess.run([BIN / "python", "-m", "pip", "install", "--quiet", "--editable", ".[dev]"], cwd=ROOT, check=True)
    missing = [package for package, trace in packages.items() if not glob(trace)]
    if missing and not allow_skips:
        install(missing)
    compile_tests = (BIN / "pytest", "--collect-only", "-qq")  # once, and not in six processes at once
    subprocess.run(compile_tests, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False)


def install(packages: Sequence[str]) -> None:
    """Install Debian's packages, as root or through sudo; say how to go on where that cannot be."""
    names = " ".join(packages)
    sudo = [] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["sudo", "--non-interactive"]
    apt = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    if shutil.which("apt-get") is None:
        sys.exit(f"no apt-get, and the tests need {names}: install them yourself, or pass --allow-skips")
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        if subprocess.run([*apt, *command], stdout=subprocess.DEVNULL).returncode:
            sys.exit(f"apt-get could not install {names}: install them yourself, or pass --allow-skips")


def passes(name: str, steps: Iterator[Sequence[str | Path]], environment: dict[str, str]) -> bool:
    """Run one check, its output as it comes; return whether all its steps passed."""
    print(f"\n== {name}", flush=True)
    began = time.monotonic()
    passed = all(
        subprocess.run(step, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL).returncode == 0 for step in steps
    )
    print(f"== {name}: {'ok' if passed else 'FAILED'} ({time.monotonic() - began:.0f} s)", flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(main())
