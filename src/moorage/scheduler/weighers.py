"""Which of the possible hosts is the better one: each weigher gives a host a number, more is better.

As in Nova the numbers of one weigher are brought to 0..1 over the hosts that are compared, multiplied and added. A
multiplier is an option, and an aggregate's metadata may have another one for its hosts (`multipliers_in`).
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

#: Classes of devices whose number on a host counts for the weigher of accelerators.
_DEVICE = re.compile(r"CUSTOM_ACCELERATOR_|(FPGA|PGPU|VGPU)\Z")
_FUNCTION_KEY = re.compile(r"(?:accel|function)[A-Za-z0-9_-]{0,64}:(.+)\Z|function[A-Za-z0-9_-]{0,64}\Z")
_NO_FUNCTION = ("device_profile", "bitstream_signature", "saved_state")
_JOINERS = re.compile(r"[^A-Z0-9]+")


@dataclass(frozen=True)
class HostFacts:
    """Of one host, what weighers go by."""

    free_memory_mb: float = 0.0
    free_processors: float = 0.0
    free_disk_gb: float = 0.0
    free_accelerators: float = 0.0
    has_function: bool = False  #: a device carries the wanted function already
    jobs: int = 0  #: under way on the host
    failed_builds: int = 0  #: since one succeeded
    #: For weighers of other packages, and there only where one is on; ours go by what was made of them above.
    free: Mapping[str, float] = field(default_factory=dict)  #: {resource class: units that nobody holds}, in its tree
    traits: frozenset[str] = frozenset()  #: of all providers in its tree


@dataclass(frozen=True)
class WeigherInput:
    """Of one server, what weighers go by."""

    wants_accelerators: bool = False


#: More is better; NaN: it says nothing of this host.
Weigher = Callable[[HostFacts, WeigherInput], float]


def _accelerators(facts: HostFacts, task: WeigherInput) -> float:
    """Most free ones for who wants some, fewest for who wants none: those are kept for who needs them."""
    return facts.free_accelerators if task.wants_accelerators else -facts.free_accelerators


#: By the name that options and metadata have before ``_weight_multiplier``, with the multiplier that holds without.
#: `soft_affinity` and `soft_anti_affinity` come from the server group (`server_groups.group_preference`).
WEIGHERS: Mapping[str, tuple[Weigher | None, float]] = {
    "ram": (lambda facts, task: facts.free_memory_mb, 1.0),
    "cpu": (lambda facts, task: facts.free_processors, 1.0),
    "disk": (lambda facts, task: facts.free_disk_gb, 1.0),
    "io_ops": (lambda facts, task: facts.jobs, -1.0),
    "build_failure": (lambda facts, task: -facts.failed_builds, 1_000_000.0),
    "accelerator": (_accelerators, 1.0),
    # More than all the others together but failed builds: to program a region takes seconds to minutes, and throws
    # away what the next server may want of it.
    "function": (lambda facts, task: float(facts.has_function), 10.0),
    "soft_affinity": (None, 1.0),
    "soft_anti_affinity": (None, 1.0),
}
SUFFIX = "_weight_multiplier"


def multipliers_in(metadata: Mapping[str, str], weighers: Collection[str] = WEIGHERS) -> dict[str, float]:
    """Multipliers of `weighers` in an aggregate's metadata: ``{"ram_weight_multiplier": "-1.0"}``. What is no number is
    passed by.
    """
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
    """Whether more room is better, as usual: then the best of a fair sample is nearly as good as the best of all hosts.
    Who fills one host after the other is drawn to few of them, and who favours the hosts of an aggregate to those. What
    weighers of other packages are drawn to nobody knows: who has some must not ask this.
    """
    return not special and all(multipliers.get(name, 1.0) >= 0 for name in ("ram", "cpu", "disk"))


def normalised(numbers: Numbers) -> Numbers:
    """Each row to 0..1: its least becomes 0, its most 1; all 0 where they are equal. What is not known is 0 too: it adds
    nothing, whatever the factor.
    """
    least = np.fmin.reduce(numbers, axis=-1, keepdims=True)
    span = np.fmax.reduce(numbers, axis=-1, keepdims=True) - least
    span[span == 0] = 1.0
    scaled: Numbers = np.nan_to_num((numbers - least) / span, nan=0.0)
    return scaled


@cache
def is_accelerator(resource_class: str) -> bool:
    return _DEVICE.match(resource_class) is not None


def wanted_functions(extra_specs: Mapping[str, str]) -> frozenset[str]:
    """Functions and bitstreams that a flavor wants programmed, as `carries_function` compares them: letters and digits."""
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
