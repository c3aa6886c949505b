"""The operations that `bench.load` drives. Each is built for one cloud before the clock starts."""

import json
import random
import re
import sys
import time
import uuid
from collections.abc import Generator, Sequence

from bench.cloud import AGGREGATES, CUSTOM_CLASSES, CUSTOM_TRAITS, HOT, Cloud, Provider, claim, identifier
from bench.load import Client, Operation, Tally
from bench.wire import Connection

Steps = Generator[None, None, None]

#: Number of hosts that small reads use, spread over the cloud.
READ_HOSTS = 256

#: Matches the first provider of a candidate at any position in the answer.
_CANDIDATE = re.compile(rb'"allocations":\s*\{\s*"([0-9a-f-]{36})"')


def reading(paths: Sequence[str]) -> Operation:
    """GETs the paths in turn, starting at a random one."""

    def steps(connection: Connection, client: Client, rng: random.Random, tally: Tally) -> Steps:
        requests = [connection.build("GET", path) for path in paths]
        at = rng.randrange(len(requests))
        yield
        while True:
            status, _ = connection.send(requests[at % len(requests)])
            tally[status] += 1
            at += 1
            yield

    return steps


def candidates(query: str, limit: int) -> Operation:
    return reading([f"/allocation_candidates?{query}&limit={limit}"])


def explaining(query: str, limit: int) -> Operation:
    return reading([f"/moorage/v1/explain?{query}&limit={limit}"])


def in_turn(*several: Operation) -> Operation:
    """Each step runs each operation once."""

    def steps(connection: Connection, client: Client, rng: random.Random, tally: Tally) -> Steps:
        begun = [one(connection, client, rng, tally) for one in several]
        for one in begun:
            next(one)
        yield
        while True:
            for one in begun:
                next(one)
            yield

    return steps


def claiming(cloud: Cloud, total: int | None = None) -> Operation:
    """PUTs new consumers on one host after the other; each client uses another order. `total`: the number of claims of
    all clients, after which they stop.
    """

    def steps(connection: Connection, client: Client, rng: random.Random, tally: Tally) -> Steps:
        number = client.number * 101
        amounts = {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}
        last = sys.maxsize if total is None else number + len(range(client.number, total, client.of))
        yield
        while number < last:
            held = cloud.held((number * 7919 + client.number) % cloud.hosts, amounts)
            tally[_claim(connection, _new(rng), held, number)] += 1
            number += 1
            yield

    return steps


def contending() -> Operation:
    """All clients claim from one provider. A 409 is counted and retried, as clients do."""

    def steps(connection: Connection, client: Client, rng: random.Random, tally: Tally) -> Steps:
        number = client.number
        yield
        while True:
            consumer = _new(rng)
            for _ in range(50):
                status = _claim(connection, consumer, {HOT: {"CUSTOM_HOT": 1}}, number)
                tally[status] += 1
                if status != 409:
                    break
            number += client.of
            yield

    return steps


def scheduling(query: str) -> Operation:
    """What a scheduler does for one server: requests up to 1,000 candidates, chooses one at random, and claims it."""

    def steps(connection: Connection, client: Client, rng: random.Random, tally: Tally) -> Steps:
        ask = connection.build("GET", f"/allocation_candidates?{query}&limit=1000")
        held = {"VCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 20}
        number = client.number * 101
        yield
        while True:
            status, answer = connection.send(ask)
            tally[status] += 1
            # Candidates come before summaries. If none follows the random position, the first one is taken, so the position must
            # be among the candidates. Otherwise half of all claims would fill one host, and later claims there would be refused.
            end = max(1, answer.find(b'"provider_summaries"'))
            chosen = _CANDIDATE.search(answer, rng.randrange(end)) or _CANDIDATE.search(answer)
            if chosen is None:
                raise RuntimeError(f"no candidate: {status} {answer[:200]!r}")
            tally[_claim(connection, _new(rng), {chosen[1].decode(): held}, number)] += 1
            number += 1
            yield

    return steps


def claiming_many(cloud: Cloud, size: int) -> Operation:
    """POSTs allocations of `size` new consumers on as many hosts."""

    def steps(connection: Connection, client: Client, rng: random.Random, tally: Tally) -> Steps:
        held = {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}
        number = client.number * 10007
        yield
        while True:
            body = {}
            for _ in range(size):
                body[_new(rng)] = claim({cloud.root(number * 7919 % cloud.hosts): held}, number)
                number += 1
            status, _ = connection.request("POST", "/allocations", body)
            tally[status] += 1
            yield

    return steps


def small_reads(cloud: Cloud) -> dict[str, list[str]]:
    """{kind: paths}"""
    hosts = [(number * 7919 + 5) % cloud.hosts for number in range(min(cloud.hosts, READ_HOSTS))]
    below = [f"/resource_providers/{cloud.root(host)}" for host in hosts]
    return {
        "provider": below,
        "by name": [f"/resource_providers?name={cloud.profile}-{host:06}" for host in hosts],
        "inventories": [f"{path}/inventories" for path in below],
        "usages": [f"{path}/usages" for path in below],
        "traits": [f"{path}/traits" for path in below],
        "aggregates": [f"{path}/aggregates" for path in below],
        "allocations of a provider": [f"{path}/allocations" for path in below],
        "allocations of a consumer": [f"/allocations/{cloud.consumer(host)}" for host in hosts],
    }


# ----------------------------------------------------------------------------------------- filling over HTTP


def names(connection: Connection) -> None:
    """Creates the custom classes and traits of all clouds."""
    for name in CUSTOM_CLASSES:
        _must(connection, "PUT", f"/resource_classes/{name}")
    for name in CUSTOM_TRAITS:
        _must(connection, "PUT", f"/traits/{name}")


def prepare(connection: Connection, cloud: Cloud) -> None:
    """Creates everything outside of hosts, including the names that all clients use at once."""
    names(connection)
    for provider in cloud.others():
        _load_provider(connection, provider)
    # Upstream sometimes answers 500 when several clients use an aggregate, project or user for the first time.
    warm = Provider(identifier("warm"), "warm", aggregates=AGGREGATES)
    _load_provider(connection, warm)
    _must(connection, "DELETE", f"/resource_providers/{warm.uuid}")
    for number in range(97):
        consumer = identifier("warm", number)
        _must(connection, "PUT", f"/allocations/{consumer}", claim({HOT: {"CUSTOM_HOT": 1}}, number))
        _must(connection, "DELETE", f"/allocations/{consumer}")


def loading(cloud: Cloud, hosts: int) -> Operation:
    """One step creates one host with all its providers: POST, PUT inventories, traits and aggregates of each."""

    def steps(connection: Connection, client: Client, rng: random.Random, tally: Tally) -> Steps:
        yield
        for host in range(client.number, hosts, client.of):
            for provider in cloud.providers(host):
                _load_provider(connection, provider)
                tally[200] += 1
            yield

    return steps


def loading_servers(cloud: Cloud, size: int = 50) -> Operation:
    def steps(connection: Connection, client: Client, rng: random.Random, tally: Tally) -> Steps:
        yield
        waiting: dict[str, object] = {}
        for host in range(client.number, cloud.hosts, client.of):
            waiting.update(cloud.servers(host))
            if len(waiting) >= size or host + client.of >= cloud.hosts:
                _must(connection, "POST", "/allocations", waiting)
                tally[204] += len(waiting)
                waiting = {}
                yield

    return steps


def _load_provider(connection: Connection, provider: Provider) -> None:
    created = {"uuid": provider.uuid, "name": provider.name}
    if provider.parent:
        created["parent_provider_uuid"] = provider.parent
    _must(connection, "POST", "/resource_providers", created)
    generation = 0
    parts = {"inventories": provider.inventories, "traits": provider.traits, "aggregates": provider.aggregates}
    for name, content in parts.items():
        if content:
            body = {name: content, "resource_provider_generation": generation}
            answer = _must(connection, "PUT", f"/resource_providers/{provider.uuid}/{name}", body)
            generation = json.loads(answer)["resource_provider_generation"]


def _must(connection: Connection, method: str, path: str, body: object = None) -> bytes:
    """Retries: under concurrent loading, upstream sometimes answers 500 or 409, and both can be repeated."""
    status, answer = 0, b""
    for attempt in range(30):
        status, answer = connection.request(method, path, body)
        if status < 300:
            return answer
        if status not in (409, 500, 503) or b"already exists" in answer:
            break
        time.sleep(0.01 * attempt)
    raise RuntimeError(f"{method} {path}: {status} {answer[:300]!r}")


def _claim(connection: Connection, consumer: str, held: dict[str, dict[str, int]], number: int) -> int:
    return connection.request("PUT", f"/allocations/{consumer}", claim(held, number))[0]


def _new(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))
