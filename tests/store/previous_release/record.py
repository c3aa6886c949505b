"""Records the SQL of a release: every statement of a simulated day in a cloud, in SQLite's dialect.

usage: .venv/bin/python tests/store/previous_release/record.py CHECKOUT

CHECKOUT is a work tree of that release. Writes beside this file: ``<feature>.json.gz`` with the database before that
day (the statements that create it) and the day's statements ([number of the connection, statement with its values]),
and ``release.json`` with the revisions of its schemas. Run it again for each release: `test_previous_release.py` then
runs this release's statements on the next release's schemas.
"""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

#: This runs with the code of that release, in virtual time.
DAY = """
import json, sqlite3, sys, tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from sqlalchemy import event
from sqlalchemy.pool import Pool

said = {}
numbers = {}

@event.listens_for(Pool, "connect")
def connected(connection, _record):
    path = connection.execute("PRAGMA database_list").fetchone()[2]
    feature = Path(path).stem
    number = numbers[feature] = numbers.get(feature, -1) + 1
    connection.set_trace_callback(lambda text: said.setdefault(feature, []).append([number, text]))

from moorage.db import migrations
from tests.system.planes import VirtualPlane

start = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
with tempfile.TemporaryDirectory() as directory, VirtualPlane(Path(directory) / "plane", start) as plane:
    before = {}
    for feature in said:
        copy = sqlite3.connect(Path(directory) / "plane" / f"{feature}.db")
        before[feature] = list(copy.iterdump())
        copy.close()
    said.clear()
    plane.compute.request("POST", "/flavors", json={"flavor": {"id": "small", "name": "small", "vcpus": 1, "ram": 64, "disk": 1}})
    fpga = plane.create_fpga_flavor()
    servers = [plane.create_server(flavor="small", name=f"server-{number}") for number in range(3)]
    servers.append(plane.create_server(flavor=fpga))
    plane.settle()
    for action in ({"os-stop": None}, {"os-start": None}, {"reboot": {"type": "HARD"}}, {"pause": None}, {"unpause": None}):
        plane.compute.request("POST", f"/servers/{servers[0]}/action", json=action)
        plane.settle()
    plane.compute.get("/servers/detail")
    plane.compute.get("/os-hypervisors/detail")
    for server in servers:
        plane.compute.request("DELETE", f"/servers/{server}")
    plane.settle()
    plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
    lease = plane.create_lease(start=start + timedelta(hours=1), end=start + timedelta(hours=3), amount=2)
    plane.run_until(start + timedelta(hours=2))
    plane.create_server(flavor=plane.reservation_id(lease))
    plane.settle()
    plane.reservation.get("/v1/leases")
    plane.placement.get("/resource_providers?required=COMPUTE_NODE")
    plane.placement.get("/allocation_candidates?resources=VCPU:1")
    plane.run_until(start + timedelta(hours=4))
    plane.reservation.request("DELETE", f"/v1/leases/{lease}")
    plane.run_until(start + timedelta(hours=24))
    heads = {feature: migrations.head_revision(feature) for feature in said}
json.dump({"heads": heads, "before": before, "said": said}, sys.stdout)
"""


def main() -> None:
    checkout = Path(sys.argv[1]).resolve()
    done = subprocess.run(
        [sys.executable, "-c", DAY],
        env=os.environ | {"PYTHONPATH": f"{checkout / 'src'}:{checkout}"},
        cwd=checkout, check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout, check=True, capture_output=True, text=True
    ).stdout.strip()
    (HERE / "release.json").write_text(json.dumps({"commit": commit, "heads": answer["heads"]}, indent=2) + "\n")
    for feature, said in answer["said"].items():
        document = {"before": answer["before"][feature], "day": said}
        with gzip.GzipFile(HERE / f"{feature}.json.gz", "wb", mtime=0) as file:
            file.write(json.dumps(document, indent=0).encode())


if __name__ == "__main__":
    main()
