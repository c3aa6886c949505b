"""The compute stores: their statements run and give the same rows on all three databases."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import event

from moorage.compute.model.servers import (
    Action,
    Fault,
    Flavor,
    HostReport,
    Keypair,
    Locker,
    Placed,
    PowerState,
    Server,
    TaskState,
    VmState,
)
from moorage.compute.store import action_store, flavor_store, host_store, keypair_store, server_store
from moorage.core.errors import Conflict
from moorage.db.session import read, write
from tests.conftest import START
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database

FLAVOR = Flavor("f1", "small", 1, 512, 1, extra_specs={"resources:CUSTOM_A": "1"})
HOST = HostReport("compute-1", "11111111-1111-4111-8111-111111111111", "simulated", 1, "127.0.0.1", 16, 1024, 10, 2)
SERVICE = "22222222-2222-4222-8222-222222222222"


@pytest.fixture
def compute(kind):
    with migrated_engine("compute", kind) as engine:
        yield engine


def a_server(server_id, **more):
    values = {
        "id": server_id, "number": 0, "name": "vm", "project_id": "red", "user_id": "alice", "image_id": "i",
        "flavor": FLAVOR, "vm_state": VmState.BUILDING, "task_state": TaskState.SCHEDULING,
        "power_state": PowerState.NONE, "host": None, "wanted_zone": None, "wanted_host": None,
        "metadata": {"a": "ä"}, "tags": ("t",), "description": None, "hostname": "vm", "key_name": None,
        "user_data": None, "config_drive": False, "reservation_id": "r-1", "launch_index": 0,
        "scheduler_hints": {}, "locked_by": None, "locked_reason": None, "fault": None, "placed": None,
        "devices": (), "parked_at": None, "parked_image_id": None, "created_at": START, "updated_at": START, "launched_at": None, "deleted_at": None,
    }  # fmt: skip
    return Server(**values | more)


@on_every_database
def test_a_stored_server_reads_back_the_same_after_an_update(compute, ids):
    before = a_server(ids.uuid())
    fault = Fault(500, "no", "details", START)
    placed = Placed({"": ("p",), "_N": ("q", "r")}, {"p": {"VCPU": 1}})
    with write(compute) as connection:
        server_store.insert_servers(connection, [before])
        later = START + timedelta(seconds=1)
        changes = {"fault": fault, "placed": placed, "locked_by": Locker.ADMIN, "devices": [{"pci_id": "x"}]}
        server_store.update_server(connection, before.id, later, vm_state=VmState.ERROR, task_state=None, **changes)
    with read(compute) as connection:
        after = server_store.server(connection, before.id)
        assert server_store.server(connection, ids.uuid()) is None
    assert after.number == 1
    expected = replace(
        before, number=1, vm_state=VmState.ERROR, task_state=None, updated_at=later, fault=fault, placed=placed,
        locked_by=Locker.ADMIN, devices=({"pci_id": "x"},),
    )  # fmt: skip
    assert after == expected


@on_every_database
def test_each_field_of_a_server_query_selects_the_matching_servers(compute, ids):
    with write(compute) as connection:
        for name, more in (
            ("old", {}),
            ("on-host", {"host": "compute-1"}),
            ("blue", {"project_id": "blue"}),
            ("gone", {"vm_state": VmState.DELETED, "updated_at": START + timedelta(hours=2)}),
        ):
            server_store.insert_servers(connection, [a_server(ids.uuid(), name=name, **more)])

    def names(**query):
        with read(compute) as connection:
            return [server.name for server in server_store.find_servers(connection, server_store.ServerQuery(**query))]

    assert names() == ["blue", "on-host", "old"]
    assert names(project_id="red", sort=[("name", False)]) == ["old", "on-host"]
    assert names(host="compute-1") == ["on-host"]
    assert names(deleted=True) == ["gone"]
    assert names(changed_since=START + timedelta(hours=1)) == ["gone"]
    assert names(flavor_id="f1", user_id="alice", image_id="i", vm_states=[VmState.ACTIVE]) == []


@on_every_database
def test_servers_that_run_in_a_period_are_found_with_its_end_excluded(compute, ids):
    hour = timedelta(hours=1)
    with write(compute) as connection:
        server_store.insert_servers(connection, [a_server(ids.uuid(), name="runs", launched_at=START)])
        ended = {"launched_at": START, "deleted_at": START + hour, "vm_state": VmState.DELETED}
        server_store.insert_servers(connection, [a_server(ids.uuid(), name="ended", **ended)])
        server_store.insert_servers(connection, [a_server(ids.uuid(), name="never")])

    def names(since, until):
        with read(compute) as connection:
            return {server.name for server in server_store.servers_running_in(connection, since, until)}

    assert names(START, START + hour) == {"runs", "ended"}
    assert names(START + hour, START + 2 * hour) == {"runs"}
    assert names(START - hour, START) == set()


@on_every_database
def test_a_new_console_log_replaces_the_old_one_and_is_cut_at_its_maximum_size(compute, ids):
    server = a_server(ids.uuid())
    with write(compute) as connection:
        server_store.insert_servers(connection, [server])
        assert server_store.console(connection, server.id) == ""
        server_store.save_console(connection, server.id, "first", START)
        server_store.save_console(connection, server.id, "ä" * 40_000, START)
        assert server_store.console(connection, server.id) == "ä" * 32_768


@on_every_database
def test_an_action_event_that_is_begun_twice_is_stored_once(compute, ids):
    server, action_id = a_server(ids.uuid()), ids.uuid()
    with write(compute) as connection:
        server_store.insert_servers(connection, [server])
        action = Action(action_id, server.id, "req-1", "create", "alice", "red", START, START, None)
        action_store.begin_action(connection, action)
        for _ in range(2):
            action_store.begin_event(connection, action_id, "step", "compute-1", START)
        action_store.finish_event(connection, action_id, "step", START + timedelta(seconds=1), error="why")
        found = action_store.action(connection, server.id, "req-1")
        assert [(event.result, event.details, event.host) for event in found.events] == [("Error", "why", "compute-1")]
        assert (found.message, found.updated_at) == ("Error", START + timedelta(seconds=1))
        assert [one.id for one in action_store.actions_of(connection, server.id)] == [action_id]


@on_every_database
def test_begin_next_events_finishes_one_event_and_begins_another_for_several_actions(compute, ids):
    """One action had already begun the second event, because its job ran twice."""
    servers_of = {ids.uuid(): ids.uuid() for _ in range(3)}
    again, later = list(servers_of)[1], START + timedelta(seconds=1)
    with write(compute) as connection:
        for action_id, server_id in servers_of.items():
            server_store.insert_servers(connection, [a_server(server_id)])
            action = Action(action_id, server_id, "req", "create", "alice", "red", START, START, None)
            action_store.begin_action(connection, action)
            action_store.begin_event(connection, action_id, "schedule", None, START)
        action_store.begin_event(connection, again, "build", "compute-0", START)
        hosts = dict.fromkeys(list(servers_of)[:2], "compute-1")
        action_store.begin_next_events(connection, hosts, "schedule", "build", later)
    with read(compute) as connection:
        first, second, third = (action_store.action(connection, one, "req") for one in servers_of.values())
    assert [(one.name, one.host, one.finished_at, one.result) for one in first.events] == [
        ("schedule", None, later, "Success"), ("build", "compute-1", None, None),
    ]  # fmt: skip
    assert [(one.name, one.host, one.finished_at) for one in second.events] == [
        ("schedule", None, later), ("build", "compute-0", None),
    ]  # fmt: skip
    assert (first.updated_at, third.updated_at) == (later, START)
    assert [(one.name, one.finished_at) for one in third.events] == [("schedule", None)]


@on_every_database
def test_several_servers_are_locked_and_assigned_to_their_hosts(compute, ids):
    first, second, third = (ids.uuid() for _ in range(3))
    later = START + timedelta(seconds=1)
    places = {
        first: ("compute-1", Placed({"": ("p",)}, {"p": {"VCPU": 1}})),
        second: ("compute-2", Placed({"": ("q",)}, {"q": {"VCPU": 2}})),
    }
    with write(compute) as connection:
        for server_id in (first, second, third):
            server_store.insert_servers(connection, [a_server(server_id)])
        assert server_store.lock_servers(connection, [first, second, ids.uuid()]).keys() == {first, second}
        server_store.assign_servers(connection, places, TaskState.SPAWNING, later)
    with read(compute) as connection:
        found = server_store.servers_by_id(connection, [first, second, third])
        assert server_store.hosts_of_servers(connection, [second, third], "red") == {"compute-2"}
        assert server_store.hosts_of_servers(connection, [second], "blue") == set()
        assert server_store.hosts_of_servers(connection, [], "red") == set()
    assert {one: (found[one].host, found[one].placed) for one in places} == places
    assert (found[first].task_state, found[first].updated_at) == (TaskState.SPAWNING, later)
    assert found[third].host is None


@on_every_database
def test_a_private_flavor_is_visible_only_to_projects_in_its_access_list(compute):
    private = replace(FLAVOR, is_public=False)
    with write(compute) as connection:
        flavor_store.insert_flavor(connection, private, START)
        assert flavor_store.flavor(connection, "f1") == private
        assert flavor_store.flavor_by_name(connection, "SMALL") is None  # names keep their case on every database
        assert flavor_store.flavor(connection, "f1", visible_to="red") is None
        flavor_store.add_access(connection, "f1", "red")
        assert flavor_store.all_flavors(connection, visible_to="red") == [private]
        assert flavor_store.access(connection, "f1") == ["red"]
        assert flavor_store.delete_flavor(connection, "f1")
        assert flavor_store.access(connection, "f1") == []


@on_every_database
def test_a_keypair_is_inserted_found_and_deleted_once(compute):
    pair = Keypair("alice", "k", "ssh", "key", "aa:bb", START)
    with write(compute) as connection:
        keypair_store.insert_keypair(connection, pair)
        assert keypair_store.keypairs_of(connection, "alice") == [pair]
        assert keypair_store.keypair(connection, "alice", "k") == pair
        assert keypair_store.delete_keypair(connection, "alice", "k")
        assert not keypair_store.delete_keypair(connection, "alice", "k")


@on_every_database
def test_a_second_registration_of_a_host_updates_its_report_and_heartbeat(compute, ids):
    with write(compute) as connection:
        assert host_store.register(connection, HOST, SERVICE, START)
        later = START + timedelta(seconds=10)
        assert not host_store.register(connection, replace(HOST, vcpus=8), ids.uuid(), later)
        found = host_store.host(connection, "compute-1")
        assert (found.service_uuid, found.report.vcpus, found.heartbeat_at) == (SERVICE, 8, later)
        with pytest.raises(Conflict, match="belongs to host compute-1"):
            host_store.register(connection, replace(HOST, name="compute-2"), ids.uuid(), START)


@on_every_database
def test_an_availability_zone_exists_while_an_aggregate_with_hosts_names_it(compute, ids):
    with write(compute) as connection:
        first = host_store.insert_aggregate(connection, ids.uuid(), "first", {"availability_zone": "az1"}, START)
        host_store.insert_aggregate(connection, ids.uuid(), "second", {}, START)
        assert not host_store.has_zone(connection, "az1")
        host_store.add_member(connection, first, "compute-1")
        assert (host_store.has_zone(connection, "az1"), host_store.has_zone(connection, "az2")) == (True, False)
        assert host_store.zones(connection) == {"compute-1": "az1"}
        host_store.update_aggregate(connection, first, "first", {}, START)
        assert host_store.zones(connection) == {}
        assert host_store.lock_aggregate(connection, first).hosts == ("compute-1",)
        assert host_store.remove_member(connection, first, "compute-1")
        host_store.delete_aggregate(connection, first)
        assert [one.name for one in host_store.all_aggregates(connection)] == ["second"]
    with pytest.raises(Conflict, match="already exists"), write(compute) as connection:
        host_store.insert_aggregate(connection, ids.uuid(), "second", {}, START)


@on_every_database
def test_equal_changes_of_servers_and_equal_ends_of_their_events_are_one_statement_run_once(compute, ids):
    created = [a_server(ids.uuid()) for _ in range(3)]
    actions = [Action(ids.uuid(), one.id, "req-1", "create", "alice", "red", START, START, None) for one in created]
    active = {"vm_state": VmState.ACTIVE, "task_state": None, "devices": []}
    changes = {one.id: dict(active) for one in created}
    changes[created[2].id] |= {"devices": [{"pci_id": "x"}]}
    with write(compute) as connection:
        server_store.insert_servers(connection, created)
        action_store.begin_actions(connection, actions, "schedule")
        rows = []
        event.listen(connection, "before_cursor_execute", lambda *call: rows.append(len(call[3]) if call[5] else 1))
        server_store.update_servers(connection, changes, START)
        assert rows == [1, 1], "one for the two equal changes, one for the other"
        rows.clear()
        action_store.finish_events(connection, [action_store.EndedEvent(one.id, "schedule") for one in actions], START)
        assert rows == [1, 1], "the events, and the actions"
    with read(compute) as connection:
        after = server_store.servers_by_id(connection, list(changes))
        ended = [action_store.action(connection, one.server_id, "req-1") for one in actions]
    assert [after[one.id].vm_state for one in created] == [VmState.ACTIVE] * 3
    assert [after[one.id].devices for one in created] == [(), (), ({"pci_id": "x"},)]
    assert [found.result for one in ended for found in one.events] == ["Success"] * 3
