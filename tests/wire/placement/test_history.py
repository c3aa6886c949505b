"""States at a past time, and the entries that led to them, also of times before the kept range."""

from datetime import timedelta

import pytest

from moorage.core.ids import SeededIds
from moorage.placement.forest.change_entries import iso_utc
from moorage.placement.service.event_service import MIN_ROUND_PAUSE, RetentionTask

CONSUMER = "00000000-0000-4000-8000-00000000000a"
NOBODY = "00000000-0000-4000-8000-00000000000b"


def host(wire, name="host", vcpu=8):
    uuid = wire.does("POST", "/resource_providers", {"name": name})["uuid"]
    offer(wire, uuid, 0, vcpu)
    return uuid


def offer(wire, uuid, generation, vcpu):
    body = {"resource_provider_generation": generation, "inventories": {"VCPU": {"total": vcpu}}}
    wire.does("PUT", f"/resource_providers/{uuid}/inventories", body)


def claim(wire, provider, amount, generation=None, consumer=CONSUMER):
    body = {
        "allocations": {provider: {"resources": {"VCPU": amount}}},
        "project_id": "red",
        "user_id": "alice",
        "consumer_generation": generation,
        "consumer_type": "INSTANCE",
    }
    wire.does("PUT", f"/allocations/{consumer}", body)


def delete_old_entries(engine, clock, **history):
    """Deletes all entries that are now older than `change_history`."""
    task = RetentionTask(engine, clock, history=timedelta(**history))
    while task.run_once() < clock.now() + MIN_ROUND_PAUSE:
        pass


def later(clock):
    """Lets one hour pass; returns the time before it."""
    before = clock.now()
    clock.advance_to(clock.now() + timedelta(hours=1))
    return iso_utc(before)


def provider_at(wire, uuid, at):
    return wire.does("GET", f"/moorage/v1/history/providers/{uuid}?at={at}")


def consumer_at(wire, uuid, at):
    return wire.does("GET", f"/moorage/v1/history/consumers/{uuid}?at={at}")


def test_a_provider_is_shown_at_past_times(wire, clock):
    uuid = host(wire, vcpu=8)
    offered = later(clock)
    claim(wire, uuid, 3)
    claimed = later(clock)
    offer(wire, uuid, 2, 16)
    grown = later(clock)
    found = [provider_at(wire, uuid, at) for at in (offered, claimed, grown)]
    assert [(one["state"]["inventories"]["VCPU"]["total"], one["state"]["usages"]) for one in found] == [
        (8, {}),
        (8, {"VCPU": 3}),
        (16, {"VCPU": 3}),
    ]
    assert [one["state"]["generation"] for one in found] == [1, 2, 3]
    assert [one["changed_at"] for one in found] == [offered, claimed, grown]
    assert {one["state"]["name"] for one in found} == {"host"}


def test_between_two_changes_the_state_is_that_of_the_first(wire, clock):
    uuid = host(wire)
    offered = later(clock)
    between = later(clock)
    claim(wire, uuid, 3)
    assert provider_at(wire, uuid, between)["state"] == provider_at(wire, uuid, offered)["state"]
    assert provider_at(wire, uuid, between)["at"] == between


def test_a_consumer_is_shown_with_its_past_allocations(wire, clock):
    uuid = host(wire)
    claim(wire, uuid, 3)
    first = later(clock)
    claim(wire, uuid, 5, generation=1)
    second = later(clock)
    wire.does("DELETE", f"/allocations/{CONSUMER}")
    gone = later(clock)
    assert consumer_at(wire, CONSUMER, first)["state"] == {
        "generation": 1,
        "project_id": "red",
        "user_id": "alice",
        "consumer_type": "INSTANCE",
        "allocations": {uuid: {"VCPU": 3}},
    }
    assert consumer_at(wire, CONSUMER, second)["state"]["allocations"] == {uuid: {"VCPU": 5}}
    status, _, detail = wire.fails("GET", f"/moorage/v1/history/consumers/{CONSUMER}?at={later(clock)}")
    assert status == 404
    assert f"it was deleted at {gone}" in detail


def test_an_object_is_not_found_before_its_creation(wire, clock):
    before = later(clock)
    uuid = host(wire)
    status, _, detail = wire.fails("GET", f"/moorage/v1/history/providers/{uuid}?at={before}")
    assert status == 404
    assert f"There was no provider {uuid} at {before}" in detail
    assert wire.fails("GET", f"/moorage/v1/history/providers/{NOBODY}")[0] == 404
    assert wire.fails("GET", f"/moorage/v1/history/consumers/{NOBODY}")[0] == 404


def test_a_deleted_provider_is_found_only_before_its_deletion(wire, clock):
    uuid = host(wire)
    alive = later(clock)
    wire.does("DELETE", f"/resource_providers/{uuid}")
    assert provider_at(wire, uuid, alive)["state"]["name"] == "host"
    assert wire.fails("GET", f"/moorage/v1/history/providers/{uuid}")[0] == 404


def test_without_a_time_or_with_a_future_one_the_present_state_is_shown(wire, clock):
    uuid = host(wire)
    now = iso_utc(clock.now())
    assert wire.does("GET", f"/moorage/v1/history/providers/{uuid}")["at"] == now
    assert provider_at(wire, uuid, "2999-01-01T00:00:00Z")["at"] == now


@pytest.mark.parametrize(
    "at", ["yesterday", "2026-03-01T09:30:00", "2026-03-01", "2026-02-30T00:00:00Z", "0001-01-01T00:00:00%2B12:00"]
)
def test_an_invalid_time_or_one_without_a_zone_is_refused(wire, at):
    uuid = host(wire)
    assert wire.fails("GET", f"/moorage/v1/history/providers/{uuid}?at={at}")[0] == 400


def test_a_zone_with_an_unescaped_plus_is_accepted(wire, clock):
    uuid = host(wire)
    local = clock.now() + timedelta(hours=2)
    for offset in ("%2B02:00", "+02:00"):
        found = provider_at(wire, uuid, f"{local:%Y-%m-%dT%H:%M:%S}{offset}")
        assert found["at"] == iso_utc(clock.now())


def test_a_time_before_the_kept_range_is_410_with_the_oldest_time(wire, plane, clock):
    uuid = host(wire)
    first = later(clock)
    claim(wire, uuid, 3)
    claimed = later(clock)
    later(clock)
    delete_old_entries(plane.engine("placement"), clock, hours=1)
    status, _, detail = wire.fails("GET", f"/moorage/v1/history/providers/{uuid}?at={first}")
    assert status == 410
    assert f"history begins at {claimed}" in detail
    assert wire.fails("GET", f"/moorage/v1/history/providers/{uuid}/changes?since={first}")[0] == 410
    assert provider_at(wire, uuid, claimed)["state"]["usages"] == {"VCPU": 3}


def test_an_object_without_changes_in_the_kept_range_still_has_its_state(wire, plane, clock):
    uuid, quiet = host(wire), host(wire, "quiet")
    claim(wire, uuid, 3)
    claim(wire, uuid, 2, consumer=NOBODY)
    for _ in range(100):
        later(clock)
    delete_old_entries(plane.engine("placement"), clock, hours=1)
    now = iso_utc(clock.now())
    assert provider_at(wire, uuid, now)["state"]["usages"] == {"VCPU": 5}
    assert provider_at(wire, uuid, now)["state"]["inventories"]["VCPU"]["total"] == 8
    assert provider_at(wire, quiet, now)["state"]["name"] == "quiet"
    assert consumer_at(wire, CONSUMER, now)["state"]["allocations"] == {uuid: {"VCPU": 3}}


def test_entries_of_one_subject_are_listed_by_time(wire, clock):
    uuid, other = host(wire), host(wire, "other")
    offered = later(clock)
    claim(wire, uuid, 3)
    claim(wire, other, 1, consumer=NOBODY)
    claimed = later(clock)
    claim(wire, uuid, 4, generation=1)
    path = f"/moorage/v1/history/providers/{uuid}/changes"

    def kinds(query=""):
        return [(entry["kind"], entry["at"]) for entry in wire.does("GET", path + query)["changes"]]

    now = iso_utc(clock.now())
    everything = [("provider", offered), ("provider", offered), ("usages", claimed), ("usages", now)]
    assert kinds() == everything
    assert kinds(f"?since={claimed}") == everything[2:]
    assert kinds(f"?until={claimed}") == everything[:2], "half-open: until is not in it"
    assert kinds(f"?since={claimed}&until={now}") == [everything[2]]
    consumer = wire.does("GET", f"/moorage/v1/history/consumers/{CONSUMER}/changes")["changes"]
    assert [entry["document"]["allocations"] for entry in consumer] == [{uuid: {"VCPU": 3}}, {uuid: {"VCPU": 4}}]


def test_entries_are_listed_in_pages(wire):
    uuid = host(wire)
    for generation in range(1, 6):
        offer(wire, uuid, generation, 8 + generation)
    path, after, found, pages = f"/moorage/v1/history/providers/{uuid}/changes", "0", [], 0
    while after is not None:
        page = wire.does("GET", f"{path}?limit=3&after={after}")
        found, after, pages = found + page["changes"], page["next"], pages + 1
    assert [entry["document"]["generation"] for entry in found] == [0, 1, 2, 3, 4, 5, 6]
    assert pages == 3


def test_the_uuid_of_a_deleted_object_may_be_used_again(wire, clock):
    """The history of a uuid continues after its deletion."""
    uuid = SeededIds(9).uuid()
    states = []
    for name in ("one", "two"):
        wire.does("POST", "/resource_providers", {"name": name, "uuid": uuid})
        states.append((name, later(clock)))
        wire.does("DELETE", f"/resource_providers/{uuid}")
        later(clock)
    for name, at in states:
        assert provider_at(wire, uuid, at)["state"]["name"] == name
