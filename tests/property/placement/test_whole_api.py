"""Random requests to the whole Placement API, in random microversions, compared with the model in `reference_model.py`.

After each step every GET must equal the model's answer, and the forest in memory the database. A search must find what
an exhaustive search finds. ``MOORAGE_STATE_MACHINE_EXAMPLES`` is the number of examples (default 25).
"""

import os
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from moorage.core.clock import SystemClock
from moorage.core.errors import Invalid
from moorage.core.ids import RandomIds
from moorage.placement.forest import model as real
from moorage.placement.search.request import parse_request
from moorage.placement.service.service import PlacementService
from tests.differential.scripts import AGGREGATES, Dice, candidates_query
from tests.differential.sides import Asked, Ours
from tests.property.placement.reference_model import Placement, Response, WantedAllocations
from tests.property.placement.test_candidates import slow
from tests.property.placement.test_forest import content_by_uuid

pytestmark = pytest.mark.slow

PROVIDERS = [f"00000000-0000-4000-a000-{number:012d}" for number in range(1, 6)]
CONSUMERS = [f"00000000-0000-4000-b000-{number:012d}" for number in range(1, 4)]
CLASSES = ["VCPU", "MEMORY_MB", "VGPU", "CUSTOM_FPGA", "CUSTOM_GONE"]
TRAITS = ["HW_CPU_X86_AVX2", "HW_CPU_X86_SSE", "MISC_SHARES_VIA_AGGREGATE", "CUSTOM_GOLD", "CUSTOM_RAW"]
INCOMPLETE = "00000000-0000-0000-0000-000000000000"


def minors(least=0):
    return st.sampled_from([39, 39, 39, *range(least, 39)])


providers = st.sampled_from(PROVIDERS)
parents = st.none() | providers
consumers = st.sampled_from(CONSUMERS)
# Mostly existing objects, so that most steps are accepted.
classes = st.sampled_from([*CLASSES[:4] * 6, CLASSES[4]])
names = st.integers(1, 5).map("n{}".format)
#: Relative to the current generation.
offsets = st.sampled_from([0] * 9 + [-1, 1])
inventories = st.fixed_dictionaries(
    # Each has at least one unit: before 1.26 an inventory without any is refused.
    {"total": st.integers(3, 9)},
    optional={
        "reserved": st.integers(0, 1),
        "min_unit": st.integers(1, 2),
        "max_unit": st.integers(2, 6),
        "step_size": st.integers(1, 2),
        "allocation_ratio": st.sampled_from([0.5, 1.0, 1.5, 2.0]),
    },
)
offers = st.dictionaries(classes, inventories, max_size=3)
#: (index of a provider, index of a class, units), with each index modulo the existing objects, so that most claims fit.
allocations = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 3)), max_size=2)
wishes = st.tuples(allocations, st.sampled_from(["red", "blue"]), offsets, st.sampled_from(["INSTANCE", "MIGRATION"]))

DEFAULTS = {"reserved": 0, "min_unit": 1, "max_unit": 2**31 - 1, "step_size": 1, "allocation_ratio": 1.0}


class WholeApi(RuleBasedStateMachine):
    #: One server for all examples, emptied before each.
    server: Ours

    def __init__(self):
        super().__init__()
        self.server.empty()
        self.model = Placement()
        self.worst: dict = {}

    def send_and_compare(self, expected: Response, minor, method, target, body=None):
        answered = self.server.ask(Asked(method, target, f"1.{minor}", body))
        response = Response(answered.status)
        if answered.status >= 400 and minor >= 23:
            response = Response(answered.status, answered.document["errors"][0]["code"])
        elif answered.status >= 400:
            expected = Response(expected.status)
        assert response == expected, f"{method} {target} (1.{minor}) {body}: {answered.body}"

    def generation(self, uuid, offset):
        known = self.model.providers.get(uuid)
        return max(0, (known.generation if known else 0) + offset)

    # --- providers ----------------------------------------------------------------------------------------------

    @initialize(tree=st.lists(st.tuples(st.integers(0, 4), offers), min_size=2, max_size=5))
    def a_small_world(self, tree):
        self.create_trait(39, "CUSTOM_GOLD")
        self.create_trait(39, "CUSTOM_RAW")
        self.create_class(39, "CUSTOM_FPGA")
        for number, (parent, offered) in enumerate(tree):
            self.create(39, PROVIDERS[number], f"n{number + 1}", PROVIDERS[parent] if parent < number else None)
            known = {name: one for name, one in offered.items() if name != "CUSTOM_GONE"}
            self.set_inventories(39, PROVIDERS[number], 0, known)

    @rule(minor=minors(), uuid=providers, name=names, parent=parents)
    def create(self, minor, uuid, name, parent):
        body = {"name": name, "uuid": uuid} | ({} if parent is None else {"parent_provider_uuid": parent})
        self.send_and_compare(self.model.create(minor, uuid, name, parent), minor, "POST", "/resource_providers", body)

    @rule(minor=minors(), uuid=providers, name=names, parent=parents)
    def move(self, minor, uuid, name, parent):
        response = self.model.update(minor, uuid, name, parent)
        body = {"name": name, "parent_provider_uuid": parent}
        self.send_and_compare(response, minor, "PUT", f"/resource_providers/{uuid}", body)

    @rule(minor=minors(), uuid=providers, name=names)
    def rename(self, minor, uuid, name):
        self.send_and_compare(
            self.model.update(minor, uuid, name), minor, "PUT", f"/resource_providers/{uuid}", {"name": name}
        )

    @rule(minor=minors(), uuid=providers)
    def delete(self, minor, uuid):
        self.send_and_compare(self.model.delete(minor, uuid), minor, "DELETE", f"/resource_providers/{uuid}")

    # --- inventories --------------------------------------------------------------------------------------------

    @rule(minor=minors(), uuid=providers, offset=offsets, offered=offers)
    def set_inventories(self, minor, uuid, offset, offered):
        generation = self.generation(uuid, offset)
        full = {name: DEFAULTS | one for name, one in offered.items()}
        body = {"resource_provider_generation": generation, "inventories": offered}
        response = self.model.set_inventories(minor, uuid, generation, full)
        self.send_and_compare(response, minor, "PUT", f"/resource_providers/{uuid}/inventories", body)

    @rule(minor=minors(), uuid=providers)
    def clear_inventories(self, minor, uuid):
        self.send_and_compare(
            self.model.clear_inventories(minor, uuid), minor, "DELETE", f"/resource_providers/{uuid}/inventories"
        )

    @rule(minor=minors(), uuid=providers, name=classes, inventory=inventories)
    def add_inventory(self, minor, uuid, name, inventory):
        response = self.model.add_inventory(minor, uuid, name, DEFAULTS | inventory)
        body = {"resource_class": name, **inventory}
        self.send_and_compare(response, minor, "POST", f"/resource_providers/{uuid}/inventories", body)

    @rule(minor=minors(), uuid=providers, name=classes, offset=offsets, inventory=inventories)
    def update_inventory(self, minor, uuid, name, offset, inventory):
        generation = self.generation(uuid, offset)
        response = self.model.update_inventory(minor, uuid, name, generation, DEFAULTS | inventory)
        body = {"resource_provider_generation": generation, **inventory}
        self.send_and_compare(response, minor, "PUT", f"/resource_providers/{uuid}/inventories/{name}", body)

    @rule(minor=minors(), uuid=providers, name=classes)
    def delete_inventory(self, minor, uuid, name):
        response = self.model.delete_inventory(minor, uuid, name)
        self.send_and_compare(response, minor, "DELETE", f"/resource_providers/{uuid}/inventories/{name}")

    # --- traits, aggregates, names ------------------------------------------------------------------------------

    @rule(minor=minors(6), uuid=providers, offset=offsets, traits=st.sets(st.sampled_from(TRAITS), max_size=3))
    def set_traits(self, minor, uuid, offset, traits):
        generation = self.generation(uuid, offset)
        body = {"resource_provider_generation": generation, "traits": sorted(traits)}
        response = self.model.set_traits(minor, uuid, generation, traits)
        self.send_and_compare(response, minor, "PUT", f"/resource_providers/{uuid}/traits", body)

    @rule(minor=minors(6), uuid=providers)
    def clear_traits(self, minor, uuid):
        self.send_and_compare(
            self.model.clear_traits(minor, uuid), minor, "DELETE", f"/resource_providers/{uuid}/traits"
        )

    @rule(minor=minors(1), uuid=providers, offset=offsets, members=st.sets(st.sampled_from(AGGREGATES), max_size=2))
    def set_aggregates(self, minor, uuid, offset, members):
        generation = self.generation(uuid, offset)
        body = sorted(members)
        if minor >= 19:
            body = {"resource_provider_generation": generation, "aggregates": body}
        response = self.model.set_aggregates(minor, uuid, generation, members)
        self.send_and_compare(response, minor, "PUT", f"/resource_providers/{uuid}/aggregates", body)

    @rule(minor=minors(2), name=st.sampled_from(CLASSES[3:]))
    def create_class(self, minor, name):
        self.send_and_compare(self.model.create_class(minor, name), minor, "POST", "/resource_classes", {"name": name})

    @rule(minor=minors(7), name=st.sampled_from(CLASSES[3:]))
    def ensure_class(self, minor, name):
        self.send_and_compare(self.model.ensure_class(minor, name), minor, "PUT", f"/resource_classes/{name}")

    @rule(minor=st.integers(2, 6), name=st.sampled_from(CLASSES[2:]), new=st.sampled_from(CLASSES[3:]))
    def rename_class(self, minor, name, new):
        response = self.model.rename_class(minor, name, new)
        self.send_and_compare(response, minor, "PUT", f"/resource_classes/{name}", {"name": new})

    @rule(minor=minors(2), name=st.sampled_from(CLASSES[2:]))
    def delete_class(self, minor, name):
        self.send_and_compare(self.model.delete_class(minor, name), minor, "DELETE", f"/resource_classes/{name}")

    @rule(minor=minors(6), name=st.sampled_from(TRAITS[3:]))
    def create_trait(self, minor, name):
        self.send_and_compare(self.model.create_trait(minor, name), minor, "PUT", f"/traits/{name}")

    @rule(minor=minors(6), name=st.sampled_from(TRAITS[2:]))
    def delete_trait(self, minor, name):
        self.send_and_compare(self.model.delete_trait(minor, name), minor, "DELETE", f"/traits/{name}")

    # --- claims -------------------------------------------------------------------------------------------------

    def allocations(self, drawn):
        """{provider: {class: units}}"""
        offering = [uuid for uuid, one in self.model.providers.items() if one.inventories]
        wanted = {}
        for place, number, units in drawn:
            if place == 5 or not offering:
                uuid, name = PROVIDERS[number], CLASSES[number]
            else:
                uuid = offering[place % len(offering)]
                there = sorted(self.model.providers[uuid].inventories)
                name = there[number % len(there)]
            wanted.setdefault(uuid, {})[name] = units
        return wanted

    def wish(self, minor, consumer, drawn):
        """(the model's argument, the body)"""
        drawn_allocations, project, offset, kind = drawn
        wanted = self.allocations(drawn_allocations)
        known = self.model.consumers.get(consumer)
        generation = (
            (known.generation if known else None) if not offset else (known.generation if known else 0) + offset
        )
        body = {"allocations": {uuid: {"resources": one} for uuid, one in wanted.items()}}
        if minor < 12:
            listed = [{"resource_provider": {"uuid": uuid}, "resources": one} for uuid, one in wanted.items()]
            body = {"allocations": listed}
        if minor >= 8:
            body |= {"project_id": project, "user_id": "alice"}
        if minor >= 28:
            body["consumer_generation"] = generation
        if minor >= 38:
            body["consumer_type"] = kind
        owner, user = (project, "alice") if minor >= 8 else (INCOMPLETE, INCOMPLETE)
        return WantedAllocations(wanted, owner, user, generation, kind if minor >= 38 else None), body

    @rule(minor=minors(), consumer=consumers, drawn=wishes)
    def claim(self, minor, consumer, drawn):
        wish, body = self.wish(minor, consumer, drawn)
        if wish.allocations or minor >= 28:
            self.send_and_compare(
                self.model.claim(minor, {consumer: wish}), minor, "PUT", f"/allocations/{consumer}", body
            )

    @precondition(lambda self: self.model.consumers)
    @rule(place=st.integers(0, 2), by_put=st.booleans())
    def give_all_back(self, place, by_put):
        """An empty write, which unlike a release increases the generation."""
        holders = sorted(self.model.consumers)
        consumer = holders[place % len(holders)]
        wish, body = self.wish(39, consumer, ([], "red", 0, "INSTANCE"))
        response = self.model.claim(39, {consumer: wish})
        if by_put:
            self.send_and_compare(response, 39, "PUT", f"/allocations/{consumer}", body)
        else:
            self.send_and_compare(response, 39, "POST", "/allocations", {consumer: body})

    @rule(minor=minors(13), drawn=st.dictionaries(consumers, wishes, min_size=1))
    def claim_many(self, minor, drawn):
        made = {consumer: self.wish(minor, consumer, one) for consumer, one in drawn.items()}
        response = self.model.claim(minor, {consumer: wish for consumer, (wish, _) in made.items()})
        self.send_and_compare(
            response, minor, "POST", "/allocations", {consumer: body for consumer, (_, body) in made.items()}
        )

    @rule(minor=minors(), consumer=consumers)
    def release(self, minor, consumer):
        self.send_and_compare(self.model.release(minor, consumer), minor, "DELETE", f"/allocations/{consumer}")

    @rule(
        minor=minors(30),
        offered=st.dictionaries(providers, st.tuples(offsets, offers), min_size=1, max_size=2),
        drawn=st.dictionaries(consumers, wishes, max_size=2),
    )
    def reshape(self, minor, offered, drawn):
        known = self.model.classes
        wanted = {
            uuid: (self.generation(uuid, offset), {name: one for name, one in offer.items() if name in known})
            for uuid, (offset, offer) in offered.items()
        }
        made = {consumer: self.wish(minor, consumer, one) for consumer, one in drawn.items()}
        full = {
            uuid: (number, {name: DEFAULTS | one for name, one in offer.items()})
            for uuid, (number, offer) in wanted.items()
        }
        response = self.model.reshape(minor, full, {consumer: wish for consumer, (wish, _) in made.items()})
        inventories = {
            uuid: {"resource_provider_generation": number, "inventories": offer}
            for uuid, (number, offer) in wanted.items()
        }
        body = {"inventories": inventories, "allocations": {consumer: body for consumer, (_, body) in made.items()}}
        self.send_and_compare(response, minor, "POST", "/reshaper", body)

    # --- searching ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.providers)
    @rule(seed=st.integers(0, 2**32 - 1))
    def search(self, seed):
        query = candidates_query(Dice(seed), 39)
        answered = self.server.ask(Asked("GET", f"/allocation_candidates?{urlencode(query)}"))
        if answered.status == 400:
            return  # tests/differential compares its texts with the peer's
        try:
            request = parse_request(query, (1, 39))
        except Invalid as error:
            raise AssertionError(f"200 for {query}: {error}") from error
        found = [as_shape(one) for one in answered.document["allocation_requests"]]
        assert len(found) == len(set(found))
        assert set(found) == slow(as_providers(self.model), request), query

    # --- invariants --------------------------------------------------------------------------------------

    def read(self, target):
        answered = self.server.ask(Asked("GET", target))
        return answered.status, answered.document if answered.status == 200 else None

    @invariant()
    def every_get_equals_the_model(self):
        shown = {one["uuid"]: one for one in self.read("/resource_providers")[1]["resource_providers"]}
        assert shown.keys() == self.model.providers.keys()
        for uuid in PROVIDERS:
            self.check_provider(uuid, shown.get(uuid))
        for uuid in CONSUMERS:
            known = self.model.consumers.get(uuid)
            document = self.read(f"/allocations/{uuid}")[1]
            assert document == ({"allocations": {}} if known is None else self.shown_consumer(known))
        custom = {one["name"] for one in self.read("/resource_classes")[1]["resource_classes"]}
        assert custom & set(CLASSES) == self.model.classes & set(CLASSES)
        assert set(self.read("/traits")[1]["traits"]) & set(TRAITS) == self.model.traits & set(TRAITS)
        for project in ("red", "blue", INCOMPLETE):
            assert self.read(f"/usages?project_id={project}")[1]["usages"] == self.shown_usages(project)

    def check_provider(self, uuid, shown):
        url = f"/resource_providers/{uuid}"
        known = self.model.providers.get(uuid)
        if known is None:
            assert self.read(url)[0] == self.read(f"{url}/inventories")[0] == 404
            return
        expected = (known.name, known.generation, known.parent, self.model.root(uuid))
        keys = ("name", "generation", "parent_provider_uuid", "root_provider_uuid")
        assert tuple(shown[key] for key in keys) == expected
        generation = {"resource_provider_generation": known.generation}
        used = {name: self.model.used(uuid, name) for name in known.inventories}
        assert self.read(url)[1] == shown
        assert self.read(f"{url}/inventories")[1] == generation | {"inventories": known.inventories}
        assert self.read(f"{url}/usages")[1] == generation | {"usages": used}
        assert as_set(self.read(f"{url}/traits")[1], "traits") == generation | {"traits": known.traits}
        assert as_set(self.read(f"{url}/aggregates")[1], "aggregates") == generation | {"aggregates": known.aggregates}
        holders = {
            consumer: {"resources": one.allocations[uuid], "consumer_generation": one.generation}
            for consumer, one in self.model.consumers.items()
            if uuid in one.allocations
        }
        assert self.read(f"{url}/allocations")[1] == generation | {"allocations": holders}

    def shown_consumer(self, known):
        return {
            "allocations": {
                uuid: {"resources": one, "generation": self.model.providers[uuid].generation}
                for uuid, one in known.allocations.items()
            },
            "project_id": known.project,
            "user_id": known.user,
            "consumer_generation": known.generation,
            "consumer_type": known.type or "unknown",
        }

    def shown_usages(self, project):
        usages = {}
        for one in self.model.consumers.values():
            if one.project == project:
                of_type = usages.setdefault(one.type or "unknown", {"consumer_count": 0})
                of_type["consumer_count"] += 1
                for amounts in one.allocations.values():
                    for name, units in amounts.items():
                        of_type[name] = of_type.get(name, 0) + units
        return usages

    @invariant()
    def usage_exceeds_capacity_only_after_an_inventory_was_reduced(self):
        used = {
            (uuid, name): self.model.used(uuid, name)
            for uuid, one in self.model.providers.items()
            for name in one.inventories
        }
        for key, units in used.items():
            assert units <= max(self.model.capacity(*key), self.worst.get(key, 0))
        self.worst = used

    @invariant()
    def the_forest_in_memory_equals_the_database(self):
        fresh = PlacementService(self.server.engine, SystemClock(), RandomIds())
        assert content_by_uuid(self.server.service.providers.forest()) == content_by_uuid(fresh.providers.forest())


def as_set(document, key):
    return document | {key: set(document[key])}


def as_shape(candidate):
    """In the format of `slow`: (allocations, mappings)."""
    allocations = frozenset(
        ((uuid, name), units)
        for uuid, one in candidate["allocations"].items()
        for name, units in one["resources"].items()
    )
    return allocations, frozenset((suffix, frozenset(uuids)) for suffix, uuids in candidate["mappings"].items())


def as_providers(model):
    ids = {uuid: number for number, uuid in enumerate(model.providers, 1)}
    return [
        real.Provider(
            id=ids[uuid],
            uuid=uuid,
            name=one.name,
            generation=one.generation,
            revision=0,
            parent_id=None if one.parent is None else ids[one.parent],
            root_id=ids[model.root(uuid)],
            inventories={name: real.Inventory(**inventory) for name, inventory in one.inventories.items()},
            used={name: model.used(uuid, name) for name in one.inventories},
            traits=frozenset(one.traits),
            aggregates=frozenset(one.aggregates),
        )
        for uuid, one in model.providers.items()
    ]


EXAMPLES = int(os.environ.get("MOORAGE_STATE_MACHINE_EXAMPLES", "25"))


def test_the_whole_api_answers_like_the_simple_model(tmp_path):
    with Ours(tmp_path) as server:
        WholeApi.server = server
        run_state_machine_as_test(
            WholeApi,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
            ),
        )
