"""The alerts of a registry: since when each fires, what people were notified of, and who has acknowledged it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from aioelasticjob.config.types import AlertKind
from aioelasticjob.console.watching.acknowledgements import Acknowledgement
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.web.frame import frame_pieces
from aioelasticjob.console.web.request import PageRequest, registry_of
from aioelasticjob.console.web.stream import Piece, Pieces, stream
from aioelasticjob.operations.alerts.kinds import KINDS, Kind
from aioelasticjob.operations.alerts.state import AlertState
from aioelasticjob.operations.attention import ERRORS

SUBJECTS: Final[Mapping[AlertKind, tuple[str, ...]]] = {
    "nobody-there": ("nobody there", "nobody able", "clock differs", "calendar missing"),
    "nobody-leads": ("not converging",),
    "failing": (ERRORS,),
    "given-up": ("given up",),
    "misfiring": ("misfiring",),
    "late": ("late",),
    "writes-refused": ("writes refused",),
    "config-unusable": ("unusable here", "refused"),
    "clock-differs": ("clock differs",),
}
"""By the kind of an alert, the subjects of reasons that say the same of a job: these are what people acknowledge."""


@dataclass(frozen=True, slots=True)
class AlertRow:
    """One alert on the page."""

    alert: AlertState
    kind: Kind
    is_being_sent: bool
    acknowledged: tuple[Acknowledgement, ...]

    @property
    def handler(self) -> str:
        """The error handler by which the last message was sent; empty if none was."""
        return self.alert.target.partition(" ")[0]


async def page(request: PageRequest) -> Response:
    """Show the alerts."""
    snapshot = registry_of(request).snapshot.value
    pieces = {piece.target: piece.html for piece in await _render(request)(snapshot)}
    return request.page("alerts.html", pieces=pieces, snapshot=snapshot, tab="alerts")


async def live(request: PageRequest) -> Response:
    """Stream what changes among them."""
    return stream(request, Pieces(_render(request)))


def _render(request: PageRequest) -> Callable[[RegistrySnapshot], Awaitable[Sequence[Piece]]]:
    async def render(snapshot: RegistrySnapshot) -> Sequence[Piece]:
        html = request.render("alerts-list.html", rows=_rows(request, snapshot), rules=list(KINDS.values()))
        return [*frame_pieces(request), Piece("alerts", html)]

    return render


def _rows(request: PageRequest, snapshot: RegistrySnapshot) -> list[AlertRow]:
    """Return the alerts: those that fire first, and the newest first."""
    known = request.state.storage.acknowledgements.of(registry_of(request).settings.name)
    now = request.state.clock.now()
    rows = list[AlertRow]()
    for alert in sorted(snapshot.alerts, key=lambda one: (not one.fires, -one.since)):
        by_subject = known.get(alert.job, {})
        acknowledged = [by_subject[subject] for subject in SUBJECTS.get(alert.kind, ()) if subject in by_subject]
        is_being_sent = alert.claim is not None and alert.claim.until > now
        rows.append(AlertRow(alert, KINDS[alert.kind], is_being_sent, tuple(acknowledged)))
    return rows
