"""Scheduler hints that name other servers: `same_host` and `different_host`."""

import pytest

from tests.wire.compute.conftest import IMAGE, Host

NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def hosts(plane):
    found = [Host(plane, f"compute-{number}") for number in (1, 2, 3)]
    for one in found:
        one.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    plane.flavor("small")
    return found


def post(plane, name, path="/v2.1/servers", **hints):
    server = {"name": name, "imageRef": IMAGE, "flavorRef": "small", "networks": "none"}
    return plane.send("POST", path, {"server": server, "os:scheduler_hints": hints})


def boot(plane, name, **hints):
    status, _, document = post(plane, name, **hints)
    assert status == 202, document
    return document["server"]["id"]


def boot_on(plane, host, name):
    """Creates a server on this host, as an administrator of the project."""
    return plane.boot("small", name, who="root:red", roles="admin", availability_zone=f"nova:{host.name}")


def host_of(plane, server_id):
    return plane.show(server_id)["OS-EXT-SRV-ATTR:host"]


def message_of(plane, server_id):
    return plane.show(server_id)["fault"]["message"]


def test_same_host_places_a_server_on_the_host_of_the_named_one(plane, hosts):
    first = boot_on(plane, hosts[1], "first")
    plane.settle(*hosts)
    ids = [boot(plane, f"vm{number}", same_host=hint) for number, hint in enumerate([first, [first], [first, NOBODY]])]
    plane.settle(*hosts)
    assert [host_of(plane, one) for one in ids] == ["compute-2"] * 3


def test_same_host_with_several_servers_accepts_any_of_their_hosts(plane, hosts):
    named = [boot_on(plane, one, f"on {one.name}") for one in hosts[1:]]
    plane.settle(*hosts)
    ids = [boot(plane, f"vm{number}", same_host=named) for number in range(4)]
    plane.settle(*hosts)
    assert {host_of(plane, one) for one in ids} == {"compute-2", "compute-3"}


def test_different_host_avoids_the_hosts_of_the_named_servers(plane, hosts):
    named = [boot_on(plane, one, f"on {one.name}") for one in hosts[1:]]
    plane.settle(*hosts)
    ids = [boot(plane, f"vm{number}", different_host=named) for number in range(3)]
    alone = boot(plane, "alone", different_host=named[0])
    plane.settle(*hosts)
    assert {host_of(plane, one) for one in ids} == {"compute-1"}
    assert host_of(plane, alone) != "compute-2"


def test_hints_are_respected_among_servers_of_one_batch(plane, hosts):
    """The named servers also wait for a host; earlier ones of the batch have theirs when the hint is evaluated."""
    first = boot(plane, "first")
    apart = [boot(plane, "second", different_host=first)]
    apart.append(boot(plane, "third", different_host=[first, *apart]))
    near = boot(plane, "fourth", same_host=first)
    plane.settle(*hosts)
    assert len({host_of(plane, one) for one in (first, *apart)}) == 3
    assert host_of(plane, near) == host_of(plane, first)


def test_named_servers_without_a_host_fail_same_host_and_do_not_affect_different_host(plane, hosts):
    near, word, away = (
        boot(plane, "a", same_host=NOBODY),
        boot(plane, "b", same_host="x"),
        boot(plane, "c", different_host=NOBODY),
    )
    plane.settle(*hosts)
    expected = "No valid host was found. none of the servers that same_host names is on a host."
    assert [message_of(plane, one) for one in (near, word)] == [expected] * 2
    assert plane.show(away)["status"] == "ACTIVE"


def test_the_fault_counts_hosts_by_the_hint_that_rejected_them(plane, hosts):
    named = [boot_on(plane, one, f"on {one.name}") for one in hosts]
    plane.settle(*hosts)
    nowhere = boot(plane, "nowhere", different_host=named)
    plane.settle(*hosts)
    assert message_of(plane, nowhere) == (
        "No valid host was found. Placement has capacity, but: 3 hosts: a server of different_host is there."
    )
    both = boot(plane, "both", same_host=named[0], different_host=named[0])
    plane.settle(*hosts)
    assert "1 host: a server of different_host is there" in message_of(plane, both)


def test_the_fault_says_that_the_host_of_the_named_server_is_full(plane, hosts):
    first = boot_on(plane, hosts[1], "first")
    plane.settle(*hosts)
    hosts[1].offer(VCPU=1, MEMORY_MB=32768, DISK_GB=500)
    second = boot(plane, "second", same_host=first)
    plane.settle(*hosts)
    assert message_of(plane, second) == (
        "No valid host was found. 3 hosts considered; resources:VCPU=1 left 2; the host of the server that same_host "
        "names left 0."
    )


@pytest.mark.parametrize(
    "hints", [{"different_host": "x"}, {"different_host": ["x"]}, {"same_host": ["x"]}, {"same_host": 1}]
)
def test_hints_that_name_no_servers_are_refused(plane, hosts, hints):
    assert post(plane, "vm", **hints)[0] == 400


def test_empty_hints_have_no_effect(plane, hosts):
    server_id = boot(plane, "vm", same_host=[], different_host=[])
    plane.settle(*hosts)
    assert plane.show(server_id)["status"] == "ACTIVE"
