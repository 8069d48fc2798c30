"""Build the sdist and the wheel, and try the wheel in an empty environment of each Python: ``python -m tests.wheel``.

Two builds, of this directory and of a copy with other times and permissions, must be equal byte by byte.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import ZipFile

from tests.support import pythons

ROOT = Path(__file__).resolve().parent.parent
TOOLS = Path(sys.executable).parent
NOT_COPIED = shutil.ignore_patterns(".venv*", ".git", ".*_cache", ".cache", ".hypothesis", "__pycache__", "site")
EPOCH = "1750000000"
"""The time that both builds give to all files."""


def main() -> None:
    """Build, compare, list and try; exit with a sentence about the first thing that is wrong."""
    with tempfile.TemporaryDirectory(prefix="wheel-") as folder:
        place = Path(folder)
        copy = Path(shutil.copytree(ROOT, place / "copy", ignore=NOT_COPIED, copy_function=copy_private))
        built, again = build(ROOT, place / "built"), build(copy, place / "again")
        differ = [one.name for one, other in zip(built, again, strict=True) if one.read_bytes() != other.read_bytes()]
        require(not differ, f"two builds of {', '.join(differ)} differ")
        run(TOOLS / "python", "-m", "twine", "check", "--strict", *built)
        sdist, wheel = built
        list_contents(sdist, wheel)
        with ThreadPoolExecutor() as threads:  # side by side, for the demo mostly waits
            for text in threads.map(lambda version: try_wheel(wheel, version, place / version), pythons.VERSIONS):
                print(text, flush=True)


def copy_private(source: str, target: str) -> None:
    """Copy a file with the time of now, and for its owner only; what can be executed stays so."""
    shutil.copyfile(source, target)
    os.chmod(target, 0o700 if os.access(source, os.X_OK) else 0o600)


def build(source: Path, into: Path) -> list[Path]:
    """Build both in that directory; return the sdist and the wheel, which is built from the sdist."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    subprocess.run([TOOLS / "uv", "build", "--quiet", "--out-dir", into, source], check=True, env=environment)
    return sorted(path for path in into.iterdir() if path.name.endswith((".tar.gz", ".whl")))[::-1]


def list_contents(sdist: Path, wheel: Path) -> None:
    """Print what both contain; the wheel contains the package and what describes it, and nothing else."""
    with ZipFile(wheel) as archive, tarfile.open(sdist) as tarball:
        names, sources = archive.namelist(), tarball.getnames()
    package = {path.relative_to(ROOT).as_posix() for path in files(ROOT / "aioelasticjob")}
    code = {name for name in names if not name.partition("/")[0].endswith(".dist-info")}
    require(code == package, f"the wheel and the package differ: {code ^ package}")
    tested = [name for name in names if "simulation" in name or Path(name).name.startswith(("test_", "conftest"))]
    require(not tested, f"the wheel has tests: {tested}")
    for path, content in ((wheel, names), (sdist, [name.partition("/")[2] for name in sources])):
        print(f"{path.name}: {path.stat().st_size:,} bytes, {len(content)} files")
        folders = Counter("/".join(name.split("/")[: 2 if path is wheel else 1]) for name in content)
        print("   ", ", ".join(f"{name} {count}" if count > 1 else name for name, count in sorted(folders.items())))


def files(folder: Path) -> Iterable[Path]:
    """Return the files of the package, without what Python has compiled."""
    return (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def try_wheel(wheel: Path, version: str, place: Path) -> str:
    """Install the wheel alone, and run the demo from it, away from this directory; return what came of it."""
    if (found := pythons.interpreter(version)) is None:
        return f"NOT TRIED on Python {version}: this machine does not have it"
    tools = place / TOOLS.name
    run(TOOLS / "uv", "venv", "--quiet", "--python", found, place)
    run(TOOLS / "uv", "pip", "install", "--quiet", "--python", tools / "python", wheel)
    shown = run(tools / "python", "-I", "-c", "import aioelasticjob; print(aioelasticjob.__file__)", at=place)
    require(Path(shown.strip()).is_relative_to(place), f"not the wheel's: {shown}")
    own = place / "files"
    shutil.copytree(ROOT / "docs" / "why", own)
    run(tools / "aioelasticjob", "demo", "--directory", own, at=place)
    return f"Python {version}: installed, and the demo ran"


def run(*command: str | Path, at: Path = ROOT) -> str:
    """Run a command, and return what it printed; show that and exit if it failed."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=at, env=environment, capture_output=True, text=True, timeout=300)
    require(done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def require(holds: bool, text: str) -> None:
    """Exit with that text if something does not hold."""
    if not holds:
        sys.exit(f"FAILED: {text}")


if __name__ == "__main__":
    main()
