"""Set up and run every test: ``python3 -m tests``.  Needs Python 3.11 or newer and nothing else.

Makes ``.venv``, installs the project with the tools pinned in pyproject.toml, installs Debian's ``zookeeper``,
``postgresql`` and ``chromium`` where apt can, and runs the checks one after another.  A suite that should run and was
skipped is a failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from glob import glob
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PACKAGES = {
    "zookeeper": "/usr/share/java/zookeeper.jar",
    "postgresql": "/usr/lib/postgresql/*/bin/initdb",
    "chromium": "/usr/bin/chromium",
}
"""Debian's packages that suites need, and what tells that one is there."""

CHECKS: dict[str, Sequence[str]] = {
    "ruff": ("ruff", "check", "."),
    "format": ("ruff", "format", "--check", "."),
    "mypy": ("mypy",),
    "layers": ("lint-imports",),
    "pytest": ("pytest", "-n", "2", "--dist", "worksteal", "-q", "--durations=10"),
    "docs": ("mkdocs", "build", "--quiet", "--strict"),
}


def main() -> int:
    """Run the checks asked for, all by default; return the number that failed."""
    parser = argparse.ArgumentParser(prog="python3 -m tests", description=__doc__)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"any of {', '.join(CHECKS)}; all by default")
    parser.add_argument("--no-setup", action="store_true", help="use .venv and the machine as they are")
    parser.add_argument("--allow-skips", action="store_true", help=f"pass without Debian's {', '.join(PACKAGES)}")
    given = parser.parse_args()
    if unknown := [name for name in given.checks if name not in CHECKS]:
        parser.error(f"no such check: {', '.join(unknown)}")
    if not given.no_setup:
        set_up(given.allow_skips)
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    if not given.allow_skips:
        environment["AIOELASTICJOB_REQUIRE_ALL"] = "1"
    failed = [name for name in given.checks or CHECKS if not passes(name, environment)]
    print(f"\n{'FAILED: ' + ', '.join(failed) if failed else 'all checks passed'}", flush=True)
    return len(failed)


def set_up(allow_skips: bool) -> None:
    """Bring the virtual environment and Debian's packages to where they should be."""
    if not (BIN / "python").exists():
        venv.create(VENV, with_pip=True)
    subprocess.run([BIN / "python", "-m", "pip", "install", "--quiet", "--editable", ".[dev]"], cwd=ROOT, check=True)
    missing = [package for package, trace in PACKAGES.items() if not glob(trace)]
    if missing and not allow_skips:
        install(missing)


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


def passes(name: str, environment: dict[str, str]) -> bool:
    """Run one check, its output as it comes; return whether it passed."""
    print(f"\n== {name}", flush=True)
    began = time.monotonic()
    program, *arguments = CHECKS[name]
    done = subprocess.run([BIN / program, *arguments], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL)
    print(f"== {name}: {'ok' if done.returncode == 0 else 'FAILED'} ({time.monotonic() - began:.0f} s)", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
