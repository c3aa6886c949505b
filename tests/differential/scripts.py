"""Random sequences of requests, each a function of its seed.

The probabilities are chosen so that most requests succeed, because nearly all freely composed requests violate some
rule. Names come from small pools, so that requests concern the same objects. The script does not know generations: a
text such as ``@provider UUID -1`` in a body stands for the generation before the current one. So every script contains
several clients with knowledge of different age, and a shortened script remains valid.
"""

from random import Random
from urllib.parse import urlencode

from tests.differential.sides import Asked

PROVIDERS = [f"00000000-0000-4000-a000-{number:012d}" for number in range(1, 9)]
CONSUMERS = [f"00000000-0000-4000-b000-{number:012d}" for number in range(1, 5)]
AGGREGATES = [f"00000000-0000-4000-c000-{number:012d}" for number in range(1, 4)]
NOWHERE = "00000000-0000-4000-d000-000000000001"

CLASSES = ["VCPU", "MEMORY_MB", "VGPU", "CUSTOM_FPGA"]
SHARING = "MISC_SHARES_VIA_AGGREGATE"
TRAITS = ["HW_CPU_X86_AVX2", "HW_CPU_X86_SSE", "CUSTOM_GOLD", "CUSTOM_RAW"]
PROJECTS = ["red", "blue"]
USERS = ["alice", "bob"]
SUFFIXES = ["1", "2", "_net", "-b"]

#: The microversions at which something changes; most requests have the newest.
MINORS = list(range(40))


class Dice(Random):
    """Probabilities by name."""

    def mostly(self, usual, *others):
        return usual if self.random() < 0.88 else self.choice(others)

    def rarely(self) -> bool:
        return self.random() < 0.05

    def some(self, items, least, most):
        return self.sample(items, self.randint(least, min(most, len(items))))

    def minor(self, least: int = 0) -> int:
        return 39 if self.random() < 0.5 else self.randint(least, 39)


def script(seed: int, length: int = 60) -> list[Asked]:
    """A world, then `length` random requests."""
    dice = Dice(seed)
    asked = list(_world(dice))
    kinds, weights = zip(*_KINDS, strict=True)
    asked += [dice.choices(kinds, weights)[0](dice) for _ in range(length)]
    return asked


def state() -> list[Asked]:
    """All GETs for the names in the pools."""
    asked = [Asked("GET", "/resource_providers"), Asked("GET", "/resource_classes"), Asked("GET", "/traits")]
    for uuid in PROVIDERS:
        url = f"/resource_providers/{uuid}"
        asked.append(Asked("GET", url))
        asked += [Asked("GET", f"{url}/{part}") for part in _PARTS]
    asked += [Asked("GET", f"/allocations/{uuid}") for uuid in CONSUMERS]
    asked += [Asked("GET", f"/usages?project_id={project}") for project in PROJECTS]
    return asked


_PARTS = ("inventories", "usages", "aggregates", "traits", "allocations")


# --- the world --------------------------------------------------------------------------------------------------


def _world(dice: Dice):
    yield Asked("POST", "/resource_classes", body={"name": "CUSTOM_FPGA"})
    for name in TRAITS[2:]:
        yield Asked("PUT", f"/traits/{name}")
    made: list[str] = []
    for number, uuid in enumerate(PROVIDERS[: dice.randint(2, 7)]):
        parent = dice.choice([None, *made, *made]) if dice.random() < 0.8 else None
        body = {"name": f"n{number}", "uuid": uuid}
        yield Asked(
            "POST", "/resource_providers", body=body if parent is None else body | {"parent_provider_uuid": parent}
        )
        made.append(uuid)
        if dice.random() < 0.85:
            yield _set_inventories(dice, uuid, 39)
        if dice.random() < 0.5:
            yield _set_traits(dice, uuid, 39)
        if dice.random() < 0.5:
            yield _set_aggregates(dice, uuid, 39)
    for consumer in dice.some(CONSUMERS, 0, 3):
        yield _claim(dice, consumer, 39)


def _provider(dice: Dice) -> str:
    return NOWHERE if dice.random() < 0.02 else dice.choice(PROVIDERS[: dice.choice([4, 8])])


def _generation(dice: Dice, uuid: str) -> str:
    return f"@provider {uuid} {dice.mostly(0, -1, 1)}"


def _inventory(dice: Dice, name: str) -> dict:
    if dice.rarely():
        return dice.choice(
            [
                {},
                {"total": 0},
                {"total": "4"},
                {"total": 4, "reserved": 4},
                {"total": 4, "reserved": 5},
                {"total": 4, "reserved": -1},
                {"total": 4, "min_unit": 0},
                {"total": 4, "allocation_ratio": "x"},
                {"total": 2**31},
                {"total": 4, "color": "blue"},
                {"total": 4, "min_unit": 3, "max_unit": 2},
                {"total": 4, "allocation_ratio": 0},
                {"total": 4, "allocation_ratio": -1},
                {"total": 4, "allocation_ratio": 1e39},
                {"total": 4, "step_size": 5},
            ]
        )
    many = 1024 if name == "MEMORY_MB" else 1
    body: dict = {"total": dice.randint(1, 16) * many}
    if dice.random() < 0.4:
        body["allocation_ratio"] = dice.choice([1.0, 0.5, 1.5, 2, 0.1, 16.0, 1.1, 0.7])
    if dice.random() < 0.3:
        body["reserved"] = dice.randint(0, min(3, body["total"] // many)) * many
    if dice.random() < 0.2:
        body["min_unit"] = dice.choice([1, 2, 3]) * many
    if dice.random() < 0.3:
        body["max_unit"] = dice.choice([1, 2, 4, 8]) * many
    if dice.random() < 0.2:
        body["step_size"] = dice.choice([1, 2, 3]) * many
    return body


def _class(dice: Dice) -> str:
    return (
        dice.choice(["CUSTOM_MADE", "CUSTOM_GONE", "DISK_GB", "vcpu", "CUSTOM_"])
        if dice.rarely()
        else dice.choice(CLASSES)
    )


def _trait(dice: Dice) -> str:
    return dice.choice(["CUSTOM_MADE", "CUSTOM_GONE", "HW_GPU_API_VULKAN"]) if dice.rarely() else dice.choice(TRAITS)


# --- providers --------------------------------------------------------------------------------------------------


def _create(dice: Dice) -> Asked:
    uuid, minor = dice.choice(PROVIDERS), dice.minor()
    body: dict = {"name": dice.mostly(f"n{PROVIDERS.index(uuid)}", "n1", "", "x" * 201, 5), "uuid": uuid}
    if dice.random() < 0.6:
        body["parent_provider_uuid"] = dice.mostly(dice.choice(PROVIDERS), None, uuid, NOWHERE, "x")
    if dice.rarely():
        body["color"] = "blue"
    return Asked("POST", "/resource_providers", f"1.{minor}", body)


def _update(dice: Dice) -> Asked:
    uuid, minor = _provider(dice), dice.minor()
    own = f"n{PROVIDERS.index(uuid)}" if uuid in PROVIDERS else "n"
    body: dict = {"name": dice.choice([own, f"{own}-b", dice.mostly(own, "n1", "n2", "")])}
    if dice.random() < 0.7:
        body["parent_provider_uuid"] = (
            dice.choice([None, *PROVIDERS]) if not dice.rarely() else dice.choice([uuid, NOWHERE])
        )
    return Asked("PUT", f"/resource_providers/{uuid}", f"1.{minor}", body)


def _delete(dice: Dice) -> Asked:
    return Asked("DELETE", f"/resource_providers/{_provider(dice)}", f"1.{dice.minor()}")


# --- inventories, traits, aggregates ----------------------------------------------------------------------------


def _set_inventories(dice: Dice, uuid: str | None = None, minor: int | None = None) -> Asked:
    uuid, minor = uuid or _provider(dice), dice.minor() if minor is None else minor
    offered = {name: _inventory(dice, name) for name in dict.fromkeys(_class(dice) for _ in range(dice.randint(0, 4)))}
    body = {"resource_provider_generation": _generation(dice, uuid), "inventories": offered}
    return Asked("PUT", f"/resource_providers/{uuid}/inventories", f"1.{minor}", body)


def _add_inventory(dice: Dice) -> Asked:
    uuid, name = _provider(dice), _class(dice)
    body = {"resource_class": name, **_inventory(dice, name)}
    if dice.random() < 0.2:
        body["resource_provider_generation"] = _generation(dice, uuid)
    return Asked("POST", f"/resource_providers/{uuid}/inventories", f"1.{dice.minor()}", body)


def _update_inventory(dice: Dice) -> Asked:
    uuid, name = _provider(dice), _class(dice)
    body = {"resource_provider_generation": _generation(dice, uuid), **_inventory(dice, name)}
    return Asked("PUT", f"/resource_providers/{uuid}/inventories/{name}", f"1.{dice.minor()}", body)


def _delete_inventory(dice: Dice) -> Asked:
    url = f"/resource_providers/{_provider(dice)}/inventories"
    return Asked("DELETE", dice.mostly(f"{url}/{_class(dice)}", url), f"1.{dice.minor()}")


def _set_traits(dice: Dice, uuid: str | None = None, minor: int | None = None) -> Asked:
    uuid, minor = uuid or _provider(dice), dice.minor(6) if minor is None else minor
    traits = sorted({_trait(dice) for _ in range(dice.randint(0, 3))})
    if dice.random() < 0.35:
        traits.append(SHARING)
    if dice.rarely() and traits:
        traits.append(traits[0])
    body = {"resource_provider_generation": _generation(dice, uuid), "traits": traits}
    return Asked("PUT", f"/resource_providers/{uuid}/traits", f"1.{minor}", body)


def _clear_traits(dice: Dice) -> Asked:
    return Asked("DELETE", f"/resource_providers/{_provider(dice)}/traits", f"1.{dice.minor(6)}")


def _set_aggregates(dice: Dice, uuid: str | None = None, minor: int | None = None) -> Asked:
    uuid, minor = uuid or _provider(dice), dice.minor(1) if minor is None else minor
    aggregates = dice.some(AGGREGATES, 0, 2)
    if dice.rarely():
        aggregates.append(dice.choice(["x", AGGREGATES[0]]))
    body: object = aggregates
    if minor >= 19:
        body = {"resource_provider_generation": _generation(dice, uuid), "aggregates": aggregates}
    return Asked("PUT", f"/resource_providers/{uuid}/aggregates", f"1.{minor}", body)


# --- names ------------------------------------------------------------------------------------------------------


def _names(dice: Dice) -> Asked:
    minor = dice.minor(1)
    kind = dice.choice(["resource_classes", "traits"])
    name = dice.choice(
        [
            "CUSTOM_MADE",
            "CUSTOM_MADE",
            "CUSTOM_GONE",
            "CUSTOM_FPGA",
            "CUSTOM_GOLD",
            "VCPU",
            "HW_CPU_X86_SSE",
            "CUSTOM_no",
            "made",
        ]
    )
    method = dice.choice(["PUT", "DELETE", "GET", "POST"])
    if method == "POST":
        return Asked("POST", "/resource_classes", f"1.{minor}", {"name": name})
    if method == "PUT" and kind == "resource_classes" and minor < 7:
        return Asked(
            "PUT", f"/resource_classes/{name}", f"1.{minor}", {"name": dice.choice(["CUSTOM_MADE", "CUSTOM_GONE", "x"])}
        )
    return Asked(method, f"/{kind}/{name}", f"1.{minor}")


def _list_names(dice: Dice) -> Asked:
    query = dice.choice(
        ["", "?name=startswith:CUSTOM_", "?name=in:CUSTOM_GOLD,HW_CPU_X86_SSE,X", "?associated=true", "?associated=false",
         "?associated=true&name=startswith:CUSTOM_", "?name=CUSTOM_GOLD", "?associated=x", "?color=blue"]
    )  # fmt: skip
    return Asked("GET", dice.choice([f"/traits{query}", "/resource_classes"]), f"1.{dice.minor()}")


# --- claims -----------------------------------------------------------------------------------------------------


def _amounts(dice: Dice) -> dict:
    if dice.rarely():
        return dice.choice(
            [{}, {"VCPU": 0}, {"VCPU": -1}, {"VCPU": "1"}, {"CUSTOM_GONE": 1}, {"vcpu": 1}, {"VCPU": 2**31}]
        )
    return {
        name: dice.choice([1, 1, 1, 2, 2, 3, 4]) * (1024 if name == "MEMORY_MB" else 1)
        for name in dice.some(CLASSES, 1, 2)
    }


def _allocations(dice: Dice, minor: int, least: int) -> object:
    wanted = {_provider(dice): _amounts(dice) for _ in range(max(least, dice.choice([0, 1, 1, 1, 1, 2, 2])))}
    if minor < 12:
        return [{"resource_provider": {"uuid": uuid}, "resources": amounts} for uuid, amounts in wanted.items()]
    shown = {uuid: {"resources": amounts} for uuid, amounts in wanted.items()}
    if shown and dice.random() < 0.2:
        shown[next(iter(shown))]["generation"] = dice.randint(0, 9)
    return shown


def _claim_body(dice: Dice, consumer: str, minor: int, least: int = 0) -> dict:
    body: dict = {"allocations": _allocations(dice, minor, least)}
    if minor >= 8:
        body |= {"project_id": dice.choice(PROJECTS), "user_id": dice.choice(USERS)}
    if minor >= 28:
        body["consumer_generation"] = f"@consumer {consumer} {dice.mostly(0, -1, 1)}"
    if minor >= 34 and dice.random() < 0.2:
        body["mappings"] = {dice.choice(["", "1", "_net"]): [dice.choice(PROVIDERS)]}
    if minor >= 38:
        body["consumer_type"] = dice.mostly(dice.choice(["INSTANCE", "MIGRATION"]), "unknown", "small", "")
    if dice.rarely():
        if dice.random() < 0.5:
            body.pop(dice.choice(sorted(body)))
        else:
            body["color"] = "blue"
    return body


def _claim(dice: Dice, consumer: str | None = None, minor: int | None = None) -> Asked:
    consumer, minor = consumer or dice.choice(CONSUMERS), dice.minor() if minor is None else minor
    target = f"/allocations/{'x' if dice.random() < 0.01 else consumer}"
    return Asked("PUT", target, f"1.{minor}", _claim_body(dice, consumer, minor, least=0 if minor >= 28 else 1))


def _claim_many(dice: Dice) -> Asked:
    minor = dice.minor(13)
    body = {consumer: _claim_body(dice, consumer, max(minor, 13)) for consumer in dice.some(CONSUMERS, 1, 3)}
    return Asked("POST", "/allocations", f"1.{minor}", body if not dice.rarely() else {})


def _release(dice: Dice) -> Asked:
    return Asked("DELETE", f"/allocations/{dice.mostly(dice.choice(CONSUMERS), NOWHERE)}", f"1.{dice.minor()}")


def _reshape(dice: Dice) -> Asked:
    minor = dice.minor(30)
    inventories = {}
    for uuid in dict.fromkeys(_provider(dice) for _ in range(dice.randint(1, 3))):
        put = _set_inventories(dice, uuid, minor)
        inventories[uuid] = put.body
    allocations = {consumer: _claim_body(dice, consumer, max(minor, 30)) for consumer in dice.some(CONSUMERS, 0, 2)}
    return Asked("POST", "/reshaper", f"1.{minor}", {"inventories": inventories, "allocations": allocations})


# --- reading ----------------------------------------------------------------------------------------------------


def _read(dice: Dice) -> Asked:
    uuid = _provider(dice)
    url = f"/resource_providers/{uuid}"
    target = dice.choice(
        [
            url,
            *(f"{url}/{part}" for part in _PARTS),
            f"{url}/inventories/{_class(dice)}",
            f"/allocations/{dice.choice(CONSUMERS)}",
        ]
    )
    return Asked("GET", target, f"1.{dice.minor()}")


def _usages(dice: Dice) -> Asked:
    query = [("project_id", dice.choice(PROJECTS))]
    if dice.random() < 0.4:
        query.append(("user_id", dice.choice(USERS)))
    if dice.random() < 0.5:
        query.append(("consumer_type", dice.choice(["INSTANCE", "MIGRATION", "all", "unknown", "NOBODY", "allx", "x"])))
    if dice.rarely():
        query = query[1:]
    return Asked("GET", f"/usages?{urlencode(query)}", f"1.{dice.minor(9)}")


def _resources(dice: Dice) -> str:
    if dice.rarely():
        return dice.choice(
            [
                "",
                "VCPU",
                "VCPU:0",
                "VCPU:x",
                "VCPU:-2",
                "CUSTOM_GONE:1",
                "VCPU:1,VCPU:2",
                "VCPU:1:2",
                "VCPU:1,",
                "VCPU :1",
            ]
        )
    return ",".join(f"{name}:{amount}" for name, amount in _wanted(dice).items())


def _wanted(dice: Dice) -> dict:
    return {
        name: dice.choice([1, 1, 1, 1, 2, 2, 3, 4]) * (1024 if name == "MEMORY_MB" else 1)
        for name in dice.some(CLASSES, 1, dice.choice([1, 2, 2, 3]))
    }


def _required(dice: Dice, minor: int, *, any_of: bool = True) -> list[str]:
    if dice.rarely():
        return dice.choice(
            [[""], ["CUSTOM_GONE"], ["!!CUSTOM_RAW"], ["in:"], ["in:!CUSTOM_RAW"], ["CUSTOM_RAW,"], ["CUSTOM_RAW", "!CUSTOM_RAW"],
             ["in:CUSTOM_RAW,CUSTOM_GONE"], ["!in:CUSTOM_RAW"], ["CUSTOM_RAW,in:CUSTOM_GOLD"]]
        )  # fmt: skip
    values = []
    for _ in range(dice.choice([1, 1, 1, 2]) if minor >= 39 else 1):
        if any_of and minor >= 39 and dice.random() < 0.35:
            values.append("in:" + ",".join(dice.some(TRAITS, 1, 3)))
        else:
            forbid = 0.35 if minor >= 22 else 0.02
            values.append(
                ",".join(
                    ("!" if dice.random() < forbid else "") + name
                    for name in dice.some(TRAITS, 1, dice.choice([1, 1, 2]))
                )
            )
    return values


def _member_of(dice: Dice, minor: int) -> list[str]:
    if dice.rarely():
        return [
            dice.choice(
                [
                    "",
                    "x",
                    "in:x",
                    ",".join(AGGREGATES[:2]),
                    f"!{AGGREGATES[0]},{AGGREGATES[1]}",
                    f"in:!{AGGREGATES[0]}",
                    AGGREGATES[0].replace("-", ""),
                ]
            )
        ]
    values = []
    for _ in range(dice.choice([1, 1, 1, 2]) if minor >= 24 or dice.rarely() else 1):
        chosen = dice.some(AGGREGATES, 1, 2)
        text = chosen[0] if len(chosen) == 1 and dice.random() < 0.7 else "in:" + ",".join(chosen)
        values.append(("!" if dice.random() < (0.3 if minor >= 32 else 0.02) else "") + text)
    return values


def _filters(dice: Dice) -> Asked:
    minor, query = dice.minor(3), []
    if dice.random() < 0.15:
        query.append(("name", dice.choice(["n1", "n2", "nobody", ""])))
    if dice.random() < 0.15:
        query.append(("uuid", dice.choice([*PROVIDERS, NOWHERE, "x"])))
    if minor >= 14 and dice.random() < 0.2:
        query.append(("in_tree", dice.mostly(dice.choice(PROVIDERS), NOWHERE, "x")))
    if dice.random() < 0.6:
        query.append(("resources", _resources(dice)))
    if minor >= 18 and dice.random() < 0.35:
        query += [("required", value) for value in _required(dice, minor)]
    if dice.random() < 0.35:
        query += [("member_of", value) for value in _member_of(dice, minor)]
    if dice.rarely():
        query.append(("color", "blue"))
    return Asked("GET", f"/resource_providers?{urlencode(query)}", f"1.{minor}")


def _group(dice: Dice, suffix: str, minor: int) -> list[tuple[str, str]]:
    query = [(f"resources{suffix}", _resources(dice))]
    if minor >= 17 and dice.random() < 0.35:
        query += [(f"required{suffix}", value) for value in _required(dice, minor)]
    if minor >= 21 and dice.random() < 0.25:
        query += [(f"member_of{suffix}", value) for value in _member_of(dice, minor)]
    if minor >= 31 and dice.random() < 0.15:
        query.append((f"in_tree{suffix}", dice.mostly(dice.choice(PROVIDERS), NOWHERE, "x")))
    return query


def candidates_query(dice: Dice, minor: int) -> list[tuple[str, str]]:
    query: list[tuple[str, str]] = []
    suffixes = dice.some(SUFFIXES if minor >= 33 else SUFFIXES[:2], 0, 3) if minor >= 25 and dice.random() < 0.6 else []
    if not suffixes or dice.random() < 0.5:
        query += _group(dice, "", minor)
    for suffix in suffixes:
        group = _group(dice, suffix, minor)
        if minor >= 36 and dice.random() < 0.15:
            group = [pair for pair in group if not pair[0].startswith("resources")] or [
                (f"required{suffix}", dice.choice(TRAITS))
            ]
        query += group
    if len(suffixes) > 1 or dice.rarely():
        query.append(("group_policy", dice.mostly(dice.choice(["none", "isolate"]), "bogus")))
        if dice.rarely():
            query.pop()
    if minor >= 36 and suffixes and dice.random() < 0.4:
        for _ in range(dice.choice([1, 1, 2])):
            chosen = dice.some(suffixes, 1, 3)
            query.append(("same_subtree", dice.mostly(",".join(chosen), "", "9", f"{chosen[0]},")))
    if minor >= 35 and dice.random() < 0.2:
        query += [("root_required", value) for value in _required(dice, min(minor, 38))]
    if dice.rarely():
        query.append(
            dice.choice(
                [("required", "CUSTOM_RAW"), ("color", "blue"), ("resources1", "VCPU:1"), ("member_of1", AGGREGATES[0])]
            )
        )
    return query


def _candidates(dice: Dice) -> Asked:
    minor = dice.minor(10)
    query = candidates_query(dice, minor)
    if minor >= 16 and dice.random() < 0.15:
        query.append(("limit", dice.mostly(dice.choice(["1", "2", "5"]), "0", "x")))
    return Asked("GET", f"/allocation_candidates?{urlencode(query)}", f"1.{minor}")


_KINDS = (
    (_candidates, 30),
    (_filters, 12),
    (_claim, 16),
    (_claim_many, 7),
    (_release, 3),
    (_reshape, 4),
    (_create, 4),
    (_update, 6),
    (_delete, 3),
    (_set_inventories, 6),
    (_add_inventory, 3),
    (_update_inventory, 5),
    (_delete_inventory, 2),
    (_set_traits, 5),
    (_clear_traits, 1),
    (_set_aggregates, 5),
    (_names, 3),
    (_list_names, 1),
    (_read, 5),
    (_usages, 3),
)
