"""Server groups over HTTP, in both formats of the API, and the effect of their policies."""

import pytest

from tests.wire.compute.conftest import IMAGE, Host


@pytest.fixture
def hosts(plane, host):
    others = [Host(plane, f"compute-{number}") for number in (2, 3)]
    for one in others:
        one.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    return [host, *others]


def make(plane, policy, version="2.64", **rules):
    body = {"name": "g", "policy": policy} | ({"rules": rules} if rules else {})
    status, _, document = plane.send("POST", "/v2.1/os-server-groups", {"server_group": body}, version=version)
    assert status == 200, document
    return document["server_group"]["id"]


def boot(plane, group, name="vm", **more):
    body = {
        "server": {"name": name, "imageRef": IMAGE, "flavorRef": "small", "networks": "none", **more},
        "os:scheduler_hints": {"group": group},
    }
    return plane.send("POST", "/v2.1/servers", body)


def place(plane, hosts, group, count):
    """Creates `count` servers one after the other; returns their hosts and statuses."""
    ids = []
    for number in range(count):
        ids.append(boot(plane, group, f"vm{number}")[2]["server"]["id"])
        plane.settle(*hosts)
    shown = [plane.show(server_id) for server_id in ids]
    return [one["OS-EXT-SRV-ATTR:host"] for one in shown], [one["status"] for one in shown], ids


def test_the_format_of_a_group_since_2_64(plane):
    group = make(plane, "anti-affinity", max_server_per_host="2")
    path = f"/v2.1/os-server-groups/{group}"
    shown = plane.send("GET", path, version="2.64")[2]["server_group"]
    assert shown == {
        "id": group, "name": "g", "policy": "anti-affinity", "rules": {"max_server_per_host": 2}, "members": [],
        "project_id": "red", "user_id": "alice",
    }  # fmt: skip
    assert plane.send("GET", path, who="bob:blue")[0] == 404
    assert plane.send("DELETE", path)[0] == 204
    assert plane.send("DELETE", path)[0] == 404
    assert plane.send("GET", "/v2.1/os-server-groups/no-uuid")[0] == 404


def test_the_formats_of_a_group_before_2_64(plane):
    def post(version, policy):
        body = {"server_group": {"name": "g", "policies": [policy]}}
        return plane.send("POST", "/v2.1/os-server-groups", body, version=version)

    assert set(post("2.1", "affinity")[2]["server_group"]) == {"id", "name", "policies", "members", "metadata"}
    assert post("2.1", "soft-affinity")[0] == 400  # from 2.15 on
    shown = post("2.63", "soft-affinity")[2]["server_group"]
    assert (shown["policies"], shown["metadata"], shown["project_id"]) == (["soft-affinity"], {}, "red")
    assert post("2.64", "affinity")[0] == 400
    both = {"server_group": {"name": "g", "policies": ["affinity", "anti-affinity"]}}
    assert plane.send("POST", "/v2.1/os-server-groups", both, version="2.63")[0] == 400


@pytest.mark.parametrize(
    "body",
    [
        {"name": "g", "policy": "near"},
        {"name": "g", "policy": "affinity", "rules": {"max_server_per_host": 2}},
        {"name": "g", "policy": "anti-affinity", "rules": {"max_server_per_host": 0}},
        {"name": "g", "policy": "anti-affinity", "rules": {"other": 1}},
        {"name": "", "policy": "affinity"},
    ],
)
def test_an_invalid_group_is_refused(plane, body):
    assert plane.send("POST", "/v2.1/os-server-groups", {"server_group": body}, version="2.64")[0] == 400


def test_groups_are_listed_by_project_and_in_pages(plane):
    groups = [make(plane, "affinity") for _ in range(3)]

    def listed(query="", **options):
        return [one["id"] for one in plane.send("GET", f"/v2.1/os-server-groups{query}", **options)[2]["server_groups"]]

    assert listed() == groups
    assert listed("?limit=1&offset=1") == groups[1:2]
    assert listed(who="bob:blue") == listed("?all_projects=true", who="bob:blue") == []
    assert listed("?all_projects=true", who="root:admin", roles="admin") == groups
    assert plane.send("GET", "/v2.1/os-server-groups?offset=x")[0] == 400


def test_quotas_limit_groups_and_their_members(plane, hosts):
    plane.flavor("small")
    limits = {"quota_set": {"server_groups": 1, "server_group_members": 1}}
    assert plane.admin("PUT", "/v2.1/os-quota-sets/red", limits)[0] == 200
    group = make(plane, "affinity")
    body = {"server_group": {"name": "h", "policy": "affinity"}}
    assert plane.send("POST", "/v2.1/os-server-groups", body, version="2.64")[0] == 403
    assert boot(plane, group, min_count=2)[0] == 403
    assert boot(plane, group)[0] == 202
    assert boot(plane, group)[0] == 403


def test_a_missing_group_or_one_of_another_project_is_refused(plane, hosts):
    plane.flavor("small")
    assert boot(plane, IMAGE)[0] == 400
    assert boot(plane, "no-uuid")[0] == 400
    group = make(plane, "affinity")
    body = {
        "server": {"name": "vm", "imageRef": IMAGE, "flavorRef": "small", "networks": "none"},
        "os:scheduler_hints": {"group": group},
    }
    assert plane.send("POST", "/v2.1/servers", body, who="bob:blue")[0] == 403


def test_anti_affinity_places_one_server_on_each_host(plane, hosts):
    plane.flavor("small")
    group = make(plane, "anti-affinity")
    on, statuses, ids = place(plane, hosts, group, 4)
    assert sorted(on[:3]) == ["compute-1", "compute-2", "compute-3"]
    assert statuses == ["ACTIVE"] * 3 + ["ERROR"]
    fault = plane.send("GET", f"/v2.1/servers/{ids[3]}")[2]["server"]["fault"]["message"]
    assert fault == (
        "No valid host was found. Placement has capacity, but: 3 hosts: its server group allows 1 server on a host."
    )
    shown = plane.send("GET", f"/v2.1/os-server-groups/{group}", version="2.64")[2]["server_group"]
    assert shown["members"] == ids
    plane.send("DELETE", f"/v2.1/servers/{ids[0]}")
    plane.settle(*hosts)
    assert place(plane, hosts, group, 1)[0] == [on[0]]


def test_max_server_per_host_limits_the_servers_on_a_host(plane, host):
    plane.flavor("small")
    _, statuses, _ = place(plane, [host], make(plane, "anti-affinity", max_server_per_host=2), 3)
    assert statuses == ["ACTIVE", "ACTIVE", "ERROR"]


def test_affinity_places_servers_on_the_first_ones_host_and_fails_if_it_is_full(plane, hosts):
    plane.flavor("small", vcpus=6)
    on, statuses, ids = place(plane, hosts, make(plane, "affinity"), 3)
    assert on[0] == on[1]
    assert statuses == ["ACTIVE", "ACTIVE", "ERROR"]
    message = plane.show(ids[2])["fault"]["message"]
    assert message.endswith("; resources:VCPU=6 left 2; the host of its server group left 0.")


def test_soft_affinity_places_servers_together_while_they_fit(plane, hosts):
    """The multiplier is in an aggregate's metadata; without it, emptier hosts weigh more."""
    aggregate = plane.admin("POST", "/v2.1/os-aggregates", {"aggregate": {"name": "gather"}})[2]["aggregate"]["id"]
    actions = [{"set_metadata": {"metadata": {"soft_affinity_weight_multiplier": "10"}}}]
    actions += [{"add_host": {"host": one.name}} for one in hosts]
    for action in actions:
        assert plane.admin("POST", f"/v2.1/os-aggregates/{aggregate}/action", action)[0] == 200
    plane.flavor("small", vcpus=6)
    on, statuses, _ = place(plane, hosts, make(plane, "soft-affinity"), 3)
    assert on[0] == on[1] != on[2]  # two fit on a host with 16 processors
    assert statuses == ["ACTIVE"] * 3


def test_soft_anti_affinity_spreads_servers_over_the_hosts(plane, hosts):
    plane.flavor("small")
    on, statuses, _ = place(plane, hosts, make(plane, "soft-anti-affinity"), 4)
    assert len(set(on[:3])) == 3
    assert statuses == ["ACTIVE"] * 4


def test_the_policy_is_respected_among_servers_of_one_request(plane, hosts):
    plane.flavor("small")
    group = make(plane, "anti-affinity")
    assert boot(plane, group, min_count=3)[0] == 202
    plane.settle(*hosts)
    servers = plane.admin("GET", "/v2.1/servers/detail?all_tenants=1")[2]["servers"]
    assert sorted(one["OS-EXT-SRV-ATTR:host"] for one in servers) == ["compute-1", "compute-2", "compute-3"]


def test_the_policy_is_checked_again_when_servers_are_placed_at_the_same_time(plane, host):
    """The late check: another builder places the second one on the host between our claim for the first and our
    commit.
    """
    plane.flavor("small")
    group = make(plane, "anti-affinity")
    plane.builder.run_once()
    first = boot(plane, group, "first")[2]["server"]["id"]
    rival, second = plane.another("rival").task("compute.build"), []

    def claimed_while_another_builds(request, send):
        answer = send()
        second.append(boot(plane, group, "second")[2]["server"]["id"])
        rival.run_once()
        return answer

    plane.to_placement.on("PUT /allocations/", claimed_while_another_builds, times=1)
    plane.settle(host)
    assert (plane.show(second[0])["status"], plane.show(first)["status"]) == ("ACTIVE", "ERROR")
    assert plane.show(first)["fault"]["message"].endswith("1 host: its server group allows 1 server on a host.")
    assert plane.placement.allocations(first) == {}
    assert plane.placement.usages(host.provider.uuid)["VCPU"] == 1
