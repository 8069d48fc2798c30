"""What an examination of a registry has found: sentences for people, and words for programs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Whether what was seen is good."""

    GOOD = "good"
    WARNING = "warning"  # jobs run; somebody should look at it
    BAD = "bad"  # jobs do not run, or not as they should
    UNKNOWN = "unknown"  # it could not be asked


@dataclass(frozen=True, slots=True)
class Finding:
    """One topic: what was seen, whether that is good, and what to change."""

    topic: str
    verdict: Verdict
    seen: str
    advice: str = ""

    def as_json(self) -> dict[str, str]:
        """Return the finding as a dictionary that can be encoded as JSON."""
        return {"topic": self.topic, "verdict": self.verdict.value, "seen": self.seen, "advice": self.advice}


@dataclass(frozen=True, slots=True)
class Report:
    """All findings about one registry."""

    registry: str
    """The address, without credentials."""
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all findings; what could not be asked counts as a warning."""
        verdicts = {finding.verdict for finding in self.findings}
        if Verdict.BAD in verdicts:
            return Verdict.BAD
        if verdicts <= {Verdict.GOOD}:
            return Verdict.GOOD
        return Verdict.WARNING

    def as_json(self) -> dict[str, object]:
        """Return the report as a dictionary that can be encoded as JSON."""
        return {
            "registry": self.registry,
            "verdict": self.verdict.value,
            "findings": [finding.as_json() for finding in self.findings],
        }
