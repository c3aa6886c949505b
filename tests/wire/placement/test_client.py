"""`PlacementClient` against the real service, in process: every method once, as the other features use it."""

from dataclasses import replace

import pytest

from moorage.core.errors import ConcurrentUpdate, Conflict, RemoteError
from moorage.placement.client.placement_client import Candidate, Claim, Inventory, PlacementClient
from moorage.wire.client import ServiceClient
from tests.plane import SERVICE

SERVERS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(9)]


@pytest.fixture
def host(client: PlacementClient):
    """A host with a device below it."""
    root = client.create_provider("compute-1")
    inventories = {"VCPU": Inventory(16), "MEMORY_MB": Inventory(32768, reserved=512)}
    client.set_inventories(root.uuid, root.generation, inventories)
    device = client.create_provider("compute-1_0000:01:00.0", parent_uuid=root.uuid)
    client.ensure_class("CUSTOM_ACCELERATOR_GPU")
    client.put_inventory(device.uuid, "CUSTOM_ACCELERATOR_GPU", Inventory(1))
    return root


def test_providers_are_found_by_uuid_name_and_tree(client, host):
    again = client.provider(host.uuid)
    assert again is not None
    assert (again.name, again.parent_uuid, again.root_uuid, again.generation) == ("compute-1", None, host.uuid, 1)
    assert client.provider_by_name("compute-1") == again
    assert client.provider_by_name("compute-2") is None
    assert client.provider(SERVERS[0]) is None
    names = {provider.name: provider.parent_uuid for provider in client.tree(host.uuid)}
    assert names == {"compute-1": None, "compute-1_0000:01:00.0": host.uuid}
    assert client.tree(SERVERS[0]) == []


def test_a_taken_name_is_a_conflict_with_its_code(client, host):
    with pytest.raises(Conflict) as caught:
        client.create_provider("compute-1")
    assert caught.value.error_code == "placement.duplicate_name"


def test_deleting_a_missing_object_succeeds(client, host):
    for _ in range(2):
        client.delete_provider(SERVERS[0])
        client.delete_class("CUSTOM_NEVER")
        client.delete_inventory(host.uuid, "DISK_GB")
        client.release(SERVERS[0])
    with pytest.raises(Conflict) as caught:
        client.delete_provider(host.uuid)
    assert caught.value.error_code == "placement.resource_provider.cannot_delete_parent"


def test_inventories_are_set_together_or_one_by_one(client, host):
    generation, inventories = client.inventories(host.uuid)
    assert inventories["MEMORY_MB"] == Inventory(32768, reserved=512)
    assert client.set_inventories(host.uuid, generation, {"VCPU": Inventory(8)}) == generation + 1
    with pytest.raises(ConcurrentUpdate):
        client.set_inventories(host.uuid, generation, {})
    client.ensure_class("CUSTOM_RESERVATION_X")
    client.put_inventory(host.uuid, "CUSTOM_RESERVATION_X", Inventory(3, max_unit=1))
    client.put_inventory(host.uuid, "CUSTOM_RESERVATION_X", Inventory(3, max_unit=1))
    generation, inventories = client.inventories(host.uuid)
    assert inventories == {"VCPU": Inventory(8), "CUSTOM_RESERVATION_X": Inventory(3, max_unit=1)}
    assert generation == 3, "what is there already is not written again"
    with pytest.raises(Conflict):
        client.delete_class("CUSTOM_RESERVATION_X")
    client.delete_inventory(host.uuid, "CUSTOM_RESERVATION_X")
    client.delete_class("CUSTOM_RESERVATION_X")


def test_a_missing_inventory_is_added_and_several_are_written_at_once(client, host):
    generation, _ = client.inventories(host.uuid)
    for name in ("CUSTOM_A", "CUSTOM_B"):
        client.ensure_class(name)
    client.add_inventory(host.uuid, "CUSTOM_A", Inventory(3, max_unit=1))
    with pytest.raises(Conflict):
        client.add_inventory(host.uuid, "CUSTOM_A", Inventory(4))
    wanted = {"CUSTOM_A": Inventory(2), "CUSTOM_B": Inventory(1)}
    client.put_inventories(host.uuid, wanted)
    client.put_inventories(host.uuid, wanted)
    after, inventories = client.inventories(host.uuid)
    assert inventories.items() >= wanted.items()
    assert after == generation + 2, "what is there already is not written again"


def test_a_sample_has_random_hosts_and_a_plain_limit_the_first_ones(client, host):
    others = [client.create_provider(f"compute-{number}") for number in range(2, 22)]
    for one in others:
        client.set_inventories(one.uuid, 0, {"VCPU": Inventory(8)})
    query = [("resources", "VCPU:1"), ("limit", "3")]

    def roots(**options):
        return frozenset(candidate.root_uuid for candidate in client.candidates(query, **options)[0])

    assert roots() == roots()
    assert len({roots(sample=f"server {number}") for number in range(8)}) > 3


def test_several_consumers_claim_together_or_not_at_all(client, host):
    (candidate,), _ = client.candidates([("resources", "VCPU:4"), ("limit", "10")])
    claims = {server: Claim(candidate, "red", "alice") for server in SERVERS[:2]}
    client.claim_together(claims)
    assert [client.allocations(server) for server in SERVERS[:2]] == [{host.uuid: {"VCPU": 4}}] * 2
    client.release(SERVERS[0])
    with pytest.raises(Conflict):
        client.claim_together(claims)
    assert client.allocations(SERVERS[0]) == {}


def test_traits_and_aggregates_are_written_with_the_generation(client, host):
    client.ensure_trait("CUSTOM_RESERVATION_HOST")
    generation, traits = client.traits(host.uuid)
    assert traits == frozenset()
    generation = client.set_traits(host.uuid, generation, {"CUSTOM_RESERVATION_HOST"})
    assert client.traits(host.uuid) == (generation, {"CUSTOM_RESERVATION_HOST"})
    generation = client.set_aggregates(host.uuid, generation, {SERVERS[1]})
    assert client.aggregates(host.uuid) == (generation, {SERVERS[1]})
    with pytest.raises(RemoteError) as caught:
        client.set_traits(host.uuid, generation, {"CUSTOM_UNKNOWN"})
    assert caught.value.status == 400


def test_one_trait_is_added_and_removed_and_the_others_are_kept(client, host):
    client.ensure_trait("CUSTOM_RESERVATION_HOST")
    client.set_traits(host.uuid, client.traits(host.uuid)[0], {"HW_CPU_X86_AVX2"})
    for _ in range(2):
        client.put_trait(host.uuid, "CUSTOM_RESERVATION_HOST", wanted=True)
    generation, traits = client.traits(host.uuid)
    assert traits == {"HW_CPU_X86_AVX2", "CUSTOM_RESERVATION_HOST"}
    for _ in range(2):
        client.put_trait(host.uuid, "CUSTOM_RESERVATION_HOST", wanted=False)
    assert client.traits(host.uuid) == (generation + 1, {"HW_CPU_X86_AVX2"}), "what is so already is not written again"


@pytest.mark.parametrize(("races", "held"), [(4, True), (5, False)])
def test_setting_a_trait_is_retried_a_few_times_after_concurrent_changes(client, host, monkeypatch, races, held):
    client.ensure_trait("CUSTOM_RESERVATION_HOST")
    read, others = client.traits, iter(range(races))

    def then_changed_by_another(uuid):
        seen = read(uuid)
        if next(others, None) is not None:
            client.set_aggregates(uuid, seen[0], {SERVERS[seen[0] % 2]})
        return seen

    monkeypatch.setattr(client, "traits", then_changed_by_another)
    if held:
        client.put_trait(host.uuid, "CUSTOM_RESERVATION_HOST", wanted=True)
    else:
        with pytest.raises(ConcurrentUpdate):
            client.put_trait(host.uuid, "CUSTOM_RESERVATION_HOST", wanted=True)
    assert ("CUSTOM_RESERVATION_HOST" in read(host.uuid)[1]) is held


def test_a_candidate_is_claimed_and_released(client, host):
    query = [("resources", "VCPU:4"), ("resources_GPU", "CUSTOM_ACCELERATOR_GPU:1"), ("limit", "10")]
    (candidate,), summaries = client.candidates(query)
    assert candidate.root_uuid == host.uuid
    (device,) = candidate.mappings["_GPU"]
    assert candidate.mappings[""] == (host.uuid,)
    assert {name: amounts.capacity for name, amounts in summaries[device].resources.items()} == {
        "CUSTOM_ACCELERATOR_GPU": 1
    }
    assert summaries[device].root_provider_uuid == host.uuid
    client.claim(SERVERS[0], candidate, "red", "alice")
    assert client.allocations(SERVERS[0]) == {host.uuid: {"VCPU": 4}, device: {"CUSTOM_ACCELERATOR_GPU": 1}}
    assert client.usages(host.uuid) == {"VCPU": 4, "MEMORY_MB": 0}
    assert client.provider_allocations(device) == {SERVERS[0]: {"CUSTOM_ACCELERATOR_GPU": 1}}
    assert [*map(len, client.candidates(query))] == [0, 0]
    client.release(SERVERS[0])
    assert client.allocations(SERVERS[0]) == {}


class KeepingTransport:
    """A transport that keeps writes instead of sending them, like a network that delivers them late."""

    def __init__(self, inner):
        self._inner = inner
        self.base_url = inner.base_url
        self.written = []

    def send(self, method, path, headers, body=None):
        if method != "GET":
            self.written.append((method, path, headers, body))
        return self._inner.send(method, path, headers, body)


@pytest.fixture
def kept(plane):
    return KeepingTransport(plane.transport("/placement"))


@pytest.fixture
def other(kept):
    """A client that gives up its writes, which are delivered later."""
    return PlacementClient(ServiceClient(kept, service_type="placement", version="1.39", credentials=SERVICE))


@pytest.mark.parametrize("generation", [1, 2])
def test_a_late_release_does_not_release_a_newer_claim(client, host, kept, other, generation):
    """Also if the new claim has the same generation as the old one."""
    first, second = ({host.uuid: {"VCPU": units}} for units in (1, 2))
    other.release(SERVERS[0])
    assert kept.written == [], "there was nothing"
    client.claim(SERVERS[0], Candidate(first, {}, host.uuid), "red", "alice")
    if generation == 2:
        client.hold(replace(client.holder(SERVERS[0]), allocations=first))
    other.release(SERVERS[0])
    assert client.allocations(SERVERS[0]) == {}
    client.claim(SERVERS[0], Candidate(second, {}, host.uuid), "red", "alice")
    [late] = kept.written
    assert kept.send(*late).status == 409
    assert client.allocations(SERVERS[0]) == second


def test_a_late_handover_does_not_move_a_newer_claim(client, host, kept, other):
    first, second = ({host.uuid: {"VCPU": units}} for units in (1, 2))
    server, move = SERVERS[:2]
    client.claim(server, Candidate(first, {}, host.uuid), "red", "alice")
    other.hand_over(server, move, "MIGRATION")
    client.release(move)
    client.claim(server, Candidate(second, {}, host.uuid), "red", "alice")
    [late] = kept.written
    assert kept.send(*late).status == 409
    assert (client.allocations(server), client.allocations(move)) == (second, {})


def test_without_incarnations_a_consumer_is_identified_by_its_generation(client, host):
    """For example OpenStack's Placement."""
    client.claim(SERVERS[0], Candidate({host.uuid: {"VCPU": 1}}, {}, host.uuid), "red", "alice")
    untold = replace(client.holder(SERVERS[0]), incarnation=None)
    with pytest.raises(ConcurrentUpdate):
        client.hold(replace(untold, generation=7, allocations={}))
    client.hold(replace(untold, allocations={}))
    assert client.allocations(SERVERS[0]) == {}


@pytest.mark.parametrize("incarnation", ["-", "9" * 5000, "1,abc=2"])
def test_an_incarnation_that_is_not_a_number_is_refused(client, host, incarnation):
    client.claim(SERVERS[0], Candidate({host.uuid: {"VCPU": 1}}, {}, host.uuid), "red", "alice")
    with pytest.raises(RemoteError, match="must have the form UUID=NUMBER"):
        client.hold(replace(client.holder(SERVERS[0]), incarnation=incarnation))


def test_a_claim_may_be_repeated_but_not_changed(client, host):
    small = Candidate({host.uuid: {"VCPU": 1}}, {}, host.uuid)
    large = Candidate({host.uuid: {"VCPU": 2}}, {}, host.uuid)
    client.claim(SERVERS[0], small, "red", "alice")
    client.claim(SERVERS[0], small, "red", "alice")
    with pytest.raises(ConcurrentUpdate):
        client.claim(SERVERS[0], large, "red", "alice")
    with pytest.raises(Conflict, match="exceed the capacity") as caught:
        client.claim(SERVERS[1], Candidate({host.uuid: {"VCPU": 16}}, {}, host.uuid), "red", "alice")
    assert not isinstance(caught.value, ConcurrentUpdate)


def test_an_explanation_gives_the_reason_why_no_host_fits(client, host):
    client.ensure_class("CUSTOM_RESERVATION_X")
    client.put_inventory(host.uuid, "CUSTOM_RESERVATION_X", Inventory(3))
    for number in range(3):
        claim = Candidate({host.uuid: {"CUSTOM_RESERVATION_X": 1}}, {}, host.uuid)
        client.claim(SERVERS[number], claim, "red", "alice")
    explanation = client.explain([("resources", "CUSTOM_RESERVATION_X:1")])
    assert explanation.text == (
        "No valid host: 1 host considered; resources:CUSTOM_RESERVATION_X=1 left 0 (compute-1 has 3 of 3 in use)."
    )
    (step,) = explanation.steps
    assert (step.constraint, step.before, step.after) == ("resources:CUSTOM_RESERVATION_X=1", 1, 0)
    assert step.removed == ("compute-1 has 3 of 3 in use",)
    happy = client.explain([("resources", "VCPU:1")])
    assert happy.text == "1 candidate on 1 of 1 hosts."
