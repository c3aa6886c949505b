"""The views of servers, of the reasons why servers have no host, and of devices."""

from moorage.dashboard.views.servers_view import accelerators, action_row, history_rows, no_host_reasons


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
