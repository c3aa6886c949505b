"""[pure] The contract of jobs: their kinds, and for each kind of a host's job its payload and its result.

The services write the payloads and read the results; the hosts' agents do the reverse. On the wire and in the jobs
table, a payload or a result is a JSON object with the field names of its struct. Services and agents may be of
different releases: a reader ignores unknown fields, and a new field needs a default, so that older documents decode.

Not here: who does the work of a kind (`moorage.agent.jobs.job_runner`), and what follows from a result
(`moorage.compute.agents.agent_service`, `moorage.accelerator.service`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import msgspec

from moorage.core.errors import Invalid
from moorage.core.ids import is_uuid
from moorage.core.json import JsonObject


class JobKind(StrEnum):
    """The values are stored in jobs and sent to agents."""

    # a host's jobs, from compute: operations on a server
    BUILD = "build"  #: in compute's own queue: select a host, which gets a job of this kind, too
    DESTROY = "destroy"
    SOFT_DELETE = "soft-delete"
    RESTORE = "restore"
    START = "start"
    STOP = "stop"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    SUSPEND = "suspend"
    RESUME = "resume"
    REBOOT = "reboot"
    REBOOT_HARD = "reboot-hard"
    REBUILD = "rebuild"
    RESCUE = "rescue"
    UNRESCUE = "unrescue"
    SET_PASSWORD = "set-password"  # noqa: S105 - the name of an operation, not a password
    CRASH_DUMP = "crash-dump"
    ATTACH_INTERFACE = "attach-interface"
    DETACH_INTERFACE = "detach-interface"
    SNAPSHOT = "snapshot"
    BACKUP = "backup"
    SHELVE = "shelve"
    OFFLOAD = "offload"
    UNSHELVE = "unshelve"
    # steps of a move; `moorage.compute.model.migration_workflow.StepName` has Nova's names for them
    MOVE_OUT = "move-out"
    MOVE_IN = "move-in"
    MOVE_BACK = "move-back"
    CLEAN = "clean"
    DROP = "drop"
    UNMAKE = "unmake"
    GO_BACK = "go-back"
    REMAKE = "remake"
    REMAKE_BACK = "remake-back"
    STRIP = "strip"
    RETURN = "return"
    RECEIVE = "receive"
    HAND_OVER = "hand-over"
    TAKE_OVER = "take-over"
    BUILD_AGAIN = "build-again"
    # about a server, but no operation on it
    CONSOLE = "console"
    # about the host itself
    PROVIDER_CONFIG = "provider-config"

    # a host's jobs, from the accelerator service
    BIND = "bind"
    UNBIND = "unbind"
    PROGRAM = "program"
    OPERATOR_OVERRIDES = "wishes"
    RELEASE_HANDLE = "release-handle"

    # jobs of the services' own workers
    RELEASE = "release"  #: release a server's allocation
    PORTS = "ports"  #: release a server's ports, or bind them to its host
    RELEASE_PORT = "release-port"  #: release one port, unless its server has it
    PUBLISH_STATUS = "publish-status"  #: publish to Placement whether a host is disabled
    PUBLISH_AGGREGATES = "publish-aggregates"  #: publish the aggregates of a host to Placement
    FORGET_HOST = "forget-host"  #: delete the providers of a deleted host from Placement
    FORGET_IMAGE = "forget-image"  #: delete the image of a shelved server's disk
    PLACE = "place"  #: this and the next four: the steps of a move that compute runs itself
    GIVE_BACK = "give-back"
    SETTLE = "settle"
    SWAP = "swap"
    KEEP = "keep"
    BOUND = "bound"  #: send the events of bound accelerator requests to compute
    AUDIT = "audit"


# ------------------------------------------------------------------------------------- parts of payloads


class FlavorPayload(msgspec.Struct, frozen=True):
    name: str
    vcpus: int
    ram_mb: int
    disk_gb: int = 0
    extra_specs: Mapping[str, str] = {}
    ephemeral_gb: int = 0
    swap_mb: int = 0
    id: str = ""


class ServerRef(msgspec.Struct, frozen=True):
    id: str
    name: str


class GuestPayload(msgspec.Struct, frozen=True):
    """The values for the server's config drive; see `moorage.agent.model.Guest`."""

    hostname: str
    zone: str | None = None
    launch_index: int = 0
    reservation_id: str = ""
    metadata: Mapping[str, str] = {}
    public_keys: Mapping[str, str] = {}
    user_data: str | None = None


class AddressPayload(msgspec.Struct, frozen=True):
    """An address of an interface, and what of its subnet the guest needs."""

    address: str
    cidr: str  #: of the subnet
    gateway: str | None = None
    dns: tuple[str, ...] = ()


#: The kind of a port of a Neutron: `physical_network` is a bridge of Open vSwitch, and the host marks the interface
#: with the id of the port. Neutron's agent on the host then connects it.
OVS = "ovs"

#: The kind of a port of a Neutron with a device profile: the interface is a virtual function of a network card, that of
#: the request group `device_group`. The host chooses it, and has the port bound to it (`PortDevice`) before the guest
#: gets it.
DEVICE = "device"


#: The code of a failure of a host's job because a port of the kind `DEVICE` could not be bound.
PORT_REFUSED_CODE = "agent.port_refused"


def device_group(port_id: str) -> str:
    """The suffix of the request group, in the server's extra specs, for the device of a port."""
    return f"port_{port_id}"


def is_device_group(suffix: str) -> bool:
    """Whether the request group is for the device of a port; a flavor may have groups with similar names."""
    prefix = device_group("")
    return suffix.startswith(prefix) and is_uuid(suffix.removeprefix(prefix))


class PortDevice(msgspec.Struct, frozen=True):
    """The virtual function that a host has chosen for a port of the kind `DEVICE`."""

    address: str  #: PCI, ``dddd:bb:dd.f``
    physical_network: str  #: that the card is connected to


class InterfacePayload(msgspec.Struct, frozen=True):
    """A network interface of the server. `kind`, `physical_network`, `segmentation_id`: what the host attaches it to,
    see `moorage.network.model.Segment`, or `OVS` or `DEVICE`. Of a `DEVICE`, the job lacks the VLAN; the answer to the
    host's choice has it.
    """

    port_id: str
    mac: str
    network_id: str
    kind: str
    physical_network: str
    segmentation_id: int | None = None
    is_dhcp: bool = False  #: a DHCP server of the network gives the address
    addresses: tuple[AddressPayload, ...] = ()
    mtu: int | msgspec.UnsetType = msgspec.UNSET  #: that of Ethernet, if not set


class ServerPayload(ServerRef, frozen=True):
    project_id: str
    flavor: FlavorPayload
    image_id: str | None = None
    user_id: str | None = None
    instance_name: str = ""
    guest: GuestPayload | None = None  #: None: the server has no config drive
    hostname: str | None = None
    metadata: Mapping[str, str] = {}
    #: In the order in which the guest sees them. A server without networks leaves them out, as the release before did.
    interfaces: tuple[InterfacePayload, ...] | msgspec.UnsetType = msgspec.UNSET


class AllocationPayload(msgspec.Struct, frozen=True):
    resources: Mapping[str, int]


class ImagePayload(msgspec.Struct, frozen=True):
    """The image to make from a disk."""

    id: str
    name: str
    properties: Mapping[str, str] = {}


class AlternatePayload(msgspec.Struct, frozen=True):
    """Another host for a server whose build fails: see `moorage.compute.scheduling.build_retries`."""

    host: str
    root_uuid: str
    allocations: Mapping[str, Mapping[str, int]]
    mappings: Mapping[str, tuple[str, ...]]
    candidate_root: str


class RegionContentFilter(msgspec.Struct, frozen=True):
    """The content of an FPGA region: at most one field is set; none: the region is blank."""

    bitstream_id: str = ""
    function_id: str = ""
    function_name: str = ""


# ---------------------------------------------------------------------------------------------- payloads


class JobPayload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base of all payloads. A field that has its default is not sent."""


class ServerJob(JobPayload, frozen=True, kw_only=True):
    """A job about one server. `action_id` and `request_id` are for the report and the logs."""

    server: ServerPayload
    action_id: str
    request_id: str
    #: {suffix of a request group ("" for the group without suffix): uuids of the providers selected for it}.
    selected_rp: Mapping[str, tuple[str, ...]] = {}
    #: By provider uuid; empty for a server without an allocation.
    allocations: Mapping[str, AllocationPayload] = {}
    #: Of the guest; the virt driver applies them: ``{"hw:watchdog_action": "reset"}``.
    settings: Mapping[str, str] = {}
    #: The move that the job is a step of; None: the job is an operation.
    move_id: str | None = None
    #: Identifies this request; the same in each repetition.
    key: str | None = None


class BuildJob(ServerJob, frozen=True, kw_only=True):
    """The fields are for compute itself, which retries a failed build; None in the build of a move."""

    alternates: tuple[AlternatePayload, ...] | None = None
    image_properties: Mapping[str, str] | None = None
    tried: Mapping[str, str] | None = None  #: {host: reason why the build failed there}


class StartJob(ServerJob, frozen=True, kw_only=True):
    start: bool  #: False: define the domain and leave it off; for a shelve, whether a failure starts the server again


class RebuildJob(StartJob, frozen=True, kw_only=True):
    key: str


class ShelveJob(StartJob, frozen=True, kw_only=True):
    image: ImagePayload


class SnapshotJob(ServerJob, frozen=True, kw_only=True):
    image: ImagePayload
    rotation: int | None  #: of a backup: number of backups of its kind to keep; None: not a backup


class RescueJob(ServerJob, frozen=True, kw_only=True):
    image_id: str  #: of the rescue system
    password: str


class PasswordJob(ServerJob, frozen=True, kw_only=True):
    password: str


class InterfaceJob(ServerJob, frozen=True, kw_only=True):
    interface: InterfacePayload  #: to attach or detach; `server.interfaces` are those that the server has then
    #: To detach a `DEVICE`: whether the guest boots again afterwards, which was turned off to take it away.
    restarts: bool = False


class HandOverJob(StartJob, frozen=True, kw_only=True):
    target: Mapping[str, str]  #: as the destination's driver described it: `ReceiveResult.target`


class ProviderConfigJob(JobPayload, frozen=True, kw_only=True):
    do: str  #: show, plan or apply
    files: Mapping[str, str]  #: {name: text}
    expires_at: str  #: ISO 8601; afterwards its author no longer expects it to happen
    request_id: str = ""


class ConsoleJob(JobPayload, frozen=True, kw_only=True):
    """Connect the server's serial console to the proxy at `url`, which gives it to the person who asked for it."""

    server_id: str
    session_id: str
    url: str  #: ``wss://compute.example.org:6083/``
    secret: str  #: for the proxy: this is the host that was asked
    expires_at: str  #: ISO 8601; afterwards the person has gone
    request_id: str = ""


class BindJob(JobPayload, frozen=True, kw_only=True):
    """Bind all accelerator requests of an instance on one host."""

    instance_uuid: str
    project_id: str
    groups: Mapping[str, Mapping[str, str]]  #: the profile's groups that the requests are of, by number
    providers: Mapping[str, str]  #: resource provider by group
    requests: Mapping[str, str]  #: request uuid -> group
    user_id: str = ""  #: of the caller who bound the requests


class UnbindJob(JobPayload, frozen=True, kw_only=True):
    instance_uuid: str


class ReleaseHandleJob(JobPayload, frozen=True, kw_only=True, omit_defaults=False):
    """End the quarantine of a handle: clean it again, or only free it if an operator vouches that it is clean."""

    handle: str
    reason: str
    user_id: str = ""
    is_clean: bool = False


class ProgramJob(JobPayload, frozen=True, kw_only=True, omit_defaults=False):
    """Load an image, or the vendor's blank, into a region that is not in use.

    The image is given by its id or by one of its functions. If none is given, the blank is loaded, provided that the
    region carries `only` (or `only` is empty).
    """

    deployable: str
    image_id: str
    project_id: str  #: the request may use its images and public ones
    user_id: str = ""
    function_id: str = ""
    function_name: str = ""
    only: RegionContentFilter = RegionContentFilter()
    uuid: str = ""  #: of the deployable, for the accelerator service itself


class OperatorOverridesJob(JobPayload, frozen=True, kw_only=True, omit_defaults=False):
    """All settings of operators for the devices of a host."""

    withdrawn: tuple[str, ...] = ()  #: addresses of disabled cards
    traits: Mapping[str, tuple[str, ...]] = {}  #: extra traits, by deployable


class BoundJob(JobPayload, frozen=True, kw_only=True):
    instance_uuid: str
    requests: tuple[str, ...]


# ----------------------------------------------------------------------------------------------- results


class JobResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base of all results. A field that has its default is not sent."""


class JobFailure(JobResult, frozen=True, kw_only=True):
    """The result of a failed job of any kind."""

    error: str = ""  #: one sentence, for the owner of the server
    code: str | None = None  #: stable; see docs/reference/errors.md
    #: Of a build, whether parts of the server are left on the host; of ATTACH_INTERFACE, whether the guest may have the
    #: interface; of MOVE_OUT and SHELVE, whether a server that ran may be off.
    is_left: bool | None = None


class ServerResult(JobResult, frozen=True, kw_only=True):
    """None: not changed, or not known."""

    devices: tuple[Mapping[str, str], ...] | None = None  #: all of the server, as `os_acc.plug` returned them
    console: str | None = None  #: the end of the guest's console
    power_state: str | None = None
    released: int | None = None  #: number of released devices


class ReceiveResult(ServerResult, frozen=True, kw_only=True):
    target: Mapping[str, str] = {}  #: where the source shall send the guest, in the words of the driver


class ProviderConfigResult(JobResult, frozen=True, kw_only=True, omit_defaults=False):
    """STATE, and OUTCOME or None: see `moorage.agent.control`."""

    state: Mapping[str, object]
    outcome: Mapping[str, object] | None = None


class HandlesResult(JobResult, frozen=True, kw_only=True, omit_defaults=False):
    """`states`: of all handles of each deployable that is involved: {deployable: {handle: state}}."""

    states: Mapping[str, Mapping[str, str]] = {}


class BindResult(HandlesResult, frozen=True, kw_only=True, omit_defaults=False):
    handles: Mapping[str, str] = {}  #: {accelerator request: address of its device}


class ProgramResult(JobResult, frozen=True, kw_only=True, omit_defaults=False):
    bitstream_id: str | None = None  #: the image in the region now; None: the region is blank


class EmptyResult(JobResult, frozen=True, kw_only=True):
    pass


# ------------------------------------------------------------------------------------------------- kinds


@dataclass(frozen=True, slots=True)
class KindContract:
    payload: type[JobPayload]
    result: type[JobResult]


_SERVER = KindContract(ServerJob, ServerResult)
_START = KindContract(StartJob, ServerResult)
_REBUILD = KindContract(RebuildJob, ServerResult)
_SNAPSHOT = KindContract(SnapshotJob, ServerResult)
_SHELVE = KindContract(ShelveJob, ServerResult)

#: Of every kind that a host runs, and of BOUND. The payloads of the other kinds are read only by the service that wrote
#: them.
CONTRACTS: Mapping[JobKind, KindContract] = {
    JobKind.BUILD: KindContract(BuildJob, ServerResult),
    JobKind.DESTROY: _SERVER,
    JobKind.SOFT_DELETE: _SERVER,
    JobKind.RESTORE: _SERVER,
    JobKind.START: _SERVER,
    JobKind.STOP: _SERVER,
    JobKind.PAUSE: _SERVER,
    JobKind.UNPAUSE: _SERVER,
    JobKind.SUSPEND: _SERVER,
    JobKind.RESUME: _SERVER,
    JobKind.REBOOT: _SERVER,
    JobKind.REBOOT_HARD: _SERVER,
    JobKind.REBUILD: _REBUILD,
    JobKind.RESCUE: KindContract(RescueJob, ServerResult),
    JobKind.UNRESCUE: _SERVER,
    JobKind.SET_PASSWORD: KindContract(PasswordJob, ServerResult),
    JobKind.CRASH_DUMP: _SERVER,
    JobKind.ATTACH_INTERFACE: KindContract(InterfaceJob, ServerResult),
    JobKind.DETACH_INTERFACE: KindContract(InterfaceJob, ServerResult),
    JobKind.SNAPSHOT: _SNAPSHOT,
    JobKind.BACKUP: _SNAPSHOT,
    JobKind.SHELVE: _SHELVE,
    JobKind.OFFLOAD: _SERVER,
    JobKind.UNSHELVE: _SERVER,
    JobKind.MOVE_OUT: _SHELVE,
    JobKind.MOVE_IN: _START,
    JobKind.MOVE_BACK: _START,
    JobKind.CLEAN: _START,
    JobKind.DROP: _START,
    JobKind.UNMAKE: _START,
    JobKind.GO_BACK: _START,
    JobKind.REMAKE: _REBUILD,
    JobKind.REMAKE_BACK: _REBUILD,
    JobKind.STRIP: _START,
    JobKind.RETURN: _REBUILD,
    JobKind.RECEIVE: KindContract(StartJob, ReceiveResult),
    JobKind.HAND_OVER: KindContract(HandOverJob, ServerResult),
    JobKind.TAKE_OVER: _START,
    JobKind.BUILD_AGAIN: _START,
    JobKind.CONSOLE: KindContract(ConsoleJob, EmptyResult),
    JobKind.PROVIDER_CONFIG: KindContract(ProviderConfigJob, ProviderConfigResult),
    JobKind.BIND: KindContract(BindJob, BindResult),
    JobKind.UNBIND: KindContract(UnbindJob, HandlesResult),
    JobKind.PROGRAM: KindContract(ProgramJob, ProgramResult),
    JobKind.RELEASE_HANDLE: KindContract(ReleaseHandleJob, HandlesResult),
    JobKind.OPERATOR_OVERRIDES: KindContract(OperatorOverridesJob, EmptyResult),
    JobKind.BOUND: KindContract(BoundJob, EmptyResult),
}

P = TypeVar("P", bound=JobPayload)
R = TypeVar("R", bound=JobResult)


def payload_of(kind: JobKind, document: Mapping[str, object], payload_type: type[P]) -> P:
    """Decodes the payload of a host's job; `payload_type` is the type of its kind, or a base of it.

    Raises `Invalid` with the kind and the position of the fault.
    """
    try:
        payload = msgspec.convert(document, CONTRACTS[kind].payload)
    except msgspec.ValidationError as error:
        raise Invalid(
            f"the job's payload cannot be read: {error}, in a job of kind {kind}. If the service that wrote it is of "
            "another release than this process, upgrade the older one",
            code="agent.payload",
        ) from error
    if not isinstance(payload, payload_type):
        raise TypeError(f"a job of kind {kind} has a {type(payload).__name__}, not a {payload_type.__name__}")
    return payload


def result_of(kind: JobKind, document: Mapping[str, object], result_type: type[R]) -> R:
    """Decodes the result of a job that succeeded; see `payload_of`."""
    result = _decoded_result(kind, document, CONTRACTS[kind].result)
    if not isinstance(result, result_type):
        raise TypeError(f"a job of kind {kind} has a {type(result).__name__}, not a {result_type.__name__}")
    return result


def failure_of(kind: JobKind, document: Mapping[str, object]) -> JobFailure:
    """Decodes the result of a job that failed. Raises `Invalid`."""
    return _decoded_result(kind, document, JobFailure)


def _decoded_result(kind: JobKind, document: Mapping[str, object], result_type: type[R]) -> R:
    try:
        return msgspec.convert(document, result_type)
    except msgspec.ValidationError as error:
        raise Invalid(
            f"the result of the job cannot be read: {error}, in the report on a job of kind {kind}. If the agent is of "
            "another release than this service, upgrade the older one",
            code="jobs.report",
        ) from error


def payload_document(kind: JobKind, payload: JobPayload) -> JsonObject:
    """The payload as a JSON object."""
    if kind in CONTRACTS and type(payload) is not CONTRACTS[kind].payload:
        raise TypeError(
            f"a job of kind {kind} has a {CONTRACTS[kind].payload.__name__}, not a {type(payload).__name__}"
        )
    document: JsonObject = msgspec.to_builtins(payload)
    return document


def result_document(result: JobResult) -> JsonObject:
    """The result as a JSON object."""
    document: JsonObject = msgspec.to_builtins(result)
    return document
