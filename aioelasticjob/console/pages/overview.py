"""All jobs of a registry: how they are, when they fire next, how their last runs went, who holds their items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2s
from typing import Final

from markupsafe import Markup, escape
from starlette.responses import Response

from aioelasticjob.console.drawing import bar, sparkline
from aioelasticjob.console.live import Picture, Watched
from aioelasticjob.console.palette import Palette
from aioelasticjob.console.standing import GROUPS, Standing, tone_of
from aioelasticjob.console.stream import CHUNK, Piece, Sent, stream
from aioelasticjob.console.visit import Visit
from aioelasticjob.operations import ItemStatus, JobStatus

PAGE: Final = 100
"""Jobs on a page unless more are asked for."""
MOST: Final = 2000
SQUARES: Final = 40
"""Items shown one by one; of more, the share of each instance."""

_HELD: Final = "{items} items on {instances} instances"


@dataclass(frozen=True, slots=True)
class Wish:
    """What part of the jobs somebody wants to see."""

    text: str = ""
    group: str = ""
    page: int = 1
    size: int = PAGE

    @classmethod
    def of(cls, visit: Visit) -> Wish:
        """Return what the page's address asks for; nonsense is ignored."""
        query = visit.request.query_params
        group = query.get("show", "")
        return cls(
            query.get("q", "").strip()[:200],
            group if group in GROUPS else "",
            _number(query.get("page"), 1, 1_000_000),
            _number(query.get("size"), PAGE, MOST),
        )


def row_id(name: str) -> str:
    """Return an element's id for a job, whatever is in its name."""
    return f"j{blake2s(name.encode(), digest_size=6).hexdigest()}"


async def overview(visit: Visit) -> Response:
    """Show the jobs, or only the list of them to our script."""
    assert visit.registry is not None
    wish, picture = Wish.of(visit), visit.registry.picture.value
    view = View(visit, wish)
    return visit.page("overview.html", view=view, picture=picture, wish=wish, tab="jobs")


async def live(visit: Visit) -> Response:
    """Stream what changes on the overview."""
    at = visit.request.headers.get("last-event-id") or visit.request.query_params.get("at", "")
    return stream(visit, View(visit, Wish.of(visit), at))


class View:
    """The overview as one visitor sees it, and how much of it their browser has."""

    def __init__(self, visit: Visit, wish: Wish, at: str = "") -> None:
        assert visit.registry is not None
        self._visit, self._wish = visit, wish
        self._registry: Watched = visit.registry
        self._standing = visit.console.standings.setdefault(self._registry, Standing())
        epoch, _, rest = at.partition(".")
        version, _, shown = rest.partition(".")
        known = epoch == self._registry.epoch and version.isdecimal()
        self._version = int(version) if known else -1
        self._shown = shown if known else ""
        self._sent, self._ahead = Sent(), dict[str, int]()
        self.more = False
        """Whether rows have been held back, so that no event grows too large."""

    async def news(self, picture: Picture) -> Sequence[Piece]:
        """Return what has changed since the browser's version: rows, or the whole list when it holds others now.

        Of many rows some go ahead, the longest changed first; the version moves on when all are there.
        """
        around = (
            Piece("state", self._visit.render("state.html", picture=picture)),
            Piece("tiles", self.tiles(picture)),
        )
        found, names = [piece for piece in around if self._sent.differs(piece)], self.names(picture)
        if self._shown != _mark(names):
            self._shown = _mark(names)
            found.append(Piece("jobs", self.list(picture)))
            fresh = []
        else:
            fresh = self._fresh(picture, names)
            size = 0
            while fresh and size < CHUNK:
                name = fresh.pop(0)
                found.append(Piece(row_id(name), self.row(picture, name)))
                self._ahead[name] = picture.changed[name]
                size += len(found[-1].html)
        self.more = bool(fresh)
        if not fresh:
            self._version, self._ahead = picture.version, {}
        return found

    def _fresh(self, picture: Picture, names: Sequence[str]) -> list[str]:
        changed = picture.changed
        fresh = [name for name in names if changed[name] > max(self._version, self._ahead.get(name, -1))]
        return sorted(fresh, key=changed.__getitem__)

    @property
    def place(self) -> str:
        """What the browser has when it has got what it was sent."""
        return f"{self._registry.epoch}.{self._version}.{self._shown}"

    def placed(self, picture: Picture) -> str:
        """Return the same for a browser that has just been given the page."""
        return f"{self._registry.epoch}.{picture.version}.{_mark(self.names(picture))}"

    def names(self, picture: Picture) -> Sequence[str]:
        """Return the jobs shown, by name."""
        found = self.matching(picture)
        first = (self._wish.page - 1) * self._wish.size
        return found[first : first + self._wish.size]

    def matching(self, picture: Picture) -> list[str]:
        """Return all jobs that were asked for, on whatever page."""
        text, group = self._wish.text.casefold(), self._wish.group
        if not text and not group:
            return list(picture.jobs)
        groups = self._standing.see(picture).groups
        return [
            name
            for name, status in picture.jobs.items()
            if (not text or text in name.casefold() or text in status.config.description.casefold())
            and (not group or groups[name] == group)
        ]

    def pages(self, picture: Picture) -> int:
        """Return how many pages there are."""
        return max(1, -(-len(self.matching(picture)) // self._wish.size))

    def tiles(self, picture: Picture) -> str:
        """Return the counts."""
        counts = self._standing.see(picture).counts
        return self._visit.render("tiles.html", counts=counts, total=len(picture.jobs), wish=self._wish, groups=GROUPS)

    def list(self, picture: Picture) -> str:
        """Return the list with all its rows."""
        rows = [self.row(picture, name) for name in self.names(picture)]
        return self._visit.render("jobs.html", rows=rows, view=self, picture=picture, wish=self._wish)

    def row(self, picture: Picture, name: str) -> str:
        """Return a job's row, rendered once for all pages of a language."""
        visit, version = self._visit, picture.changed[name]
        rows = visit.console.rows.setdefault(self._registry, {}).setdefault((visit.words.code, visit.root), {})
        kept = rows.get(name)
        if len(rows) > 2 * len(picture.jobs) + PAGE:  # most are of jobs that are gone
            rows.clear()
        if kept is None or kept[0] != version:
            kept = rows[name] = (version, self._row(picture.jobs[name]))
        return kept[1]

    def _row(self, status: JobStatus) -> str:
        registry, visit = self._registry, self._visit
        return visit.render(
            "row.html",
            job=status,
            id=row_id(status.name),
            href=visit.here("job", status.name),
            tone=tone_of(status),
            spark=sparkline(registry.runs.get(status.name, ()), visit.words),
            held=picture_of(
                status, registry, visit.words(_HELD, items=len(status.items), instances=len(status.instances))
            ),
        )


def picture_of(status: JobStatus, registry: Watched, label: str) -> Markup:
    """Draw who holds the items: a square for each, or of many each instance's share of a bar."""
    palette = registry.palettes[status.name]
    if len(status.items) > SQUARES:
        there = [one.id for one in status.instances]
        counts = Counter(item.holder if item.holder in there else None for item in status.items)
        order = [*there, None]
        shares = [(palette.of(holder), counts[holder]) for holder in order if counts[holder]]
        return bar(shares, label)
    squares = [f'<i class="{_look(item, palette)}"></i>' for item in status.items]
    return Markup(f'<span class="strip" role="img" aria-label="{escape(label)}">{"".join(squares)}</span>')


def _look(item: ItemStatus, palette: Palette) -> str:
    marks = (("off", item.disabled), ("orphan", item.orphaned), ("run", item.run is not None))
    return " ".join([palette.of(item.holder), *(mark for mark, holds in marks if holds)])


def _mark(names: Sequence[str]) -> str:
    return blake2s("/".join(names).encode(), digest_size=8).hexdigest()


def _number(text: str | None, default: int, most: int) -> int:
    return min(max(1, int(text)), most) if text and text.isascii() and text.isdecimal() and len(text) < 8 else default
