"""Creates a database with Blazar's own code and fills it through Blazar's own database API. A test starts it.

    .venv-blazar/bin/python blazar_database.py URL < ROWS

On MariaDB, Blazar's migrations create the tables. On the others they fail: one alters a column, which SQLite cannot do,
and another one quotes a text with the quotes that PostgreSQL reserves for names. There, Blazar's models create the
tables, and the migrations are marked as done. ROWS is JSON, one ``[table, values]`` after the other, see `_CREATE`.
"""

import json
import sys
from datetime import datetime
from pathlib import Path

import blazar.db.migration
from alembic import command as alembic
from alembic.config import Config
from blazar.db import api
from oslo_config import cfg

_TIMES = ("start_date", "end_date", "time", "created_at", "updated_at")


def main() -> None:
    url = sys.argv[1]
    cfg.CONF([], project="blazar")
    cfg.CONF.set_override("connection", url, group="database")
    config = Config(Path(blazar.db.migration.__file__).with_name("alembic.ini"))
    config.blazar_config = cfg.CONF
    if url.startswith("mysql"):
        alembic.upgrade(config, "head")
    else:
        api.setup_db()
        alembic.stamp(config, "head")
    for table, values in json.load(sys.stdin):
        row = {key: _value(key, value) for key, value in values.items()}
        getattr(api, _CREATE[table])(row)


def _value(key, value):
    return datetime.fromisoformat(value) if key in _TIMES and value is not None else value


_CREATE = {
    "computehosts": "host_create",
    "computehost_extra_capabilities": "host_extra_capability_create",
    "computehost_resource_inventory": "host_resource_inventory_create",
    "computehost_trait": "host_trait_create",
    "resource_properties": "resource_property_create",
    "leases": "lease_create",
    "reservations": "reservation_create",
    "events": "event_create",
    "instance_reservations": "instance_reservation_create",
    "computehost_reservations": "host_reservation_create",
    "computehost_allocations": "host_allocation_create",
    "floatingips": "floatingip_create",
    "floatingip_reservations": "fip_reservation_create",
    "required_floatingips": "required_fip_create",
    "floatingip_allocations": "fip_allocation_create",
}

if __name__ == "__main__":
    main()
