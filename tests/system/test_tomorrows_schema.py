"""Today's program on the schema of a future release that only adds: it continues, stops, and starts there again.

The future release is invented: each table gets unknown columns and an index, and each database an unknown table.
Migrations with ``phase = "expand"`` may do no more than that (`tests/store/previous_release` checks the existing ones).
"""

import contextlib
from datetime import timedelta

import pytest
import sqlalchemy as sa

from moorage.core.errors import StartError
from moorage.db import migrations
from moorage.db.engine import open_engine
from moorage.db.migrations import SchemaState
from tests.conftest import DATABASES, START
from tests.servers import temporary_database
from tests.system.planes import VirtualPlane

pytestmark = pytest.mark.slow

FEATURES = ("placement", "compute", "accelerator", "reservation")


#: MariaDB would take another minute, and has no prepared plans that a new column could make invalid.
@pytest.fixture(params=DATABASES[:2])
def urls(request):
    with contextlib.ExitStack() as stack:
        yield {feature: stack.enter_context(temporary_database(request.param)) for feature in FEATURES}


def expand(url: str, feature: str, oldest: str) -> None:
    """Changes the schema as the next release's `moorage db upgrade --phase expand` would, beside a running plane."""
    engine = open_engine(url)
    own = {migrations.version_table(feature).name, migrations.oldest_table(feature).name}
    with engine.begin() as connection:
        for table in set(sa.inspect(connection).get_table_names()) - own:
            connection.execute(sa.text(f"ALTER TABLE {table} ADD COLUMN of_tomorrow VARCHAR(36)"))
            connection.execute(sa.text(f"ALTER TABLE {table} ADD COLUMN counted_tomorrow INTEGER NOT NULL DEFAULT 0"))
            connection.execute(sa.text(f"CREATE INDEX ix_{table}_of_tomorrow ON {table} (of_tomorrow)"))
        connection.execute(sa.text("CREATE TABLE tomorrow (id INTEGER NOT NULL PRIMARY KEY)"))
        connection.execute(migrations.version_table(feature).update().values(version_num="0998"))
        connection.execute(migrations.oldest_table(feature).update().values(revision=oldest))
    engine.dispose()


def work(plane: VirtualPlane, at) -> None:
    """Creates and deletes a server with an accelerator, and a lease with a server."""
    server = plane.create_server(flavor="fpga")
    plane.settle()
    assert plane.server(server)["status"] == "ACTIVE"
    assert plane.allocations(server)["CUSTOM_ACCELERATOR_FPGA"] == 1
    plane.compute.request("DELETE", f"/servers/{server}")
    plane.settle()
    assert plane.server(server) is None
    host = plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})["host"]["id"]
    lease = plane.create_lease(start=at + timedelta(hours=1), end=at + timedelta(hours=2), amount=2)
    plane.run_until(at + timedelta(hours=1))
    server = plane.create_server(flavor=plane.reservation_id(lease))
    plane.settle()
    assert plane.server(server)["status"] == "ACTIVE"
    plane.run_until(at + timedelta(hours=2, minutes=5))
    assert plane.lease(lease)["status"] == "TERMINATED"
    assert plane.server(server) is None
    plane.reservation.request("DELETE", f"/v1/os-hosts/{host}")


def test_this_release_continues_and_starts_on_a_schema_with_additions(urls, tmp_path):
    with VirtualPlane(tmp_path / "plane", START, database=urls) as plane:
        plane.create_fpga_flavor()
        work(plane, START)
        for feature, url in urls.items():
            expand(url, feature, migrations.head_revision(feature))
        later = START + timedelta(hours=3)
        plane.run_until(later)
        work(plane, later)
    later = START + timedelta(hours=6)
    with VirtualPlane(tmp_path / "plane", later, seed=2, database=urls) as plane:
        work(plane, later)
    for feature, url in urls.items():
        engine = open_engine(url)
        assert migrations.schema_state(engine, feature) is SchemaState.AHEAD
        engine.dispose()


def test_a_schema_with_more_than_additions_is_refused(tmp_path):
    with VirtualPlane(tmp_path / "plane", START):
        pass
    expand(f"sqlite:///{tmp_path}/plane/compute.db", "compute", "0998")
    with pytest.raises(StartError, match=r"compute is at revision 0998, which this program does not know"):
        VirtualPlane(tmp_path / "plane", START)
