"""Every configuration option by section, with its default and help text. The reference page is generated from here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def option(default: Any, help_text: str, *, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"help": help_text, "choices": choices})


@dataclass(frozen=True)
class PlaneOptions:
    state_path: str = option(".", "Directory for all files of this process, relative to this configuration file.")
    services: str = option(
        "identity,placement,compute,accelerator,reservation,image,agent,dashboard",
        "What this process runs, comma-separated. Other services are reached over HTTP, see [endpoints]. 'agent' "
        "is the agent of a compute host, 'accelerator-agent' the agent of a host whose servers a real Nova runs, "
        "'dashboard' the web pages at /ui, and 'network' a service of networks and ports.",
    )
    region: str = option("RegionOne", "Name of the region in the service catalogue.")
    clock: str = option(
        "system", "'adjustable' lets an administrator move the clock forward, for rehearsals.",
        choices=("system", "adjustable"),
    )  # fmt: skip
    log_level: str = option("info", "Lowest level that is logged.", choices=("debug", "info", "warning", "error"))
    log_file: str = option("moorage.log", "Log file, relative to state_path. If empty, the log goes to standard error.")
    hints: str = option(
        "",
        "How waiting hosts and workers are woken: empty (within this process), postgresql://... or amqp://... A "
        "lost hint costs one poll period, never a job.",
    )


@dataclass(frozen=True)
class ServerOptions:
    address: str = option("127.0.0.1", "Address to listen on.")
    port: int = option(8778, "Port to listen on. All services share it, each below its own prefix.")
    public_url: str = option("", "URL at which clients reach this server, if it differs from their Host header.")
    certificate_file: str = option(
        "",
        "PEM file with the server's certificate and its intermediate certificates, relative to state_path. With it, "
        "the server speaks TLS only; SIGHUP reads it again. If empty, plain HTTP. See docs/guides/tls.md.",
    )
    key_file: str = option("", "PEM file with the key of certificate_file, without a passphrase.")
    proxies: str = option(
        "",
        "Proxies whose Forwarded, X-Forwarded-Proto, X-Forwarded-Host and X-Forwarded-For headers are trusted: "
        "addresses and networks, comma-separated (10.1.2.3, fd00::/8). If empty, none are trusted. See "
        "docs/guides/tls.md.",
    )
    threads: int = option(
        32, "Maximum number of requests served at the same time. Writes that wait at the same time share a commit."
    )
    uploads: int = option(
        8,
        "Maximum number of images received at the same time. Uploads use at most half of the threads, and one "
        "project at most half of the uploads. Further uploads wait for up to idle_timeout_s.",
    )
    connections: int = option(
        8192,
        "Maximum number of open connections; also limited to 256 less than the process's limit of open files. "
        "When it is reached, a new connection replaces the one that has waited longest for its client.",
    )
    head_timeout_s: float = option(
        10.0,
        "Seconds within which the head of a request, and a body of up to 64 KiB, must arrive after the first byte.",
    )
    idle_timeout_s: float = option(120.0, "Seconds after which a connection without a request is closed.")
    min_rate_bytes_s: int = option(
        16_384,
        "Minimum rate, in bytes per second, at which a client must send a larger body or read an answer. The "
        "total time is not limited.",
    )
    stall_s: float = option(20.0, "Seconds by which a client may fall behind min_rate_bytes_s.")
    public_stall_s: float = option(5.0, "The same as stall_s, for a client that is not authenticated.")
    buffer_bytes: int = option(
        268_435_456,
        "Maximum memory for incoming requests and outgoing answers. When it is used up, the connection that has "
        "waited longest for its client is closed.",
    )
    drain_s: float = option(
        0.0,
        "Seconds to keep serving after SIGTERM. During this time the health check reports the shutdown and each "
        "answer closes its connection, so that a proxy in front can send new requests elsewhere.",
    )
    metrics: str = option(
        "loopback",
        "Who may read /metrics, which needs no credentials: this machine, everyone who can reach the port, or nobody.",
        choices=("loopback", "everywhere", "off"),
    )
    cors_origins: str = option(
        "", "Origins whose web pages may call these APIs from a browser, comma-separated (https://console.example.org)."
    )
    cors_headers: str = option(
        "x-auth-token,openstack-api-version,x-openstack-nova-api-version,x-openstack-request-id",
        "Request headers that such pages may send.",
    )


@dataclass(frozen=True)
class IdentityOptions:
    mode: str = option(
        "embedded",
        "How callers are authenticated: with tokens of the built-in identity service, with HTTP Basic and its users, "
        "not at all, or with Keystone.",
        choices=("embedded", "http_basic", "none", "keystone"),
    )
    users_file: str = option(
        "",
        "File of users, projects and roles of an earlier version, which the first start imports into the database. If "
        "empty, users.yaml in state_path.",
    )
    token_lifetime_s: int = option(3600, "Seconds for which a token of the built-in identity service is valid.")
    allow_none_beyond_loopback: bool = option(
        False, "Allow mode 'none' to listen on addresses other than loopback and to answer to any host name."
    )
    keystone_url: str = option("", "URL of Keystone with /v3, for mode 'keystone'.")
    username: str = option("moorage", "User name with which the services call each other.")
    password: str = option("", "Password of that user. If empty, the one created with the user at the first start.")
    project: str = option("service", "Project of that user.")
    host_users: str = option(
        "",
        "For mode 'keystone': the users that act as agents of hosts, comma-separated, as agent-{host} or "
        "USER=HOST. Such a user has only the rights of that host, with any roles. On the host itself, "
        "username may contain {host}, too.",
    )
    host_users_domain: str = option(
        "default", "ID of the domain of those users. Users of other domains are never hosts."
    )


@dataclass(frozen=True)
class DatabaseOptions:
    identity: str = option("", "The same as placement. Users, projects and roles; not used with Keystone.")
    placement: str = option(
        "",
        "sqlite:///FILE, postgresql://USER@HOST/DB or mariadb://USER@HOST/DB; several hosts are tried in turn: "
        "postgresql://USER@/DB?host=HOST:PORT&host=HOST:PORT. If empty, SQLite in state_path.",
    )
    compute: str = option("", "The same as placement.")
    accelerator: str = option("", "The same as placement.")
    reservation: str = option("", "The same as placement.")
    network: str = option("", "The same as placement.")


@dataclass(frozen=True)
class EndpointOptions:
    identity: str = option(
        "", "URL, with its prefix, of the service if another process runs it. If empty, this process runs it."
    )
    placement: str = option("", "The same as identity.")
    compute: str = option("", "The same as identity.")
    accelerator: str = option("", "The same as identity.")
    reservation: str = option("", "The same as identity.")
    image: str = option("", "The same as identity. To use a Glance, set its URL here.")
    network: str = option(
        "",
        "URL of Neutron, without /v2.0, for reservations of floating IPs. If empty, floating IPs cannot be reserved, "
        "and the catalogue has Moorage's network service, if there is one.",
    )
    moorage_network: str = option(
        "",
        "URL, with its prefix, of Moorage's network service if another process runs it. A process that runs compute "
        "gets the ports of servers there. If empty, this process runs it, or servers have no networks.",
    )
    ca_file: str = option(
        "",
        "PEM file, relative to state_path, of authorities that are trusted in addition to the machine's when this "
        "process, or a command, calls https URLs. May also hold the certificate of a server, which is then trusted "
        "without its authority. Read at the start.",
    )


@dataclass(frozen=True)
class PlacementOptions:
    policy: str = option(
        "new",
        "Permissions: the new defaults of OpenStack Placement, its old ones (administrators may also reshape), or "
        "everything for every caller with a project.",
        choices=("new", "old", "open"),
    )
    history_s: int = option(
        604_800, "Seconds for which changes are kept, to resume watches and to show past states; at least 60."
    )
    watchers: int = option(
        2,
        "Maximum number of watches that are held open at the same time. Each uses one of the [server] threads, "
        "and one thread stays free. Further watchers must poll.",
    )
    memory_s: int = option(
        600,
        "While the database does not answer, seconds for which providers and candidates are read from memory and "
        "marked with their age. 0: such reads fail.",
    )
    max_search_steps: int = option(
        800_000,
        "Maximum cost of a search for allocation candidates, in steps of about one microsecond. A search that "
        "exceeds it is refused.",
    )


@dataclass(frozen=True)
class ComputeOptions:
    provider_config_location: str = option(
        "",
        "Directory of YAML files with resource provider configuration, relative to state_path, read in order of their "
        "names. If empty, /etc/nova/provider_config/; for a simulated host, which is not this machine, "
        "provider_config in state_path.",
    )
    provider_config_writable_by_others: bool = option(
        False, "Accept provider configuration files that users other than their owner may write."
    )
    provider_config_remote_apply: bool = option(
        True,
        "Allow administrators to change these files through the compute API and the dashboard, with the same "
        "checks as on the host. If false, only plans are possible there.",
    )
    provider_config_watch_s: float = option(
        2.0,
        "Seconds between two checks of these files for changes. 0: never; the agent then reads them on SIGHUP and "
        "on `moorage provider-config apply`.",
    )
    poll_period_s: float = option(5.0, "Seconds between two searches for servers to place, if no hint arrives.")
    bare_metal_period_s: float = option(
        600.0, "Seconds between two comparisons of the allocations of bare-metal servers with their flavors."
    )
    finished_jobs_days: int = option(
        30,
        "Days for which finished jobs of hosts are kept. The instance actions that users see are not affected. 0: "
        "forever.",
    )
    host_down_after_s: int = option(60, "Seconds without a heartbeat after which a host counts as down.")
    allow_resize_to_same_host: bool = option(
        False,
        "Allow a resize to end on the host where it began. Both flavors hold resources there until the resize is "
        "confirmed.",
    )
    ignored_extra_specs: str = option(
        "",
        "Extra specs and image properties to ignore, for example hw:vif_multiqueue_enabled, hw_vif_model. A server's "
        "copy of its flavor shows them as ignored:<key>. Servers with any other key that no component honours are "
        "refused.",
    )
    pci_aliases: str = option(
        "",
        "Meaning of the names in pci_passthrough:alias: a device profile, or a resource class "
        "CUSTOM_ACCELERATOR_<TYPE>: gpu=CUSTOM_ACCELERATOR_GPU, codec=gzip.",
    )
    shelved_offload_time: int = option(
        0,
        "Seconds for which a shelved server stays on its host. 0: it is offloaded at once. -1: it stays until a "
        "user offloads it.",
    )
    reclaim_instance_interval: int = option(
        0,
        "Seconds for which a deleted server can be restored. It keeps its resources during this time. 0: it is "
        "deleted at once.",
    )
    quota_instances: int = option(
        10, "Maximum number of servers of a project that has no limit of its own. -1: no limit."
    )
    quota_cores: int = option(20, "The same as quota_instances, for VCPU and PCPU together.")
    quota_ram_mb: int = option(51200, "The same as quota_instances, for MEMORY_MB.")
    quota_key_pairs: int = option(100, "The same as quota_instances, for the key pairs of one user.")
    quota_metadata_items: int = option(128, "The same as quota_instances, for the metadata items of one server.")
    quota_server_groups: int = option(10, "The same as quota_instances, for server groups.")
    quota_server_group_members: int = option(10, "The same as quota_instances, for the servers in one group.")
    quota_classes: str = option(
        "", "Limits on resource classes for projects without limits of their own: CUSTOM_GOLD=4, VGPU=2."
    )


@dataclass(frozen=True)
class SchedulerOptions:
    max_placement_results: int = option(
        1000,
        "Maximum number of allocation candidates to compare. More are requested only if none of their hosts is "
        "suitable.",
    )
    sample_size: int = option(
        50,
        "Number of allocation candidates, from the whole cloud, to compare if hosts with more room are preferred. "
        "0: always max_placement_results.",
    )
    max_attempts: int = option(3, "Maximum number of hosts on which the build of a server is tried.")
    host_subset_size: int = option(1, "Number of best hosts from which one is chosen at random.")
    weight_multipliers: str = option(
        "",
        "Multipliers of weighers; a negative one reverses the order: ram=-1.0, soft_affinity=10. See the "
        "scheduling guide.",
    )
    filters: str = option(
        "",
        "Additional filters from other packages, comma-separated: names of entry points in the group "
        "moorage.scheduler.filters. See the scheduling guide.",
    )
    weighers: str = option(
        "",
        "Additional weighers from other packages, comma-separated: names of entry points in the group "
        "moorage.scheduler.weighers. weight_multipliers may name them. See the scheduling guide.",
    )
    limit_tenants_to_placement_aggregate: bool = option(
        False, "Restrict servers of a project to aggregates that name it as filter_tenant_id, if there are any."
    )
    placement_aggregate_required_for_tenants: bool = option(
        False, "With limit_tenants_to_placement_aggregate: refuse servers of projects that no aggregate names."
    )
    enable_isolated_aggregate_filtering: bool = option(
        False, "Restrict aggregates with trait:X=required to servers that require the trait."
    )


@dataclass(frozen=True)
class AgentOptions:
    host: str = option(
        "compute-1", "Name of the host, which is also the name of its compute service and its resource provider."
    )
    virt_driver: str = option(
        "simulated",
        "What runs the servers of this host: simulated domains, which are files, or QEMU through libvirt (see "
        "[libvirt]).",
        choices=("simulated", "libvirt"),
    )
    host_description: str = option(
        "", "YAML file that describes the simulated host. If empty, the built-in description."
    )
    socket: str = option(
        "", "Unix socket on which commands on this machine reach the agent. If empty, a socket in state_path."
    )
    simulated_hosts: int = option(
        1,
        "Number of hosts that this process simulates. The names of the additional hosts count up from the first "
        "(compute-2, compute-3 ...); these hosts have no accelerators.",
    )
    workers: int = option(4, "Maximum number of jobs that this host runs at the same time.")
    heartbeat_period_s: float = option(10.0, "Seconds between two heartbeats.")
    update_period_s: float = option(60.0, "Seconds between two comparisons of the provider tree with Placement.")
    poll_period_s: float = option(
        0.0,
        "Seconds between two requests for jobs, if no hint arrives. 0: 10 s where hints arrive ([plane] hints, or "
        "compute in this process), else 2 s.",
    )
    domain_report_period_s: float = option(
        10.0,
        "Seconds between two checks, on a host with real guests, for guests that stopped by themselves or wrote "
        "to their console.",
    )
    resume_guests_state_on_host_boot: bool = option(
        False,
        "When the host boots, reboot the real guests that were running when it went down. If false, they stay off.",
    )
    job_lease_s: float = option(60.0, "Seconds after which the job of a silent worker is assigned again.")
    accelerators_on_stop: str = option(
        "keep",
        "What happens to the accelerators of a server that is stopped, or deleted in a way that can be undone: keep, "
        "or release (the server gets new ones when it starts or is restored).",
    )


@dataclass(frozen=True)
class LibvirtOptions:
    uri: str = option("qemu:///system", "Connection URI of libvirt. With ?socket=..., it names the socket of a daemon.")
    instances_path: str = option(
        "",
        "Directory of disks and images; the user that runs QEMU must be able to read it. If empty, host/instances "
        "in state_path.",
    )
    virt_type: str = option(
        "auto", "KVM, software emulation, or KVM where the host supports it.", choices=("auto", "kvm", "qemu")
    )
    machine: str = option("q35", "Machine type of the guests.", choices=("q35", "pc"))
    cpu_mode: str = option(
        "host-model",
        "CPU model of the guests. The traits of the host are those of host-model.",
        choices=("host-model", "host-passthrough", "maximum", "none"),
    )
    devices: str = option(
        "passthrough",
        "'passthrough' gives servers the host's own devices through VFIO. 'emulated' gives each an ivshmem device "
        "emulated by QEMU, for rehearsals on hosts without an IOMMU.",
        choices=("passthrough", "emulated"),
    )
    host_ip: str = option("127.0.0.1", "IP address of this host as shown by the compute service.")
    shutdown_timeout_s: float = option(60.0, "Seconds to wait for a guest to stop or reboot before it is powered off.")
    image_cache_bytes: int = option(64 << 30, "Maximum size of the host's image cache, in bytes.")
    reserved_host_cpus: int = option(0, "Number of CPUs reserved for the host itself.")
    reserved_host_memory_mb: int = option(512, "Memory reserved for the host itself, in MiB.")
    reserved_host_disk_gb: int = option(0, "Disk reserved for the host itself, in GiB.")
    cpu_allocation_ratio: float = option(4.0, "Number of virtual CPUs per physical CPU.")
    ram_allocation_ratio: float = option(1.0, "Overcommit ratio of memory.")
    disk_allocation_ratio: float = option(1.0, "Overcommit ratio of disk. Disks grow as they fill.")


@dataclass(frozen=True)
class AcceleratorOptions:
    bitstream_cache_bytes: int = option(4 << 30, "Maximum size of the host's bitstream cache, in bytes.")
    report_period_s: float = option(30.0, "Seconds between two full reports of a host to the accelerator service.")
    poll_period_s: float = option(
        5.0, "Seconds between two searches for events to send to compute, if no hint arrives."
    )
    legacy_500: bool = option(
        False, "Answer 500, as Cyborg does, where Cyborg does not validate input; for clients that rely on it."
    )
    history_days: int = option(
        400, "Days for which the service keeps the history of devices (`moorage accelerator history`). 0: forever."
    )
    finished_jobs_days: int = option(30, "Days for which finished jobs of hosts are kept. 0: forever.")
    signature_keys: str = option(
        "",
        "Directory of public keys and certificates, <name>.pem, that verify bitstream signatures; relative to "
        "state_path. If empty, there are none.",
    )
    signatures: str = option(
        "where_asked",
        "Which bitstreams must be signed: those of flavors and profiles that ask for it, or all.",
        choices=("where_asked", "always"),
    )
    data_signatures: str = option(
        "do_not_suffice",
        "Where a signature is required: whether img_signature is sufficient. It covers the data, but not the "
        "intended use.",
        choices=("do_not_suffice", "suffice"),
    )
    quota_requests: int = option(10_000, "Maximum number of accelerator requests of a project. -1: no limit.")
    agent_socket: str = option(
        "", "Unix socket on which os_acc reaches the accelerator agent. If empty, a socket in state_path."
    )
    drivers: str = option(
        "simulated",
        "Drivers that discover this host's accelerators, comma-separated: simulated, pci, nvidia, qat, fpga_dfl, "
        "fpga_manager, opae, xrt.",
    )
    simulated_devices: str = option(
        "usual",
        "Devices of the driver 'simulated': FPGAs and GPUs, or in addition a time card, a GPU with shares and a "
        "QuickAssist card.",
        choices=("usual", "every_kind"),
    )
    names: str = option(
        "spec",
        "Resource classes of this host's devices in Placement: CUSTOM_ACCELERATOR_<TYPE>, or Cyborg's names "
        "(FPGA, PGPU, VGPU, CUSTOM_QAT) for device profiles of a real Nova. Moorage's own compute needs the "
        "former, so a process that runs compute or agent does not start with 'cyborg'. With 'cyborg', traits have "
        "both forms.",
        choices=("spec", "cyborg"),
    )
    pci_devices: str = option(
        "",
        'Driver pci: the devices to offer, as JSON: [{"vendor": "8086", "product": "37c8", "type": "QAT", '
        '"functions": "virtual"}]. See docs/guides/accelerators.md.',
    )
    nvidia_devices: str = option("", "Driver 'nvidia': the same as pci_devices. If empty, every NVIDIA GPU as a whole.")
    qat_devices: str = option(
        "", "Driver 'qat': the same as pci_devices. If empty, the virtual functions of every QuickAssist card."
    )
    fpga_devices: str = option(
        "",
        "Drivers 'fpga_dfl', 'fpga_manager' and 'opae': the same as pci_devices. If empty, every FPGA that the "
        "driver supports.",
    )
    xrt_devices: str = option(
        "", "Driver 'xrt': the same as pci_devices, for management functions. If empty, every card of that vendor."
    )


@dataclass(frozen=True)
class ReservationOptions:
    freepool: str = option("freepool", "Name of the aggregate for registered hosts that no lease uses.")
    minutes_before_end: int = option(
        60, "Minutes before the end at which before_end_lease is due, if the lease sets no time."
    )
    cleaning_time_s: int = option(0, "Seconds for which a host stays reserved after each lease.")
    poll_period_s: float = option(5.0, "Seconds between two searches for leases that another process wrote.")
    watch_period_s: float = option(
        60.0, "Seconds between two checks of which hosts are up. 0: never; then no lease is healed."
    )
    healing_interval_s: int = option(
        3600, "Leases that start within this many seconds are moved away from a failed host."
    )
    start_deadline_s: int = option(
        3600,
        "Seconds after the start date until an unfinished start is given up; at most until the end of the lease.",
    )
    hold_s: int = option(600, "Seconds for which a hold keeps resources.")
    max_holds: int = option(10, "Maximum number of holds of a project, and of a user, at the same time.")
    hold_minutes_per_day: int = option(
        240,
        "Maximum time in minutes that the holds of a project, and of a user, may last together in 24 hours. A hold "
        "counts until it is released or expires, at least one minute, and not at all if it becomes a lease. -1: no "
        "limit.",
    )
    keep_deleted_days: int = option(
        90, "Days for which the project of a deleted lease, and administrators, can read the lease and its timeline."
    )
    compat_server_groups: bool = option(
        False,
        "Create a server group for each reservation with affinity or anti-affinity, for clients that refer to it.",
    )


@dataclass(frozen=True)
class ImageOptions:
    """Options of the built-in image service. A Glance has its own quotas."""

    directory: str = option(
        "",
        "Directory of the images, relative to state_path. If empty, images in state_path. Put it on a disk "
        "without databases, so that uploads cannot fill that disk. `moorage backup` copies only files in "
        "state_path.",
    )
    quota_images: int = option(1000, "Maximum number of images of a project. -1: no limit.")
    quota_gb: int = option(
        200, "Maximum size of a project's images together, in GiB, including uploads in progress. -1: no limit."
    )
    keep_free_gb: float = option(
        1.0,
        "Disk space in GiB that uploads leave free, for example for databases; at most a tenth of the disk. 0: none.",
    )


@dataclass(frozen=True)
class NetworkOptions:
    quota_ports: int = option(500, "Maximum number of ports of a project; -1 is unlimited.")
    #: Every other key of the section: {name of a network: its text}.
    lines: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "help": "Every other key names a network, such as lab = bridge br0 subnet 192.0.2.0/24. See "
            "docs/guides/networks.md.",
            "choices": (),
        },
    )


@dataclass(frozen=True)
class AuditOptions:
    period_s: float = option(
        3600.0,
        "Seconds between two audits in the background, which compare the records of the services and repair "
        "nothing; at least 60. One of the processes that run compute (or else accelerators) does it. 0: never.",
    )


@dataclass(frozen=True)
class TrailOptions:
    enabled: bool = option(True, "Keep an audit trail: who changed what through the APIs, and with which result.")
    path: str = option(
        "trail.jsonl",
        "File of the audit trail, relative to state_path. If empty, no file; the trail goes to syslog only.",
    )
    rotate_mb: float = option(100.0, "Size in MiB above which the file is rotated.")
    keep: int = option(10, "Number of rotated files to keep, 1 to 1000. Older files are deleted.")
    syslog: str = option(
        "", "Also send entries to a syslog daemon: /dev/log, or udp://host:514. If empty, they are not sent."
    )
    required: bool = option(
        False,
        "Write the entry before the change, and refuse the change with 503 if the entry cannot be written. If "
        "false, the change is made, and the metric moorage_trail_lost_entries_total counts the lost entry.",
    )
    agents: bool = option(
        False,
        "Also record routine calls of host agents: heartbeats, reports of devices and domains, and claims of "
        "jobs. Refused calls are recorded in any case.",
    )


@dataclass(frozen=True)
class TracingOptions:
    endpoint: str = option(
        "",
        "URL of an OTLP/HTTP receiver for traces, http://127.0.0.1:4318. If empty, there are no traces. Needs "
        "moorage[otel].",
    )
    sample: float = option(
        1.0,
        "Share of traces to keep, 0 to 1, for traces that begin in this process. If a caller has decided, its "
        "decision applies.",
    )
    service_name: str = option("moorage", "Name of this process in traces.")
    statements: bool = option(False, "Also trace each statement of a database transaction.")


@dataclass(frozen=True)
class EnforcementOptions:
    enabled_filters: str = option(
        "", "Filters of Blazar that leases must pass, comma-separated: MaxLeaseDurationFilter, ExternalServiceFilter."
    )
    max_lease_duration: int = option(
        -1, "MaxLeaseDurationFilter: maximum duration of a lease, in seconds. -1: no limit."
    )
    max_lease_duration_exempt_project_ids: str = option("", "IDs of projects without this limit, comma-separated.")
    external_service_base_endpoint: str = option(
        "", "ExternalServiceFilter: URL of a service that must approve leases."
    )
    external_service_check_create_endpoint: str = option(
        "", "URL of its check for new leases, if not below the base URL."
    )
    external_service_check_update_endpoint: str = option(
        "", "URL of its check for changed leases, if not below the base URL."
    )
    external_service_on_end_endpoint: str = option(
        "", "URL of its notification for ended leases, if not below the base URL."
    )
    external_service_token: str = option("", "Token to send to it as X-Auth-Token.")
    limits: str = option(
        "",
        "Maximum amounts that a project may have reserved at any one time: VCPU=100,HOSTS=2. HOSTS counts whole "
        "hosts, which also count with all that they have; FLOATING_IPS counts addresses; LEASES counts leases that "
        "have not ended, and holds. Other classes have no limit.",
    )
    limit_hours: str = option(
        "", "Maximum amounts times hours that a project may have reserved in a period: VCPU=5000."
    )
    user_limits: str = option("", "The same as limits for each user, with the leases and holds of all projects.")
    user_limit_hours: str = option("", "The same as limit_hours for each user, with the leases of all projects.")
    limit_period_days: int = option(
        30,
        "Length in days of the period for limit_hours and user_limit_hours; the limit applies to every period of this "
        "length.",
    )


@dataclass(frozen=True)
class BeforeEndOptions:
    webhook_origins: str = option(
        "",
        "Origins to which webhooks of leases may be sent: https://hooks.example.org,https://ci.example.org:8443. "
        "Redirects are not followed. If empty, none.",
    )
    smtp_server: str = option("", "Mail server for mail of leases, host:port. If empty, no mail is sent.")
    smtp_security: str = option(
        "starttls", "Encryption of the connection to the mail server.", choices=("starttls", "tls", "none")
    )
    smtp_user: str = option("", "User name at the mail server. If empty, no login.")
    smtp_password: str = option("", "Password of that user. It is never sent if smtp_security is none.")
    mail_sender: str = option("", "Sender address of the mail.")
    mail_domains: str = option(
        "",
        "Domains to which mail may be sent, comma-separated: example.org,example.com. *: any domain. If empty, none.",
    )
    lent_hosts: str = option(
        "nothing",
        "What happens before the end to servers on reserved hosts, if the reservation's before_end is default.",
        choices=("nothing", "snapshot"),
    )
