"""Converts the hosts and floating IPs of a Blazar database, and finds those that are overbooked."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from itertools import pairwise
from operator import attrgetter
from typing import Any

from moorage.core.import_findings import ImportFinding
from moorage.reservation.capacity.addresses import RegisteredAddress
from moorage.reservation.capacity.calendar import Calendar, HostCapacity, HostUsage
from moorage.reservation.importing.rules.leases import AddressSlot, LeaseFindingKind
from moorage.reservation.model.leases import RegisteredHost
from moorage.reservation.model.slot_demand import WHOLE_HOST

MAX_HOST_ID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ConvertedHost:
    peer_id: str
    host: RegisteredHost  #: its `id` is 0 if the target must assign one
    capacity: HostCapacity


def hosts(
    rows: Iterable[Any], inventories: Mapping[str, Sequence[Any]], created_at: Callable[[Any], datetime]
) -> Iterator[ConvertedHost | ImportFinding]:
    """Converts hosts. `rows`: of ``computehosts``; `inventories`: {id of such a row: rows of its inventories}."""
    names: set[str] = set()
    for row in rows:
        name = row.hypervisor_hostname or ""
        if not name or name in names:
            yield ImportFinding(
                LeaseFindingKind.NAMELESS_HOST,
                row.id,
                f"host {row.id}: {f'another host is named {name}' if name else 'no name'}",
            )
            continue
        names.add(name)
        is_number = row.id.isdecimal() and 0 < int(row.id) <= MAX_HOST_ID and str(int(row.id)) == row.id
        if not is_number:
            yield ImportFinding(
                LeaseFindingKind.RENUMBERED, row.id, f"host {name}: its id {row.id} is not a decimal number"
            )
        if not inventories.get(row.id):
            yield ImportFinding(LeaseFindingKind.NO_INVENTORY, name, f"host {name}: no inventories from Placement")
        host = RegisteredHost(
            id=int(row.id) if is_number else 0,
            hypervisor_hostname=name,
            service_name=row.service_name or name,
            hypervisor_type=row.hypervisor_type or "",
            hypervisor_version=row.hypervisor_version or 0,
            cpu_info=row.cpu_info or "{}",
            vcpus=row.vcpus,
            memory_mb=row.memory_mb,
            local_gb=row.local_gb,
            availability_zone=row.availability_zone or "",
            status=row.status,
            trust_id=row.trust_id,
            reservable=bool(row.reservable),
            ready=True,
            created_at=created_at(row),
            updated_at=None,
        )
        yield ConvertedHost(row.id, host, _capacity(host, inventories.get(row.id, ())))


def _capacity(host: RegisteredHost, inventories: Sequence[Any]) -> HostCapacity:
    if not inventories:
        amounts = {"VCPU": host.vcpus, "MEMORY_MB": host.memory_mb, "DISK_GB": host.local_gb}
        return HostCapacity(host.id, amounts, amounts)
    amounts = {
        each.resource_class: math.floor((each.total - each.reserved) * each.allocation_ratio) for each in inventories
    }
    return HostCapacity(host.id, amounts, {each.resource_class: each.max_unit for each in inventories})


def overbooked(
    capacities: Sequence[HostCapacity], names: Mapping[int, str], usages: Sequence[HostUsage]
) -> Iterator[ImportFinding]:
    """Findings for hosts whose usage exceeds their capacity at some time. Blazar permits this (D1 to D3)."""
    if not usages:
        return
    calendar = Calendar(capacities, usages)
    peak = calendar.peak(min(usage.start for usage in usages), max(usage.end for usage in usages))
    for row, host in enumerate(calendar.hosts):
        for column, name in enumerate(calendar.classes):
            used, there = int(peak[row, column]), int(calendar.capacity[row, column])
            if used > there:
                text = f"{used} {name} of host {names[host]} are allocated, but it has {there}"
                if name == WHOLE_HOST:
                    text = f"{used} reservations have host {names[host]} as a whole at the same time"
                yield ImportFinding(LeaseFindingKind.OVERBOOKED, names[host], text)


def floating_ips(
    rows: Iterable[Any], times: Callable[[Any], tuple[datetime, datetime | None]]
) -> Iterator[RegisteredAddress | ImportFinding]:
    """Converts `rows` of ``floatingips``. Neutron is asked about an address only when a lease needs it."""
    known: set[tuple[str, str]] = set()
    for row in rows:
        try:
            address = str(ip_address(row.floating_ip_address))
        except ValueError:
            yield ImportFinding(
                LeaseFindingKind.BAD_ADDRESS,
                row.id,
                f"floating IP {row.id}: {row.floating_ip_address} is not an IP address",
            )
            continue
        if (row.subnet_id, address) in known:
            yield ImportFinding(
                LeaseFindingKind.BAD_ADDRESS, row.id, f"floating IP {row.id}: {address} is registered twice"
            )
            continue
        known.add((row.subnet_id, address))
        created_at, updated_at = times(row)
        yield RegisteredAddress(
            row.id, row.floating_network_id, row.subnet_id, address, bool(row.reservable), created_at, updated_at
        )


def overbooked_addresses(slots: Iterable[AddressSlot]) -> Iterator[ImportFinding]:
    """Findings for addresses that two reservations have at the same time."""
    of_address: dict[str, list[AddressSlot]] = defaultdict(list)
    for slot in slots:
        of_address[slot.floating_ip.id].append(slot)
    for mine in of_address.values():
        for one, other in pairwise(sorted(mine, key=attrgetter("start"))):
            if other.start < one.end:
                address = one.floating_ip.floating_ip_address
                text = f"reservations {one.reservation_id} and {other.reservation_id} have {address} at the same time"
                yield ImportFinding(LeaseFindingKind.OVERBOOKED, one.floating_ip.id, text)
                break
