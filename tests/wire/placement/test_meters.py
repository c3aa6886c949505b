"""Placement's metrics: each number changes when its event happens."""

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from moorage.core.errors import Unavailable
from moorage.core.ids import SeededIds
from moorage.placement.forest.change_entries import Filter
from moorage.placement.service import service as service_module
from moorage.placement.service.deps import PlacementSettings
from moorage.placement.service.service import PlacementService
from tests.plane import InProcessPlane

CONSUMER = "00000000-0000-4000-8000-00000000000a"
OTHER = "00000000-0000-4000-8000-00000000000b"


@pytest.fixture
def plane(tmp_path, clock, ids):
    """A plane that accepts one watch."""
    with InProcessPlane(tmp_path, "placement", clock=clock, ids=ids, placement={"watchers": 1}) as plane:
        yield plane


@pytest.fixture
def metrics(plane):
    return plane.plane.metrics


@pytest.fixture
def value(metrics):
    """A function that returns the present value of a sample; 0 if it does not exist yet."""

    def read(name, **labels):
        return metrics.registry.get_sample_value(name, labels) or 0

    return read


def host(wire, vcpu=8):
    uuid = wire.does("POST", "/resource_providers", {"name": "host"})["uuid"]
    body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": vcpu}}}
    wire.does("PUT", f"/resource_providers/{uuid}/inventories", body)
    return uuid


def claim(wire, provider, amount, consumer=CONSUMER, generation=None):
    body = {
        "allocations": {provider: {"resources": {"VCPU": amount}}},
        "project_id": "red",
        "user_id": "alice",
        "consumer_generation": generation,
        "consumer_type": "INSTANCE",
    }
    return wire.send("PUT", f"/allocations/{consumer}", body)[0]


def test_requests_are_counted_by_route_and_status_and_never_by_path(wire, value, metrics):
    uuid = host(wire)
    wire.send("GET", f"/resource_providers/{uuid}")
    wire.send("GET", f"/resource_providers/{OTHER}")
    wire.send("GET", f"/nowhere/{OTHER}")
    wire.send("BREW", "/resource_providers")
    wire.send("GET", f"/resource_providers/{uuid}", who=None)

    def count(method, route, status):
        labels = {"service": "placement", "method": method, "route": route, "status": status}
        return value("moorage_http_request_duration_seconds_count", **labels)

    route = "/resource_providers/{uuid}"
    assert [count("GET", route, status) for status in ("200", "404", "401")] == [1, 1, 1]
    assert count("GET", "(none)", "404") == 1
    assert count("POST", "/resource_providers", "200") == 1
    text = metrics.render().decode()
    assert uuid not in text
    assert OTHER not in text
    assert "BREW" not in text


def test_a_duration_is_counted_in_every_larger_bucket(wire, value):
    host(wire)
    labels = {"service": "placement", "method": "POST", "route": "/resource_providers", "status": "200"}
    total = value("moorage_http_request_duration_seconds_sum", **labels)
    assert 0 < total < 30
    assert value("moorage_http_request_duration_seconds_bucket", le="30.0", **labels) == 1
    assert value("moorage_http_request_duration_seconds_bucket", le="+Inf", **labels) == 1
    assert value("moorage_http_request_duration_seconds_bucket", le="0.0001", **labels) == 0


def test_no_request_is_in_flight_after_any_answer(wire, value):
    host(wire)
    for path in ("/resource_providers", "/nowhere", f"/resource_providers/{OTHER}"):
        wire.send("GET", path)
    wire.send("PUT", "/traits/%00")
    assert value("moorage_http_requests_in_flight", service="placement") == 0


def test_searches_are_counted_by_result(wire, service, value):
    host(wire)
    wire.does("GET", "/allocation_candidates?resources=VCPU:1")
    wire.does("GET", "/allocation_candidates?resources=VCPU:100")
    found, empty = (value("moorage_placement_searches_total", outcome=outcome) for outcome in ("found", "empty"))
    assert (found, empty) == (1, 1)
    service.candidates = replace(service.candidates, settings=PlacementSettings(max_search_steps=0))
    groups = "&".join(f"resources{number}=VCPU:1" for number in (1, 2, 3))
    assert wire.send("GET", f"/allocation_candidates?{groups}&group_policy=none")[0] == 400
    assert value("moorage_placement_searches_total", outcome="over_limit") == 1


def test_claims_are_counted_by_result(wire, value):
    uuid = host(wire)
    assert claim(wire, uuid, 3) == 204
    assert claim(wire, uuid, 3) == 409
    assert claim(wire, uuid, 6, OTHER) == 409
    assert claim(wire, OTHER, 1, OTHER) == 400
    assert wire.send("DELETE", f"/allocations/{CONSUMER}")[0] == 204
    assert wire.send("DELETE", f"/allocations/{CONSUMER}")[0] == 404
    ends = ("committed", "conflict", "no_capacity", "invalid", "not_found", "failed", "unavailable")
    counts = [value("moorage_placement_claims_total", outcome=outcome) for outcome in ends]
    assert counts == [2, 1, 1, 1, 1, 0, 0]


def test_commits_and_their_groups_are_measured(wire, value):
    uuid = host(wire)
    before = value("moorage_placement_commit_duration_seconds_count")
    claim(wire, uuid, 1)
    assert value("moorage_placement_commit_duration_seconds_count") == before + 1
    assert value("moorage_placement_group_size_sum") == value("moorage_placement_group_size_count") == before + 1


def test_the_forest_is_built_once_and_follows_other_processes(wire, plane, value):
    uuid = host(wire)
    assert value("moorage_placement_build_duration_seconds_count") == 1
    other = plane.beside("other", "placement")
    other.service("placement").providers.create_provider("elsewhere", None, None)
    assert value("moorage_placement_sequence_lag") == 1
    assert value("moorage_placement_providers") == 1
    old, caught = (
        value("moorage_placement_pictures_old_total"),
        value("moorage_placement_catch_up_duration_seconds_count"),
    )
    claim(wire, uuid, 1)
    assert value("moorage_placement_pictures_old_total") == old + 1
    assert value("moorage_placement_catch_up_duration_seconds_count") == caught + 1
    assert value("moorage_placement_sequence_lag") == 0
    assert value("moorage_placement_providers") == 2
    assert value("moorage_placement_build_duration_seconds_count") == 1


def test_watches_are_counted_and_shown_while_they_are_open(wire, service, value):
    watch = service.events.watch(service.events.newest_cursor(), Filter())
    assert value("moorage_placement_watches_open") == 1
    service.events.watch(service.events.newest_cursor(), Filter())
    watch.close()
    assert value("moorage_placement_watches_open") == 0
    assert value("moorage_placement_watches_total", answer="open") == 1
    assert value("moorage_placement_watches_total", answer="come_later") == 1


def test_errors_of_the_database_are_counted(plane, value):
    assert value("moorage_database_errors_total", service="placement", kind="other") == 0
    with pytest.raises(Exception, match="no such table"), plane.engine("placement").connect() as connection:
        connection.exec_driver_sql("SELECT * FROM nowhere")
    assert value("moorage_database_errors_total", service="placement", kind="other") == 1


def test_connections_in_use_are_shown(plane, value):
    with plane.engine("placement").connect():
        assert value("moorage_database_connections_in_use", service="placement") == 1
    assert value("moorage_database_connections_in_use", service="placement") == 0
    assert value("moorage_database_connections_max", service="placement") == 20


def test_a_scrape_is_answered_while_the_database_is_unavailable(metrics, monkeypatch):
    def away(_connection):
        raise Unavailable("the database does not answer")

    monkeypatch.setattr(service_module.change_store, "last_number", away)
    text = metrics.render().decode()
    assert "moorage_placement_watches_open 0.0" in text
    assert "moorage_placement_sequence " not in text


def test_each_service_object_can_count_for_itself(plane, clock):
    """Two service objects in one process, as in tests, have separate registries."""
    PlacementService(plane.engine("placement"), clock, SeededIds(3))
    PlacementService(plane.engine("placement"), clock, SeededIds(4), registry=CollectorRegistry())
