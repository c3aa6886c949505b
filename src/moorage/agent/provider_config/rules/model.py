"""[pure] The content of a provider configuration file as values, and its faults.

Spec: docs/evidence/specs/provider-config.md
"""

from collections.abc import Mapping
from dataclasses import dataclass

from moorage.core.inventories import MAX_INT, Inventory

#: As `uuid` or `name` of an entry: each compute node of the host that no other entry names.
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
    """One fault of the files, with which the agent does not start."""

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
    """An inventory in a file. A field that the file does not have is None; Placement's default then applies."""

    source: Source
    total: int
    reserved: int | None = None
    min_unit: int | None = None
    max_unit: int | None = None
    step_size: int | None = None
    allocation_ratio: float | None = None

    def inventory(self) -> Inventory:
        """The inventory with Placement's defaults, as Placement returns it later."""
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
    uuid: str | None  #: in lower case; None: identified by name, or `is_for_compute_nodes`
    name: str | None
    inventories: Mapping[str, AdditionalInventory]
    traits: frozenset[str]

    @property
    def is_for_compute_nodes(self) -> bool:
        return self.uuid is None and self.name is None

    @property
    def identification(self) -> str:
        """The uuid or name that identifies the provider, as in the file."""
        return self.uuid or self.name or COMPUTE_NODE
