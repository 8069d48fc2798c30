"""Which rules of the job's time zone an instance has: it notes them in its node, so that differences are seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from aioelasticjob.config.job import JobConfig
from aioelasticjob.cron.zone_rules import database_of, rules_digest
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.model import ZoneRules

KEY = "zoneRules"
"""The key of the rules in an instance's node."""


def present(config: JobConfig, year: int) -> ZoneRules | None:
    """Return the rules that this process has for a job's schedule; None if it has none, or its offset never changes."""
    if config.schedule is None or not config.schedule.uses_zone:
        return None
    try:
        digest = rules_digest(config.time_zone, year)
    except InvalidSetting:  # the configuration is not used here
        return None
    return ZoneRules(config.time_zone, year, digest, database_of(config.time_zone)) if digest else None


def note(rules: ZoneRules | None) -> dict[str, object] | None:
    """Return what an instance's node says of its rules."""
    if rules is None:
        return None
    return {"zone": rules.zone, "year": rules.year, "rules": rules.digest, "database": rules.database}


def noted(data: Mapping[str, object]) -> ZoneRules | None:
    """Return the rules that an instance's node tells of; None if it tells of none."""
    said = data.get(KEY)
    if not isinstance(said, dict):
        return None
    zone = said.get("zone")
    year = said.get("year")
    digest = said.get("rules")
    database = said.get("database")
    has_texts = isinstance(zone, str) and isinstance(digest, str) and isinstance(database, str)
    is_right = has_texts and type(year) is int
    return _shared(str(zone), int(str(year)), str(digest), str(database)) if is_right else None


def differ(one: ZoneRules | None, other: ZoneRules | None) -> bool:
    """Whether two instances are known to have different rules for the same zone and the same years."""
    if one is None or other is None:
        return False
    is_comparable = one.zone == other.zone and one.year == other.year
    return is_comparable and one.digest != other.digest


def databases(found: Iterable[ZoneRules | None]) -> tuple[str, ...]:
    """Return the databases of zones of a job's instances, one for each set of rules; empty if the rules agree."""
    known = [one for one in found if one is not None]
    by_digest = dict[str, str]()
    for one in known:
        if any(differ(one, other) for other in known):
            by_digest[one.digest] = one.database
    return tuple(sorted(by_digest.values()))


def difference_text(mine: ZoneRules, leaders: ZoneRules) -> str:
    """Return the warning of an instance that has other rules than the leader."""
    return (
        f"the rules of {mine.zone} are those of {mine.database} here, and those of {leaders.database} in the process of"
        " the leader, and they differ: some moments differ until all processes have the same version"
    )


@lru_cache(maxsize=1024)
def _shared(zone: str, year: int, digest: str, database: str) -> ZoneRules:
    """Return rules as a value that all instances with the same rules share."""
    return ZoneRules(zone, year, digest, database)
