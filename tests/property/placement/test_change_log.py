"""After random writes, a replay of the change log gives the state that the API shows.

The history routes give the state that the API showed at an earlier time.
"""

import contextlib
import json
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.placement.forest.change_entries import iso_utc
from moorage.placement.service.event_service import MIN_ROUND_PAUSE, RetentionTask
from tests.plane import InProcessPlane

#: Time between two writes. It exceeds the tolerated difference between clocks, so a time identifies a state.
STEP = timedelta(seconds=100)
UUIDS = [f"00000000-0000-4000-8000-{number:012}" for number in range(6)]
PROVIDERS, CONSUMERS = UUIDS[:3], UUIDS[3:]
CLASSES = ["VCPU", "CUSTOM_A"]
TRAITS = ["HW_CPU_X86_AVX2", "STORAGE_DISK_SSD"]

providers, consumers = st.sampled_from(PROVIDERS), st.sampled_from(CONSUMERS)
amounts = st.dictionaries(providers, st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 4), min_size=1))
inventories = st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 16))

WRITES = st.one_of(
    st.tuples(st.just("create"), providers, st.none() | providers),
    st.tuples(st.just("rename"), providers, st.sampled_from(["x", "y", "z"])),
    st.tuples(st.just("move"), providers, st.none() | providers),
    st.tuples(st.just("delete"), providers),
    st.tuples(st.just("offer"), providers, inventories),
    st.tuples(st.just("traits"), providers, st.sets(st.sampled_from(TRAITS))),
    st.tuples(st.just("aggregates"), providers, st.sets(st.sampled_from(UUIDS))),
    st.tuples(st.just("claim"), st.dictionaries(consumers, amounts, min_size=1)),
    st.tuples(st.just("release"), consumers),
    st.tuples(st.just("reshape"), providers, inventories, st.dictionaries(consumers, amounts)),
    st.tuples(st.just("make_class"), st.sampled_from(["CUSTOM_B", "CUSTOM_C"])),
    st.tuples(st.just("rename_class"), st.sampled_from(["CUSTOM_A", "CUSTOM_B"])),
)


class World:
    """Placement behind its API. A refused write changes nothing."""

    def __init__(self, plane):
        self.engine = plane.engine("placement")
        self.clock = plane.clock
        self.transport = plane.transport("/placement")
        self.send("POST", "/resource_classes", {"name": "CUSTOM_A"})

    def send(self, method, path, body=None, version="1.39", accept=(200, 201, 204, 400, 404, 409)):
        headers = {"x-auth-token": "admin", "x-roles": "admin,service", "content-type": "application/json"}
        headers["openstack-api-version"] = f"placement {version}"
        data = None if body is None else json.dumps(body).encode()
        answer = self.transport.send(method, path, headers, data)
        assert answer.status in accept, (method, path, body, answer.body)
        return json.loads(answer.body) if answer.body else None

    def get(self, path):
        return self.send("GET", path, accept=(200,))

    # --- writes

    def write(self, kind, *arguments):
        getattr(self, kind)(*arguments)
        self.clock.advance_to(self.clock.now() + STEP)

    def generation(self, uuid):
        return (self.send("GET", f"/resource_providers/{uuid}") or {}).get("generation", 0)

    def create(self, uuid, parent):
        body = {"name": f"n{uuid[-1]}", "uuid": uuid} | ({"parent_provider_uuid": parent} if parent else {})
        self.send("POST", "/resource_providers", body)

    def rename(self, uuid, name):
        parent = (self.send("GET", f"/resource_providers/{uuid}") or {}).get("parent_provider_uuid")
        self.send("PUT", f"/resource_providers/{uuid}", {"name": name, "parent_provider_uuid": parent})

    def move(self, uuid, parent):
        name = (self.send("GET", f"/resource_providers/{uuid}") or {}).get("name", "nobody")
        self.send("PUT", f"/resource_providers/{uuid}", {"name": name, "parent_provider_uuid": parent})

    def delete(self, uuid):
        self.send("DELETE", f"/resource_providers/{uuid}")

    def offer(self, uuid, totals):
        self.send("PUT", f"/resource_providers/{uuid}/inventories", self.inventories_body(uuid, totals))

    def inventories_body(self, uuid, totals):
        return {
            "resource_provider_generation": self.generation(uuid),
            "inventories": {name: {"total": total} for name, total in totals.items()},
        }

    def traits(self, uuid, names):
        body = {"resource_provider_generation": self.generation(uuid), "traits": sorted(names)}
        self.send("PUT", f"/resource_providers/{uuid}/traits", body)

    def aggregates(self, uuid, names):
        body = {"resource_provider_generation": self.generation(uuid), "aggregates": sorted(names)}
        self.send("PUT", f"/resource_providers/{uuid}/aggregates", body)

    def claim(self, wishes):
        self.send("POST", "/allocations", self.allocations_body(wishes))

    def allocations_body(self, wishes):
        return {
            consumer: {
                "allocations": {uuid: {"resources": resources} for uuid, resources in wanted.items()},
                "project_id": "red",
                "user_id": "alice",
                "consumer_type": "INSTANCE",
                "consumer_generation": self.get(f"/allocations/{consumer}").get("consumer_generation"),
            }
            for consumer, wanted in wishes.items()
        }

    def release(self, consumer):
        self.send("DELETE", f"/allocations/{consumer}")

    def reshape(self, uuid, totals, wishes):
        body = {
            "inventories": {uuid: self.inventories_body(uuid, totals)},
            "allocations": self.allocations_body(wishes),
        }
        self.send("POST", "/reshaper", body)

    def make_class(self, name):
        self.send("PUT", f"/resource_classes/{name}")

    def rename_class(self, name):
        self.send("PUT", f"/resource_classes/{name}", {"name": f"{name}X"}, version="1.2")

    # --- what the API shows

    def shown(self):
        """{uuid of a provider or consumer: its state, in the format of the change log}"""
        found = {}
        for provider in self.get("/resource_providers")["resource_providers"]:
            uuid = provider["uuid"]
            about = {name: self.get(f"/resource_providers/{uuid}/{name}")[name] for name in _PARTS}
            found[uuid] = {
                **{name: provider[name] for name in _OWN},
                "inventories": about["inventories"],
                "usages": {name: used for name, used in about["usages"].items() if used},
                "traits": sorted(about["traits"]),
                "aggregates": sorted(about["aggregates"]),
            }
        for uuid in CONSUMERS:
            held = self.get(f"/allocations/{uuid}")
            if held["allocations"]:
                found[uuid] = {
                    "generation": held["consumer_generation"],
                    **{name: held[name] for name in ("project_id", "user_id", "consumer_type")},
                    "allocations": {other: one["resources"] for other, one in held["allocations"].items()},
                }
        return found

    def as_of(self, moment):
        """Like `shown`, but at an earlier time and from the history routes."""
        found = {}
        for kind, uuids in (("providers", PROVIDERS), ("consumers", CONSUMERS)):
            for uuid in uuids:
                answer = self.send("GET", f"/moorage/v1/history/{kind}/{uuid}?at={iso_utc(moment)}")
                if "state" in answer:
                    found[uuid] = answer["state"]
        return found


_OWN = ("uuid", "name", "generation", "parent_provider_uuid", "root_provider_uuid")
_PARTS = ("inventories", "usages", "traits", "aggregates")


class Replica:
    """A copy of the state that is built from the change log alone, as a client builds it."""

    def __init__(self):
        self.states = {}
        self.seen = "0"

    def follow(self, world):
        """Applies all entries since the last call. Pages are small, so that some transactions span two pages."""
        while True:
            page = world.get(f"/moorage/v1/changes?since={self.seen}&limit=2")
            for entry in page["changes"]:
                self.apply(entry["kind"], entry["subject"], entry["document"])
            self.seen = page["next"]
            if page["is_last"]:
                return

    def apply(self, kind, subject, document):
        if kind == "usages":
            self.states[subject] = self.states[subject] | document
        elif subject is not None and document is None:
            self.states.pop(subject, None)
        elif subject is not None:
            self.states[subject] = document


@contextlib.contextmanager
def a_world():
    with tempfile.TemporaryDirectory() as directory, InProcessPlane(Path(directory), "placement") as plane:
        yield World(plane)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(WRITES, min_size=1, max_size=25))
def test_a_replay_of_the_change_log_gives_the_state_that_the_api_shows(writes):
    with a_world() as world:
        replica = Replica()
        for write in writes:
            world.write(*write)
            replica.follow(world)
            assert replica.states == world.shown(), write
        late = Replica()
        late.follow(world)
        assert late.states == replica.states


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(WRITES, min_size=1, max_size=20), st.data())
def test_history_gives_the_states_that_the_api_showed_even_after_retention_deleted_old_entries(writes, data):
    with a_world() as world:
        recorded = []
        for write in writes:
            at = world.clock.now()
            world.write(*write)
            recorded.append((at, world.shown()))
        task = RetentionTask(world.engine, world.clock, history=STEP * data.draw(st.integers(0, len(writes) + 1)))
        while task.run_once() < world.clock.now() + MIN_ROUND_PAUSE:
            pass
        oldest = world.clock.now() - task._history
        for at, states in recorded:
            if at >= oldest:
                assert world.as_of(at) == states
