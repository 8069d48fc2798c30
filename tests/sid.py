"""Run tests in Debian sid, which has newer Pythons and a newer ZooKeeper: ``python -m tests.sid python3.14``.

Needs root and ``debootstrap``.  The first run makes the chroot, in some five minutes; the next ones use it.  Delete its
directory to get the newest packages.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support import pythons

ROOT = Path(__file__).resolve().parent.parent
TOOLS = Path(sys.executable).parent
VERSIONS = ("3.14", "3.15")
"""The Pythons that sid has."""
ZOOKEEPER = "zookeeper"
CHECKS = (*(f"python{version}" for version in VERSIONS), ZOOKEEPER)
MADE = "made"
"""A file that is written when the chroot is complete."""
APT = ("apt-get", "-qq", "-o", "Acquire::Check-Valid-Until=false")  # a mirror may lag behind
PACKAGES = ("ca-certificates", "openssl", "python3", "zookeeper")
BOUND = ("/dev", "/proc", "/etc/ssl/certs", str(ROOT))
"""Directories that the chroot shares with this machine while a command runs there."""
COPIED = ("/etc/hosts", "/etc/resolv.conf")
APART = ("unshare", "--mount", "--propagation", "private")
"""In a namespace of its own for mounts: they are gone with its last process, whatever happens to it."""
ENTER = """
chroot=$1 root=$2; shift 2
for directory in $BOUND; do
    mkdir -p "$chroot$directory"
    mount --rbind "$directory" "$chroot$directory"
done
exec chroot "$chroot" env --chdir="$root" "$@"
"""
ENVIRONMENT = {"HOME": "/root", "LANG": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
OTHER_SUITES = tuple(f"tests/{name}" for name in ("cli", "console", "core", "engine", "observers", "operations"))
"""What runs on the Pythons of sid besides the fast suites, in some ten minutes."""
MAY_SKIP = ("env", "--unset=AIOELASTICJOB_REQUIRE_ALL")
"""The chroot has no browser and no PostgreSQL: tests that need one are skipped, and named."""
SUITES_OF_ZOOKEEPER = (
    "tests/chaos/test_chaos.py",
    "tests/chaos/test_moving.py",
    "tests/doctor",
    "tests/end_to_end",
    "tests/operations",
    "tests/registry",
    "tests/zookeeper",
)
"""Those that meet a real ZooKeeper.  Some compare it with the embedded server, and know what 3.9 answers otherwise."""


def main() -> int:
    """Make the chroot if it is not there, and run one check in it; return 1 if it failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sid", description=__doc__)
    parser.add_argument("check", choices=CHECKS)
    parser.add_argument("--directory", type=Path, default=ROOT / ".cache" / "sid", help="where the chroot is")
    given = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("only root can make a chroot and enter it: run this with sudo")
    chroot: Path = given.directory.resolve()
    if not (chroot / MADE).exists():
        make(chroot)
    show(chroot)
    codes = [run(chroot, step) for step in steps(given.check)]  # a suite that has failed does not hide the next one
    return int(any(codes))


def make(chroot: Path) -> None:
    """Install Debian sid into that directory, from the mirror that debootstrap takes by default."""
    if shutil.which("debootstrap") is None:
        sys.exit("debootstrap is not installed: apt-get install debootstrap")
    if chroot.exists():
        sys.exit(f"{chroot} is no chroot, or one that was not completed: remove it, or name another directory")
    chroot.parent.mkdir(parents=True, exist_ok=True)
    names = ",".join(f"python{version},python{version}-venv" for version in VERSIONS)
    subprocess.run([*APART, "debootstrap", "--variant=minbase", f"--include={names}", "sid", chroot], check=True)
    for command in ((*APT, "update"), (*APT, "install", "--yes", "--no-install-recommends", *PACKAGES)):
        if run(chroot, ["env", "DEBIAN_FRONTEND=noninteractive", *command], Path("/")) != 0:
            sys.exit(f"apt-get could not install {' '.join(PACKAGES)} in {chroot}")
    (chroot / MADE).touch()


def show(chroot: Path) -> None:
    """Print which versions the chroot has."""
    names = (*(f"python{version}" for version in VERSIONS), "zookeeper", "default-jre-headless", "openssl")
    run(chroot, ["dpkg-query", "--show", *names], Path("/"))


def steps(check: str) -> Iterator[Sequence[str | Path]]:
    """Yield the commands of a check: a new environment, and in it the suites."""
    version = VERSIONS[0] if check == ZOOKEEPER else check.removeprefix("python")
    environment, install, fast_suites = pythons.commands(version, ROOT, TOOLS, f"/usr/bin/python{version}")
    yield environment
    yield install
    python = fast_suites[0]
    if check == ZOOKEEPER:
        yield [python, "-m", "pytest", "-q", "-n", "2", "-m", ZOOKEEPER, *SUITES_OF_ZOOKEEPER]
    else:
        yield fast_suites
        yield [*MAY_SKIP, python, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *OTHER_SUITES]


def run(chroot: Path, command: Sequence[str | Path], directory: Path = ROOT) -> int:
    """Run a command in the chroot; return its exit code."""
    for name in COPIED:
        shutil.copyfile(name, chroot / name.removeprefix("/"))
    enter = [*APART, "sh", "-euc", ENTER, "sh", chroot, directory]
    environment = {**os.environ, **ENVIRONMENT, "BOUND": " ".join(BOUND)}
    return subprocess.run([*enter, *command], env=environment, stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main())
