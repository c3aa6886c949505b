"""`request_for` compared with a slow and obvious version that follows the table key by key and class by class."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.errors import Invalid
from moorage.scheduler.candidate_query import candidate_query
from moorage.scheduler.flavor_resources import FlavorFields, request_for

CLASSES = ["VCPU", "MEMORY_MB", "DISK_GB", "PCPU", "CUSTOM_A", "CUSTOM_B", "vcpu", "CUSTOM_"]
TRAITS = ["CUSTOM_T", "HW_CPU_X86_AVX2", "NO_SUCH"]
SUFFIXES = ["", "1", "_N", "a.b"]

keys = st.one_of(
    st.tuples(st.just("resources"), st.sampled_from(SUFFIXES), st.sampled_from(CLASSES)).map(
        lambda parts: f"{parts[0]}{parts[1]}:{parts[2]}"
    ),
    st.tuples(st.just("trait"), st.sampled_from(SUFFIXES), st.sampled_from(TRAITS)).map(
        lambda parts: f"{parts[0]}{parts[1]}:{parts[2]}"
    ),
    st.sampled_from(["bitstream", "function_name", "hw:x", "group_policy"]),
)
values = st.sampled_from(["0", "1", "2", "7", "-1", "x", "required", "forbidden", "none", "isolate"])
flavors = st.builds(
    FlavorFields,
    vcpus=st.integers(1, 4),
    memory_mb=st.integers(1, 2048),
    root_gb=st.integers(0, 3),
    ephemeral_gb=st.integers(0, 3),
    swap_mb=st.integers(0, 3000),
    extra_specs=st.dictionaries(keys, values, max_size=6),
)


class Refused(Exception):
    pass


def refuse_if(wrong):
    if wrong:
        raise Refused


def expected_groups(flavor):
    """{suffix: ({class: amount}, required, forbidden)}. Raises `Refused`."""
    resources, traits = slow_keys(flavor.extra_specs)
    policy = flavor.extra_specs.get("group_policy")
    refuse_if(policy not in (None, "none", "isolate"))
    total = {name: sum(n for (_, other), n in resources.items() if other == name) for _, name in resources}
    refuse_if(total.get("VCPU") and total.get("PCPU"))
    refuse_if(total.get("PCPU") not in (None, 0, flavor.vcpus))
    zeros = {name for name, amount in total.items() if amount == 0}
    refuse_if(not any(total.values()) and {"VCPU", "MEMORY_MB", "DISK_GB"} <= zeros)
    disk = flavor.root_gb + flavor.ephemeral_gb + -(-flavor.swap_mb // 1024)
    for name, amount in (("VCPU", flavor.vcpus), ("MEMORY_MB", flavor.memory_mb), ("DISK_GB", disk)):
        if name not in total and not (name == "VCPU" and "PCPU" in total):
            resources["", name] = amount
    groups = {suffix: slow_group(suffix, resources, traits) for suffix, _ in (*resources, *traits)}
    refuse_if(any(not amounts and (required or forbidden) for amounts, required, forbidden in groups.values()))
    groups = {suffix: group for suffix, group in groups.items() if group[0]}
    refuse_if(not groups or (len([suffix for suffix in groups if suffix]) > 1 and policy is None))
    return groups


def slow_keys(specs):
    resources, traits = {}, {}
    for key, value in specs.items():
        head, colon, name = key.partition(":")
        if colon and head.startswith("resources"):
            refuse_if("." in head or name in ("vcpu", "CUSTOM_") or not value.isdigit())
            resources[head.removeprefix("resources"), name] = int(value)
        elif colon and head.startswith("trait"):
            refuse_if("." in head or name == "NO_SUCH" or value not in ("required", "forbidden"))
            traits[head.removeprefix("trait"), name] = value
    return resources, traits


def slow_group(suffix, resources, traits):
    amounts = {name: amount for (where, name), amount in resources.items() if where == suffix and amount}
    required = {name for (where, name), kind in traits.items() if where == suffix and kind == "required"}
    forbidden = {name for (where, name), kind in traits.items() if where == suffix and kind == "forbidden"}
    return amounts, required, forbidden


@given(flavors)
def test_a_flavor_gives_the_groups_of_the_slow_version_or_is_refused_by_both(flavor):
    try:
        request = request_for(flavor)
    except Invalid:
        with pytest.raises(Refused):
            expected_groups(flavor)
        return
    fast = {
        suffix: (dict(group.resources), set(group.required), set(group.forbidden))
        for suffix, group in request.groups.items()
    }
    assert fast == expected_groups(flavor)


@given(flavors)
def test_every_query_has_a_resource_in_each_group(flavor):
    try:
        query = candidate_query(request_for(flavor))
    except Invalid:
        return
    suffixes = {name.removeprefix("resources") for name, _ in query if name.startswith("resources")}
    assert suffixes
    assert all(name.removeprefix("required") in suffixes for name, _ in query if name.startswith("required"))
    assert all(int(part.rpartition(":")[2]) > 0 for name, text in query if name.startswith("resources")
               for part in text.split(","))  # fmt: skip
