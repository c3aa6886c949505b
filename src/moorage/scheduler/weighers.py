"""Weighers: each gives a host a number; more is better.

As in Nova, the numbers of one weigher are scaled to 0..1 over the compared hosts, multiplied and added. The option
`weight_multipliers` sets multipliers; an aggregate's metadata may override them for its hosts (`multipliers_in`).
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

#: Resource classes that count as accelerators.
_DEVICE = re.compile(r"CUSTOM_ACCELERATOR_|(FPGA|PGPU|VGPU)\Z")
_FUNCTION_KEY = re.compile(r"(?:accel|function)[A-Za-z0-9_-]{0,64}:(.+)\Z|function[A-Za-z0-9_-]{0,64}\Z")
_NO_FUNCTION = ("device_profile", "bitstream_signature", "saved_state")
_JOINERS = re.compile(r"[^A-Z0-9]+")


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The facts about one host that weighers use."""

    free_memory_mb: float = 0.0
    free_processors: float = 0.0
    free_disk_gb: float = 0.0
    free_accelerators: float = 0.0
    has_function: bool = False  #: a device already has the wanted function programmed
    jobs: int = 0  #: in progress on the host
    failed_builds: int = 0  #: since the last build that succeeded
    #: Only if weighers of other packages are enabled; Moorage's own use the values derived above.
    free: Mapping[str, float] = field(default_factory=dict)  #: {resource class: free units}, in its provider tree
    traits: frozenset[str] = frozenset()  #: of all providers in its tree


@dataclass(frozen=True)
class WeigherInput:
    """The facts about the server that weighers use."""

    wants_accelerators: bool = False


#: Called with positional arguments. More is better; NaN counts as the least number among the compared hosts.
Weigher = Callable[[HostFacts, WeigherInput], float]


def _accelerators(facts: HostFacts, weigher_input: WeigherInput) -> float:
    """Prefer hosts with many free accelerators for servers that need one, and with few for servers that do not."""
    return facts.free_accelerators if weigher_input.wants_accelerators else -facts.free_accelerators


#: {name, as in the option `weight_multipliers`: (weigher, default multiplier)}.
#: `soft_affinity` and `soft_anti_affinity` come from the server group (`server_groups.group_preference`).
WEIGHERS: Mapping[str, tuple[Weigher | None, float]] = {
    "ram": (lambda facts, _: facts.free_memory_mb, 1.0),
    "cpu": (lambda facts, _: facts.free_processors, 1.0),
    "disk": (lambda facts, _: facts.free_disk_gb, 1.0),
    "io_ops": (lambda facts, _: facts.jobs, -1.0),
    "build_failure": (lambda facts, _: -facts.failed_builds, 1_000_000.0),
    "accelerator": (_accelerators, 1.0),
    # More than all others together except failed builds: programming a region takes seconds to minutes, and removes a
    # function that the next server may need.
    "function": (lambda facts, _: float(facts.has_function), 10.0),
    "soft_affinity": (None, 1.0),
    "soft_anti_affinity": (None, 1.0),
}
SUFFIX = "_weight_multiplier"


def multipliers_in(metadata: Mapping[str, str], weighers: Collection[str] = WEIGHERS) -> dict[str, float]:
    """Valid multipliers of `weighers` in an aggregate's metadata, like ``{"ram_weight_multiplier": "-1.0"}``."""
    found = {}
    for key, value in metadata.items():
        name = key.removesuffix(SUFFIX)
        if name != key and name in weighers:
            try:
                found[name] = float(value)
            except ValueError:
                continue
    return found


def prefers_free_capacity(multipliers: Mapping[str, float], special: Collection[Mapping[str, float]]) -> bool:
    """Whether more free capacity is better, as by default. Then a random sample contains nearly the best host.

    A negative multiplier (fill one host after the other) or an aggregate's multipliers favour few hosts, which a sample
    may miss. Do not call this if weighers of other packages are enabled: they may favour any host.
    """
    return not special and all(multipliers.get(name, WEIGHERS[name][1]) >= 0 for name in ("ram", "cpu", "disk"))


def normalised(numbers: Numbers) -> Numbers:
    """Scales each row to 0..1: its minimum becomes 0, its maximum 1.

    NaN becomes 0, and so does a row of equal numbers.
    """
    least = np.fmin.reduce(numbers, axis=-1, keepdims=True)
    span = np.fmax.reduce(numbers, axis=-1, keepdims=True) - least
    span[span == 0] = 1.0
    scaled: Numbers = np.nan_to_num((numbers - least) / span, nan=0.0)
    return scaled


@cache
def counts_as_accelerator(resource_class: str) -> bool:
    return _DEVICE.match(resource_class) is not None


def wanted_functions(extra_specs: Mapping[str, str]) -> frozenset[str]:
    """Functions and bitstreams that a flavor requests, in letters and digits only, as `carries_function` needs them."""
    found = set()
    for key, value in extra_specs.items():
        match = _FUNCTION_KEY.match(key)
        if match is None or match[1] in _NO_FUNCTION:
            continue
        named = match[1] if match[1] and not key.startswith("accel") else value
        found.add(_comparable(named))
    return frozenset(found - {""})


def carries_function(traits: Any, functions: frozenset[str]) -> bool:
    """Whether one of a provider's traits names one of `functions`: ``CUSTOM_FPGA_INTEL_FUNCTION_<ID>``."""
    names = [_comparable(trait) for trait in traits if "_FUNCTION_" in trait]
    return any(name.endswith(function) for name in names for function in functions)


def _comparable(text: str) -> str:
    return _JOINERS.sub("", text.upper())
