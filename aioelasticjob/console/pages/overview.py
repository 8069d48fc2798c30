"""All jobs of a registry: how they are, when they fire next, how their last runs went, who holds their items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2s
from typing import Final

from markupsafe import Markup, escape
from starlette.responses import Response

from aioelasticjob.console.actions.job_actions import ACTIONS, BULK
from aioelasticjob.console.drawing.sparkline import bar, held_label, sparkline
from aioelasticjob.console.pages.job_query import PAGE, JobGroup, JobQuery, label_names
from aioelasticjob.console.watching.health import GROUPS, Health
from aioelasticjob.console.watching.palette import Palette
from aioelasticjob.console.watching.partial_registry import SeenRegistry
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.console.watching.strip import Strip
from aioelasticjob.console.web.frame import frame_pieces
from aioelasticjob.console.web.request import PageRequest, registry_of
from aioelasticjob.console.web.stream import EVENT_BYTES, Piece, Sent, row_id, stream
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.operations import ItemStatus, JobStatus

SQUARES: Final = 40
"""Items shown one by one; of more, the share of each instance."""


async def page(request: PageRequest) -> Response:
    """Show the jobs; to a request that our script sends while somebody types, return only the jobs found."""
    query = JobQuery.of(request.http.query_params)
    snapshot = registry_of(request).snapshot.value
    feed = OverviewFeed(request, query)
    if request.is_fragment:
        return request.page("overview-found.html", feed=feed, snapshot=snapshot, query=query)
    labels = label_names(snapshot)
    return request.page("overview.html", feed=feed, snapshot=snapshot, query=query, labels=labels, tab="jobs")


async def live(request: PageRequest) -> Response:
    """Stream what changes on the overview."""
    address = request.http.query_params
    at = request.http.headers.get("last-event-id") or address.get("at", "")
    return stream(request, OverviewFeed(request, JobQuery.of(address), at))


class OverviewFeed:
    """The overview as one viewer sees it, and how much of it their browser has."""

    def __init__(self, request: PageRequest, query: JobQuery, at: str = "") -> None:
        self._request = request
        self._query = query
        self._registry: SeenRegistry = registry_of(request)
        epoch, _, rest = at.partition(".")
        version, _, shown = rest.partition(".")
        seen = whole_number(version) if epoch == self._registry.epoch else None
        self._version = -1 if seen is None else seen
        self._shown = "" if seen is None else shown
        self._sent = Sent()
        self._ahead = dict[str, int]()
        self._tiles: tuple[tuple[Counter[str], int], str] | None = None
        self._strip: tuple[Strip, str] | None = None
        """The tiles and the strip that were rendered last, and of what."""
        self.has_more = False
        """Whether rows have been held back, so that no event grows too large."""

    async def changes(self, snapshot: RegistrySnapshot) -> Sequence[Piece]:
        """Return what has changed since the browser's version: rows, or the whole list when it holds others now.

        Of many rows some go ahead, the longest changed first; the version moves on when all are there.
        """
        around = (
            *frame_pieces(self._request),
            Piece("strip", self.strip(snapshot)),
            Piece("tiles", self.tiles(snapshot)),
        )
        found = [piece for piece in around if self._sent.differs(piece)]
        groups = self.groups(snapshot)
        if self._shown != _mark(groups):
            self._shown = _mark(groups)
            found.append(Piece("jobs", self.list(snapshot)))
            fresh = []
        else:
            fresh = self._fresh(snapshot, [name for group in groups for name in group.names])
            size = 0
            while fresh and size < EVENT_BYTES:
                name = fresh.pop(0)
                found.append(Piece(row_id(name), self.row(snapshot, name)))
                self._ahead[name] = snapshot.changed[name]
                size += len(found[-1].html)
        self.has_more = bool(fresh)
        if not fresh:
            self._version = snapshot.version
            self._ahead = {}
        return found

    def _fresh(self, snapshot: RegistrySnapshot, names: Sequence[str]) -> list[str]:
        changed = snapshot.changed
        fresh = []
        for name in names:
            sent = max(self._version, self._ahead.get(name, -1))
            if changed[name] > sent:
                fresh.append(name)
        return sorted(fresh, key=changed.__getitem__)

    @property
    def position(self) -> str:
        """What the browser has when it has got what it was sent."""
        return f"{self._registry.epoch}.{self._version}.{self._shown}"

    def position_at(self, snapshot: RegistrySnapshot) -> str:
        """Return the same for a browser that has just been given the page."""
        return f"{self._registry.epoch}.{snapshot.version}.{_mark(self.groups(snapshot))}"

    def groups(self, snapshot: RegistrySnapshot) -> Sequence[JobGroup]:
        """Return the jobs shown, by their groups."""
        return self._query.groups(self._found(snapshot))

    def pages(self, snapshot: RegistrySnapshot) -> int:
        """Return how many pages there are."""
        return self._query.pages(len(self._found(snapshot)))

    def _found(self, snapshot: RegistrySnapshot) -> list[JobStatus]:
        return self._query.found(snapshot, self._request.state.health_of(self._registry, snapshot))

    def tiles(self, snapshot: RegistrySnapshot) -> str:
        """Return the counts."""
        counts = self._request.state.health_of(self._registry, snapshot).counts
        total = len(snapshot.jobs)
        if self._tiles is None or self._tiles[0] != (counts, total):
            html = self._request.render("tiles.html", counts=counts, total=total, query=self._query, groups=GROUPS)
            self._tiles = (counts, total), html
        return self._tiles[1]

    def strip(self, snapshot: RegistrySnapshot) -> str:
        """Return the health strip."""
        state = self._request.state
        health = state.health_of(self._registry, snapshot)
        strip = state.strips.of(self._registry, snapshot, health, state.clock.now())
        if self._strip is None or self._strip[0] != strip:
            self._strip = strip, self._request.render("strip.html", strip=strip)
        return self._strip[1]

    def list(self, snapshot: RegistrySnapshot) -> str:
        """Return the list with all its rows."""
        parts = []
        for group in self.groups(snapshot):
            rows = [self.row(snapshot, name) for name in group.names]
            parts.append((group, rows))
        may = self._request.viewer.may_for_some_job
        actions = [(kind, ACTIONS[kind]) for kind in BULK if may(ACTIONS[kind].needs)]
        return self._request.render(
            "jobs.html", parts=parts, feed=self, snapshot=snapshot, query=self._query, actions=actions
        )

    def row(self, snapshot: RegistrySnapshot, name: str) -> str:
        """Return a job's row, rendered once for all pages on which it looks the same."""
        request = self._request
        version = snapshot.changed[name]
        viewer = request.viewer.on(snapshot.jobs[name].config.labels)
        look = (request.translate.code, request.root, viewer.may_ask)
        rows = request.state.rows.setdefault(self._registry, {}).setdefault(look, {})
        kept = rows.get(name)
        if len(rows) > 2 * len(snapshot.jobs) + PAGE:  # most are of jobs that are gone
            rows.clear()
        if kept is None or kept[0] != version:
            health = request.state.health_of(self._registry, snapshot).of[name]
            kept = rows[name] = (version, self._row(snapshot.jobs[name], health, viewer.may_ask))
        return kept[1]

    def _row(self, status: JobStatus, health: Health, may_select: bool) -> str:
        registry = self._registry
        request = self._request
        label = held_label(len(status.items), len(status.instances), request.translate)
        return request.render(
            "row.html",
            job=status,
            id=row_id(status.name),
            href=request.registry_url("job", status.name),
            health=health,
            may_select=may_select,
            spark=sparkline(registry.runs.get(status.name, ()), request.translate),
            held=items_drawing(status, registry, label),
        )


def items_drawing(status: JobStatus, registry: SeenRegistry, label: str) -> Markup:
    """Draw who holds the items: a square for each, or of many each instance's share of a bar."""
    palette = registry.palettes[status.name]
    if len(status.items) > SQUARES:
        there = [one.id for one in status.instances]
        counts = Counter[str | None]()
        for item in status.items:
            holder = item.holder if item.holder in there else None
            counts[holder] += 1
        order = [*there, None]
        shares = [(palette.css_class(holder), counts[holder]) for holder in order if counts[holder]]
        return bar(shares, label)
    squares = [f'<i class="{_look(item, palette)}"></i>' for item in status.items]
    return Markup(f'<span class="strip" role="img" aria-label="{escape(label)}">{"".join(squares)}</span>')


def _look(item: ItemStatus, palette: Palette) -> str:
    look = palette.css_class(item.holder)
    if item.disabled:
        look += " off"
    if item.orphaned:
        look += " orphan"
    if item.run is not None:
        look += " run"
    return look


def _mark(groups: Sequence[JobGroup]) -> str:
    """Return a digest of the groups and jobs in the list; while it stays the same, single rows are sent."""
    return blake2s(repr(groups).encode(), digest_size=8).hexdigest()
