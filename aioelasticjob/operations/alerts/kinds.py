"""The kinds of alerts: what each is called, its rule in words, and how long a fault has to last before it is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, get_args

from aioelasticjob.config.types import Alert, AlertKind

FAILED_IN_A_ROW: Final = 3
"""So many failed runs of an item one after another make a job failing."""
RATED_RUNS: Final = 20
"""Among so many of a job's newest runs the failed ones are counted."""
LEAST_RATED_RUNS: Final = 10
"""Of fewer runs nobody can say that half of them fail."""
FAILED_PART: Final = 0.5
"""A job is failing if this part of its newest runs has failed."""
MISFIRES: Final = 3
"""So many moments that passed without a run on time, in ``MISFIRE_SECONDS``, make a job misfiring."""
MISFIRE_SECONDS: Final = 900.0
SHORT_HOLD: Final = 10.0
"""Seconds that a fault has to last which is known for certain: what ends before that was a change under way."""
CLOCK_SECONDS: Final = 1.0
"""By more than so many seconds the clocks of a host and of the registry differ if that is an alert."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of alert."""

    name: AlertKind
    rule: str
    """When it fires, in words; a key of the console's catalogue."""
    over: str
    """What a message says of it when it is over."""
    waits: float = 0.0
    """The part of the time that ``--after`` says, which the fault has to last."""
    hold: float = 0.0
    """How many seconds it has to last besides."""


KINDS: Final[Mapping[AlertKind, Kind]] = {
    kind.name: kind
    for kind in (
        Kind(
            "nobody-there",
            "No instance is up that may run the job, and a scheduled moment is to come.",
            "nobody was there to run it",
            waits=1.0,
        ),
        Kind("nobody-leads", "Instances are up, and none of them leads the job.", "nobody led it", waits=1.0),
        Kind(
            "failing",
            "The newest 3 runs of an item failed, or half of the newest 20 runs of the job.",
            "its runs failed",
        ),
        Kind(
            "given-up",
            "A run was cut off again and again, so it is not rescued any more; until the item's next run ends.",
            "a run was given up",
        ),
        Kind(
            "misfiring",
            "At least 3 scheduled moments passed without a run on time in the last 15 minutes.",
            "moments passed without a run on time",
        ),
        Kind(
            "late",
            "A scheduled moment has not begun, or not ended, on all items within the time that the job allows.",
            "a moment was late",
            hold=SHORT_HOLD,
        ),
        Kind(
            "writes-refused",
            "The registry refuses writes of an instance.",
            "the registry refused writes",
            hold=SHORT_HOLD,
        ),
        Kind(
            "config-unusable",
            "The configuration in the registry is wrong, or a process cannot use it.",
            "the configuration could not be used",
            hold=SHORT_HOLD,
        ),
        Kind(
            "clock-differs",
            "A host's clock differs from the registry's by more than a second, or by more than a job tolerates.",
            "a host's clock differed",
            hold=SHORT_HOLD,
        ),
        Kind(
            "store-not-written",
            "A process cannot write to its event store, so the history may be incomplete.",
            "the event store was not written",
            hold=SHORT_HOLD,
        ),
        Kind(
            "registry-away",
            "The command cannot reach the registry, so it cannot see any job.",
            "the registry could not be reached",
            waits=0.5,  # it may take half the session timeout until the command knows that it has no connection
        ),
    )
}
"""By name.  A job's own kinds are values of its setting ``alert_on``."""

OF_WORKERS: Final = ("failed", "given-up", "missed")
"""The values of ``alert_on`` for which workers call the error handler themselves."""
OF_JOBS: Final = tuple(name for name in get_args(Alert) if name in KINDS)
"""The kinds that belong to a job."""
