"""What a lease asks of each of its reservations, and what an update changes of that. One class per resource type."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar, TypeAlias

VIRTUAL_INSTANCE = "virtual:instance"
PHYSICAL_HOST = "physical:host"
FLAVOR_INSTANCE = "flavor:instance"
RESOURCE_ANY = "resource:any"
VIRTUAL_FLOATING_IP = "virtual:floatingip"

#: The class of what carries bitstreams, as hosts publish it.
FPGA = "CUSTOM_ACCELERATOR_FPGA"


@dataclass(frozen=True, slots=True)
class Size:
    """One instance slot."""

    vcpus: int
    memory_mb: int
    disk_gb: int

    def resources(self) -> dict[str, int]:
        """The slot as a vector over resource classes; classes of which it needs nothing are left out."""
        vector = {"VCPU": self.vcpus, "MEMORY_MB": self.memory_mb, "DISK_GB": self.disk_gb}
        return {name: amount for name, amount in vector.items() if amount}


@dataclass(frozen=True, slots=True)
class InstanceRequest:
    """Of ``virtual:instance``.

    `affinity`: None = spread at will, True = all on one host, False = each on another host (R14).
    """

    resource_type: ClassVar[str] = VIRTUAL_INSTANCE

    size: Size
    amount: int
    affinity: bool | None = None
    resource_properties: str = ""  #: a query in the language of `property_query`; empty = any host


@dataclass(frozen=True, slots=True)
class HostRequest:
    """Of ``physical:host``: whole hosts, `least` of them and up to `most`. The two queries must both admit a host."""

    resource_type: ClassVar[str] = PHYSICAL_HOST

    least: int
    most: int
    hypervisor_properties: str = ""
    resource_properties: str = ""
    before_end: str = "default"  #: what is done before the end: `BEFORE_END`


#: What can be done with the servers of lent hosts before the end; ``default`` is what the service is configured for.
BEFORE_END = ("", "snapshot", "default")


@dataclass(frozen=True, slots=True)
class FlavorWish:
    """Of ``flavor:instance``: the flavor is looked up as the caller sees it."""

    resource_type: ClassVar[str] = FLAVOR_INSTANCE

    flavor_id: str
    amount: int
    affinity: bool | None = None
    resource_properties: str = ""


@dataclass(frozen=True, slots=True)
class SourceFlavor:
    """A flavor as it was when it was reserved; what becomes of it later does not matter."""

    id: str
    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    profile_specs: Mapping[str, str] = field(default_factory=dict)  #: what its device profile adds for Placement


@dataclass(frozen=True, slots=True)
class FlavorRequest:
    """Of ``flavor:instance``: room for `amount` servers of a flavor."""

    resource_type: ClassVar[str] = FLAVOR_INSTANCE

    source: SourceFlavor
    amount: int
    affinity: bool | None = None
    resource_properties: str = ""


#: The ways in which a bitstream is named; a reservation names one at most.
BITSTREAM_NAMES = ("bitstream_id", "function_id", "function_name")


@dataclass(frozen=True, slots=True)
class AnyRequest:
    """Of ``resource:any``: room for `amount` servers that take `resources`. The two queries must both admit a host."""

    resource_type: ClassVar[str] = RESOURCE_ANY

    resources: Mapping[str, int]  #: {resource class: amount}
    amount: int
    traits: Mapping[str, str] = field(default_factory=dict)  #: {trait: ``required`` or ``forbidden``}
    affinity: bool | None = None
    hypervisor_properties: str = ""
    resource_properties: str = ""
    bitstream_id: str = ""  #: an image that its accelerators carry from the start to the end; so the next two
    function_id: str = ""  #: one that has this function
    function_name: str = ""

    @property
    def programs(self) -> Mapping[str, str]:
        """{way: name} of what its accelerators carry: nothing, or one of `BITSTREAM_NAMES`."""
        return {way: name for way in BITSTREAM_NAMES if (name := getattr(self, way))}


@dataclass(frozen=True, slots=True)
class FloatingIpRequest:
    """Of ``virtual:floatingip``: `amount` addresses of a network, those in `required` among them. Nothing of any host."""

    resource_type: ClassVar[str] = VIRTUAL_FLOATING_IP

    network_id: str
    amount: int
    required: tuple[str, ...] = ()


#: What a reservation asks for. The class tells the type.
ReservationRequest: TypeAlias = InstanceRequest | FlavorRequest | HostRequest | AnyRequest | FloatingIpRequest

#: What a new lease may ask for. Some types need to be looked up first, see `external_lookups`.
Wish: TypeAlias = InstanceRequest | FlavorWish | HostRequest | AnyRequest | FloatingIpRequest


@dataclass(frozen=True, slots=True)
class ReservationChange:
    """None leaves a value as it is; of affinity, which may be None itself, `affinity_given` tells.

    An update names no type, so it has the values of all types; each type refuses those that it does not have.
    """

    id: str
    resource_type: str | None = None
    vcpus: int | None = None
    memory_mb: int | None = None
    disk_gb: int | None = None
    amount: int | None = None
    affinity: bool | None = None
    affinity_given: bool = False
    resource_properties: str | None = None
    min: int | None = None
    max: int | None = None
    hypervisor_properties: str | None = None
    before_end: str | None = None
    flavor_id: str | None = None
    resources: Mapping[str, int] | None = None
    traits: Mapping[str, str] | None = None
    bitstream_id: str | None = None
    function_id: str | None = None
    function_name: str | None = None
    network_id: str | None = None
    required_floatingips: tuple[str, ...] | None = None

    def given(self) -> Mapping[str, object]:
        """{name: new value} of what the update names."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        affinity = {"affinity": self.affinity} if self.affinity_given else {}
        plain = values.keys() - {"id", "resource_type", "affinity", "affinity_given"}
        return {name: values[name] for name in sorted(plain) if values[name] is not None} | affinity
