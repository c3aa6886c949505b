"""Parses extra specs of flavors into requests to Placement, key by key; refuses invalid keys and values.

Spec: docs/evidence/specs/flavor-resources.md

Keys; `S` is empty or a group suffix of 1 to 64 letters, digits, ``_`` and ``-``:

    resources<S>:<CLASS> = <amount>             0 removes the class from the request
    trait<S>:<TRAIT>     = required|forbidden   the trait may be ``in:A,B``: any of these
    group_policy         = none|isolate         required if two or more groups have a suffix
    same_subtree         = <S>,<S>              these groups below one provider; ``;`` separates sets
    root_required        = <TRAIT>,!<TRAIT>     traits that the root provider must, or must not, have

Nova ignores the last two keys. Its own queries have these conditions only from ports and from its own filters.

Nova ignores keys and values that it cannot parse, and schedules the server without them (measured on 34.0.0: a server
of a flavor with ``resources:CUSTOM_X=-1`` gets no CUSTOM_X). Moorage refuses them when the flavor is changed, with the
key and the remedy. `check_known_specs` checks values that only hypervisors read, from microversion 2.86 on.

Not here: the totals together with the flavor's own fields (`flavor_resources`), and processors (`processors`).
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from moorage.core.errors import Invalid
from moorage.core.names import is_custom

#: Largest amount that Placement accepts for one class.
MAX_AMOUNT = 2**31 - 1
GROUP_POLICIES = ("none", "isolate")
POLICY_KEY, SUBTREE_KEY, ROOT_KEY = "group_policy", "same_subtree", "root_required"

_KEY = re.compile(r"(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)\Z", re.DOTALL)
_KEY_LIKE = re.compile(r"(resources|trait)[^:]*:")
_AMOUNT = re.compile(r"\s*\d+\s*\Z", re.ASCII)


@dataclass(frozen=True)
class ExtraSpecs:
    """Parsed extra specs: `amounts` by (suffix, class), with zeros; `traits` by (suffix, trait)."""

    amounts: Mapping[tuple[str, str], int]
    traits: Mapping[tuple[str, str], bool]  #: True: required, False: forbidden
    suffixes: Sequence[str]  #: of all groups, sorted
    totals: Mapping[str, int]  #: amount by class over all groups; a class named only with 0 is included with 0
    group_policy: str | None = None
    same_subtree: tuple[tuple[str, ...], ...] = ()  #: sets of suffixes
    root_required: tuple[str, ...] = ()
    root_forbidden: tuple[str, ...] = ()


def read_extra_specs(extra_specs: Mapping[str, str]) -> ExtraSpecs:
    """Parses `extra_specs`. Raises `Invalid`, naming key and remedy, for the first invalid key or value."""
    amounts: dict[tuple[str, str], int] = {}
    traits: dict[tuple[str, str], bool] = {}
    totals: Counter[str] = Counter()
    for key, value in extra_specs.items():
        match = _KEY.match(key)
        if match is None:
            if _KEY_LIKE.match(key):
                raise Invalid(f"{key}: a group suffix is 1 to 64 letters, digits, _ and -; rename the group")
            continue
        kind, suffix, name = match[1], match[2] or "", match[3]
        if kind == "resources":
            amounts[suffix, _resource_class(key, name)] = amount = _amount(key, value)
            totals[name] += amount
        else:
            traits[suffix, trait_name(key, name)] = _is_required(key, value)
    policy = extra_specs.get(POLICY_KEY)
    if policy is not None and policy not in GROUP_POLICIES:
        raise Invalid(f"{POLICY_KEY}={policy}: use none or isolate")
    suffixes = sorted({suffix for suffix, _ in (*amounts, *traits)})
    required, forbidden = _root_traits(extra_specs[ROOT_KEY]) if ROOT_KEY in extra_specs else ((), ())
    subtrees = _subtrees(extra_specs[SUBTREE_KEY], suffixes) if SUBTREE_KEY in extra_specs else ()
    return ExtraSpecs(amounts, traits, suffixes, totals, policy, subtrees, required, forbidden)


def trait_name(key: str, name: str) -> str:
    """Checks and returns `name`: a trait, or ``in:`` and several.

    Raises `Invalid` naming `key` for an unknown trait.
    """
    for trait in name.removeprefix("in:").split(","):
        if not is_custom(trait) and trait not in _standard_traits():
            remedy = "use a standard trait, or a custom one: CUSTOM_ and then A-Z, 0-9 and _ only"
            raise Invalid(f"{key}: there is no trait {trait!r}; {remedy}")
    return name


def _resource_class(key: str, name: str) -> str:
    if is_custom(name) or name in _standard_classes():
        return name
    remedy = "use a standard class like VCPU, or a custom one: CUSTOM_ and then A-Z, 0-9 and _ only"
    raise Invalid(f"{key}: there is no resource class {name!r}; {remedy}")


def _amount(key: str, value: str) -> int:
    if _AMOUNT.match(value) is None or int(value) > MAX_AMOUNT:
        raise Invalid(
            f"{key}={value}: an amount is a whole number from 0 to {MAX_AMOUNT}; 0 removes the class from the request"
        )
    return int(value)


def _is_required(key: str, value: str) -> bool:
    if value not in ("required", "forbidden"):
        raise Invalid(f"{key}={value}: a trait is either required or forbidden")
    if value == "forbidden" and ":in:" in key:
        raise Invalid(f"{key}=forbidden: only single traits can be forbidden; write one key for each")
    return value == "required"


def _subtrees(value: str, suffixes: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The sets of suffixes in ``_A,_B;_C,_D``."""
    subtrees = tuple(tuple(suffix.strip() for suffix in text.split(",")) for text in value.split(";"))
    for together in subtrees:
        for suffix in together:
            if not suffix or suffix not in suffixes:
                raise Invalid(
                    f"{SUBTREE_KEY}: there is no group with the suffix {suffix!r}; name groups that have "
                    f"resources<suffix>: or trait<suffix>: keys, like {SUBTREE_KEY}=_A,_B"
                )
    return subtrees


def _root_traits(value: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(required, forbidden) of ``A,!B``."""
    terms = [term.strip() for term in value.split(",")]
    names = [trait_name(f"{ROOT_KEY}={value}", term.removeprefix("!")) for term in terms]
    if any(name.startswith("in:") for name in names):
        raise Invalid(f"{ROOT_KEY}={value}: name single traits, like {ROOT_KEY}=HW_CPU_X86_AVX2,!CUSTOM_OLD")
    required = tuple(name for term, name in zip(terms, names, strict=True) if not term.startswith("!"))
    forbidden = tuple(name for term, name in zip(terms, names, strict=True) if term.startswith("!"))
    if both := set(required) & set(forbidden):
        raise Invalid(f"{ROOT_KEY}={value}: {min(both)} is required and forbidden; keep one of them")
    return required, forbidden


@cache
def _standard_classes() -> frozenset[str]:
    import os_resource_classes

    return frozenset(os_resource_classes.STANDARDS)


@cache
def _standard_traits() -> frozenset[str]:
    import os_traits

    return frozenset(os_traits.get_traits())


_MASK = r"\^?\d+(-\d+)?(,\^?\d+(-\d+)?)*"
_BOOLEAN = r"(?i:1|0|t|true|on|y|yes|f|false|off|n|no)"
_FROM_0, _FROM_1 = r"\s*\d+\s*", r"\s*0*[1-9]\d*\s*"

#: {key: (regular expression for its value, meaning of the value)}; ``#`` in a key stands for a number.
_KNOWN_VALUES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        (
            "hw:boot_menu", "hw:cpu_realtime", "hw:ephemeral_encryption", "hw:hide_hypervisor_id", "hw:locked_memory",
            "hw:mem_encryption", "hw:pmu", "hw:vif_multiqueue_enabled", "hw:virtio_packed_ring",
        ),
        (_BOOLEAN, "true or false"),
    ),
    **dict.fromkeys(
        (
            "hw:cpu_cores", "hw:cpu_max_cores", "hw:cpu_max_sockets", "hw:cpu_max_threads", "hw:cpu_sockets",
            "hw:cpu_threads", "hw:numa_mem.#", "hw:numa_nodes",
        ),
        (_FROM_1, "a whole number from 1"),
    ),
    **dict.fromkeys(
        ("hw:cpu_dedicated_mask", "hw:cpu_realtime_mask", "hw:numa_cpus.#"), (_MASK, "processors, like 0-3,^1")
    ),
    **{
        key: ("|".join(map(re.escape, values)), f"one of {', '.join(values)}")
        for key, values in {
            "hw:cpu_policy": ("shared", "dedicated", "mixed"),
            "hw:cpu_thread_policy": ("prefer", "isolate", "require"),
            "hw:emulator_threads_policy": ("share", "isolate"),
            "hw:ephemeral_encryption_format": ("plain", "luks", "luksv2"),
            "hw:mem_encryption_model": ("amd-sev", "amd-sev-es", "amd-sev-snp", "intel-tdx"),
            "hw:pci_numa_affinity_policy": ("required", "preferred", "legacy", "socket"),
            "hw:sound_model": ("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio"),
            "hw:tpm_model": ("tpm-tis", "tpm-crb"),
            "hw:tpm_secret_security": ("user", "host", "deployment"),
            "hw:tpm_version": ("1.2", "2.0"),
            "hw:usb_model": ("none", "nec-xhci", "qemu-xhci"),
            "hw:viommu_model": ("intel", "smmuv3", "virtio", "auto"),
            "hw:watchdog_action": ("none", "pause", "poweroff", "reset", "disabled"),
        }.items()
    },
    "hw:mem_page_size": (r"large|small|any|\d+([kKMGT]i?)?(b|bit|B)?", "large, small, any or a size like 2MB"),
    "hw:pmem": (r"([a-zA-Z0-9_]+,?)+", "names of persistent memory, like 4GB,4GB"),
    "hw:redirected_usb_ports": (r"\d|1[0-5]", "a whole number from 0 to 15"),
    "hw:serial_port_count": (_FROM_0, "a whole number"),
    "accel:device_profile": (r"[a-zA-Z0-9_-]{1,255}", "the name of a device profile"),
    # The function of a region: keys of the accelerator service (docs/evidence/specs/accelerator-attach.md, A2). Nova
    # has them only in device profiles.
    **dict.fromkeys(
        ("accel:bitstream_id", "accel:function_id", "accel:function_name"), (r".{1,255}", "an id or a name")
    ),
    "accel:bitstream_signature": (r"(?i:required|true|1|yes)", "required"),
}  # fmt: skip
_NAMESPACES = {key.partition(":")[0] for key in _KNOWN_VALUES}


def known_spec_meanings() -> dict[str, str]:
    """{key: description of its value}, for the reference of extra specs."""
    return {key: meaning for key, (_, meaning) in _KNOWN_VALUES.items()}


def check_known_specs(given: Mapping[str, str]) -> None:
    """Raises `Invalid` for an unknown key in a known namespace, and for a value that a known key does not accept.

    Below microversion 2.86 clients may set anything in these namespaces, so only keys that matter for scheduling are
    checked there. Source: the validators of Nova 34 (`nova.api.validation.extra_specs`), each value tried.
    """
    for key, value in given.items():
        pattern, meaning = _KNOWN_VALUES.get(re.sub(r"\.\d+\Z", ".#", key), ("", ""))
        if pattern and re.fullmatch(pattern, value) is None:
            raise Invalid(f"{key}={value}: this extra spec takes {meaning}")
        if not pattern and key.partition(":")[0] in _NAMESPACES:
            near = ", ".join(sorted(_similar_keys(key))) or "see the reference of flavor extra specs"
            raise Invalid(f"{key}: there is no such extra spec; {near}")


def _similar_keys(key: str) -> Iterator[str]:
    """Known keys that begin like `key`."""
    for length in range(len(key), len(key.partition(":")[0]) + 2, -1):
        if found := [known for known in _KNOWN_VALUES if known.startswith(key[:length])]:
            yield from (f"there is {known}" for known in found[:3])
            return


def device_profile_specs(extra_specs: Mapping[str, str], groups: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The extra specs that the device profile named by a flavor adds to the flavor's own `extra_specs`.

    Group n has the suffix ``device_profile_<n>``, as in Nova; so have ``accel:`` keys of the profile. The query to
    Placement and the host's attachments are thus both read from the server's copy of the flavor, which keeps them even
    if the profile changes later.
    """
    added = {}
    for number, group in enumerate(groups):
        for key, value in group.items():
            kind, _, rest = key.partition(":")
            added[f"{kind}device_profile_{number}:{rest}"] = str(value)
    own = read_extra_specs(extra_specs)
    # Nova's rule: with at most one group in the flavor itself, isolation cannot have been intended.
    if len([suffix for suffix in own.suffixes if suffix]) <= 1 and own.group_policy is None:
        added.setdefault(POLICY_KEY, "none")
    return added
