"""Custom classes and traits of our own naming that nothing has and nobody asks for. Pure.

Only those that the reservation service and hosts make themselves, by their names; what operators named is theirs. A class
or trait that a flavor or a device profile names stays: without it a request for it is an error, and not only without result.
"""

from collections.abc import Iterator

from moorage.audit.model import AuditSnapshot, Finding, FindingKind, Repair
from moorage.core.names import (
    is_accelerator_class,
    is_bitstream_trait,
    is_reservation_class,
    reservation_class,
)


def unused_names(picture: AuditSnapshot) -> Iterator[Finding]:
    """Nothing without compute, accelerators and reservations: one that is not asked may need it."""
    names = picture.names
    if names is None or None in (picture.compute, picture.accelerators) or picture.reservations is None:
        return
    offered = {name for provider in picture.providers.values() for name in provider.inventories}
    held = {name for provider in picture.providers.values() for name in provider.used}
    reserved = {reservation_class(one) for one in picture.reservations.reservations}
    ours = {name for name in names.classes if is_reservation_class(name) or is_accelerator_class(name)}
    for name in sorted(ours - offered - held - reserved - names.asked_for):
        yield _finding(FindingKind.UNUSED_CLASS, name, "no provider offers it", Repair.DELETE_CLASS)
    for name in sorted(filter(is_bitstream_trait, names.traits - names.asked_for)):
        yield _finding(FindingKind.UNUSED_TRAIT, name, "no provider has it", Repair.DELETE_TRAIT)


def _finding(kind: FindingKind, name: str, why: str, action: Repair) -> Finding:
    return Finding(
        kind, name, "Placement", f"{why}, and no lease, flavor or device profile asks for it", "deletes it", action,
        is_safe=True,
    )  # fmt: skip
