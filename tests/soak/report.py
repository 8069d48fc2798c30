"""One page about a soak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from aioelasticjob.model import FireSource
from tests.chaos import report as chaos_report
from tests.chaos.report import SHOWN, Played
from tests.simulation.facts import Facts
from tests.soak.jobs import KINDS
from tests.soak.log import Examined
from tests.soak.memory import Slope


@dataclass(frozen=True, slots=True)
class Soaked:
    """A soak, judged and examined."""

    played: Played
    slopes: Mapping[str, Slope]
    processes: int
    """How many processes there were, those without a slope included."""
    examined: Examined

    @property
    def good(self) -> bool:
        """Whether every promise was kept and every log line has a cause."""
        return not self.played.verdict.violations and not self.examined.unexplained


def page(soaked: Soaked) -> str:
    """Return the report as text."""
    played = soaked.played
    parts = (chaos_report.head(played), chaos_report.actions(played), _kinds(played), _memory(soaked), _log(soaked))
    return "\n".join([line for part in parts for line in part] + list(chaos_report.verdict_of(played)))


def _kinds(played: Played) -> Iterator[str]:
    runs = Facts(played.arranged.entries).runs
    yield f"\n{len(played.jobs)} jobs, by kind"
    yield f"  {'kind':<16}{'runs':>6}{'late, median':>14}  how they ended"
    for kind in KINDS:
        mine = [run for run in runs if run.begun.job.rpartition("-")[0] == kind]
        late = [run.begun.at - run.begun.slot / 1000 for run in mine if run.begun.source is FireSource.SCHEDULE]
        ends = Counter(run.how for run in mine)
        outcomes = ", ".join(f"{count} {how}" for how, count in ends.most_common())
        yield f"  {kind:<16}{len(mine):>6}{f'{median(late):.3f} s' if late else '':>14}  {outcomes}"


def _memory(soaked: Soaked) -> Iterator[str]:
    yield "\nResident memory after the warm-up, in MiB"
    yield f"  {'process':<28}{'first':>8}{'last':>8}{'most':>8}{'per hour':>10}  over"
    for name, one in sorted(soaked.slopes.items()):
        figures = f"{one.first:>8.1f}{one.last:>8.1f}{one.most:>8.1f}{one.per_hour:>+10.1f}"
        yield f"  {name:<28}{figures}  {one.seconds:.0f} s"
    yield f"  {soaked.processes - len(soaked.slopes)} more processes did not live long enough for a slope"


def _log(soaked: Soaked) -> Iterator[str]:
    examined = soaked.examined
    yield f"\nLog lines at WARNING or above that have a cause: {examined.explained.total()}"
    for name, count in examined.explained.most_common():
        yield f"  {name:<52}{count:>6}"
    yield f"Log lines WITHOUT A CAUSE: {len(examined.unexplained)}"
    for line in examined.unexplained[:SHOWN]:
        yield f"  {line}"
