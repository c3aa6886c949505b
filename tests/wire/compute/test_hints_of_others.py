"""Scheduler hints that name another project's objects reveal nothing and have no effect."""

import pytest

from tests.wire.compute.conftest import IMAGE, Host

BLUE = {"who": "bob:blue", "roles": "member"}
NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def hosts(plane):
    found = [Host(plane, f"compute-{number}") for number in (1, 2, 3)]
    for one in found:
        one.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    plane.flavor("small")
    return found


def boot(plane, who, **hints):
    server = {"name": "vm", "imageRef": IMAGE, "flavorRef": "small", "networks": "none"}
    answer = plane.send("POST", "/v2.1/servers", {"server": server, "os:scheduler_hints": hints}, **who)
    assert answer[0] == 202, answer[2]
    return answer[2]["server"]["id"]


def explained(plane, **hints):
    """An explanation of a request by a member of red."""
    body = {"server": {"flavorRef": "small"}, "os:scheduler_hints": hints}
    status, _, document = plane.send("POST", "/moorage/v1/explain-server", body)
    return status, document


def test_a_server_group_of_another_project_is_not_explained(plane, hosts):
    """Its policy, and the number of hosts with servers of it, belong to that project."""
    body = {"server_group": {"name": "g", "policy": "anti-affinity"}}
    group = plane.send("POST", "/v2.1/os-server-groups", body, version="2.64", **BLUE)[2]["server_group"]["id"]
    boot(plane, BLUE, group=group)
    plane.settle(*hosts)

    status, refusal = explained(plane, group=group)
    assert status == 403
    assert refusal["forbidden"]["message"] == f"Instance group {group} belongs to another project."
    assert explained(plane, group=NOBODY)[0] == 400


def test_same_host_with_another_projects_server_is_treated_like_a_missing_one(plane, hosts):
    """The answer is that for a missing server, so it reveals neither the host nor the existence."""
    foreign = boot(plane, BLUE)
    plane.settle(*hosts)
    expected = explained(plane, same_host=NOBODY)
    assert expected[1]["explanation"]["hosts"] == 0
    assert explained(plane, same_host=foreign) == expected

    ids = [boot(plane, {}, same_host=named) for named in (foreign, [foreign, NOBODY])]
    plane.settle(*hosts)
    assert [plane.show(one)["status"] for one in ids] == ["ERROR", "ERROR"]


def test_different_host_with_another_projects_server_has_no_effect(plane, hosts):
    foreign = boot(plane, BLUE)
    plane.settle(*hosts)
    assert explained(plane, different_host=foreign) == explained(plane, different_host=NOBODY)
    assert explained(plane, different_host=foreign)[1]["explanation"]["hosts"] == 3


def test_another_projects_servers_in_a_hint_are_ignored_beside_own_ones(plane, hosts):
    foreign, own = boot(plane, BLUE), boot(plane, {})
    plane.settle(*hosts)
    near = boot(plane, {}, same_host=[foreign, own])
    plane.settle(*hosts)
    on = {one: plane.show(one)["OS-EXT-SRV-ATTR:host"] for one in (own, near)}
    assert on[near] == on[own]
