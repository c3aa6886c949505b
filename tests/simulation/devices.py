"""Makes operations of devices fail, and checks that a device is cleaned before the next user gets it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.drivers.simulated import SimulatedAccelerators

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Operations that may fail. "clean" is not included: such a device would be quarantined until an operator releases it.
_REFUSED = frozenset({"program", "prepare", "release", "identify"})


@contextmanager
def watched(world: "World") -> Iterator[None]:
    fail_if_ordered, set_handle = SimulatedAccelerators._raise_if_faulty, SimulatedAccelerators._set_handle

    def fail_randomly(driver: Any, verb: str, at: str, kind: Any) -> None:
        part = world.part_of(driver._directory)
        if part is not None:
            part.point(f"before {verb} of {at}")
            if verb in _REFUSED and world.dice.happens("device"):
                raise DriverError(f"{verb} of {at} failed: simulated fault")
        fail_if_ordered(driver, verb, at, kind)

    def changed(driver: Any, pci_id: str, handle: Any) -> None:
        part = world.part_of(driver._directory)
        if part is not None:
            before = driver._read().handles.get(pci_id)
            if (
                handle.prepared_for
                and before is not None
                and before.dirty
                and before.prepared_for != handle.prepared_for
            ):
                world.wrong(f"{pci_id} of {part.name} goes to {handle.prepared_for} uncleaned: {before}")
        set_handle(driver, pci_id, handle)
        if part is not None:
            part.point(f"after a change of {pci_id}")

    SimulatedAccelerators._raise_if_faulty, SimulatedAccelerators._set_handle = fail_randomly, changed
    try:
        yield
    finally:
        SimulatedAccelerators._raise_if_faulty, SimulatedAccelerators._set_handle = fail_if_ordered, set_handle
