"""[pure] The content of a provider configuration file as values, and its faults.

Spec: docs/evidence/specs/provider-config.md
"""

from collections.abc import Mapping
from dataclasses import dataclass

from moorage.core.inventories import MAX_INT, Inventory

#: Stands for each compute node of the host that no other entry names.
COMPUTE_NODE = "$COMPUTE_NODE"


@dataclass(frozen=True, slots=True, order=True)
class FilePosition:
    """A position in a file; line and column count from 1, as in editors."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, order=True)
class Source:
    file: str
    place: FilePosition

    def __str__(self) -> str:
        return f"{self.file}:{self.place.line}:{self.place.column}"


@dataclass(frozen=True)
class ConfigFault:
    """One fault that keeps the agent from starting."""

    file: str
    problem: str
    remedy: str
    place: FilePosition | None = None  #: None: the file or directory as a whole
    path: str = ""  #: inside the document: ``providers[0].identification.uuid``

    def __str__(self) -> str:
        where = f"{self.file}:{self.place.line}:{self.place.column}" if self.place else self.file
        inside = f"{self.path}: " if self.path else ""
        return f"{where}: {inside}{self.problem}; {self.remedy}"


@dataclass(frozen=True)
class AdditionalInventory:
    """An inventory as written; None: the file leaves the field to Placement's default."""

    source: Source
    total: int
    reserved: int | None = None
    min_unit: int | None = None
    max_unit: int | None = None
    step_size: int | None = None
    allocation_ratio: float | None = None

    def inventory(self) -> Inventory:
        """The inventory with Placement's defaults filled in, equal to Placement's answer after publication."""
        return Inventory(
            total=self.total,
            reserved=0 if self.reserved is None else self.reserved,
            min_unit=1 if self.min_unit is None else self.min_unit,
            max_unit=MAX_INT if self.max_unit is None else self.max_unit,
            step_size=1 if self.step_size is None else self.step_size,
            allocation_ratio=1.0 if self.allocation_ratio is None else self.allocation_ratio,
        )


@dataclass(frozen=True)
class ProviderConfig:
    """One entry of `providers`: additions to the provider with this `uuid` or `name`, or to all compute nodes."""

    source: Source
    uuid: str | None  #: in lower case; None: identified by name, or `compute_node`
    name: str | None
    inventories: Mapping[str, AdditionalInventory]
    traits: frozenset[str]

    @property
    def compute_node(self) -> bool:
        return self.uuid is None and self.name is None

    @property
    def who(self) -> str:
        """The identification as its author wrote it."""
        return self.uuid or self.name or COMPUTE_NODE
