"""Which jobs the overview shows, in which order and groups: what the page's address says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from aioelasticjob.console.watching.health import GROUPS, HealthGroups
from aioelasticjob.console.watching.registry_watch import RegistrySnapshot
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.ground.credentials import hide_in_text
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.operations import JobStatus, label_in

PAGE: Final = 100
"""Jobs on a page unless more are asked for."""
MOST: Final = 2000
WORST_FIRST: Final = "worst"
"""The usual order: jobs that need attention come first, the worst of them at the top."""
COLUMNS: Final[Mapping[str, bool]] = {
    WORST_FIRST: False,
    "name": False,
    "next": False,
    "last": True,
    "took": True,
    "items": True,
}
"""The columns by which jobs can be sorted, and whether the largest value comes first when one is chosen."""
MAX_TEXT: Final = 200
"""Characters of a text that an address may carry."""


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Jobs that have the same value of the label by which they are grouped."""

    value: str | None
    """None for jobs without that label, and where there are no groups."""
    total: int | None
    """Jobs of the group on all pages; None where there are no groups."""
    names: tuple[str, ...]
    """Its jobs on this page."""


@dataclass(frozen=True, slots=True)
class JobQuery:
    """What part of the jobs somebody wants to see, and how."""

    text: str = ""
    group: str = ""
    label: str = ""
    """The label that the jobs have, as ``team=billing`` or ``team``."""
    by: str = ""
    """The name of the label by which the jobs are grouped."""
    sort: str = WORST_FIRST
    """The column by which they are sorted, within their groups; with ``-`` before it the largest value comes first."""
    page: int = 1
    size: int = PAGE

    @classmethod
    def of(cls, query: Mapping[str, str]) -> JobQuery:
        """Return what an address or a form asks for; nonsense is ignored."""
        group = query.get("show", "")
        sort = query.get("sort", "")
        return cls(
            text=query.get("q", "").strip()[:MAX_TEXT],
            group=group if group in GROUPS else "",
            label=_label(query.get("label", "")),
            by=query.get("by", "").strip()[:MAX_TEXT],
            sort=sort if sort.removeprefix("-") in COLUMNS else WORST_FIRST,
            page=_number(query.get("page"), 1, 1_000_000),
            size=_number(query.get("size"), PAGE, MOST),
        )

    def address(self, **other: object) -> Mapping[str, object]:
        """Return what the address of a page like this one carries, with some of it replaced; it is the first page."""
        plain = {"q": self.text, "show": self.group, "label": self.label, "by": self.by}
        sort = "" if self.sort == WORST_FIRST else self.sort
        size = "" if self.size == PAGE else self.size
        return {**plain, "sort": sort, "size": size, **other}

    def sorted_by(self, column: str) -> str:
        """Return how the jobs are sorted by a column, in the words of ``aria-sort``; empty if they are not."""
        return {column: "ascending", f"-{column}": "descending"}.get(self.sort, "")

    def next_sort(self, column: str) -> str:
        """Return the new order when somebody chooses a column; choosing the same column again reverses it."""
        if self.sorted_by(column):
            return column if self.sort.startswith("-") else f"-{column}"
        return f"-{column}" if COLUMNS[column] else column

    @property
    def filters(self) -> bool:
        """Whether some jobs are left out."""
        return bool(self.text or self.group or self.label)

    def found(self, snapshot: RegistrySnapshot, health: HealthGroups) -> list[JobStatus]:
        """Return all jobs that were asked for, on whatever page, in their order."""
        found = list(snapshot.jobs.values())
        if self.filters:
            found = [status for status in found if self._wants(status, health)]
        found = self._sorted(found, health)
        if self.by:
            found.sort(key=self._group_order)
        return found

    def pages(self, jobs: int) -> int:
        """Return how many pages so many jobs fill."""
        return max(1, -(-jobs // self.size))

    def groups(self, found: Sequence[JobStatus]) -> list[JobGroup]:
        """Return the jobs of this page, else of the last one, by their groups; all in one if they have none."""
        page = min(self.page, self.pages(len(found)))  # there may have been more jobs when the address was kept
        first = (page - 1) * self.size
        end = first + self.size
        if not self.by:
            shown = tuple(status.name for status in found[first:end])
            return [JobGroup(None, None, shown)] if shown else []
        groups = list[JobGroup]()
        start = 0  # how many jobs the groups before have
        for value, members in groupby(found, self._value):
            names = [status.name for status in members]
            on_page = names[max(0, first - start) : max(0, end - start)]
            if on_page:
                groups.append(JobGroup(value, len(names), tuple(on_page)))
            start += len(names)
        return groups

    def _wants(self, status: JobStatus, health: HealthGroups) -> bool:
        if self.label and not self._has_label(status):
            return False
        if self.group and health.of[status.name].group != self.group:
            return False
        return self._has_text(status)

    def _has_label(self, status: JobStatus) -> bool:
        name, value = label_in(self.label)
        shown = _shown_label(status, name)
        if shown is None:
            return False
        return value is None or value == shown

    def _has_text(self, status: JobStatus) -> bool:
        """Whether the text is in what pages show of a job; credentials are not shown, so nobody can guess them."""
        config = status.config
        text = self.text.casefold()
        if text in config.job_name.casefold():
            return True
        labels = [f"{name}={value}" for name, value in config.labels.items()]
        for one in (config.description, *labels):
            if text in one.casefold() and text in hide_in_text(one).casefold():
                return True
        return False

    def _sorted(self, found: list[JobStatus], health: HealthGroups) -> list[JobStatus]:
        """Return the jobs in order.  Jobs without a value in the column come last in both directions."""
        column = self.sort.removeprefix("-")
        reverse = self.sort.startswith("-")
        if column == WORST_FIRST:
            return sorted(found, key=lambda status: health.of[status.name].severity, reverse=reverse)
        if column == "name":
            return found[::-1] if reverse else found  # a snapshot has the jobs in order of their names
        known = list[tuple[float, JobStatus]]()
        unknown = list[JobStatus]()
        for status in found:
            value = _value_of(status, column, health)
            if value is None:
                unknown.append(status)
            else:
                known.append((value, status))
        known.sort(key=itemgetter(0), reverse=reverse)
        return [status for _, status in known] + unknown

    def _value(self, status: JobStatus) -> str | None:
        return _shown_label(status, self.by)

    def _group_order(self, status: JobStatus) -> tuple[bool, str]:
        """Order groups by their value; jobs without the label come last."""
        value = self._value(status)
        return value is None, value or ""


def _shown_label(status: JobStatus, name: str) -> str | None:
    """Return the value of a label as pages show it, without credentials, so that nobody can guess; None without one."""
    value = status.config.labels.get(name)
    if value is None:
        return None
    shown = hide_in_text(f"{name}={value}")  # whether a value is a credential can depend on the name
    return shown.partition("=")[2]


def _value_of(status: JobStatus, column: str, health: HealthGroups) -> float | None:
    """Return the number by which a job is sorted in a column; None if it has none."""
    last = status.last
    match column:
        case "next":
            if status.next_fire is None or not health.of[status.name].fires:
                return None
            return status.next_fire.timestamp()
        case "last":
            if last is None:
                return None
            return last.completed_at or last.begun
        case "took":
            if last is None or not last.completed_at:
                return None
            return last.completed_at - last.begun
        case _:
            return len(status.items)


def label_names(snapshot: RegistrySnapshot) -> list[str]:
    """Return the names of all labels that jobs have."""
    return sorted({name for status in snapshot.jobs.values() for name in status.config.labels})


def _label(text: str) -> str:
    try:
        name, value = label_in(text[: 2 * MAX_TEXT])
    except InvalidSetting:
        return ""
    return name if value is None else f"{name}={value}"


def _number(text: str | None, default: int, most: int) -> int:
    number = whole_number(text or "", digits=19)
    return min(number, most) if number else default
