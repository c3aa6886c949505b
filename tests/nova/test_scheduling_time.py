"""The time of Nova's scheduler for one server, from its own log, for docs/evidence/bench/scheduler.md."""

import re
import statistics
from datetime import datetime

import pytest

from tests.system.planes import until

pytestmark = pytest.mark.nova

SERVERS = 30
LINE = re.compile(
    r"(?P<when>\S+ \S+) \d+ \S+ \S+ \[(?:\S+ )?(?P<request>req-[0-9a-f-]+) .*(?P<what>Starting to schedule|Selected host)"
)


def test_the_time_from_the_request_to_the_claim_is_printed(cloud, capsys):
    clients = cloud.clients
    until(lambda: len(clients.compute.get("/os-hypervisors")["hypervisors"]) == 2, timeout_s=90)
    flavor, image = clients.create_flavor("measured"), clients.create_image()
    before = len(spans(cloud.logs))
    for number in range(SERVERS):
        server = clients.create_server(flavor=flavor, image=image, name=f"measured-{number}")
        clients.wait_for_status(server, "ACTIVE")
        clients.compute.request("DELETE", f"/servers/{server}")
    taken = sorted(spans(cloud.logs)[before:])
    assert len(taken) == SERVERS
    with capsys.disabled():
        print(
            f"\nNova's scheduler, one server after the other, 2 hosts, our placement: p50 "
            f"{1000 * statistics.median(taken):.0f} ms, p90 {1000 * taken[int(SERVERS * 0.9)]:.0f} ms"
        )


def spans(logs):
    """Seconds between two log lines of each request, from the request to the claim, in their order."""
    began, ended = {}, {}
    for line in (logs / "scheduler.log").read_text().splitlines():
        if match := LINE.match(line):
            when = datetime.fromisoformat(match["when"])
            (began if match["what"].startswith("Starting") else ended).setdefault(match["request"], when)
    return [(ended[request] - began[request]).total_seconds() for request in began if request in ended]
