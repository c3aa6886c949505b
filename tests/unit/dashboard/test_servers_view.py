"""The views of servers, of the reasons why servers have no host, and of devices."""

import pytest

from moorage.compute.model import lifecycle
from moorage.compute.model.servers import VmState
from moorage.dashboard.views.selected_servers import ACTION_BODIES, SERVERS, choices_for
from moorage.dashboard.views.server_list import ListedServer, list_columns
from moorage.dashboard.views.servers_view import (
    accelerators,
    action_row,
    history_rows,
    no_host_reasons,
    server_row,
    servers_of_lease,
)
from moorage.dashboard.views.tables import parse_order, table_rows


def failed(number, message):
    return {"id": str(number), "name": f"server {number}", "fault": {"message": message}}


def test_reasons_for_no_valid_host_are_counted_regardless_of_the_numbers_of_hosts():
    servers = [
        failed(1, "No valid host was found. 1 host considered; resources:VCPU=4 left 0."),
        failed(2, "No valid host was found. 2,000 hosts considered; resources:VCPU=4 left 0."),
        failed(3, "No valid host was found. 1 host considered. Placement has capacity, but: 1 host: it is there."),
        failed(4, "the image is broken"),
        failed(5, "No valid host was found."),
    ]
    found = [(one.reason, one.servers, one.example_name) for one in no_host_reasons(servers)]
    assert found == [
        ("resources:VCPU=4 left 0.", 2, "server 1"),
        ("Placement has capacity, but: it is there.", 1, "server 3"),
        ("no reason given", 1, "server 5"),
    ]


def test_an_action_is_shown_with_its_events_and_errors():
    step = {
        "event": "schedule_instances", "start_time": "2026-03-01T09:30:00.500000", "finish_time": None, "result": None,
        "host": None, "details": None,
    }  # fmt: skip
    document = {
        "action": "create", "request_id": "req-1", "start_time": "2026-03-01T09:30:00.000000", "user_id": "u",
        "message": "Error", "events": [step, {**step, "result": "Error", "details": "no space left"}],
    }  # fmt: skip
    seen = action_row(document)
    assert (seen.started, seen.is_error) == ("2026-03-01 09:30:00", True)
    assert [(one.result, one.tone, one.details) for one in seen.steps] == [
        ("running", "warn", ""), ("Error", "bad", "no space left")
    ]  # fmt: skip


def test_the_handle_of_an_accelerator_request_is_shown_as_a_pci_address():
    request = {"uuid": "1", "state": "Bound", "instance_uuid": None, "hostname": None, "device_profile_name": None}
    at = {"domain": "0000", "bus": "3b", "device": "00", "function": "1"}
    found = accelerators([{**request, "attach_handle_info": at}, {**request, "attach_handle_info": {}}])
    assert [one.handle for one in found] == ["0000:3b:00.1", ""]


def test_a_failed_record_of_the_device_history_is_shown_with_its_reason():
    record = {
        "at": "2026-03-01T09:30:00+00:00", "event": "program", "result": "failed", "reason": "no bits", "hostname": "h",
        "device": "d", "deployable": "d_R1", "handle": None, "instance_uuid": None, "project_id": None, "user_id": None,
        "image_id": None, "sha512": None,
    }  # fmt: skip
    (seen,) = history_rows([record])
    assert (seen.event, seen.tone, seen.where, seen.reason) == ("programmed: failed", "bad", "d_R1", "no bits")


def document(name="one", status="ACTIVE", flavor="small", *, task=None, host="h1", **more):
    sizes = {"vcpus": 1, "ram": 512, "disk": 1, "original_name": flavor}
    return {
        "id": name, "name": name, "status": status, "flavor": sizes, "tenant_id": "p", "user_id": "u",
        "created": "2026-03-01T09:30:00Z", "OS-EXT-STS:task_state": task, "hostId": host and "digest", **more,
    }  # fmt: skip


def test_the_reservation_of_a_server_is_known_by_its_flavor_or_its_hint():
    of_flavor = server_row(document(flavor="reservation:r1"))
    assert (of_flavor.flavor, of_flavor.size, of_flavor.reservation_id) == ("", "1 VCPU, 512 MiB, 1 GiB disk", "r1")
    of_hint = server_row(document(scheduler_hints={"reservation": "r2"}))
    assert (of_hint.flavor, of_hint.reservation_id) == ("small", "r2")
    assert server_row(document()).reservation_id == ""
    servers = [
        document("b 10", flavor="reservation:r1"),
        document("b 9", scheduler_hints={"reservation": "r2"}),
        document(),
    ]
    assert [row.name for row in servers_of_lease(servers, {"r1", "r2"})] == ["b 9", "b 10"]


def test_a_server_is_found_by_its_lease_and_its_fault():
    columns = list_columns(is_all=False, is_admin=False)
    rows = [
        ListedServer(server_row(document("one", flavor="reservation:r1")), ("l1", "course"), "p", "u"),
        ListedServer(server_row(document("two", "ERROR", fault={"message": "no space left"})), None, "p", "u"),
    ]

    def found(words):
        return [row.server.name for row in table_rows(rows, columns, parse_order("name", columns), words)]

    assert [found(words) for words in ("of lease course", "space", "small", "host")] == [["one"], ["two"], ["two"], []]


#: {choice: operations of compute that it asks for}
OPERATIONS = {
    "delete": [lifecycle.DELETE], "stop": [lifecycle.STOP], "start": [lifecycle.START],
    "reboot": [lifecycle.REBOOT, lifecycle.REBOOT_HARD],
}  # fmt: skip


@pytest.mark.parametrize("choice", OPERATIONS)
@pytest.mark.parametrize("state", [state for state in VmState if state is not VmState.DELETED])
def test_an_act_is_offered_only_in_statuses_in_which_compute_allows_it(choice, state):
    act, words = SERVERS.act_on(server_row(document(status=lifecycle.STATUSES[state])), choice)
    assert words
    if act:
        assert any(state in operation.allowed for operation in OPERATIONS[choice])
        assert (SERVERS.acts[act].choice, words) == (choice, SERVERS.acts[act].effect)
        assert act in ACTION_BODIES


def test_a_server_offers_what_its_status_its_task_and_its_host_allow():
    offered = {
        "ACTIVE": ["stop", "reboot", "delete"], "SHUTOFF": ["start", "delete"], "ERROR": ["stop", "reboot", "delete"],
        "BUILD": ["delete"], "SOFT_DELETED": [],
    }  # fmt: skip
    for status, choices in offered.items():
        assert [choice for choice, _ in choices_for(server_row(document(status=status)))] == choices
    assert [choice for choice, _ in choices_for(server_row(document(status="ERROR", host="")))] == ["delete"]
    assert [choice for choice, _ in choices_for(server_row(document(task="powering-off")))] == ["delete"]
    for task in ("deleting", "soft-deleting"):
        assert choices_for(server_row(document(task=task))) == []
