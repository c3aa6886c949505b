"""The views of servers, of the reasons why servers have no host, and of devices."""

from moorage.dashboard.views.servers_view import accelerators, action_row, cards, history_rows, no_host_reasons


def failed(number, message):
    return {"id": str(number), "fault": {"message": message}}


def test_reasons_for_no_valid_host_are_counted_regardless_of_the_numbers_of_hosts():
    servers = [
        failed(1, "No valid host was found. 1 host considered; resources:VCPU=4 left 0."),
        failed(2, "No valid host was found. 2,000 hosts considered; resources:VCPU=4 left 0."),
        failed(3, "No valid host was found. 1 host considered. Placement has room, but: 1 host: it is there."),
        failed(4, "the image is broken"),
        failed(5, "No valid host was found."),
    ]
    found = [(one.reason, one.servers, one.example) for one in no_host_reasons(servers)]
    assert found == [
        ("resources:VCPU=4 left 0.", 2, "1"),
        ("Placement has room, but: it is there.", 1, "3"),
        ("no reason given", 1, "5"),
    ]


def test_an_action_is_shown_with_its_events_and_errors():
    step = {
        "event": "schedule_instances", "start_time": "2026-03-01T09:30:00.500000", "finish_time": None, "result": None,
        "host": None, "details": None,
    }  # fmt: skip
    document = {
        "action": "create", "request_id": "req-1", "start_time": "2026-03-01T09:30:00.000000", "user_id": "u",
        "message": "Error", "events": [step, {**step, "result": "Error", "details": "no room"}],
    }  # fmt: skip
    seen = action_row(document)
    assert (seen.started, seen.is_error) == ("2026-03-01 09:30:00", True)
    assert [(one.result, one.tone, one.details) for one in seen.steps] == [
        ("running", "warn", ""), ("Error", "bad", "no room")
    ]  # fmt: skip


def test_the_handle_of_an_accelerator_request_is_shown_as_a_pci_address():
    request = {"uuid": "1", "state": "Bound", "instance_uuid": None, "hostname": None, "device_profile_name": None}
    at = {"domain": "0000", "bus": "3b", "device": "00", "function": "1"}
    found = accelerators([{**request, "attach_handle_info": at}, {**request, "attach_handle_info": {}}])
    assert [one.handle for one in found] == ["0000:3b:00.1", ""]


def test_handles_are_grouped_by_card_and_region():
    def handle(address, card, region, state="free"):
        return {
            "handle": address, "state": state, "reason": None, "deployable": region, "rp_uuid": None, "bitstream_id": None,
            "attributes": [{"rc": "FPGA"}, {"region_type": "t"}, {"function": "f"}, {"function": "g"}], "device_uuid": card,
            "device": card, "type": "FPGA", "vendor": "8086", "model": "A10", "health": "ok", "status": "enabled",
            "instance_uuid": None, "project_id": None, "request_uuid": None, "request_state": None,
        }  # fmt: skip

    found = cards([handle("b.1", "b", "b_R1", "dirty"), handle("a.2", "a", "a_R2"), handle("a.1", "a", "a_R1")])
    assert [(card.address, [region.name for region in card.regions]) for card in found] == [
        ("a", ["a_R1", "a_R2"]), ("b", ["b_R1"])
    ]  # fmt: skip
    assert found[0].regions[0].functions == ("f", "g")
    assert found[1].regions[0].handles[0].tone == "warn"


def test_a_failed_record_of_the_device_history_is_shown_with_its_reason():
    record = {
        "at": "2026-03-01T09:30:00+00:00", "event": "program", "result": "failed", "reason": "no bits", "hostname": "h",
        "device": "d", "deployable": "d_R1", "handle": None, "instance_uuid": None, "project_id": None, "user_id": None,
        "image_id": None, "sha512": None,
    }  # fmt: skip
    (seen,) = history_rows([record])
    assert (seen.event, seen.tone, seen.where, seen.reason) == ("programmed: failed", "bad", "d_R1", "no bits")
