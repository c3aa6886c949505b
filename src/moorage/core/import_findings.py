"""Findings of an import: anomalies in another system's database, and what the import does about each."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self


class ImportOutcome(StrEnum):
    LEFT_OUT = "left out"
    MENDED = "mended"
    KEPT = "kept as it is"


class ImportFindingKind(StrEnum):
    """A kind of anomaly. Subclasses define the members as (value, outcome, meaning), in the order of the report."""

    outcome: ImportOutcome
    meaning: str

    def __new__(cls, value: str, outcome: ImportOutcome, meaning: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.outcome = outcome
        member.meaning = meaning
        return member


@dataclass(frozen=True, slots=True)
class ImportFinding:
    kind: ImportFindingKind
    subject: str  #: the row: its uuid or name, or the peer's table and id
    text: str

    @property
    def outcome(self) -> ImportOutcome:
        return self.kind.outcome


#: Findings of each kind that are kept in memory. All are counted, and all go into the report file if there is one.
MAX_REMEMBERED = 1000


@dataclass
class Findings:
    counts: dict[ImportFindingKind, int] = field(default_factory=dict)
    first: dict[ImportFindingKind, list[ImportFinding]] = field(default_factory=dict)

    def add(self, finding: ImportFinding) -> None:
        self.counts[finding.kind] = self.counts.get(finding.kind, 0) + 1
        remembered = self.first.setdefault(finding.kind, [])
        if len(remembered) < MAX_REMEMBERED:
            remembered.append(finding)

    def __bool__(self) -> bool:
        return bool(self.counts)
