"""The requests of reservations, one class per resource type, and the changes of an update."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar, TypeAlias

VIRTUAL_INSTANCE = "virtual:instance"
PHYSICAL_HOST = "physical:host"
FLAVOR_INSTANCE = "flavor:instance"
RESOURCE_ANY = "resource:any"
VIRTUAL_FLOATING_IP = "virtual:floatingip"

#: The resource class under which hosts publish FPGA regions, which can carry bitstreams.
FPGA = "CUSTOM_ACCELERATOR_FPGA"


@dataclass(frozen=True, slots=True)
class Size:
    """The size of one instance slot."""

    vcpus: int
    memory_mb: int
    disk_gb: int

    def resources(self) -> dict[str, int]:
        """{resource class: amount}, without classes whose amount is 0."""
        vector = {"VCPU": self.vcpus, "MEMORY_MB": self.memory_mb, "DISK_GB": self.disk_gb}
        return {name: amount for name, amount in vector.items() if amount}


@dataclass(frozen=True, slots=True)
class InstanceRequest:
    """A request for ``virtual:instance``.

    `affinity`: None = any hosts, True = all slots on one host, False = each slot on a different host (R14).
    """

    resource_type: ClassVar[str] = VIRTUAL_INSTANCE

    size: Size
    amount: int
    affinity: bool | None = None
    resource_properties: str = ""  #: a query, see `property_query`; empty = any host


@dataclass(frozen=True, slots=True)
class WholeHostRequest:
    """A request for ``physical:host``: `least` to `most` whole hosts. Each host must match both queries."""

    resource_type: ClassVar[str] = PHYSICAL_HOST

    least: int
    most: int
    hypervisor_properties: str = ""
    resource_properties: str = ""
    before_end: str = "default"  #: the action before the end, one of `BEFORE_END`


#: Actions for the servers of reserved hosts before the end; ``default`` is the configured action.
BEFORE_END = ("", "snapshot", "default")


@dataclass(frozen=True, slots=True)
class UnresolvedFlavorRequest:
    """A new request for ``flavor:instance``, before the flavor is looked up with the caller's permissions."""

    resource_type: ClassVar[str] = FLAVOR_INSTANCE

    flavor_id: str
    amount: int
    affinity: bool | None = None
    resource_properties: str = ""


@dataclass(frozen=True, slots=True)
class SourceFlavor:
    """A copy of a flavor from the time of the reservation. Later changes of the flavor do not affect it."""

    id: str
    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    profile_specs: Mapping[str, str] = field(default_factory=dict)  #: extra specs added by its device profile


@dataclass(frozen=True, slots=True)
class FlavorRequest:
    """A request for ``flavor:instance``: capacity for `amount` servers of a flavor."""

    resource_type: ClassVar[str] = FLAVOR_INSTANCE

    source: SourceFlavor
    amount: int
    affinity: bool | None = None
    resource_properties: str = ""


#: The fields that can name a bitstream. A reservation sets at most one of them.
BITSTREAM_NAMES = ("bitstream_id", "function_id", "function_name")


@dataclass(frozen=True, slots=True)
class AnyRequest:
    """A request for ``resource:any``: capacity for `amount` servers of `resources`. A host must match both queries."""

    resource_type: ClassVar[str] = RESOURCE_ANY

    resources: Mapping[str, int]  #: {resource class: amount}
    amount: int
    traits: Mapping[str, str] = field(default_factory=dict)  #: {trait: ``required`` or ``forbidden``}
    affinity: bool | None = None
    hypervisor_properties: str = ""
    resource_properties: str = ""
    bitstream_id: str = ""  #: image programmed into its accelerators from start to end
    function_id: str = ""  #: instead of `bitstream_id`: an image with this function id, or `function_name`
    function_name: str = ""

    @property
    def programs(self) -> Mapping[str, str]:
        """{field of `BITSTREAM_NAMES`: its value}: one entry, or none if no bitstream is requested."""
        return {way: name for way in BITSTREAM_NAMES if (name := getattr(self, way))}


@dataclass(frozen=True, slots=True)
class FloatingIpRequest:
    """A request for ``virtual:floatingip``: `amount` addresses of a network, including all in `required`. No hosts."""

    resource_type: ClassVar[str] = VIRTUAL_FLOATING_IP

    network_id: str
    amount: int
    required: tuple[str, ...] = ()


#: The request of a reservation. The class determines the resource type.
ReservationRequest: TypeAlias = InstanceRequest | FlavorRequest | WholeHostRequest | AnyRequest | FloatingIpRequest

#: A request in a new lease. `external_lookups` resolves it to a `ReservationRequest`.
UnresolvedRequest: TypeAlias = (
    InstanceRequest | UnresolvedFlavorRequest | WholeHostRequest | AnyRequest | FloatingIpRequest
)


@dataclass(frozen=True, slots=True)
class ReservationChange:
    """New values for a reservation; None leaves a value as it is. `affinity` may be set to None: see `affinity_given`.

    An update need not name the type, so this class has the fields of all types. Each type refuses unknown fields, or
    ignores them, as the peer does, if `as_peer` is set.
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
    as_peer: bool = False

    def given(self) -> Mapping[str, object]:
        """{field: new value} of the fields that the update sets."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        affinity = {"affinity": self.affinity} if self.affinity_given else {}
        plain = values.keys() - {"id", "resource_type", "affinity", "affinity_given", "as_peer"}
        return {name: values[name] for name in sorted(plain) if values[name] is not None} | affinity
