"""An inventory with Placement's fields, and the checks of its fields against each other.

Upstream's schema checks each field alone, so peers and old clients may send contradictory ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Inventory:
    """The defaults are Placement's."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_INT
    step_size: int = 1
    allocation_ratio: float = 1.0

    def fully_reserved(self) -> Self:
        """The same inventory with everything reserved, so that nothing new can be allocated."""
        return replace(self, reserved=self.total)


def inventory_faults(inventory: Inventory) -> Iterator[str]:
    """Contradictions between its fields, as text: ``reserved 9 is more than total 8``."""
    if inventory.total < 1:
        yield f"total {inventory.total} is less than 1"
    if inventory.reserved < 0:
        yield f"reserved {inventory.reserved} is negative"
    if inventory.reserved > inventory.total:
        yield f"reserved {inventory.reserved} is more than total {inventory.total}"
    if inventory.min_unit < 1 or inventory.max_unit < 1:
        yield f"min_unit {inventory.min_unit} and max_unit {inventory.max_unit} must be at least 1"
    if inventory.min_unit > inventory.max_unit:
        yield f"min_unit {inventory.min_unit} is more than max_unit {inventory.max_unit}"
    if inventory.step_size < 1:
        yield f"step_size {inventory.step_size} is less than 1"
    if not inventory.allocation_ratio > 0:
        yield f"allocation_ratio {inventory.allocation_ratio:g} is not more than 0"
