"""``python -m tests.pictures [NAME …]``: the pictures of README and of the documentation, made from the real thing.

``demo`` and ``progress`` are what a terminal shows while these commands run.  ``metrics`` is read from the ports of
three workers while one of them is killed.  ``sharding`` is what the strategies answer.  ``lateness`` is drawn from the
figures on the page of the benchmarks.  ``console`` is taken by a browser (``tests.console.screenshots``).  Without a
name, all are made.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from io import StringIO
from math import log
from pathlib import Path
from typing import Final, TypeAlias

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME
from rich.text import Text

from aioelasticjob.core import strategies
from aioelasticjob.core.strategies import AssignmentInput
from tests.docs.pages import ROOT, blocks, table
from tests.support.ports import reserved_ports
from tests.support.processes import ChildProcess

IMAGES: Final = ROOT / "docs" / "images"
FONT: Final = "system-ui, Helvetica, Arial, sans-serif"
REDRAWN: Final = re.compile(rb"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)+")
"""What a live table writes before it is drawn again at the same place."""
COLUMNS: Final = 88
"""The width of the terminals."""


@dataclass(frozen=True, slots=True)
class Look:
    """The colours of one theme."""

    name: str
    text: str
    faint: str
    line: str
    inside: str
    """Of words on a coloured ground."""
    series: tuple[str, str, str]


LOOKS: Final = (
    Look("light", "#1d2940", "#5b6780", "#d5dbe6", "#ffffff", ("#3949ab", "#8e99b0", "#b26a00")),
    Look("dark", "#e3e8f2", "#a3aec4", "#3d4760", "#10141f", ("#8c9eff", "#76819a", "#ffb74d")),
)
TERMINALS: Final = {"light": DEFAULT_TERMINAL_THEME, "dark": SVG_EXPORT_THEME}


def main(names: Sequence[str]) -> None:
    """Make the pictures of these names, or all."""
    for name in names or PICTURES:
        PICTURES[name]()
        print(f"{name}: done", flush=True)


# What a terminal shows


def demo() -> None:
    """Draw the demonstration when the items of the killed worker have found new holders."""
    output = shown_by([sys.executable, "-m", "aioelasticjob", "demo", "--kill"], patience=180)
    moments = [text for text in frames(output) if "killed (kill -9)" in plain(text)]
    moved = next(text for text in moments if re.search(r"items? .+: worker \d → worker \d", plain(text)))
    draw_terminal("demo", "aioelasticjob demo --kill", moved)


def progress() -> None:
    """Draw the rates of the dataflow job on the page about dataflow."""
    program = blocks("docs/how-to/dataflow.md", "python")[0].text.replace("range(1, 1001)", "range(1, 200_001)")
    with tempfile.TemporaryDirectory() as place:
        program = program.replace("from itertools", "import asyncio\nfrom itertools", 1)
        program = program.replace("    context.log.debug", "    await asyncio.sleep(0.02)\n    context.log.debug")
        Path(place, "jobs.py").write_text(program)
        command = [sys.executable, "-m", "aioelasticjob", "run", "jobs:app", "--progress", "--log-level", "error"]
        output = shown_by(command, patience=12, directory=place)
    draw_terminal("progress", "aioelasticjob run jobs:app --progress", list(frames(output))[-3])


def shown_by(command: list[str], patience: float, directory: str | Path = ROOT) -> bytes:
    """Return what a command writes to a terminal until it ends, or is asked to end when its time is over."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(directory)
        variables = {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": "40", "PYTHONPATH": str(ROOT)}
        os.execvpe(command[0], command, {**os.environ, **variables})
    written = bytearray()
    over = time.monotonic() + patience
    with suppress(OSError):  # the terminal is gone when the command has ended
        while True:
            is_written, _, _ = select.select([terminal], [], [], 1)
            if is_written:
                written += os.read(terminal, 65536)
            if time.monotonic() > over:
                os.kill(child, signal.SIGINT)
                over += patience
    os.waitpid(child, 0)
    os.close(terminal)
    return bytes(written)


def frames(output: bytes) -> Iterator[str]:
    """Yield each state of a live table."""
    for drawn in REDRAWN.split(output):
        yield drawn.decode(errors="replace").replace("\r", "")


def plain(text: str) -> str:
    return Text.from_ansi(text).plain


def draw_terminal(name: str, title: str, text: str) -> None:
    """Draw a terminal in each look, with fonts of the reader's machine."""
    style = re.sub(r"@font-face \{\{.*?\}\}\s+", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    style = style.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace")
    for look in LOOKS:
        console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
        for line in text.strip("\n").splitlines():
            console.print(Text.from_ansi(line), soft_wrap=True)
        svg = console.export_svg(title=title, theme=TERMINALS[look.name], code_format=style, unique_id=name)
        write(f"{name}-{look.name}.svg", svg)


# What is drawn from figures


def lateness() -> None:
    """Draw how late jobs begin, here, in Elastic-Job, and with nothing but timers."""
    for look in LOOKS:
        write(f"lateness-{look.name}.svg", lateness_of(figures(), look))


def figures() -> dict[str, list[str]]:
    """Return median and 99th percentile of each case, as the page of the benchmarks has them."""
    return {row[0]: row[1:] for row in table("docs/benchmarks.md", "| late, p50 / p99 |")}


def lateness_of(rows: dict[str, list[str]], look: Look) -> str:
    """Return the bars; the length is the logarithm, since they differ by a factor of a hundred."""
    head = ("aioelasticjob", "bare asyncio timers", "Elastic-Job 3 (Java)")
    title = "Lateness of one-second jobs: median (solid) and 99th percentile (pale)"
    parts = [text(20, 30, title, look.text, 16, "600")]
    for number, (name, colour) in enumerate(zip(head, look.series, strict=True)):
        parts += [f'<rect x="{20 + 210 * number}" y="46" width="12" height="12" rx="2" fill="{colour}"/>']
        parts += [text(38 + 210 * number, 57, name, look.text)]
    left, wide, y = 110, 560, 84
    for milliseconds in (1, 10, 100, 1000):
        x = left + wide * position(milliseconds)
        parts += [f'<line x1="{x:.1f}" y1="74" x2="{x:.1f}" y2="318" stroke="{look.line}"/>']
        parts += [text(x, 336, f"{milliseconds:,} ms", look.faint, 13, anchor="middle")]
    for case, cells in rows.items():
        parts += [text(20, y + 27, case, look.text, 14, "600")]
        for cell, colour in zip(cells, look.series, strict=True):
            if cell:
                p50, p99 = (float(part) for part in re.findall(r"[\d.]+", cell))
                for value, pale in ((p99, "0.4"), (p50, "1")):
                    length = wide * position(value)
                    parts += [
                        f'<rect x="{left}" y="{y}" width="{length:.1f}" height="13" rx="2" fill="{colour}"'
                        f' opacity="{pale}"/>'
                    ]
                parts += [text(left + wide * position(p99) + 8, y + 11, cell, look.faint, 12)]
            y += 17
        y += 9
    return drawing(790, 350, "How late jobs begin: this package, bare timers, Elastic-Job", parts)


def position(milliseconds: float) -> float:
    """Return where a value stands between 0.5 and 1000 ms, from 0 to 1."""
    return log(milliseconds / 0.5) / log(1000 / 0.5)


def sharding() -> None:
    """Draw who holds which of twelve items before and after one of three instances has left."""
    for look in LOOKS:
        write(f"sharding-{look.name}.svg", sharding_of(look))


def sharding_of(look: Look) -> str:
    """Return a tile for each item, for three strategies."""
    parts: list[str] = []
    left = 150
    for title in ("average", "round-robin", "sticky"):
        parts += [text(left + 96, 28, title, look.text, 15, "600", "middle")]
        before = strategies.find(title)(AssignmentInput("report", ("a", "b", "c"), 12))
        after = strategies.find(title)(AssignmentInput("report", ("b", "c"), 12, before))
        parts += items(left, 44, dict(before), {}, look)
        parts += items(left, 144, dict(after), dict(before), look)
        left += 215
    parts += [text(20, 82, "a, b and c", look.text, 14), text(20, 182, "a has left", look.text, 14)]
    explained = "A tile is an item, its letter the instance that holds it. A frame: the item has moved."
    parts += [text(20, 256, explained, look.faint, 13)]
    return drawing(800, 272, "Twelve items on three instances, then on two", parts)


def items(x: int, y: int, now: dict[int, str], before: dict[int, str], look: Look) -> Iterator[str]:
    """Yield a tile for each item."""
    colours = dict(zip("abc", look.series, strict=True))
    for item, holder in sorted(now.items()):
        left, top = x + item % 6 * 32, y + item // 6 * 38
        frame = f' stroke="{look.text}" stroke-width="3"' if before.get(item, holder) != holder else ""
        yield f'<rect x="{left}" y="{top}" width="28" height="32" rx="4" fill="{colours[holder]}"{frame}/>'
        yield text(left + 14, top + 21, holder, look.inside, 14, "600", "middle")


Sample: TypeAlias = tuple[float, tuple[float | None, ...]]
"""Seconds since the beginning, and how many items each worker holds."""
KILLED_AT, STARTED_AT, SECONDS = 8, 22, 40
WORKER = """
import asyncio
from aioelasticjob import ElasticJob, ItemContext
app = ElasticJob("zk://{server}/shop", session_timeout=4)

@app.job("orders", cron="* * * * * ?", sharding_total_count=12, failover=True)
async def orders(context: ItemContext) -> None:
    await asyncio.sleep(0.2)
"""


def metrics() -> None:
    """Draw the metric ``items_held`` of three workers, one of which is killed and started again."""
    seen: list[Sample] = []
    with tempfile.TemporaryDirectory() as place, reserved_ports(4) as (registry, *ports):
        run = [sys.executable, "-m", "aioelasticjob"]
        Path(place, "worker.py").write_text(WORKER.format(server=f"127.0.0.1:{registry}"))
        there = {"PYTHONPATH": f"{place}:{ROOT}"}
        log = Path(place, "log")
        server = ChildProcess([*run, "zookeeper", "--port", str(registry), "--tick-time", "500"], log)
        server.wait_for_output("listening")
        commands = [[*run, "run", "worker:app", "--metrics", str(port)] for port in ports]
        workers = [ChildProcess(command, log, there) for command in commands]
        try:
            wait_until_shared(ports)
            start = time.monotonic()
            for end in (KILLED_AT, STARTED_AT, SECONDS):
                while (seconds := time.monotonic() - start) < end:
                    seen.append((seconds, tuple(held(port) for port in ports)))
                    time.sleep(0.25)
                if end == KILLED_AT:
                    workers[1].kill()
                elif end == STARTED_AT:
                    workers[1] = ChildProcess(commands[1], log, there)
        finally:
            for child in (*workers, server):
                child.kill()
    for look in LOOKS:
        write(f"metrics-{look.name}.svg", held_over_time(seen, look))


def wait_until_shared(ports: Sequence[int]) -> None:
    """Wait until each worker holds its third of the items."""
    over = time.monotonic() + 60
    while [held(port) for port in ports] != [4.0] * len(ports):
        assert time.monotonic() < over, "the workers have not shared the items out"
        time.sleep(0.2)


def held(port: int) -> float | None:
    """Return how many items a worker holds, as its port says, or None if it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=1) as answer:
            found = re.search(r"^aioelasticjob_items_held\{.*\} (\S+)$", answer.read().decode(), re.MULTILINE)
    except OSError:
        return None
    return float(found[1]) if found else None


def held_over_time(seen: Sequence[Sample], look: Look) -> str:
    left, wide, high, bottom = 60, 700, 180, 250
    parts = [text(20, 30, "aioelasticjob_items_held of three workers, twelve items", look.text, 16, "600")]
    for count in (0, 2, 4, 6):
        y = bottom - high * count / 8
        parts += [f'<line x1="{left}" y1="{y}" x2="{left + wide}" y2="{y}" stroke="{look.line}"/>']
        parts += [text(left - 12, y + 5, f"{count}", look.faint, 13, anchor="end")]
    for second in range(0, SECONDS + 1, 10):
        parts += [text(left + wide * second / SECONDS, bottom + 22, f"{second} s", look.faint, 13, anchor="middle")]
    for number, colour in enumerate(look.series):
        path, height = "", ""
        for seconds, values in seen:
            value: float | None = values[number]
            if value is None:
                height = ""
                continue
            x = f"{left + wide * seconds / SECONDS:.1f}"
            beside = 4 * (number - 1)  # so that equal lines are seen
            new = f"{bottom - high * value / 8 + beside:.1f}"
            path += f"L{x} {height}L{x} {new}" if height else f"M{x} {new}"
            height = new
        parts += [f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="3"/>']
        parts += [f'<rect x="{60 + 130 * number}" y="44" width="12" height="12" rx="2" fill="{colour}"/>']
        parts += [text(78 + 130 * number, 55, f"worker {number + 1}", look.text)]
    for second, words in ((KILLED_AT, "kill -9 of worker 2"), (STARTED_AT, "started again")):
        at = left + wide * second / SECONDS
        parts += [f'<line x1="{at}" y1="66" x2="{at}" y2="{bottom}" stroke="{look.faint}" stroke-dasharray="4 4"/>']
        parts += [text(at + 6, 80, words, look.faint, 13)]
    return drawing(790, 286, "Items held by three workers while one is killed and started again", parts)


def text(
    x: float, y: float, words: str, colour: str, size: int = 14, weight: str = "400", anchor: str = "start"
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}">{escape(words)}</text>'


def drawing(width: int, height: int, label: str, parts: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img"'
    return "\n".join([f'{head} aria-label="{escape(label)}" font-family="{FONT}">', *parts, "</svg>", ""])


def write(name: str, svg: str) -> None:
    (IMAGES / name).write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")


def console() -> None:
    """Let a browser take the pages of the console."""
    subprocess.run([sys.executable, "-m", "tests.console.screenshots"], cwd=ROOT, check=True)


PICTURES: Final = {
    "demo": demo,
    "progress": progress,
    "metrics": metrics,
    "sharding": sharding,
    "lateness": lateness,
    "console": console,
}


if __name__ == "__main__":
    main(sys.argv[1:])
