"""A database in the state in which Blazar leaves it, created by Blazar's code in a separate environment (.venv-
blazar).
"""

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from tests.processes import inherited, python_of
from tests.wire.reservation.neutron import NETWORK, SUBNET

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
START, END = NOW + timedelta(hours=1), NOW + timedelta(hours=3)
THEN = NOW - timedelta(days=9)

#: The database drivers that Blazar's environment has.
_DRIVERS = {"postgresql": "postgresql+psycopg2", "mysql": "mysql+pymysql", "mariadb": "mysql+pymysql"}

Row = tuple[str, dict[str, Any]]


def make(url: str, rows: list[Row]) -> None:
    """Tables of Blazar 18 at `url`, with `rows`."""
    parsed = make_url(url)
    driver = _DRIVERS.get(parsed.get_backend_name())
    its = parsed.set(drivername=driver) if driver else parsed
    script = Path(__file__).with_name("blazar_database.py")
    done = subprocess.run(
        [python_of(".venv-blazar"), script, its.render_as_string(hide_password=False)],
        input=json.dumps(rows, default=lambda moment: moment.replace(tzinfo=None).isoformat()),
        capture_output=True, text=True, env=inherited(), timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def host(
    number: int | str, name: str | None, *, inventory: bool = True, rack: str | None = None, **values: Any
) -> list[Row]:
    rows: list[Row] = [
        ("computehosts", {"id": str(number), "vcpus": 8, "cpu_info": "{}", "hypervisor_type": "QEMU",
                          "hypervisor_version": 8000000, "hypervisor_hostname": name, "service_name": name,
                          "memory_mb": 16384, "local_gb": 100, "availability_zone": "", "trust_id": "t",
                          "reservable": True, "created_at": THEN, **values})
    ]  # fmt: skip
    if inventory:
        rows += [
            ("computehost_resource_inventory",
             {"id": f"i-{number}-{name}", "computehost_id": str(number), "resource_class": name, "total": total,
              "reserved": reserved, "min_unit": 1, "max_unit": total, "step_size": 1, "allocation_ratio": ratio})
            for name, total, reserved, ratio in (
                ("VCPU", 8, 0, 2.0), ("MEMORY_MB", 16896, 512, 1.0), ("DISK_GB", 100, 0, 1.0))
        ]  # fmt: skip
        rows.append(
            ("computehost_trait", {"id": f"t-{number}", "computehost_id": str(number), "trait": "HW_CPU_X86_AVX2"})
        )
    if rack is not None:
        capability = {
            "id": f"c-{number}",
            "computehost_id": str(number),
            "property_name": "rack",
            "capability_value": rack,
        }
        rows.append(("computehost_extra_capabilities", capability))
    return rows


def floating_ip(number: int, address: str | None = None) -> Row:
    values = {"id": f"f-{number}", "floating_network_id": NETWORK, "subnet_id": SUBNET}
    return "floatingips", {**values, "floating_ip_address": address or f"192.0.2.{number}", "created_at": THEN}


#: {status of a lease: (status of its start event, of its end event, of its reservations)}, as Blazar writes them
STATUSES = {
    "CREATING": ("UNDONE", "UNDONE", "pending"),
    "PENDING": ("UNDONE", "UNDONE", "pending"),
    "STARTING": ("IN_PROGRESS", "UNDONE", "pending"),
    "ACTIVE": ("DONE", "UNDONE", "active"),
    "UPDATING": ("DONE", "UNDONE", "active"),
    "TERMINATING": ("DONE", "IN_PROGRESS", "active"),
    "TERMINATED": ("DONE", "DONE", "deleted"),
    "DELETING": ("DONE", "UNDONE", "active"),
    "ERROR": ("ERROR", "UNDONE", "error"),
}


def lease(name: str, status: str = "PENDING", *, start: datetime = START, end: datetime = END,
          amount: int = 2, hosts: tuple[str, ...] = ("1", "1"), resource_type: str = "virtual:instance",
          aggregate_id: int | None = 7, server_group_id: str | None = None, addresses: tuple[int, ...] = (),
          required: tuple[str, ...] = (), **details: Any) -> list[Row]:  # fmt: skip
    """A lease with one reservation ``r-NAME`` of one CPU, 512 MiB and 1 GB per slot, or of the floating IPs
    `addresses`.
    """
    first, last, inside = STATUSES[status]
    reservation = f"r-{name}"
    events = [("start_lease", start, first), ("end_lease", end, last), ("before_end_lease", end, last)]
    rows: list[Row] = [
        ("leases", {"id": f"l-{name}", "name": name, "user_id": "u", "project_id": "demo", "start_date": start,
                    "end_date": end, "trust_id": "t", "status": status, "created_at": THEN, "updated_at": NOW}),
        ("reservations", {"id": reservation, "lease_id": f"l-{name}", "resource_id": f"x-{name}",
                          "resource_type": resource_type, "status": inside, "created_at": THEN}),
        *(("events", {"id": f"e-{name}-{kind}", "lease_id": f"l-{name}", "event_type": kind, "time": time,
                      "status": its, "created_at": THEN}) for kind, time, its in events),
    ]  # fmt: skip
    if resource_type in ("virtual:instance", "flavor:instance"):
        rows.append(
            ("instance_reservations", {"id": f"x-{name}", "reservation_id": reservation, "vcpus": 1, "memory_mb": 512,
                                       "disk_gb": 1, "amount": amount, "affinity": None, "resource_properties": "",
                                       "flavor_id": reservation, "aggregate_id": aggregate_id,
                                       "server_group_id": server_group_id, **details})
        )  # fmt: skip
    elif resource_type == "virtual:floatingip":
        its = {"reservation_id": reservation, "network_id": NETWORK, "amount": amount, "created_at": THEN}
        rows.append(("floatingip_reservations", {"id": f"x-{name}", **its}))
        rows += [
            ("required_floatingips", {"id": f"q-{name}-{each}", "floatingip_reservation_id": f"x-{name}", "address": each})
            for each in required
        ]  # fmt: skip
        return rows + [
            ("floatingip_allocations", {"id": f"g-{name}-{each}", "floatingip_id": f"f-{each}", "reservation_id": reservation})
            for each in addresses
        ]  # fmt: skip
    else:
        rows.append(
            ("computehost_reservations", {"id": f"x-{name}", "reservation_id": reservation, "aggregate_id": aggregate_id,
                                          "count_range": "1-1", "hypervisor_properties": "", "resource_properties": "",
                                          "before_end": "default"})
        )  # fmt: skip
    if status != "TERMINATED":
        rows += [
            ("computehost_allocations", {"id": f"a-{name}-{slot}", "compute_host_id": host, "reservation_id": reservation})
            for slot, host in enumerate(hosts)
        ]  # fmt: skip
    return rows
