"""Many clients that write and read the same few objects at once, through several processes, and record the answers.

The objects: two roots, a provider that moves between them with a child below it, a spare provider that is created and
deleted, two providers between which a class of inventory is reshaped, and fleets: many new consumers in one request,
mostly on a provider with capacity for some of them. The actions of a client depend on the seed, its number, and the
answers.
"""

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from random import Random
from urllib.parse import urlsplit

from tests.system.placement.calls import Call

ROOTS = [f"00000000-0000-4000-a000-00000000000{number}" for number in (1, 2)]
MOVED, CHILD, SPARE, WIDE = (f"00000000-0000-4000-a000-00000000000{number}" for number in (3, 4, 5, 6))
PROVIDERS = [*ROOTS, MOVED, CHILD, SPARE, WIDE]
CONSUMERS = [f"00000000-0000-4000-b000-{number:012d}" for number in range(1, 9)]
#: The minimum number of consumers in a large claim.
LARGE = 8
#: Each client has one consumer, and sometimes tries to use another client's.
FLEETS = [[f"00000000-0000-4000-c000-{fleet:04d}{number:08d}" for number in range(4 * LARGE)] for fleet in range(8)]
CAPACITY = 6
WIDE_CAPACITY = 16 * LARGE

_HEADERS = {
    "x-auth-token": "admin",
    "x-roles": "admin,service",
    "openstack-api-version": "placement 1.39",
    "content-type": "application/json",
}


class Client:
    """Sends each call to a random process, each on a new connection, so that none is closed for being idle.

    `urls` may change meanwhile; open requests to a removed process are completed.
    """

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        random: Random,
        calls: list[Call],
        fleet: Sequence[str] = (),
        chances: "Chances | None" = None,
    ) -> None:
        self._name = name
        self._random = random
        self._calls = calls
        self._urls = urls
        self._fleet = fleet
        self._chances = chances or {}
        self._claimed: list[str] = []  #: consumers of a fleet that this client has claimed

    def call(self, kind: str, method: str, path: str, subject: str = "", body: Mapping | None = None) -> Call:
        process = urlsplit(self._random.choice(self._urls))
        connection = http.client.HTTPConnection(process.netloc, timeout=60)
        with contextlib.closing(connection):
            start = time.monotonic()
            connection.request(method, process.path + path, None if body is None else json.dumps(body), _HEADERS)
            response = connection.getresponse()
            content = response.read()
            end = time.monotonic()
        answer = json.loads(content) if content else {}
        client = f"{self._name} through {process.netloc}"
        made = Call(kind, subject, start, end, response.status, body or {}, answer, client)
        self._calls.append(made)
        return made

    # --- actions ------------------------------------------------------------------------------------------------

    def act(self) -> None:
        self._random.choices(list(self._chances), list(self._chances.values()))[0](self)

    def usages(self, uuid: str | None = None) -> Call:
        uuid = uuid or self._random.choice(PROVIDERS)
        return self.call("usages", "GET", f"/resource_providers/{uuid}/usages", uuid)

    def holdings(self, consumer: str | None = None) -> Call:
        consumer = consumer or self._random.choice(CONSUMERS)
        return self.call("holdings", "GET", f"/allocations/{consumer}", consumer)

    def place(self) -> Call:
        uuid = self._random.choice([MOVED, CHILD])
        return self.call("place", "GET", f"/resource_providers/{uuid}", uuid)

    def move(self) -> Call:
        body = {"name": MOVED, "parent_provider_uuid": self._random.choice(ROOTS)}
        return self.call("move", "PUT", f"/resource_providers/{MOVED}", MOVED, body)

    def offer(self) -> None:
        uuid = self._random.choice(PROVIDERS)
        seen = self.usages(uuid)
        if seen.accepted:
            totals = {"VCPU": _capacity(uuid) + self._random.choice([-3, 0, 0, 2])}
            if "VGPU" in seen.answer["usages"]:
                totals["VGPU"] = CAPACITY
            self.set_inventories(uuid, seen.answer["resource_provider_generation"], totals)

    def set_inventories(self, uuid: str, generation: int, totals: Mapping[str, int]) -> Call:
        body = {"resource_provider_generation": generation, "inventories": _inventories(totals)}
        return self.call("offer", "PUT", f"/resource_providers/{uuid}/inventories", uuid, body)

    def claim(self) -> None:
        """Claims for one consumer by PUT or POST, with a generation that was just read or is guessed."""
        consumer = self._random.choice(CONSUMERS)
        wish = self._wish(self.holdings(consumer), self._some_allocations())
        if self._random.random() < 0.5:
            self.call("claim", "POST", "/allocations", "", {consumer: wish})
        else:
            self._put(consumer, wish)

    def replace(self) -> None:
        """Moves one consumer's allocations to another, as in a migration, or gives both new ones."""
        first, second = self._random.sample(CONSUMERS, 2)
        seen, other = self.holdings(first), self.holdings(second)
        held = {uuid: {"resources": one["resources"]} for uuid, one in seen.answer["allocations"].items()}
        left = {} if self._random.random() < 0.7 else self._some_allocations()
        self.call("claim", "POST", "/allocations", "", {second: self._wish(other, held), first: self._wish(seen, left)})

    def claim_fleet(self) -> None:
        """Claims for many consumers by one POST, as if all were new. Some may exist because another client created
        them, and some may not fit; then all are refused. Or deletes everything that earlier calls of this kind have
        claimed.
        """
        fleet = self._random.choice(FLEETS) if self._random.random() < 0.1 else self._fleet
        free = [uuid for uuid in fleet if uuid not in self._claimed]
        if len(free) < 2 * LARGE or (self._claimed and self._random.random() < 0.3):
            body = {uuid: _wished({}, 1) for uuid in self._claimed}
            if self.call("claim", "POST", "/allocations", "", body).accepted:
                self._claimed = []
            return
        consumers = self._random.sample(free, self._random.randint(LARGE, 2 * LARGE))
        body = {uuid: _wished({WIDE: {"resources": {"VCPU": 1}}}, None) for uuid in consumers}
        if self._random.random() < 0.3:
            small = {self._random.choice(ROOTS): {"resources": {"VCPU": self._random.randint(1, 3)}}}
            body[consumers[0]] = _wished(small, None)
        if self._random.random() < 0.05:
            body[self._random.choice(CONSUMERS)] = _wished({WIDE: {"resources": {"VCPU": 1}}}, None)
        if self.call("claim", "POST", "/allocations", "", body).accepted:
            self._claimed += consumers

    def release(self) -> None:
        consumer = self._random.choice(CONSUMERS)
        self.call("release", "DELETE", f"/allocations/{consumer}", consumer)

    def come_and_go(self) -> None:
        """Deletes the spare provider, after its allocations if it has any, or creates it."""
        if self._random.random() < 0.5:
            if not self.delete_spare().accepted:
                held = self.call("holders", "GET", f"/resource_providers/{SPARE}/allocations", SPARE)
                for consumer in held.answer.get("allocations", {}):
                    self.call("release", "DELETE", f"/allocations/{consumer}", consumer)
                self.delete_spare()
        elif self.create(SPARE, None).accepted:
            self.set_inventories(SPARE, 0, {"VCPU": CAPACITY})

    def delete_spare(self) -> Call:
        return self.call("delete", "DELETE", f"/resource_providers/{SPARE}", SPARE)

    def create(self, uuid: str, parent: str | None) -> Call:
        body = {"name": uuid, "uuid": uuid, "parent_provider_uuid": parent}
        return self.call("create", "POST", "/resource_providers", uuid, body)

    def reshape(self) -> None:
        """VGPU moves from one root to the other, with all its allocations."""
        here, there = self._random.sample(ROOTS, 2)
        holders = self.call("holders", "GET", f"/resource_providers/{here}/allocations", here).answer["allocations"]
        moving = [consumer for consumer, one in holders.items() if "VGPU" in one["resources"]]
        allocations = {}
        for consumer in moving:
            held = self.holdings(consumer)
            if held.answer["allocations"]:
                allocations[consumer] = self._wish(held, _with_gpus_at(there, held.answer["allocations"]))
        # Read last, because this generation is the first to become old.
        seen = {uuid: self.usages(uuid).answer for uuid in (here, there)}
        totals = {here: {"VCPU": CAPACITY}, there: {"VCPU": CAPACITY, "VGPU": CAPACITY}}
        inventories = {
            uuid: {
                "resource_provider_generation": seen[uuid]["resource_provider_generation"],
                "inventories": _inventories(totals[uuid]),
            }
            for uuid in (here, there)
        }
        self.call("reshape", "POST", "/reshaper", "", {"inventories": inventories, "allocations": allocations})

    def _put(self, consumer: str, wish: Mapping) -> None:
        """Sends a PUT, and records it as the equivalent POST."""
        made = self.call("put", "PUT", f"/allocations/{consumer}", consumer, wish)
        self._calls[-1:] = [
            Call("claim", "", made.start, made.end, made.status, {consumer: wish}, made.answer, made.client)
        ]

    def _wish(self, seen: Call, allocations: Mapping) -> dict:
        generation = seen.answer.get("consumer_generation")
        if self._random.random() < 0.05:
            generation = None if generation else 3
        return _wished(allocations, generation)

    def _some_allocations(self) -> dict:
        wanted: dict = {}
        for uuid in self._random.sample(PROVIDERS, self._random.choice([0, 1, 1, 1, 2])):
            name = "VGPU" if uuid in ROOTS and self._random.random() < 0.3 else "VCPU"
            wanted[uuid] = {"resources": {name: self._random.randint(1, 3)}}
        return wanted


Chances = Mapping[Callable[[Client], object], int]

CHANCES: Chances = {
    Client.claim: 30,
    Client.claim_fleet: 20,
    Client.replace: 12,
    Client.release: 8,
    Client.offer: 10,
    Client.reshape: 8,
    Client.move: 6,
    Client.come_and_go: 9,
    Client.usages: 12,
    Client.holdings: 8,
    Client.place: 8,
}
#: Probabilities of the actions with mostly large claims.
CHANCES_OF_FLEETS: Chances = dict.fromkeys(CHANCES, 2) | {Client.claim_fleet: 60, Client.usages: 8, Client.holdings: 8}


def run_clients(
    urls: Sequence[str],
    *,
    seed: int,
    clients: int = 8,
    acts: int = 60,
    chances: Chances = CHANCES,
    pause_s: float = 0.0,
    meanwhile: Callable[[], object] | None = None,
) -> list[Call]:
    """Returns all recorded calls, each client's in order, after those that set up the world and before those that read
    the final state.

    `pause_s`: the pause of each client after each action. Clients continue beyond `acts` until `meanwhile` returns.
    """
    record: list[Call] = []
    first = Client("set-up", urls, Random(seed), record)
    _set_up(first)
    parts = [[] for _ in range(clients)]
    others = [
        Client(f"client {number}", urls, Random(f"{seed}-{number}"), part, FLEETS[number % len(FLEETS)], chances)
        for number, part in enumerate(parts)
    ]
    failures: list[BaseException] = []
    ended = threading.Event()

    def run(client: Client) -> None:
        try:
            done = 0
            while done < acts or not ended.is_set():
                client.act()
                time.sleep(pause_s)
                done += 1
        except BaseException as failure:  # noqa: BLE001 - the thread that joins this one raises it
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(client,)) for client in others]
    for thread in threads:
        thread.start()
    try:
        if meanwhile is not None:
            meanwhile()
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    for part in parts:
        record += part
    for _ in urls:
        _look_at_all(first)
    for consumer in chain.from_iterable(FLEETS):
        first.holdings(consumer)
    return record


def _set_up(client: Client) -> None:
    parents = {ROOTS[0]: None, ROOTS[1]: None, MOVED: ROOTS[0], CHILD: MOVED, SPARE: None, WIDE: None}
    for uuid, parent in parents.items():
        client.create(uuid, parent)
        totals = {"VCPU": _capacity(uuid)}
        client.set_inventories(uuid, 0, totals | {"VGPU": CAPACITY} if uuid == ROOTS[0] else totals)


def _look_at_all(client: Client) -> None:
    for uuid in PROVIDERS:
        client.usages(uuid)
    for consumer in CONSUMERS:
        client.holdings(consumer)
    client.place()


def _capacity(uuid: str) -> int:
    return WIDE_CAPACITY if uuid == WIDE else CAPACITY


def _wished(allocations: Mapping, generation: int | None) -> dict:
    return {
        "allocations": allocations,
        "project_id": "red",
        "user_id": "alice",
        "consumer_generation": generation,
        "consumer_type": "INSTANCE",
    }


def _inventories(totals: Mapping[str, int]) -> dict:
    return {name: {"total": total} for name, total in totals.items()}


def _with_gpus_at(uuid: str, allocations: Mapping) -> dict:
    moved: dict = {}
    for provider, one in allocations.items():
        for name, units in one["resources"].items():
            at = moved.setdefault(uuid if name == "VGPU" else provider, {"resources": {}})["resources"]
            at[name] = at.get(name, 0) + units
    return moved
