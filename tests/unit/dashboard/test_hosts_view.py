"""The table of hosts: what it shows of them, how it sorts, and their properties in leases."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moorage.dashboard.views import hosts_view as view
from moorage.dashboard.views.tables import parse_order
from moorage.reservation.api.schemas.host import encode
from moorage.reservation.model.leases import RegisteredHost
from moorage.reservation.model.property_query import matches, parse

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def host(name, *, used_mb=0, whole_mb=65_536, vcpus=0, used_gb=0, age_s=5, **service):
    """(compute's service, its hypervisor) of a host."""
    heartbeat = (NOW - timedelta(seconds=age_s)).replace(tzinfo=None).isoformat()
    row = {
        "host": name, "id": f"service of {name}", "state": "up", "status": "enabled", "zone": "nova",
        "updated_at": heartbeat, **service,
    }  # fmt: skip
    amounts = {
        "vcpus_used": vcpus, "vcpus": 16, "memory_mb_used": used_mb, "memory_mb": whole_mb, "local_gb_used": used_gb,
        "local_gb": 500,
    }  # fmt: skip
    return row, {"hypervisor_hostname": name, "id": f"provider of {name}", **amounts}


def rows(*hosts, **documents):
    services, hypervisors = zip(*hosts, strict=True)
    return view.host_rows(view.HostDocuments(services=services, hypervisors=hypervisors, **documents), NOW)


def names(table, sort="", find=""):
    return [row.name for row in view.sorted_hosts(table, parse_order(sort, view.COLUMNS), find)]


def texts(row):
    return {column.words: column.text(row) for column in view.COLUMNS}


def test_a_host_has_one_text_in_each_column():
    [row] = rows(host("compute-1", used_mb=12_288, vcpus=2, used_gb=100, age_s=137))
    assert texts(row) == {
        "Host": "compute-1", "State": "up", "Zone": "nova", "Services": "servers", "Servers": "0",
        "Processors": "2 of 16", "Memory": "12 of 64 GiB", "Disk": "100 of 500 GiB",
        "Heartbeat": "2 min 17 s ago", "Enrolment": "",
    }  # fmt: skip


def test_the_zone_of_a_reservation_is_not_shown_by_its_uuid():
    [row] = rows(host("compute-1", zone="blazar_6e617aff-2489-4b72-87d7-2448aac441c4"))
    assert texts(row)["Zone"] == "of a lease"


@pytest.mark.parametrize(
    ("used_mb", "whole_mb", "text"),
    [(0, 65_536, "0 of 64 GiB"), (512, 65_536, "512 MiB of 64 GiB"), (512, 768, "512 of 768 MiB"),
     (1_131_520, 12_582_912, "1,105 GiB of 12 TiB"), (0, 0, "0 of 0")],
)  # fmt: skip
def test_an_amount_has_the_unit_once_if_both_have_the_same(used_mb, whole_mb, text):
    [row] = rows(host("compute-1", used_mb=used_mb, whole_mb=whole_mb))
    assert texts(row)["Memory"] == text


def test_amounts_are_sorted_by_number_and_missing_ones_come_last():
    """By their texts, 1.5 GiB came before 512 MiB, and 2 min 17 s before 5 s."""
    table = rows(
        host("a", used_mb=1_536, vcpus=10, used_gb=2_000, age_s=137),
        host("b", used_mb=512, vcpus=9, used_gb=900, age_s=5),
        host("c", used_mb=10_240, vcpus=11, used_gb=0, age_s=3_700),
        identities=[{"name": "d", "state": "revoked"}],
    )
    assert names(table, "memory") == ["b", "a", "c", "d"]
    assert names(table, "-memory") == ["c", "a", "b", "d"]
    assert names(table, "processors") == ["b", "a", "c", "d"]
    assert names(table, "disk") == ["c", "b", "a", "d"]
    assert names(table, "heartbeat") == ["b", "a", "c", "d"]


def test_the_filter_finds_what_is_shown_and_not_the_numbers_of_the_order():
    table = rows(
        host("a", used_mb=24_576, zone="east", status="disabled", disabled_reason="new fans"),
        host("b", used_mb=512, age_s=137, forced_down=True),
        identities=[{"name": "c", "state": "invited", "invited_until": "2026-03-01T10:30:00"}],
    )
    found = {
        words: names(table, find=words)
        for words in (
            "24 of 64 gib",
            "east",
            "fans drained",
            "512 mib",
            "2 min",
            "by an administrator",
            "until 2026-03-01 10:30",
        )
    }
    assert found == {
        "24 of 64 gib": ["a"], "east": ["a"], "fans drained": ["a"], "512 mib": ["b"], "2 min": ["b"],
        "by an administrator": ["b"], "until 2026-03-01 10:30": ["c"],
    }  # fmt: skip
    assert names(table, find="24576") == names(table, find="137") == []


REGISTERED = RegisteredHost(
    7, "compute-1", "service-1", "QEMU", 9_000_000, '{"model": "x"}', 16, 65_536, 500, "", None, None,
    reservable=True, ready=True, created_at=NOW, updated_at=None, extra={"rack": "9", "gpu": "True"},
)  # fmt: skip


def in_leases(registered):
    [row] = rows(host("compute-1"), registered=[encode(registered)])
    return row.in_leases


def test_the_properties_of_a_host_are_those_that_filters_compare():
    found = in_leases(REGISTERED)
    assert found.custom == (("$gpu", "True"), ("$rack", "9"))
    assert {name.removeprefix("$"): value for name, value in found.custom + found.standard} == REGISTERED.properties()
    assert (found.id, found.is_reservable) == ("7", True)
    assert not in_leases(replace(REGISTERED, reservable=False)).is_reservable
    [row] = rows(host("compute-1"))
    assert row.in_leases is None


@pytest.mark.parametrize("name", ["compute-1", 'a"b\\c', "\u00e4]"])
def test_the_filter_of_a_host_selects_it_alone(name):
    query = parse(view.filter_of_host(name))
    assert matches(query, replace(REGISTERED, hypervisor_hostname=name).properties())
    assert not matches(query, replace(REGISTERED, hypervisor_hostname=f"{name}0").properties())
