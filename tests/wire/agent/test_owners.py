"""The agent restores values that others changed, but does not fight another writer. Against Placement's API."""

from datetime import timedelta

import pytest

from moorage.agent.tracker.published_state import PublishedFile
from moorage.agent.tree.provider_tree_diff import BACKOFF, FREE_RESTORES
from moorage.placement.client.placement_client import Inventory

PERIOD = timedelta(minutes=1)


@pytest.fixture
def root(host, placement):
    host.tracker().start()
    return placement.provider_by_name("compute-1").uuid


def vcpus(placement, root):
    return placement.inventories(root)[1]["VCPU"]


def amend(placement, root, **values):
    """Changes the inventory as an operator's script would."""
    generation, inventories = placement.inventories(root)
    changed = {**inventories, "VCPU": Inventory(16, max_unit=16, **values)}
    placement.set_inventories(root, generation, changed)


def test_the_next_update_restores_values_that_another_client_changed(host, placement, root):
    tracker = host.tracker()
    tracker.start()
    amend(placement, root, allocation_ratio=4.0)
    generation, traits = placement.traits(root)
    placement.set_traits(root, generation, traits - {"HW_ARCH_X86_64"})
    round_ = tracker.update()
    assert round_.written == 2
    assert round_.warnings == ()
    assert vcpus(placement, root).allocation_ratio == 1.0
    assert placement.traits(root)[1] == traits


def test_a_value_that_is_changed_repeatedly_is_restored_less_and_less_often(host, placement, root, clock):
    """For an hour a script sets the ratio every minute: the agent writes it a few times, warns, and updates the
    rest.
    """
    tracker = host.tracker()
    tracker.start()
    written = []
    for minute in range(240):
        amend(placement, root, allocation_ratio=4.0)
        if tracker.update().written:
            written.append(minute)
        clock.sleep(PERIOD.total_seconds())
    assert len(written) < 12
    assert written[:FREE_RESTORES] == list(range(FREE_RESTORES))
    gaps = [
        later - earlier for earlier, later in zip(written[FREE_RESTORES - 1 :], written[FREE_RESTORES:], strict=False)
    ]
    assert gaps == sorted(gaps)
    assert gaps[0] >= BACKOFF.first_s / PERIOD.total_seconds()
    assert gaps[-1] <= BACKOFF.longest_s / PERIOD.total_seconds() + 1
    assert vcpus(placement, root).allocation_ratio == 4.0
    (warning,) = tracker.update().warnings
    assert "VCPU of provider compute-1 is changed by another client each time" in warning


def test_a_contested_value_does_not_delay_the_rest_of_the_provider(host, placement, root, clock):
    tracker = host.tracker()
    tracker.start()
    for _ in range(FREE_RESTORES + 1):
        amend(placement, root, allocation_ratio=4.0)
        tracker.update()
        clock.sleep(1)
    generation, traits = placement.traits(root)
    placement.set_traits(root, generation, traits - {"HW_ARCH_X86_64"})
    placement.delete_inventory(root, "DISK_GB")
    tracker.update()
    assert vcpus(placement, root).allocation_ratio == 4.0
    assert placement.traits(root)[1] == traits
    assert placement.inventories(root)[1]["DISK_GB"].total == 500


def test_a_new_value_of_the_host_is_written_although_the_old_one_was_contested(host, placement, root, clock):
    """The host has changed, so the value is a new one."""
    tracker = host.tracker()
    tracker.start()
    for _ in range(FREE_RESTORES + 1):
        amend(placement, root, allocation_ratio=4.0)
        tracker.update()
    tracker._driver._host = type(host.description)(vcpus=32)
    tracker.update()
    assert vcpus(placement, root) == Inventory(32, max_unit=32)


def test_a_contest_ends_when_the_other_client_stops(host, placement, root, clock):
    tracker = host.tracker()
    tracker.start()
    for _ in range(FREE_RESTORES + 1):
        amend(placement, root, allocation_ratio=4.0)
        tracker.update()
    clock.sleep(BACKOFF.first_s + 1)
    assert tracker.update().written == 1
    clock.sleep(6 * 3600)
    assert tracker.update().warnings == ()
    amend(placement, root, allocation_ratio=4.0)
    assert tracker.update().written == 1


def test_of_two_agents_with_one_host_name_one_stops_writing(host, placement, root, clock, tmp_path):
    """The second one's machine is larger; both have the same host name by mistake. One agent stops writing and
    warns.
    """
    ours = host.tracker()
    ours.start()
    host.description = type(host.description)(vcpus=32)
    theirs = host.tracker()
    theirs._published = PublishedFile(tmp_path / "other" / "published.json")
    theirs.start()
    writes, warned = 0, set()
    for _ in range(180):
        for number, tracker in enumerate((ours, theirs)):
            round_ = tracker.update()
            writes += round_.written
            if round_.warnings:
                warned.add(number)
        clock.sleep(PERIOD.total_seconds())
    assert writes < 30
    assert warned


def test_an_update_that_finds_a_change_costs_one_write_and_one_read_of_the_changed_part(
    host, placement, root, transport
):
    tracker = host.tracker()
    tracker.start()
    amend(placement, root, allocation_ratio=4.0)
    transport.requests.clear()
    tracker.update()
    assert [request.method for request in transport.requests] == ["GET", "GET", "GET", "PUT"]
