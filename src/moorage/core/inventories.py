"""What makes an inventory impossible: the peer's schema checks no field against another, and old clients even less."""

from collections.abc import Iterator
from typing import Protocol


class InventoryFields(Protocol):
    """Anything with the fields of a Placement inventory: services and agents have types of their own."""

    @property
    def total(self) -> int: ...
    @property
    def reserved(self) -> int: ...
    @property
    def min_unit(self) -> int: ...
    @property
    def max_unit(self) -> int: ...
    @property
    def step_size(self) -> int: ...
    @property
    def allocation_ratio(self) -> float: ...


def faults_of(inventory: InventoryFields) -> Iterator[str]:
    """Why nobody can have meant it: ``reserved 9 is more than total 8``."""
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
