"""The rules of a zone: a digest that is the same where the rules are, and the database from which they come."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime
from pathlib import Path

import pytest
import tzdata

from aioelasticjob.cron import zone_rules
from aioelasticjob.cron.zone_rules import database_of, rules_digest


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> None:
    database_of.cache_clear()


def test_zones_with_the_same_rules_have_the_same_digest_and_others_do_not() -> None:
    assert rules_digest("Europe/Berlin", 2026) == rules_digest("Europe/Paris", 2026) != ""
    found = {rules_digest(name, 2026) for name in ("Europe/Berlin", "America/New_York", "Asia/Tokyo", "Europe/London")}
    assert len(found) == 4
    assert rules_digest("Africa/Casablanca", 2026) != rules_digest("Africa/Lagos", 2026)  # it turns in Ramadan only


def test_a_zone_whose_offset_never_changes_has_no_rules() -> None:
    assert {rules_digest(name, 2026) for name in ("UTC", "GMT+8", "Etc/GMT-5")} == {""}


def test_each_turn_is_found_to_the_second() -> None:
    zone = zone_rules.zone_named("Europe/Berlin")
    turn = zone_rules._turn(zone, datetime(2026, 3, 26, tzinfo=UTC), 7200)
    assert turn == datetime(2026, 3, 29, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("file", "text", "version"),
    [
        ("tzdata.zi", "# version 2024a\n# more\n", "2024a"),
        ("+VERSION", "2023c\n", "2023c"),
        ("other", "", "of unknown version"),
    ],
)
def test_the_version_of_the_systems_database_is_read(
    file: str, text: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / file).write_text(text)
    (tmp_path / "Asia").mkdir()
    (tmp_path / "Asia" / "Tokyo").write_bytes(b"TZif")
    monkeypatch.setattr(zoneinfo, "TZPATH", (str(tmp_path),))
    assert database_of("Asia/Tokyo") == f"tzdata {version} in {tmp_path}"
    assert database_of("Europe/Berlin") == f"tzdata {tzdata.IANA_VERSION} of Python's package"
