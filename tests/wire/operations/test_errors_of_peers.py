"""Administrators and the log see internal addresses and requests; tenants see only which service failed."""

import json
import re

import pytest

from moorage.wire.transports import ClientResponse, SocketTransport
from tests.plane import InProcessPlane
from tests.ports import free_port

INSIDE = re.compile(r"://|127\.0\.0\.1|answered \d{3} to|/v2[./]")

ROLES = {"administrator": "admin", "service": "service", "member": "member"}


@pytest.fixture
def plane(tmp_path):
    """A plane whose image service is at an address at which nothing answers."""
    endpoints = {"image": f"http://127.0.0.1:{free_port()}"}
    with InProcessPlane(tmp_path, "placement,compute", endpoints=endpoints, reach=SocketTransport) as plane:
        flavor = {"flavor": {"id": "1", "name": "small", "vcpus": 1, "ram": 64, "disk": 1}}
        assert plane.send("POST", "/compute/v2.1/flavors", flavor).status == 200
        yield plane


def boot(plane, roles):
    server = {"name": "vm", "flavorRef": "1", "imageRef": "0a0a0a0a-1b1b-4c4c-8d8d-0e0e0e0e0e0e", "networks": "none"}
    seen = plane.send("POST", "/compute/v2.1/servers", {"server": server}, who="u:red", roles=roles, version="2.90")
    (fault,) = seen.body.values()
    return seen, fault["message"]


def broken(status, message):
    body = json.dumps({"message": message}).encode()
    return lambda _request, _send: ClientResponse(status, {"content-type": "application/json"}, body)


@pytest.mark.parametrize("who", ROLES)
def test_members_see_the_name_of_an_unavailable_service_and_operators_its_address(plane, caplog, who):
    address = plane.config.endpoints.image
    caplog.set_level("INFO", "moorage.wire.app")
    seen, message = boot(plane, ROLES[who])
    request_id = seen.headers["x-openstack-request-id"]
    assert seen.status == 503
    if who == "member":
        assert message == f"the image service does not answer; try again later (the log says more under {request_id})"
        assert not INSIDE.search(json.dumps(seen.body))
    else:
        assert message.startswith(f"{address} does not answer: ")
    (record,) = caplog.records
    assert record.reason.startswith(f"{address} does not answer: ")


def test_members_see_the_name_of_a_failed_service_and_administrators_the_request(plane, caplog):
    plane.ways["image"].on("GET", broken(500, "mysql://glance@10.0.0.9 is away"))
    whole = "image answered 500 to GET /v2/images/0a0a0a0a-1b1b-4c4c-8d8d-0e0e0e0e0e0e: mysql://glance@10.0.0.9 is away"
    seen, message = boot(plane, "member")
    assert seen.status == 502
    assert message == (
        "the image service failed; an administrator can read why (the log says more under "
        f"{seen.headers['x-openstack-request-id']})"
    )
    (record,) = caplog.records
    assert record.exc_info[1].message == whole
    assert boot(plane, "admin")[1] == whole
