"""Requests of which only one, or as many as fit, may succeed. They are sent to our service concurrently, and to
upstream Placement one after the other.

Chance decides which requests succeed. Their number, the refusals of the others and the final state do not depend on
chance: they must equal upstream's without concurrency. Upstream does not get them concurrently, because it then lets
more of them succeed, or a loser deletes the winner's consumer (docs/wire/differences.md, "Races").
"""

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import NamedTuple

import pytest

from tests.conformance.conform import our_servers_on, upstream_server
from tests.conformance.wire import Api, send
from tests.servers import temporary_database

pytestmark = [pytest.mark.slow, pytest.mark.conformance, pytest.mark.postgresql]

SEEDS = range(3)
#: The number of concurrent requests.
CROWD = 6

HOST, OTHER = (f"00000000-0000-4000-a000-00000000000{number}" for number in (1, 2))
CONSUMERS = [f"00000000-0000-4000-b000-{number:012d}" for number in range(1, CROWD + 1)]
HEADERS = {
    "x-auth-token": "admin",
    "x-roles": "admin,service",
    "accept": "application/json",
    "content-type": "application/json",
    "openstack-api-version": "placement 1.39",
}


def wish(units, generation=None, host=HOST):
    return {
        "allocations": {host: {"resources": {"VCPU": units}}},
        "project_id": "red",
        "user_id": "alice",
        "consumer_generation": generation,
        "consumer_type": "INSTANCE",
    }


def inventories(generation, total):
    return {"resource_provider_generation": generation, "inventories": {"VCPU": {"total": total}}}


def offer(uuid, total):
    return "PUT", f"/resource_providers/{uuid}/inventories", inventories(0, total)


class Race(NamedTuple):
    """`requests` are sent at once after those in `before`; `winners` of them succeed, and the others get `code`."""

    before: list
    requests: list
    winners: int = 1
    code: str = "placement.concurrent_update"


def last_units(dice):
    """Each request claims the same amount of a host that can satisfy only some of them."""
    units, winners = dice.randint(1, 4), dice.randint(1, CROWD - 1)
    requests = [("PUT", f"/allocations/{consumer}", wish(units)) for consumer in CONSUMERS]
    return Race([offer(HOST, units * winners + units - 1)], requests, winners, "placement.undefined_code")


def one_new_consumer(dice):
    return Race([offer(HOST, 100)], [("PUT", f"/allocations/{CONSUMERS[0]}", wish(dice.randint(1, 4)))] * CROWD)


def one_consumer_moves(dice):
    """All requests have the same generation of the consumer."""
    units = dice.randint(1, 4)
    before = [offer(HOST, 100), offer(OTHER, 100), ("PUT", f"/allocations/{CONSUMERS[0]}", wish(units))]
    return Race(before, [("POST", "/allocations", {CONSUMERS[0]: wish(units, 1, OTHER)})] * CROWD)


def one_generation_of_a_provider(dice):
    return Race([], [offer(HOST, dice.randint(1, 9))] * CROWD)


def one_reshape(dice):
    units = dice.randint(1, 4)
    moved = {HOST: {"resource_provider_generation": 2, "inventories": {}}, OTHER: inventories(0, 100)}
    body = {"inventories": moved, "allocations": {CONSUMERS[0]: wish(units, 1, OTHER)}}
    before = [offer(HOST, 100), ("PUT", f"/allocations/{CONSUMERS[0]}", wish(units))]
    return Race(before, [("POST", "/reshaper", body)] * CROWD)


def one_name(dice):
    name = f"name-4000-{dice.randint(1, 9)}"
    requests = [("POST", "/resource_providers", {"name": name, "uuid": consumer}) for consumer in CONSUMERS]
    return Race([], requests, code="placement.duplicate_name")


RACES = [last_units, one_new_consumer, one_consumer_moves, one_generation_of_a_provider, one_reshape, one_name]


@pytest.fixture(scope="module")
def servers():
    """(upstream's URL, URLs of two processes of ours)"""
    with (
        temporary_database("postgresql") as theirs,
        temporary_database("postgresql") as own,
        upstream_server(theirs) as upstream,
        our_servers_on(own, front="server") as ours,
    ):
        yield [upstream], list(ours.values())[:2]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", RACES)
def test_concurrent_requests_have_the_results_that_upstream_has_without_concurrency(servers, kind, seed):
    race = kind(Random(seed))
    place = f"-{10 + RACES.index(kind):x}{seed:03x}-"
    upstream, ours = servers
    theirs, left_by_upstream = _run(upstream, race, place, at_once=False)
    own, left = _run(ours, race, place, at_once=True)
    assert own == theirs
    assert _winners(own) == race.winners
    assert {answer for answer in own if answer[0] >= 300} == {(409, race.code)}
    assert left == left_by_upstream
    assert _is_consistent(left)


def _winners(answers):
    return sum(count for (status, _), count in answers.items() if status < 300)


def _is_consistent(left):
    """The consumers' allocations add up to the providers' usages."""
    offered, held, _ = left
    used = sum(sum(usages.values()) for _, _, usages in offered)
    units = {text: sum(sum(one["resources"].values()) for one in json.loads(text).values()) for text in held}
    return used == sum(units[text] * times for text, times in held.items())


def _run(urls, race, place, *, at_once):
    """The number of answers by (status, code), and the final state."""
    api = Api(urls[0])
    before, requests = json.loads(json.dumps([race.before, race.requests]).replace("-4000-", place))
    hosts, consumers = ([one.replace("-4000-", place) for one in some] for some in ((HOST, OTHER), CONSUMERS))
    for uuid in hosts:
        api("POST", "/resource_providers", "1.39", {"name": uuid, "uuid": uuid})
    for method, path, body in before:
        api(method, path, "1.39", body)
    answers, ready = [], threading.Barrier(CROWD if at_once else 1)

    def ask(number):
        method, path, body = requests[number]
        ready.wait()
        status, _, _, content = send(urls[number % len(urls)] + path, method, HEADERS, json.dumps(body).encode(), 120.0)
        code = json.loads(content)["errors"][0].get("code") if status >= 400 else None
        answers.append((status, code))

    with ThreadPoolExecutor(CROWD if at_once else 1) as pool:
        list(pool.map(ask, range(CROWD)))
    return Counter(answers), _final_state(api, hosts, consumers)


def _final_state(api, hosts, consumers):
    offered = [
        (api("GET", f"/resource_providers/{uuid}", "1.39")["generation"],
         api("GET", f"/resource_providers/{uuid}/inventories", "1.39")["inventories"],
         api("GET", f"/resource_providers/{uuid}/usages", "1.39")["usages"])
        for uuid in hosts
    ]  # fmt: skip
    held = [api("GET", f"/allocations/{consumer}", "1.39") for consumer in consumers]
    held = Counter(json.dumps(one.get("allocations"), sort_keys=True) for one in held)
    listed = api("GET", "/resource_providers", "1.39")["resource_providers"]
    return offered, held, sorted(one["name"] for one in listed if one["uuid"] in consumers)
