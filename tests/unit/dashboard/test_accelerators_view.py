"""The table of attach handles: sorted, filtered, and the quarantined ones."""

from urllib.parse import urlencode

from moorage.dashboard.views.accelerators_view import COLUMNS, handle_rows, quarantined
from moorage.dashboard.views.tables import headings, parse_order, table_rows


def handle(address, card, region, state="free", **more):
    return {
        "handle": address, "state": state, "reason": None, "deployable": region, "rp_uuid": None, "bitstream_id": None,
        "attributes": [{"rc": "FPGA"}, {"region_type": "t"}, {"function": "f"}, {"function": "g"}], "device_uuid": card,
        "device": card, "type": "FPGA", "vendor": "8086", "model": "A10", "health": "ok", "status": "enabled",
        "instance_uuid": None, "project_id": None, "request_uuid": None, "request_state": None, **more,
    }  # fmt: skip


def rows():
    names = {"red": "vision"}.get
    return [
        *handle_rows("h10", [handle("b.1", "b", "b_R1", "quarantined", reason="no blank")], {}, names),
        *handle_rows("h2", [handle("a.2", "a", "a_R2", "attached", instance_uuid="s1", project_id="red"),
                            handle("a.1", "a", "a_R1", "dirty")], {"s1": "web"}, names),
    ]  # fmt: skip


def shown(sort=None, find=""):
    return [(row.host, row.handle) for row in table_rows(rows(), COLUMNS, parse_order(sort, COLUMNS), find)]


def test_the_table_is_sorted_by_any_column_in_both_directions():
    assert shown() == [("h2", "a.2"), ("h2", "a.1"), ("h10", "b.1")]
    assert shown("handle") == [("h2", "a.1"), ("h2", "a.2"), ("h10", "b.1")]
    assert shown("-host")[0] == ("h10", "b.1")
    assert shown("server")[0] == ("h2", "a.2")  # empty fields come last
    assert shown("nonsense") == shown("host")


def test_the_table_is_filtered_by_words_of_any_column():
    assert shown(find="QUARANTINED") == [("h10", "b.1")]
    assert shown(find="vision web") == [("h2", "a.2")]
    assert shown(find="vision free") == []


def test_a_heading_sorts_by_its_column_and_then_the_other_way_round():
    host, device, *_ = headings(COLUMNS, parse_order("host", COLUMNS), {"find": "a b"}, urlencode)
    assert (host.order, host.query) == ("ascending", "find=a+b&sort=-host")
    assert (device.order, device.query) == ("none", "find=a+b&sort=device")


def test_a_handle_has_its_region_functions_and_the_name_of_its_server():
    row = rows()[1]
    assert (row.region_type, row.functions, row.server_name, row.project) == ("t", ("f", "g"), "web", "vision")


def test_quarantined_handles_have_the_time_of_their_newest_quarantine():
    record = {"hostname": "h10", "handle": "b.1", "at": "2026-03-02"}
    (one,) = quarantined(rows(), [record, {**record, "at": "2026-03-01"}])
    assert (one.row.handle, one.row.reason, one.since) == ("b.1", "no blank", "2026-03-02")
