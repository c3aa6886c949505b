"""Measures how long the manager of a real Blazar takes to create a lease. Runs in Blazar's own interpreter:
``reservations_peer.py HOSTS RESERVATIONS``.

All of Blazar is real except its remote ends: Nova, Placement, Keystone and notifications are stubs. The columns that
it searches are indexed, which its migrations do not do on SQLite.
"""

import json
import logging
import random
import sys
import tempfile
import time
import uuid
from datetime import UTC, datetime, timedelta
from unittest import mock

import sqlalchemy
from blazar import context
from blazar.db import api as database
from blazar.db.sqlalchemy import facade_wrapper, models
from blazar.manager import service
from blazar.notification import api as notification
from blazar.plugins.instances import instance_plugin
from blazar.utils import service as rpc
from blazar.utils import trusts
from blazar.utils.openstack import nova, placement
from oslo_config import cfg

DAYS = 90
LENGTHS_H = (2, 8, 24, 72, 168)
INDEXES = (
    ("computehost_allocations", "compute_host_id"),
    ("computehost_allocations", "reservation_id"),
    ("events", "lease_id"),
    ("reservations", "lease_id"),
    ("instance_reservations", "reservation_id"),
    ("leases", "start_date"),
    ("leases", "end_date"),
    ("computehost_extra_capabilities", "computehost_id"),
    ("computehost_resource_inventory", "computehost_id"),
)
CATALOGUE = [
    {
        "type": "identity",
        "name": "keystone",
        "endpoints": [
            {
                "region": "RegionOne",
                "interface": "internal",
                **dict.fromkeys(("url", "internalURL", "publicURL", "adminURL"), "http://127.0.0.1"),
            }
        ],
    }
]
NOW = datetime.now(UTC).replace(tzinfo=None, second=0, microsecond=0)


def main() -> None:
    logging.disable(logging.CRITICAL)
    hosts, reservations = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as directory:
        cfg.CONF([], project="blazar", default_config_files=[])
        cfg.CONF.set_override("connection", f"sqlite:///{directory}/blazar.db", group="database")
        cfg.CONF.set_override("plugins", ["physical.host.plugin", "virtual.instance.plugin"], group="manager")
        database.setup_db()
        with facade_wrapper.session_for_read() as session:
            engine = session.get_bind()
        fill(engine, hosts, reservations)
        statements = [0]
        sqlalchemy.event.listen(engine, "before_cursor_execute", lambda *_: statements.append(statements.pop() + 1))
        manager = stand_alone()
        with context.BlazarContext(project_id="p", user_id="u", service_catalog=CATALOGUE):
            wall, cpu = time.perf_counter(), time.process_time()
            manager.create_lease(lease())
            found = {
                "wall_s": time.perf_counter() - wall,
                "cpu_s": time.process_time() - cpu,
                "statements": statements[0],
            }
    print(json.dumps(found))


def stand_alone() -> service.ManagerService:
    """The manager without its RPC server and remote services."""
    nova.NovaClientWrapper.nova = property(lambda self: mock.MagicMock())
    placement.BlazarPlacementClient._create_client = lambda self, **_: mock.MagicMock()  # noqa: SLF001 - Blazar has no public hook
    rpc.RPCServer.__init__ = lambda self, target: None
    trusted = context.BlazarContext(project_id="p", user_id="u", service_catalog=CATALOGUE)
    trusts.create_ctx_from_trust = service.trusts.create_ctx_from_trust = lambda _: trusted
    notification.send_lease_notification = lambda *_, **__: None
    made = (mock.Mock(id="f"), None, mock.Mock(id=1))
    instance_plugin.VirtualInstancePlugin._create_resources = lambda self, _: made  # noqa: SLF001 - no public hook
    return service.ManagerService()


def fill(engine: sqlalchemy.Engine, hosts: int, reservations: int) -> None:
    chance = random.Random(1)
    rows = {table: [] for table in (models.ComputeHost, models.Lease, models.Reservation, models.InstanceReservations,
                                    models.ComputeHostAllocation, models.Event)}  # fmt: skip
    for number in range(1, hosts + 1):
        rows[models.ComputeHost].append({
            "id": str(number), "vcpus": 64, "cpu_info": "{}", "hypervisor_type": "QEMU", "hypervisor_version": 1,
            "hypervisor_hostname": f"compute-{number}", "service_name": f"compute-{number}", "memory_mb": 262_144,
            "local_gb": 2000, "availability_zone": "nova", "trust_id": "t", "reservable": True,
        })  # fmt: skip
    for _ in range(reservations):
        start = NOW + timedelta(minutes=chance.randrange(DAYS * 1440))
        end = start + timedelta(hours=chance.choice(LENGTHS_H))
        lease_id, reservation_id, resource_id = (str(uuid.uuid4()) for _ in range(3))
        chosen = chance.choices(range(1, hosts + 1), k=chance.randint(1, 4))
        rows[models.Lease].append({"id": lease_id, "name": "filled", "user_id": "u", "project_id": "p", "start_date": start,
                                   "end_date": end, "trust_id": "t", "status": "PENDING", "degraded": False})  # fmt: skip
        rows[models.Reservation].append({"id": reservation_id, "lease_id": lease_id, "resource_id": resource_id,
                                         "resource_type": "virtual:instance", "status": "pending",
                                         "missing_resources": False, "resources_changed": False})  # fmt: skip
        rows[models.InstanceReservations].append({"id": resource_id, "reservation_id": reservation_id, "vcpus": 2,
                                                  "memory_mb": 4096, "disk_gb": 20, "amount": len(chosen),
                                                  "resource_properties": "", "flavor_id": reservation_id,
                                                  "aggregate_id": 1})  # fmt: skip
        for host in chosen:
            row = {"id": str(uuid.uuid4()), "compute_host_id": str(host), "reservation_id": reservation_id}
            rows[models.ComputeHostAllocation].append(row)
        for kind, moment in (("start_lease", start), ("end_lease", end)):
            rows[models.Event].append({"id": str(uuid.uuid4()), "lease_id": lease_id, "event_type": kind, "time": moment,
                                       "status": "UNDONE"})  # fmt: skip
    with engine.begin() as connection:
        for table, its in rows.items():
            connection.execute(sqlalchemy.insert(table.__table__), its)
        for table, column in INDEXES:
            connection.execute(sqlalchemy.text(f"CREATE INDEX bench_{table}_{column} ON {table} ({column})"))
        connection.execute(sqlalchemy.text("ANALYZE"))


def lease() -> dict:
    start = NOW + timedelta(days=30)
    dates = {"start_date": f"{start:%Y-%m-%d %H:%M}", "end_date": f"{start + timedelta(days=1):%Y-%m-%d %H:%M}"}
    slot = {"resource_type": "virtual:instance", "vcpus": 2, "memory_mb": 4096, "disk_gb": 20, "amount": 2,
            "affinity": None, "resource_properties": ""}  # fmt: skip
    return {"name": "bench", "trust_id": "t", "user_id": "u", "events": [], "reservations": [slot], **dates}


if __name__ == "__main__":
    main()
