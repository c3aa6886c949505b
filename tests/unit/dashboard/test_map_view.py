"""The view of the map of hosts, which is computed from the documents of the services."""

from moorage.dashboard.views.map_view import (
    HostContext,
    bars_of,
    every_node,
    host_rows,
    kind_of,
    overview,
    provider_tree,
)


def inventory(total, reserved=0, ratio=1.0):
    return {"total": total, "reserved": reserved, "allocation_ratio": ratio}


def provider(uuid, name, parent=None, *, inventories=None, usages=None, traits=()):
    return {
        "uuid": uuid, "name": name, "parent_provider_uuid": parent, "root_provider_uuid": "host", "generation": 1,
        "inventories": inventories or {}, "usages": usages or {}, "traits": list(traits), "aggregates": [],
    }  # fmt: skip


REGION = "CUSTOM_FPGA_INTEL_REGION_9926AB6D_6C92_5A68_AABC_A7D84C545738"
FUNCTION = "CUSTOM_FPGA_INTEL_FUNCTION_6B7E1F0A_95CC_4C2B_8D5E_3A1F0C9D7E21"
HOST = provider("host", "h1", inventories={"VCPU": inventory(16, 2, 2.0)}, usages={"VCPU": 7}, traits=["COMPUTE_NODE"])
R1 = provider("r1", "h1_0000:3b:00.0_R1", "host", inventories={"FPGA": inventory(2, 1)}, traits=[REGION, FUNCTION])
R2 = provider("r2", "h1_0000:3b:00.0_R2", "host", inventories={"FPGA": inventory(1)}, traits=[REGION])
NUMA = provider("n0", "h1_NUMA_0", "host", traits=["HW_NUMA_ROOT"])


def handle(state, *, rp="r1", reason=None, server=None):
    return {
        "handle": "0000:3b:00.1", "state": state, "reason": reason, "rp_uuid": rp, "bitstream_id": "image",
        "device_uuid": "card", "health": "ok", "status": "enabled", "instance_uuid": server, "request_uuid": None,
    }  # fmt: skip


def shown(*providers, holders=(), **around):
    return provider_tree({"providers": [HOST, *providers], "holders": list(holders)}, HostContext(**around))


def named(root, label):
    return next(node for node in every_node(root) if node.label == label)


def test_the_shown_capacity_includes_the_allocation_ratio_without_reserved_units():
    (bar,) = shown().bars
    assert (bar.used, bar.capacity, bar.reserved, bar.free, bar.whole) == (7, 28, 4, 21, 32)
    assert (bar.used_width, bar.reserved_width) == (21.88, 12.5)


def test_overcommitted_inventory_is_flagged_and_its_bar_stays_within_100_percent():
    root = shown(provider("x", "x", "host", inventories={"FPGA": inventory(2, 1)}, usages={"FPGA": 4}))
    node = named(root, "x")
    assert [flag.text for flag in node.flags if flag.tone == "bad"] == ["FPGAs overcommitted"]
    assert node.bars[0].used_width + node.bars[0].reserved_width <= 100


def test_regions_are_shown_below_their_card_and_numa_nodes_beside_it():
    root = shown(R1, R2, NUMA)
    assert [(node.label, node.kind) for node in every_node(root)] == [
        ("h1", "host"), ("0000:3b:00.0", "device"), ("R1", "region"), ("R2", "region"), ("NUMA_0", "NUMA node")
    ]  # fmt: skip
    assert named(root, "R1").functions == ("6b7e1f0a-95cc-4c2b-8d5e-3a1f0c9d7e21",)


def test_a_quarantined_handle_is_shown_with_its_reason_instead_of_the_reserved_unit():
    root = shown(R1, handles=[handle("quarantined", reason="the blank did not load")])
    node = named(root, "R1")
    assert [(one.state, one.tone, one.reason) for one in node.handles] == [
        ("quarantined", "bad", "the blank did not load")
    ]
    assert node.flags == ()
    assert (node.bitstream, named(root, "0000:3b:00.0").device) == ("image", "card")


def test_reserved_units_without_a_quarantined_handle_are_flagged():
    assert [flag.text for flag in named(shown(R1), "R1").flags] == ["FPGAs: 1 kept back"]


def test_a_dirty_handle_is_shown_with_an_explanation():
    (one,) = named(shown(R1, handles=[handle("dirty")]), "R1").handles
    assert one.reason == "released by its last server; must be cleaned before reuse"


def test_consumers_are_shown_at_their_provider_with_the_name_of_the_server():
    holders = [
        {"consumer": "a", "project_id": "red", "user_id": "u", "consumer_type": "INSTANCE",
         "allocations": {"host": {"MEMORY_MB": 1024, "VCPU": 2}, "r1": {"FPGA": 1}}},
        {"consumer": "b", "project_id": "red", "user_id": "u", "consumer_type": None, "allocations": {"host": {"VCPU": 1}}},
    ]  # fmt: skip
    root = shown(R1, holders=holders, servers={"a": "web"})
    assert [(one.name, one.kind, one.amounts) for one in root.holders] == [
        ("web", "server", "Processors 2, Memory 1 GiB"), ("", "unknown", "Processors 1")
    ]  # fmt: skip
    assert [one.amounts for one in named(root, "R1").holders] == ["FPGAs 1"]


def slot(reservation, lease, start="01T08", end="01T18"):
    return {
        "id": reservation,
        "lease_id": lease,
        "lease_name": f"name of {lease}",
        "project_id": "p1",
        "start_date": f"2026-03-{start}:00:00.000000",
        "end_date": f"2026-03-{end}:00:00.000000",
    }


ONE, TWO = "4d17d41a-830d-47b2-91c7-4f9fc0ae611e", "4d17d41a-830d-47b2-91c7-4f9fc0ae611f"
CLASS = "CUSTOM_RESERVATION_4D17D41A_830D_47B2_91C7_4F9FC0AE611E"


def test_the_inventory_of_a_reservation_links_to_its_lease():
    lent = provider("b", "blazar_h1", "host", inventories={CLASS: inventory(2), "CUSTOM_RESERVATION_X": inventory(1)})
    root = shown(lent, slots=[slot(ONE, "lease-1"), slot(ONE, "lease-1"), slot(TWO, "lease-2", end="01T10")])
    assert {bar.name: (bar.lease_id, bar.lease_name) for bar in named(root, "blazar_h1").bars} == {
        CLASS: ("lease-1", "name of lease-1"),
        "CUSTOM_RESERVATION_X": ("", ""),
    }
    assert [(one.name, one.slots, one.end.hour) for one in root.leases] == [
        ("name of lease-2", 1, 10), ("name of lease-1", 2, 18)
    ]  # fmt: skip
    assert named(root, "blazar_h1").leases == ()


def test_a_provider_whose_parent_is_missing_is_shown_below_the_root():
    root = provider_tree({"providers": [HOST, provider("x", "lost", "gone")], "holders": None}, HostContext())
    assert [node.label for node in root.children] == ["lost"]
    assert root.holders == ()


def test_the_kind_of_a_provider_follows_from_its_traits_and_name():
    traits = frozenset({"MISC_SHARES_VIA_AGGREGATE"})
    assert kind_of("nfs", traits, is_root=True) == "shared"
    assert kind_of("blazar_h1", frozenset(), is_root=True) == "reservations"
    assert kind_of("h1_NIC", frozenset(), is_root=False) == "provider"


def units(name, providers=1, capacity=10, used=1):
    return {"name": name, "providers": providers, "capacity": capacity, "used": used}


def test_standard_classes_are_shown_first_and_those_of_reservations_last():
    document = {
        "resource_classes": [units(name) for name in ("CUSTOM_RESERVATION_1", "CUSTOM_GOLD", "DISK_GB", "VCPU")]
    }
    assert [bar.name for bar in bars_of(document)] == ["VCPU", "DISK_GB", "CUSTOM_GOLD", "CUSTOM_RESERVATION_1"]


def test_aggregates_are_shown_with_their_names_and_zones_from_compute():
    part = {"trees": 2, "resource_classes": [units("VCPU")]}
    survey = {
        "trees": 4, "providers": 9, "resource_classes": [units("VCPU")], "resource_classes_left_out": 0,
        "aggregates": [{"uuid": "1", **part}, {"uuid": "2", **part}, {"uuid": "3", **part}], "aggregates_left_out": 3,
    }  # fmt: skip
    known = [
        {"uuid": "2", "name": "rack", "availability_zone": "east"},
        {"uuid": "3", "name": ONE, "availability_zone": f"blazar_{ONE}"},
    ]
    names = [("Unknown to compute, 1…", "", "1"), ("rack", "east", "rack")]
    assert [(one.name, one.zone, one.title) for one in overview(survey, known).aggregates] == names
    seen = overview(survey, known, with_reservations=True)
    assert [(one.name, one.zone, one.title) for one in seen.aggregates] == [
        *names, ("Hosts of a reservation", "of a lease", ONE),
    ]  # fmt: skip
    assert seen.aggregates_left_out == 3


def test_a_row_shows_five_classes_and_the_number_of_the_others():
    tree_row = {
        "uuid": "1", "name": "h1", "providers": 3, "traits": ["COMPUTE_STATUS_DISABLED", "CUSTOM_RESERVATION_HOST"],
        "resource_classes": [units(name) for name in ("A", "B", "C", "D", "E", "VCPU")], "aggregates": [],
    }  # fmt: skip
    (row,) = host_rows({"trees": [tree_row]})
    assert ([bar.name for bar in row.bars], row.more) == (["VCPU", "A", "B", "C", "D"], 1)
    assert [flag.text for flag in row.flags] == ["for leases"]
