"""A flavor and an image as a request to Placement: the flavor's fields, changed and extended by its extra specs.

Spec: docs/evidence/specs/flavor-resources.md

The keys are defined in `extra_specs`, dedicated processors in `processors`. Other keys (``bitstream``, ``function``,
``quota:...``) are ignored here. `candidate_query` turns the request into a query.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.core.errors import Invalid
from moorage.core.names import is_custom, is_reservation_class
from moorage.scheduler.extra_specs import SUBTREE_KEY, ExtraSpecs, IncompleteSpecs, read_extra_specs, trait_name
from moorage.scheduler.processors import CPU_POLICY_KEY, THREADS_KEY, split_processors
from moorage.scheduler.spec_rules import ALIAS_KEY

PROFILE_KEY = "accel:device_profile"
#: On the root of a host whose hypervisor can attach accelerators; Nova, too, requires it with a device profile.
ACCELERATORS_TRAIT = "COMPUTE_ACCELERATORS"
_OWN_CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB")


@dataclass(frozen=True)
class FlavorFields:
    """The fields of a flavor that determine resources. `root_gb` is 0 for a server that boots from a volume."""

    vcpus: int
    memory_mb: int
    root_gb: int
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FlavorGroup:
    """One request group, as a flavor describes it. With a suffix, one provider serves all of it; without, one tree."""

    resources: Mapping[str, int] = field(default_factory=dict)
    required: tuple[str, ...] = ()  #: traits; ``in:A,B`` is any of these
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResourceRequest:
    """`groups` by suffix (empty: the unsuffixed group). Only groups in `same_subtree` may have no resources."""

    groups: Mapping[str, FlavorGroup]
    group_policy: str | None = None
    same_subtree: tuple[tuple[str, ...], ...] = ()
    root_required: tuple[str, ...] = ()
    root_forbidden: tuple[str, ...] = ()

    @property
    def is_for_reserved(self) -> bool:
        """Whether it uses a reservation, which gives it access to reserved hosts."""
        return any(is_reservation_class(name) for group in self.groups.values() for name in group.resources)

    @property
    def names(self) -> tuple[frozenset[str], frozenset[str]]:
        """(resource classes, traits) that Placement must know, because it refuses a query with an unknown name."""
        classes = {name for group in self.groups.values() for name in group.resources}
        traits = {
            trait
            for group in self.groups.values()
            for text in (*group.required, *group.forbidden)
            for trait in text.removeprefix("in:").split(",")
        }
        return frozenset(classes), frozenset(traits.union(self.root_required, self.root_forbidden))


def request_for(flavor: FlavorFields, image_properties: Mapping[str, str] | None = None) -> ResourceRequest:
    """The request of a server of `flavor`.

    A flavor of 2 VCPU, 512 MB and 10 GB with ``resources:CUSTOM_GOLD=1`` and ``resources:VCPU=0`` requests
    ``{"CUSTOM_GOLD": 1, "DISK_GB": 10, "MEMORY_MB": 512}``. Raises `Invalid`, naming key and remedy, for extra specs
    with which no server could be scheduled, and its subclass `IncompleteSpecs` if further ones could mend that.
    """
    extra_specs, image = flavor.extra_specs, image_properties or {}
    specs = read_extra_specs(extra_specs)
    # An override applies in any group: resources1:VCPU=2 moves the processors into group 1.
    overridden = specs.totals
    if not any(overridden.values()) and all(overridden.get(name) == 0 for name in _OWN_CLASSES):
        raise IncompleteSpecs(
            "resources:VCPU, resources:MEMORY_MB and resources:DISK_GB are all 0 and nothing else is requested; "
            "add a resource that servers of this flavor need, like resources:CUSTOM_BAREMETAL=1"
        )
    if overridden.get("VCPU") and overridden.get("PCPU"):
        raise Invalid("resources:VCPU and resources:PCPU exclude each other; keep one of them")
    groups = {suffix: _group(specs, suffix) for suffix in specs.suffixes}
    _check_groups(groups, specs, own_fields=True)
    plain = groups.get("", FlavorGroup())
    cpus = split_processors(flavor.vcpus, extra_specs, image, overridden)
    disk_gb = flavor.root_gb + flavor.ephemeral_gb + math.ceil(flavor.swap_mb / 1024)
    fields = {**cpus.amounts, "MEMORY_MB": flavor.memory_mb, "DISK_GB": disk_gb}
    own = {name: amount for name, amount in fields.items() if amount and name not in overridden}
    if "PCPU" in overridden:
        own.pop("VCPU", None)
        _check_processors(flavor, overridden["PCPU"])
    if "hw:pmem" in extra_specs:
        own |= _persistent_memory(extra_specs["hw:pmem"])
    required = tuple(dict.fromkeys((*plain.required, *cpus.required, *_image_traits(image))))
    forbidden = tuple(dict.fromkeys((*plain.forbidden, *cpus.forbidden)))
    if both := set(required) & set(forbidden):
        raise Invalid(f"trait {min(both)} is both required and forbidden by flavor and image; keep one of them")
    groups[""] = FlavorGroup(own | dict(plain.resources), required, forbidden)
    _check_groups(groups, specs, own_fields=False)
    together = {suffix for group in specs.same_subtree for suffix in group}
    groups = {suffix: group for suffix, group in groups.items() if group.resources or suffix in together}
    if not any(group.resources for group in groups.values()):
        raise IncompleteSpecs("the flavor requests nothing: every amount is 0; add a resource that its servers need")
    root_required = specs.root_required
    if {PROFILE_KEY, ALIAS_KEY} & extra_specs.keys() and ACCELERATORS_TRAIT not in root_required:
        root_required = (*root_required, ACCELERATORS_TRAIT)
    return ResourceRequest(groups, specs.group_policy, specs.same_subtree, root_required, specs.root_forbidden)


def _group(specs: ExtraSpecs, suffix: str) -> FlavorGroup:
    traits = sorted((trait, wanted) for (where, trait), wanted in specs.traits.items() if where == suffix)
    return FlavorGroup(
        {name: amount for (where, name), amount in specs.amounts.items() if where == suffix and amount},
        tuple(trait for trait, wanted in traits if wanted),
        tuple(trait for trait, wanted in traits if not wanted),
    )


def _check_groups(groups: Mapping[str, FlavorGroup], specs: ExtraSpecs, *, own_fields: bool) -> None:
    """Raises `IncompleteSpecs` for groups that Placement would refuse.

    `own_fields`: the amounts of the flavor's own fields are not in the unsuffixed group yet.
    """
    together = {suffix for group in specs.same_subtree for suffix in group}
    for suffix, group in groups.items():
        if suffix in together and not (group.resources or group.required or group.forbidden):
            raise IncompleteSpecs(
                f"{SUBTREE_KEY}: the group {suffix!r} requests nothing; add resources or traits to it"
            )
        if suffix in together or group.resources or (own_fields and not suffix):
            continue
        if group.required or group.forbidden:
            trait = (group.required or group.forbidden)[0]
            where = f"group {suffix!r}" if suffix else "the group without a suffix"
            raise IncompleteSpecs(
                f"trait{suffix}:{trait}: {where} requests no resources that could have the trait; "
                f"add resources{suffix}:CLASS=AMOUNT or remove the trait"
            )
    with_suffix = sorted(suffix for suffix, group in groups.items() if suffix and group.resources)
    if len(with_suffix) > 1 and specs.group_policy is None:
        raise IncompleteSpecs(
            f"the groups {', '.join(with_suffix)} need group_policy: isolate (each from another provider) or none"
        )


def _persistent_memory(value: str) -> dict[str, int]:
    """``hw:pmem=4GB,4GB,1TB``: one class per name; the amount is the number of times it is named."""
    names = [name.strip() for name in value.split(",") if name.strip()]
    amounts = Counter(f"CUSTOM_PMEM_NAMESPACE_{name}" for name in names)
    for name in amounts:
        if not is_custom(name):
            raise Invalid(f"hw:pmem={value}: names consist of A-Z, 0-9 and _, like 4GB,4GB")
    return dict(amounts)


def _check_processors(flavor: FlavorFields, pcpus: int) -> None:
    if pcpus not in (0, flavor.vcpus):
        raise Invalid(
            f"resources:PCPU={pcpus}: the flavor has {flavor.vcpus} vcpus; the number of dedicated processors must be "
            "the same"
        )


def _image_traits(properties: Mapping[str, str]) -> list[str]:
    """Traits that the image requires (``trait:X=required``); an image cannot request resources."""
    traits = []
    for key, value in sorted(properties.items()):
        if key.startswith("trait:"):
            trait = trait_name(f"image property {key}", key.removeprefix("trait:"))
            if value != "required":
                raise Invalid(f"image property {key}={value}: an image can only require traits")
            traits.append(trait)
    return traits


#: Image properties that matter for scheduling, besides ``trait:`` and those of accelerators.
_SCHEDULING_PROPERTIES = frozenset(
    {
        "hw_architecture", "architecture", "img_hv_type", "hypervisor_type",
        CPU_POLICY_KEY.replace(":", "_"), THREADS_KEY.replace(":", "_"),
    }
)  # fmt: skip
_ARCHITECTURES = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64", "i386": "i686", "i586": "i686"}
_HYPERVISORS = {"kvm": "qemu"}


def scheduling_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The image properties that determine where a server may run; the job payloads keep only these."""
    return {
        key: value
        for key, value in properties.items()
        if key.startswith(("trait:", "accel:")) or key in _SCHEDULING_PROPERTIES
    }


def required_platform(needs: Mapping[str, str]) -> tuple[str | None, str | None]:
    """(architecture, hypervisor type) that the image requires, each in one spelling: ``x86_64``, ``aarch64``; KVM is
    ``qemu``, as hosts report it.
    """
    architecture = (needs.get("hw_architecture") or needs.get("architecture") or "").lower()
    hypervisor = (needs.get("img_hv_type") or needs.get("hypervisor_type") or "").lower()
    return _ARCHITECTURES.get(architecture, architecture) or None, _HYPERVISORS.get(hypervisor, hypervisor) or None
