"""Servers of a group change hosts: the policy holds for their present, next and previous hosts."""

import pytest

ONE, TWO, THREE = "compute-1", "compute-2", "compute-3"


@pytest.fixture
def cloud(make_cloud):
    cloud = make_cloud(3)
    cloud.flavor("large", vcpus=4, ram=2048, disk=20)
    return cloud


def group_of(cloud, policy):
    body = {"server_group": {"name": "g", "policy": policy}}
    return cloud.send("POST", "/v2.1/os-server-groups", body)[1]["server_group"]["id"]


def request_server(cloud, group, name="vm", **more):
    """The id of a new server of the group that was not built yet."""
    server = {"name": name, "imageRef": cloud.image, "flavorRef": "small", "networks": "none", **more}
    body = {"server": server, "os:scheduler_hints": {"group": group}}
    status, body, _ = cloud.admin("POST", "/v2.1/servers", body, who="root:red")
    assert status == 202, body
    return body["server"]["id"]


def build(cloud, group, name="vm"):
    """(id, host) of a server of the group."""
    server_id = request_server(cloud, group, name)
    cloud.settle()
    return server_id, cloud.status(server_id)[2]


def while_the_mover_claims(cloud, work):
    """Runs `work` once, between the mover's claim and its commit."""
    way = cloud.compute.ways["placement"]

    def claim_and_work(request, send):
        answer = send()
        if request.method == "PUT" and request.path.startswith("/allocations/"):
            way.clear()
            work()
        return answer

    way.around = claim_and_work


def fails_for_the_group(cloud, server_id, host):
    """Checks that the server could not move: it is on its old host, and the action gives the reason."""
    assert cloud.status(server_id) == ("ACTIVE", None, host)
    assert list(cloud.held(server_id)) == [host]
    assert cloud.actions(server_id)[0][1]["conductor_migrate_server"] == "Error"


@pytest.mark.parametrize(("action", "argument"), [
    ("migrate", {"host": None}), ("resize", {"flavorRef": "large"}),
    ("os-migrateLive", {"host": None, "block_migration": "auto"}),
])  # fmt: skip
def test_a_move_fails_if_a_new_member_gets_the_host_at_the_same_time(cloud, action, argument):
    """The late check: another server gets the only free host between the claim for the move and its commit."""
    group = group_of(cloud, "anti-affinity")
    first, source = build(cloud, group)
    build(cloud, group)
    made = []

    def rival():
        made.append(request_server(cloud, group, "rival"))
        cloud.builder.run_once()

    while_the_mover_claims(cloud, rival)
    cloud.admin_do(first, action, argument)
    fails_for_the_group(cloud, first, source)
    assert cloud.status(made[0])[2] not in (source, None)
    assert sum(bool(cloud.used(name)) for name in (ONE, TWO, THREE)) == 3


def test_a_member_moves_to_another_host_if_a_new_member_gets_the_first_one(make_cloud):
    cloud = make_cloud(4)
    group = group_of(cloud, "anti-affinity")
    first, source = build(cloud, group)
    build(cloud, group)
    made = []

    def rival():
        (free,) = cloud.held(first)
        made.append(request_server(cloud, group, "rival", host=free))
        cloud.builder.run_once()

    while_the_mover_claims(cloud, rival)
    cloud.admin_do(first, "migrate", {"host": None})
    assert cloud.status(first)[0] == "VERIFY_RESIZE"
    assert len({cloud.status(first)[2], cloud.status(made[0])[2], source}) == 3


def test_anti_affinity_excludes_the_next_and_the_previous_host_of_a_moving_member(cloud):
    group = group_of(cloud, "anti-affinity")
    first, source = build(cloud, group)
    build(cloud, group)
    cloud.admin_act(first, "migrate", {"host": None})
    cloud.mover.run_once()  # the migration has an allocation there, but the server has not arrived
    assert cloud.status(first)[2] == source
    late = request_server(cloud, group)
    cloud.builder.run_once()
    assert "allows 1 server on a host" in cloud.show(late)["fault"]["message"]
    cloud.settle()
    assert cloud.status(first)[0] == "VERIFY_RESIZE"
    assert build(cloud, group)[1] is None
    cloud.do(first, "confirmResize")
    assert build(cloud, group)[1] == source


def test_two_members_with_affinity_unshelved_at_the_same_time_are_placed_on_one_host(cloud):
    group = group_of(cloud, "affinity")
    both = [build(cloud, group, name)[0] for name in ("a", "b")]
    for server_id in both:
        cloud.do(server_id, "shelve")

    def rival():
        cloud.admin_act(both[1], "unshelve", {"availability_zone": None, "host": TWO})
        cloud.new_mover("rival").run_once()

    while_the_mover_claims(cloud, rival)
    cloud.admin_do(both[0], "unshelve", {"availability_zone": None, "host": ONE})
    assert [cloud.status(server_id)[::2] for server_id in both] == [("SHELVED_OFFLOADED", None), ("ACTIVE", TWO)]
    cloud.do(both[0], "unshelve")
    assert cloud.status(both[0])[::2] == ("ACTIVE", TWO)


def test_an_evacuated_member_is_not_placed_on_another_members_host(cloud):
    group = group_of(cloud, "anti-affinity")
    first, source = build(cloud, group)
    build(cloud, group)
    cloud.hosts[source].stop()
    cloud.forget_waits()
    cloud.run_for(120)
    made = []

    def rival():
        made.append(request_server(cloud, group, "rival"))
        cloud.builder.run_once()

    while_the_mover_claims(cloud, rival)
    cloud.admin_do(first, "evacuate", {})
    assert cloud.status(made[0])[0] == "ACTIVE"
    assert cloud.status(first)[::2] == ("ERROR", source)
    assert "allows 1 server on a host" in cloud.show(first)["fault"]["message"]
    assert list(cloud.held(first)) == [source]
