"""What becomes of a Blazar's floating IPs here, and what is odd about who has them when."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from ipaddress import ip_address
from itertools import pairwise
from operator import attrgetter
from typing import Any

from moorage.core.import_findings import ImportFinding
from moorage.reservation.capacity.addresses import RegisteredAddress
from moorage.reservation.importing.rules.leases import AddressSlot, ImportFindingKind


def floating_ips(
    rows: Iterable[Any], times: Callable[[Any], tuple[datetime, datetime | None]]
) -> Iterator[RegisteredAddress | ImportFinding]:
    """`rows` of floatingips; what Neutron says of them is asked when a lease needs them."""
    known: set[tuple[str, str]] = set()
    for row in rows:
        try:
            address = str(ip_address(row.floating_ip_address))
        except ValueError:
            yield ImportFinding(
                ImportFindingKind.BAD_ADDRESS,
                row.id,
                f"floating IP {row.id}: {row.floating_ip_address} is no IP address",
            )
            continue
        if (row.subnet_id, address) in known:
            yield ImportFinding(
                ImportFindingKind.BAD_ADDRESS, row.id, f"floating IP {row.id}: {address} is registered twice"
            )
            continue
        known.add((row.subnet_id, address))
        created_at, updated_at = times(row)
        yield RegisteredAddress(
            row.id, row.floating_network_id, row.subnet_id, address, bool(row.reservable), created_at, updated_at
        )


def given_twice(slots: Iterable[AddressSlot]) -> Iterator[ImportFinding]:
    """Addresses that two reservations have at a time."""
    of_address: dict[str, list[AddressSlot]] = defaultdict(list)
    for slot in slots:
        of_address[slot.floating_ip.id].append(slot)
    for mine in of_address.values():
        for one, other in pairwise(sorted(mine, key=attrgetter("start"))):
            if other.start < one.end:
                address = one.floating_ip.floating_ip_address
                text = f"reservations {one.reservation_id} and {other.reservation_id} have {address} at a time"
                yield ImportFinding(ImportFindingKind.OVERBOOKED, one.floating_ip.id, text)
                break
