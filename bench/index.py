"""Measures the index alone, without database and HTTP: memory and time for a million hosts."""

import dataclasses
import gc
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Mapping

from bench.cloud import AGGREGATES, BASE_TRAITS, CUSTOM_TRAITS, FILTER, GENERATION_TRAITS, REQUEST
from bench.processes import resident_mib
from bench.table import Figure
from moorage.placement.api.handlers.answers import VERSIONS
from moorage.placement.api.handlers.candidates import candidates_body
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Inventory, NameTable, Provider
from moorage.placement.rules import allocation_writes
from moorage.placement.search import candidates
from moorage.placement.search.request import CandidateRequest, parse_request
from moorage.wire.http import Query

REPEATS = 30
CLAIMS = 2000

_OFFERED = {
    "VCPU": Inventory(64, allocation_ratio=16.0),
    "MEMORY_MB": Inventory(524288, reserved=4096, allocation_ratio=1.5),
    "DISK_GB": Inventory(4000, reserved=100),
}
_RARE = {**_OFFERED, "CUSTOM_RARE_WIDGET": Inventory(8)}


def figures(hosts: int, say: Callable[[Figure], None]) -> None:
    gc.collect()
    before = resident_mib()
    names = _names()
    started = time.process_time()
    providers = list(_providers(hosts))
    made = time.process_time()
    held = resident_mib()
    forest = Forest.build(providers, names, 1)
    built = time.process_time()
    del providers
    gc.collect()
    gc.freeze()  # as a server does after it has read its database
    after = resident_mib()
    per_host = (after - before) * 1024 * 1024 / hosts
    say(Figure(f"index of {hosts:,} hosts: objects made", f"{made - started:.1f} s", f"{held - before:,.0f} MiB"))
    say(Figure("... and built", f"{built - made:.1f} s", f"{after - before:,.0f} MiB, {per_host:,.0f} bytes per host"))
    queries = {
        "candidates, limit 10": f"{REQUEST}&limit=10",
        "candidates, limit 1,000": f"{REQUEST}&limit=1000",
        "candidates with traits and aggregates, limit 1,000": f"{REQUEST}{FILTER}&limit=1000",
        "candidates, rare class, limit 1,000": f"{REQUEST},CUSTOM_RARE_WIDGET:1&limit=1000",
    }
    for name, query in queries.items():
        say(_query(forest, name, query))
    forest, claimed = _claims(forest, hosts)
    say(claimed)
    say(_schedule(forest, hosts, queries["candidates, limit 1,000"]))


def _query(forest: Forest, name: str, query: str) -> Figure:
    request: CandidateRequest = parse_request(Query(query).pairs, VERSIONS.maximum)

    def ask() -> int:
        return len(candidates_body(VERSIONS.maximum, forest, request, candidates.find_candidates(forest, request)))

    first, size = _timed(ask)
    times = sorted(_timed(ask)[0] for _ in range(REPEATS))
    return Figure(
        name,
        f"{statistics.median(times) * 1e3:.2f} ms",
        f"worst of {REPEATS}: {times[-1] * 1e3:.2f} ms; the first: {first * 1e3:.0f} ms; {size:,} bytes",
    )


def _claims(forest: Forest, hosts: int) -> tuple[Forest, Figure]:
    """Claims, each on a different host."""
    times = []
    for number in range(CLAIMS):
        started = time.process_time()
        forest = _claimed(forest, number * 7919 % hosts + 1)
        times.append(time.process_time() - started)
    times.sort()
    text = f"{statistics.median(times) * 1e6:.0f} us"
    return forest, Figure(f"a claim decided and applied, of {CLAIMS:,}", text, f"worst: {times[-1] * 1e6:,.0f} us")


def _schedule(forest: Forest, hosts: int, query: str) -> Figure:
    """Searches after each claim, so that no cached result is valid."""
    request = parse_request(Query(query).pairs, VERSIONS.maximum)
    times = []
    for number in range(REPEATS * 5):
        started = time.process_time()
        candidates_body(VERSIONS.maximum, forest, request, candidates.find_candidates(forest, request))
        forest = _claimed(forest, number * 104729 % hosts + 1)
        times.append(time.process_time() - started)
    times.sort()
    return Figure(
        "candidates, limit 1,000, and a claim, in turns",
        f"{statistics.median(times) * 1e3:.2f} ms",
        f"worst of {len(times)}: {times[-1] * 1e3:.2f} ms",
    )


def _claimed(forest: Forest, provider_id: int) -> Forest:
    held = {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}
    decided = allocation_writes.decide_capacity(forest, {}, {"somebody": {provider_id: held}})
    if isinstance(decided, allocation_writes.Refusal):
        raise TypeError(decided.message)
    return forest.with_changes(_changed(forest, decided.used), sequence=forest.sequence + 1)


def _changed(forest: Forest, used: Mapping[int, Mapping[str, int]]) -> dict[int, Provider | None]:
    changed: dict[int, Provider | None] = {}
    for provider_id, after in used.items():
        provider = forest.by_id(provider_id)
        if provider is None:
            raise LookupError(provider_id)
        changed[provider_id] = dataclasses.replace(
            provider, used=after, revision=provider.revision + 1, generation=provider.generation + 1
        )
    return changed


def _timed(ask: Callable[[], int]) -> tuple[float, int]:
    started = time.process_time()
    answer = ask()
    return time.process_time() - started, answer


def _names() -> NameTable:
    traits = sorted({*BASE_TRAITS, *CUSTOM_TRAITS, *(name for some in GENERATION_TRAITS for name in some)})
    return NameTable(
        classes={name: number for number, name in enumerate(_RARE, 1)},
        traits={name: number for number, name in enumerate(traits, 1)},
    )


def _providers(hosts: int) -> Iterator[Provider]:
    """The providers of `bench.cloud`. Equal inventories and sets share one object, as after reading a database."""
    traits = [frozenset((*BASE_TRAITS, *some)) for some in GENERATION_TRAITS]
    aggregates = [frozenset((one,)) for one in AGGREGATES]
    for number in range(1, hosts + 1):
        yield Provider(
            id=number,
            uuid=str(uuid.UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128)),
            name=f"flat-{number:07}",
            generation=5,
            revision=5,
            parent_id=None,
            root_id=number,
            inventories=_RARE if number % 1000 == 500 else _OFFERED,
            used={"VCPU": number % 64, "MEMORY_MB": number % 64 * 2048, "DISK_GB": number % 64},
            traits=traits[number * 7919 % 4],
            aggregates=aggregates[number % 8],
        )
