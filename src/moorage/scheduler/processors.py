"""Dedicated processors: how ``hw:cpu_policy`` and related keys split a flavor's vcpus into VCPU and PCPU.

    hw:cpu_policy              shared (the default): VCPU; dedicated: PCPU; mixed: PCPU for the mask, VCPU for the rest
    hw:cpu_dedicated_mask      which of the guest's processors are dedicated, like ``2-3`` or ``^0-1``; mixed only
    hw:cpu_thread_policy       prefer; require: hosts with hyperthreading; isolate: without; not with shared
    hw:emulator_threads_policy share; isolate: one more dedicated processor, for the emulator; dedicated only

The image can set the policies too (``hw_cpu_policy``, ``hw_cpu_thread_policy``) if the flavor does not.

If no candidate has PCPU, Nova repeats the query with VCPU, for hosts older than that class. Moorage does not.

Moorage's own hosts cannot pin processors, so `spec_rules.refuse_unhonoured` refuses servers with these keys, or ignores
the keys if the operator says so, before they come here. They do come here when flavors and reservations are checked.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from moorage.core.errors import Invalid
from moorage.scheduler.extra_specs import IncompleteSpecs

CPU_POLICY_KEY, MASK_KEY = "hw:cpu_policy", "hw:cpu_dedicated_mask"
THREADS_KEY, EMULATOR_KEY = "hw:cpu_thread_policy", "hw:emulator_threads_policy"
HYPERTHREADING = "HW_CPU_HYPERTHREADING"
_VALUES = {
    CPU_POLICY_KEY: ("shared", "dedicated", "mixed"),
    THREADS_KEY: ("prefer", "isolate", "require"),
    EMULATOR_KEY: ("share", "isolate"),
}
_PART = re.compile(r"(\^?)(\d{1,5})(?:-(\d{1,5}))?\Z", re.ASCII)


@dataclass(frozen=True)
class Processors:
    """`amounts` replace the flavor's vcpus; the traits are for the unsuffixed group."""

    amounts: Mapping[str, int]
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()


def split_processors(
    vcpus: int, extra_specs: Mapping[str, str], image_properties: Mapping[str, str], overridden: Mapping[str, int]
) -> Processors:
    """`overridden`: amounts of the ``resources:`` keys. Raises `Invalid` for keys that contradict each other,
    and `IncompleteSpecs` for keys that need another one.
    """
    specs = {key: value for key in (*_VALUES, MASK_KEY) if (value := extra_specs.get(key)) is not None}
    for key, allowed in _VALUES.items():
        # The image's value counts if the flavor has none; if both have one, they must agree.
        name = key.replace(":", "_")
        of_image = image_properties.get(name) if key != EMULATOR_KEY else None
        if of_image is not None and specs.setdefault(key, of_image) != of_image:
            raise Invalid(
                f"image property {name}={of_image}: the flavor has {key}={specs[key]}; use another image or flavor"
            )
        if key in specs and specs[key] not in allowed:
            raise Invalid(f"{key}={specs[key]}: use {', '.join(allowed[:-1])} or {allowed[-1]}")
    policy = specs.get(CPU_POLICY_KEY, "shared")
    override = next((name for name in ("VCPU", "PCPU") if name in overridden), None)
    if CPU_POLICY_KEY in extra_specs and override:
        raise Invalid(f"{CPU_POLICY_KEY} and resources:{override} both select the processors; keep one of them")
    # Without a policy the keys are incomplete: the policy may be set later.
    wrong = Invalid if CPU_POLICY_KEY in specs else IncompleteSpecs
    threads, emulator = specs.get(THREADS_KEY, "prefer"), specs.get(EMULATOR_KEY, "share")
    if policy == "shared" and threads != "prefer" and not overridden.get("PCPU"):
        raise wrong(f"{THREADS_KEY}={threads} applies to dedicated processors only; add {CPU_POLICY_KEY}=dedicated")
    if policy != "dedicated" and emulator == "isolate":
        raise wrong(f"{EMULATOR_KEY}=isolate needs a dedicated processor; add {CPU_POLICY_KEY}=dedicated")
    dedicated = vcpus if policy == "dedicated" else 0
    if policy == "mixed":
        dedicated = _masked_count(vcpus, specs.get(MASK_KEY))
    elif MASK_KEY in specs:
        raise wrong(f"{MASK_KEY}={specs[MASK_KEY]} needs {CPU_POLICY_KEY}=mixed")
    if emulator == "isolate":
        dedicated += 1
    amounts = {"PCPU": dedicated, "VCPU": 0 if policy == "dedicated" else vcpus - dedicated}
    return Processors(
        {name: amount for name, amount in amounts.items() if amount},
        (HYPERTHREADING,) if threads == "require" else (),
        (HYPERTHREADING,) if threads == "isolate" else (),
    )


def _masked_count(vcpus: int, mask: str | None) -> int:
    """Number of the guest's processors that ``hw:cpu_dedicated_mask`` selects."""
    if mask is None:
        raise IncompleteSpecs(
            f"{CPU_POLICY_KEY}=mixed needs {MASK_KEY}, which selects the dedicated ones of the {vcpus} processors, "
            "like 1-3"
        )
    chosen = _masked(mask, vcpus)
    if not chosen or len(chosen) == vcpus or max(chosen) >= vcpus:
        raise Invalid(
            f"{MASK_KEY}={mask}: it must select some but not all of the processors 0 to {vcpus - 1}; "
            f"use {CPU_POLICY_KEY}=dedicated or shared for all of them"
        )
    return len(chosen)


def _masked(mask: str, vcpus: int) -> set[int]:
    """The numbers in ``0-3,^1``; if the mask only excludes, all other processors."""
    included: set[int] = set()
    excluded: set[int] = set()
    for part in mask.split(","):
        match = _PART.match(part.strip())
        if match is None:
            raise Invalid(f"{MASK_KEY}={mask}: write numbers and ranges, like 0-3,^1")
        into = excluded if match[1] else included
        into.update(range(int(match[2]), int(match[3] or match[2]) + 1))
    return (included or set(range(vcpus))) - excluded
