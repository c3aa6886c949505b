"""Steps in the form in which the journal stores them: the kind, and the arguments of that kind."""

from typing import get_args

import pytest

from moorage.reservation.model.steps import EnsureClass, Step, journal_entry, kind_of, step_from_journal

#: Rows as every release has written them: (kind, args).
ROWS = [
    ("ensure_class", {"reservation_id": "r"}),
    ("delete_class", {"reservation_id": "r"}),
    ("ensure_flavor", {"reservation_id": "r", "vcpus": 2, "memory_mb": 512, "disk_gb": 0}),
    (
        "ensure_flavor",
        {
            "reservation_id": "r",
            "vcpus": 2,
            "memory_mb": 512,
            "disk_gb": 1,
            "ephemeral_gb": 3,
            "swap_mb": 4,
            "extra_specs": {"trait:CUSTOM_A": "required"},
        },
    ),
    ("delete_flavor", {"reservation_id": "r"}),
    ("put_inventory", {"reservation_id": "r", "host": "compute-1", "total": 3}),
    ("release_slots", {"reservation_id": "r", "host": "compute-1", "total": 3, "slots": ["a", "b"]}),
    ("drop_inventory", {"reservation_id": "r", "host": "compute-1"}),
    ("retire_inventory", {"reservation_id": "r", "host": "compute-1"}),
    ("reclaim_inventory", {"reservation_id": "r", "host": "compute-1"}),
    ("grant_access", {"reservation_id": "r", "project_id": "p"}),
    ("revoke_access", {"reservation_id": "r", "project_id": "p"}),
    ("delete_servers", {"reservation_id": "r"}),
    ("ensure_server_group", {"reservation_id": "r", "policy": "affinity"}),
    ("ensure_server_group", {"reservation_id": "r"}),
    ("delete_server_group", {"reservation_id": "r", "group_id": "g"}),
    ("delete_server_group", {"reservation_id": "r"}),
    ("join_aggregate", {"reservation_id": "r", "host": "service-1", "aggregate_id": 7}),
    ("delete_aggregate", {"reservation_id": "r", "aggregate_id": 7}),
    ("ensure_aggregate", {"reservation_id": "r"}),
    ("clear_host", {"reservation_id": "r", "host": "service-1"}),
    ("lend_host", {"reservation_id": "r", "host": "service-1"}),
    ("return_host", {"reservation_id": "r", "host": "service-1"}),
    ("retire_host", {"reservation_id": "r", "host": "service-1"}),
    ("open_aggregate", {"reservation_id": "r", "project_id": "p"}),
    ("close_aggregate", {"reservation_id": "r"}),
    ("clear_aggregate", {"reservation_id": "r"}),
    ("dissolve_aggregate", {"reservation_id": "r"}),
    ("program_region", {"reservation_id": "r", "project_id": "p", "deployable": "d", "image_id": "i"}),
    ("program_region", {"reservation_id": "r", "project_id": "p", "deployable": "d", "function_id": "f"}),
    ("empty_region", {"reservation_id": "r", "deployable": "d", "function_name": "n"}),
    ("retire_region", {"reservation_id": "r", "deployable": "d"}),
    ("delete_trait", {"reservation_id": "r"}),
    ("ensure_floating_ips", {"reservation_id": "r"}),
    ("delete_floating_ips", {"reservation_id": "r"}),
    ("find_servers", {"reservation_id": "r"}),
    ("find_servers_of_hosts", {"reservation_id": "r"}),
    ("snapshot_server", {"reservation_id": "r", "target": "s"}),
    ("leave_server", {"reservation_id": "r", "target": "s", "reason": "the server is in ERROR"}),
    ("send_webhook", {"reservation_id": "", "lease_id": "l", "target": "https://a.example/x"}),
    ("send_mail", {"reservation_id": "", "lease_id": "l", "target": "a@b.example"}),
    ("tell_end", {"reservation_id": "r"}),
]


@pytest.mark.parametrize(("kind", "args"), ROWS)
def test_a_step_of_any_release_is_read_and_written_the_same(kind, args):
    """Two releases may run at the same time on the same journal."""
    step = step_from_journal(kind, args)
    assert journal_entry(step) == {"kind": kind, "args": args}
    assert step.kind == kind


def test_the_rows_of_this_test_contain_every_kind_of_step():
    assert {kind for kind, _ in ROWS} == {kind_of(each) for each in get_args(Step)}


def test_a_stored_step_with_a_missing_argument_is_refused():
    with pytest.raises(ValueError, match="host"):
        step_from_journal("put_inventory", {"reservation_id": "r", "total": 1})


def test_the_resource_class_of_a_step_is_named_by_its_reservation():
    """R8 (instance-reservation): upper case and underscores only."""
    step = EnsureClass("4d17d41a-830d-47b2-91c7-4f9fc0ae611e")
    assert step.resource_class == "CUSTOM_RESERVATION_4D17D41A_830D_47B2_91C7_4F9FC0AE611E"
