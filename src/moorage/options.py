"""Every option there is, by section, with its default and what it means: what the reference prints is from here."""

from dataclasses import dataclass, field
from typing import Any


def option(default: Any, help_text: str, *, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"help": help_text, "choices": choices})


@dataclass(frozen=True)
class PlaneOptions:
    state_path: str = option("state", "Directory of everything this process keeps on disk. Relative to this file.")
    services: str = option(
        "identity,placement,compute,accelerator,reservation,image,agent,dashboard",
        "What this process runs, comma separated. Others are reached over HTTP, see [endpoints]. 'agent' is the agent of "
        "a host; 'accelerator-agent' that of a host whose servers are a real Nova's; 'dashboard' is the web pages at /ui.",
    )
    region: str = option("RegionOne", "Name of the region in the catalogue.")
    clock: str = option(
        "system", "'adjustable' lets an admin move the plane's time forwards: for rehearsals.",
        choices=("system", "adjustable"),
    )  # fmt: skip
    log_level: str = option("info", "Least level that is logged.", choices=("debug", "info", "warning", "error"))
    log_file: str = option("", "File for the log, relative to state_path. Empty: standard error.")
    hints: str = option(
        "",
        "How a waiting host or worker is woken: empty (in process), postgresql://... or amqp://... "
        "A lost hint costs one poll period, never a job.",
    )


@dataclass(frozen=True)
class ServerOptions:
    address: str = option("127.0.0.1", "Address to listen on.")
    port: int = option(8778, "Port to listen on; all services share it, each below its prefix.")
    public_url: str = option("", "URL that clients reach this server by, if not what their Host header says.")
    proxies: str = option(
        "",
        "Proxies in front whose Forwarded, X-Forwarded-Proto, X-Forwarded-Host and X-Forwarded-For headers are believed: "
        "addresses and networks, comma separated (10.1.2.3, fd00::/8). Empty: nobody's. docs/guides/tls.md has more.",
    )
    threads: int = option(32, "Requests served at the same time; writes that wait together share a commit.")
    uploads: int = option(
        8,
        "Images that are received at the same time, each by one of threads: half of those at most, and of one project half "
        "of these. The next ones wait, for idle_timeout_s at most.",
    )
    connections: int = option(
        8192,
        "Open connections at most, and 256 less than the process may open files. A new one takes the place of the one that "
        "has waited longest for its client.",
    )
    head_timeout_s: float = option(
        10.0,
        "The head of a request, and a body of up to 64 KiB with it, must be there so long after its first byte.",
    )
    idle_timeout_s: float = option(120.0, "A connection without a request ends after so many seconds.")
    min_rate_bytes_s: int = option(
        16_384,
        "A larger body must come, and an answer be taken, at so many bytes a second at least, however long it takes in all.",
    )
    stall_s: float = option(20.0, "So many seconds a client may be behind that rate.")
    public_stall_s: float = option(5.0, "As stall_s, of a client that has not shown who it is.")
    buffer_bytes: int = option(
        268_435_456,
        "Of requests that come and answers that go slowly, so much is kept in memory at most; then the connection that has "
        "waited longest for its client is ended.",
    )
    drain_s: float = option(
        0.0,
        "When it is asked to end (SIGTERM), this process says so in its health check, and goes on for so many seconds, with "
        "each answer the last on its connection: as long as a proxy in front needs to see it, and to send others elsewhere.",
    )
    metrics: str = option(
        "loopback",
        "Who may read /metrics, which asks for no credentials: this machine, everybody who reaches the port, nobody.",
        choices=("loopback", "everywhere", "off"),
    )
    cors_origins: str = option(
        "", "Origins whose web pages may call these APIs from a browser, comma separated (https://console.example.org)."
    )
    cors_headers: str = option(
        "x-auth-token,openstack-api-version,x-openstack-nova-api-version,x-openstack-request-id",
        "Headers that such pages may send.",
    )


@dataclass(frozen=True)
class IdentityOptions:
    mode: str = option(
        "embedded",
        "Who says who is calling: our own users file and tokens, HTTP Basic with that file, nobody, or Keystone.",
        choices=("embedded", "http_basic", "none", "keystone"),
    )
    users_file: str = option("", "Users, projects and roles. Empty: users.yaml in state_path, made at the first start.")
    token_lifetime_s: int = option(3600, "How long a token of the embedded identity is good.")
    allow_none_beyond_loopback: bool = option(
        False, "Let mode 'none' listen on other addresses than loopback, and answer to any name."
    )
    keystone_url: str = option("", "Keystone's URL with /v3, for mode 'keystone'.")
    username: str = option("moorage", "The user that the services call each other as.")
    password: str = option("", "Its password. Empty: the one made for the users file at the first start.")
    project: str = option("service", "Its project.")
    host_users: str = option(
        "",
        "Mode 'keystone': which users are the agents of which hosts, comma separated: agent-{host}, or USER=HOST. Such a "
        "user is that host and nothing else here, whatever roles it has; on the host, username may have {host} too.",
    )
    host_users_domain: str = option("default", "Id of the domain of those users: users of others are never hosts.")


@dataclass(frozen=True)
class DatabaseOptions:
    placement: str = option(
        "", "sqlite:///FILE, postgresql://USER@HOST/DB or mariadb://USER@HOST/DB. Empty: SQLite in state_path."
    )
    compute: str = option("", "As placement.")
    accelerator: str = option("", "As placement.")
    reservation: str = option("", "As placement.")


@dataclass(frozen=True)
class EndpointOptions:
    identity: str = option("", "URL of a service that another process runs (with its prefix). Empty: this process.")
    placement: str = option("", "As identity.")
    compute: str = option("", "As identity.")
    accelerator: str = option("", "As identity.")
    reservation: str = option("", "As identity.")
    image: str = option("", "As identity; the URL of a Glance here makes the plane use it.")
    network: str = option("", "URL of a Neutron, without /v2.0. Empty: floating IPs cannot be reserved.")


@dataclass(frozen=True)
class PlacementOptions:
    policy: str = option(
        "new",
        "Who may do what, as OpenStack Placement's new defaults, as its old ones (admins reshape too), or every caller "
        "with a project everything.",
        choices=("new", "old", "open"),
    )
    history_s: int = option(
        604_800, "How long changes are kept, for watches that resume and for states as of a time: a week. 60 at least."
    )
    watchers: int = option(
        2,
        "Watches of changes that are held open at the same time, each by one of [server] threads; one thread stays free. "
        "Who watches beyond that polls.",
    )
    memory_s: int = option(
        600,
        "While the database does not answer, providers and candidates are read from memory for so many seconds, "
        "marked with their age. 0: such reads are refused, too.",
    )
    lease_s: float = option(
        0.5,
        "While this process is the only one on its PostgreSQL or MariaDB, reads do not ask it whether others have "
        "written: for so many seconds at a time, 0.3 to 5. Another one's first write waits so long at most, also where "
        "this one was killed. 0: reads ask, always. Alike in all processes on one database.",
    )
    max_search_steps: int = option(
        800_000,
        "Work that one search for allocation candidates may cost before it is refused, in steps of about a microsecond.",
    )


@dataclass(frozen=True)
class ComputeOptions:
    provider_config_location: str = option(
        "/etc/nova/provider_config/", "Directory of YAML files with resource provider configuration, read in order."
    )
    provider_config_writable_by_others: bool = option(
        False, "Accept provider configuration files that others than their owner may write."
    )
    provider_config_remote_apply: bool = option(
        True,
        "Whether administrators may change those files through compute's API and the dashboard. They are checked as on the "
        "host; false leaves them the plan.",
    )
    provider_config_watch_s: float = option(
        2.0,
        "How often the agent looks whether those files changed. 0: never; they are read again on SIGHUP and by "
        "`moorage provider-config apply`.",
    )
    poll_period_s: float = option(5.0, "How often servers to be placed are looked for when no hint came.")
    bare_metal_period_s: float = option(
        600.0, "How often the allocations of bare-metal servers are compared with their flavors."
    )
    finished_jobs_days: int = option(
        30, "How long finished jobs of hosts are kept; the actions of servers that users see are others. 0: for ever."
    )
    host_down_after_s: int = option(60, "A host whose agent was silent for longer counts as down.")
    allow_resize_to_same_host: bool = option(
        False, "A resize may end on the host where it began; both flavors are held there until it is confirmed."
    )
    shelved_offload_time: int = option(
        0,
        "So many seconds a shelved server stays on its host. 0: it leaves at once. -1: it stays until it is told to go.",
    )
    reclaim_instance_interval: int = option(
        0, "So many seconds a deleted server can be restored; it holds what it held meanwhile. 0: it is gone at once."
    )
    quota_instances: int = option(10, "Servers of a project that has no limit of its own. -1: no limit.")
    quota_cores: int = option(20, "As quota_instances, of VCPU and PCPU together.")
    quota_ram_mb: int = option(51200, "As quota_instances, of MEMORY_MB.")
    quota_key_pairs: int = option(100, "As quota_instances, of keypairs for each user.")
    quota_metadata_items: int = option(128, "As quota_instances, of metadata of one server.")
    quota_server_groups: int = option(10, "As quota_instances, of server groups.")
    quota_server_group_members: int = option(10, "As quota_instances, of servers in one group.")
    quota_classes: str = option(
        "", "Limits on resource classes for projects that have none of their own: CUSTOM_GOLD=4, VGPU=2."
    )


@dataclass(frozen=True)
class SchedulerOptions:
    max_placement_results: int = option(
        1000, "Allocation candidates that are compared at most. More are asked for only where no host of those will do."
    )
    sample_size: int = option(
        50,
        "Allocation candidates, from all over the cloud, that are compared where hosts with more room are preferred; "
        "0: always max_placement_results.",
    )
    max_attempts: int = option(3, "Hosts on which the build of a server is tried.")
    host_subset_size: int = option(1, "Of so many best hosts one is taken at random.")
    weight_multipliers: str = option(
        "", "Weighers that count more, less or the other way round: ram=-1.0, soft_affinity=10. See the guide."
    )
    filters: str = option(
        "",
        "Filters of other packages that a host must pass too, comma separated: names of entry points in the group "
        "moorage.scheduler.filters. See the guide.",
    )
    weighers: str = option(
        "",
        "Weighers of other packages that count too, comma separated: names of entry points in the group "
        "moorage.scheduler.weighers. weight_multipliers may name them. See the guide.",
    )
    limit_tenants_to_placement_aggregate: bool = option(
        False, "Servers of a project go into the aggregates that name it as filter_tenant_id, where there are some."
    )
    placement_aggregate_required_for_tenants: bool = option(
        False, "With the former: projects that no aggregate names get no servers."
    )
    enable_isolated_aggregate_filtering: bool = option(
        False, "Aggregates with trait:X=required take only servers that require the trait."
    )


@dataclass(frozen=True)
class AgentOptions:
    host: str = option("compute-1", "Name of the host, of its compute service and of its resource provider.")
    virt_driver: str = option(
        "simulated",
        "What runs the servers of this host: domains kept as files, or QEMU by libvirt (see [libvirt]).",
        choices=("simulated", "libvirt"),
    )
    host_description: str = option("", "YAML file that describes the simulated host. Empty: the built-in one.")
    socket: str = option("", "Unix socket that commands of this machine reach the agent by. Empty: in state_path.")
    simulated_hosts: int = option(
        1,
        "Hosts that this process simulates. The further ones are called like the first with the number at its end "
        "counted up (compute-2, compute-3 ...), and have no accelerators.",
    )
    workers: int = option(4, "Jobs this host works on at the same time.")
    heartbeat_period_s: float = option(10.0, "How often the host says that it is there.")
    update_period_s: float = option(60.0, "How often the provider tree is compared with Placement.")
    poll_period_s: float = option(
        0.0,
        "How often jobs are asked for when no hint came. 0: every 10 s where hints come ([plane] hints, or compute in "
        "this process), else every 2 s.",
    )
    domain_report_period_s: float = option(
        10.0, "How often a host with real guests looks whether one went off by itself or wrote on its console."
    )
    resume_guests_state_on_host_boot: bool = option(
        False, "Real guests that ran when the host went down are rebooted when it is back; otherwise they stay off."
    )
    job_lease_s: float = option(60.0, "A job whose worker was silent for longer is given out again.")
    accelerators_on_stop: str = option(
        "keep",
        "What a server that is stopped does with its accelerators: keep, or release (it gets others at its start).",
    )


@dataclass(frozen=True)
class LibvirtOptions:
    uri: str = option("qemu:///system", "Where libvirt is. A ?socket=... behind it names a daemon's socket.")
    instances_path: str = option(
        "", "Directory of disks and images, open to the user that QEMU runs as. Empty: host/instances in state_path."
    )
    virt_type: str = option(
        "auto", "KVM, software emulation, or KVM where the host has it.", choices=("auto", "kvm", "qemu")
    )
    machine: str = option("q35", "Machine type of the guests.", choices=("q35", "pc"))
    cpu_mode: str = option(
        "host-model",
        "What CPU a guest gets; the host's traits are those of host-model.",
        choices=("host-model", "host-passthrough", "maximum", "none"),
    )
    devices: str = option(
        "passthrough",
        "A server's devices are the host's own, passed through by VFIO; or each is an ivshmem device that QEMU emulates, "
        "for rehearsals on hosts without an IOMMU.",
        choices=("passthrough", "emulated"),
    )
    host_ip: str = option("127.0.0.1", "Address of this host as the compute service shows it.")
    shutdown_timeout_s: float = option(
        60.0, "How long a guest that is to stop or reboot is waited for, then it is cut."
    )
    image_cache_bytes: int = option(64 << 30, "Bound of the host's cache of images.")
    reserved_host_cpus: int = option(0, "CPUs that are kept for the host itself.")
    reserved_host_memory_mb: int = option(512, "Memory that is kept for the host itself.")
    reserved_host_disk_gb: int = option(0, "Disk that is kept for the host itself.")
    cpu_allocation_ratio: float = option(4.0, "How many virtual CPUs there are per CPU.")
    ram_allocation_ratio: float = option(1.0, "How far memory is given out more than once.")
    disk_allocation_ratio: float = option(1.0, "How far disk is given out more than once; disks grow as they fill.")


@dataclass(frozen=True)
class AcceleratorOptions:
    bitstream_cache_bytes: int = option(4 << 30, "Bound of the host's cache of bitstreams.")
    report_period_s: float = option(30.0, "How often a host tells the accelerator service everything again.")
    poll_period_s: float = option(5.0, "How often to look for events to compute without being told.")
    legacy_500: bool = option(
        False, "Answer 500, as Cyborg does, where it does not check what users send: for clients that insist on it."
    )
    history_days: int = option(
        400, "How long the service keeps what was done with devices (`moorage accelerator history`). 0: for ever."
    )
    finished_jobs_days: int = option(30, "How long finished jobs of hosts are kept. 0: for ever.")
    signature_keys: str = option(
        "",
        "Directory of public keys and certificates, <name>.pem, that bitstreams are signed with; relative to "
        "state_path. Empty: none.",
    )
    signatures: str = option(
        "where_asked",
        "Which bitstreams must be signed: those of flavors and profiles that ask for it, or all.",
        choices=("where_asked", "always"),
    )
    data_signatures: str = option(
        "do_not_suffice",
        "Where a signature is demanded: whether img_signature is one, which covers the data and not what it is for.",
        choices=("do_not_suffice", "suffice"),
    )
    quota_requests: int = option(10_000, "Accelerator requests that a project may have. -1: no limit.")
    agent_socket: str = option("", "Unix socket that os_acc reaches the accelerator agent by. Empty: in state_path.")
    drivers: str = option(
        "simulated",
        "What finds this host's accelerators, comma separated: simulated, pci, nvidia, qat, fpga_dfl, fpga_manager, "
        "opae, xrt.",
    )
    simulated_devices: str = option(
        "usual",
        "Driver simulated: FPGAs and GPUs; or a time card, a GPU in shares and a QuickAssist card besides.",
        choices=("usual", "every_kind"),
    )
    names: str = option(
        "spec",
        "What this host's devices are called in Placement: CUSTOM_ACCELERATOR_<TYPE>, or as Cyborg does (FPGA, PGPU, VGPU, "
        "CUSTOM_QAT), for device profiles of a real Nova, which asks by those; Moorage's own compute asks by the former: it, or "
        "agent, does not start with it. Traits have both forms then.",
        choices=("spec", "cyborg"),
    )
    pci_devices: str = option(
        "",
        'Driver pci: the devices that are given out, as JSON: [{"vendor": "8086", "product": "37c8", "type": "QAT", '
        '"functions": "virtual"}]. See docs/guides/accelerators.md.',
    )
    nvidia_devices: str = option("", "Driver nvidia: as pci_devices. Empty: each GPU of that vendor, whole.")
    qat_devices: str = option("", "Driver qat: as pci_devices. Empty: the virtual functions of each QuickAssist card.")
    fpga_devices: str = option(
        "", "Drivers fpga_dfl, fpga_manager and opae: as pci_devices. Empty: each processing accelerator that is one."
    )
    xrt_devices: str = option(
        "", "Driver xrt: as pci_devices, of management functions. Empty: each card of that vendor."
    )


@dataclass(frozen=True)
class ReservationOptions:
    freepool: str = option("freepool", "Name of the aggregate that holds the hosts under reservation.")
    minutes_before_end: int = option(60, "When before_end_lease is due, where a lease gives no time.")
    cleaning_time_s: int = option(0, "A host stays taken for so long after each lease.")
    poll_period_s: float = option(5.0, "How often leases are looked for that another process wrote.")
    watch_period_s: float = option(60.0, "How often compute is asked which hosts live. 0: never, so nothing is healed.")
    healing_interval_s: int = option(3600, "Leases that start within it are moved off a host that failed.")
    start_deadline_s: int = option(
        3600, "A start that fails is repeated for so long, and never beyond the lease's end."
    )
    hold_s: int = option(600, "How long room is held for who looked for an offer.")
    max_holds: int = option(10, "How many holds a project may have at one time.")
    compat_server_groups: bool = option(
        False, "Make a server group for each reservation with affinity or anti-affinity, for clients that name it."
    )


@dataclass(frozen=True)
class ImageOptions:
    """Of our own image service; a Glance has quotas of its own."""

    directory: str = option(
        "",
        "Where images are kept; relative to state_path. Empty: images in state_path. Put it on a disk without databases: "
        "what members upload must not fill theirs. `moorage backup` copies what is in state_path only.",
    )
    quota_images: int = option(1000, "Images that a project may have. -1: no limit.")
    quota_gb: int = option(200, "GiB that a project's images may have together, with uploads under way. -1: no limit.")
    keep_free_gb: float = option(
        1.0,
        "GiB of the disk that uploads leave free for others, such as databases; at most a tenth of the disk. 0: none.",
    )


@dataclass(frozen=True)
class AuditOptions:
    period_s: float = option(
        3600.0,
        "How often what the services have written down is compared in the background, by one of the processes that run "
        "compute (or, without it, accelerators); nothing is mended. 60 at least. 0: never.",
    )


@dataclass(frozen=True)
class TrailOptions:
    enabled: bool = option(True, "Whether an audit trail is kept: who changed what over the APIs, and how it ended.")
    path: str = option("trail.jsonl", "Its file, relative to state_path. Empty: none, for syslog alone.")
    rotate_mb: float = option(100.0, "The file is rotated when it is larger (MiB).")
    keep: int = option(10, "Rotated files that are kept beside it, 1 to 1000; older ones are deleted.")
    syslog: str = option("", "Entries go to a syslog daemon too: /dev/log, or udp://host:514. Empty: they do not.")
    required: bool = option(
        False,
        "Each change has an entry before it is made, and is refused with 503 where that entry cannot be written. false: it "
        "is made, and the metric moorage_trail_lost_entries_total counts the entry.",
    )
    agents: bool = option(
        False,
        "What agents of hosts do all the time has entries too: heartbeats, reports of devices and domains, claims of jobs. "
        "Those that are refused have entries anyway.",
    )


@dataclass(frozen=True)
class TracingOptions:
    endpoint: str = option(
        "",
        "Where traces go: URL of an OTLP/HTTP receiver, http://127.0.0.1:4318. Empty: there are none. Needs moorage[otel].",
    )
    sample: float = option(1.0, "Which part of the traces that begin here is kept, 0 to 1; a caller's decision holds.")
    service_name: str = option("moorage", "What this process is called in traces.")
    statements: bool = option(
        False, "A span for each statement to a database that goes through SQLAlchemy or is prepared, too."
    )


@dataclass(frozen=True)
class EnforcementOptions:
    enabled_filters: str = option(
        "", "Which of Blazar's filters leases must pass: MaxLeaseDurationFilter, ExternalServiceFilter."
    )
    max_lease_duration: int = option(-1, "Longest lease, in seconds; -1 is no limit. MaxLeaseDurationFilter.")
    max_lease_duration_exempt_project_ids: str = option("", "Projects that may reserve for longer.")
    external_service_base_endpoint: str = option(
        "", "URL of a service that must agree to leases. ExternalServiceFilter."
    )
    external_service_check_create_endpoint: str = option("", "Its URL for new leases, where not below the base.")
    external_service_check_update_endpoint: str = option("", "Its URL for changes of leases.")
    external_service_on_end_endpoint: str = option("", "Its URL that is told of ends.")
    external_service_token: str = option("", "What it is sent as X-Auth-Token.")
    limits: str = option("", "What a project may reserve at one time: VCPU=100,HOSTS=2. None where a class has none.")
    limit_hours: str = option("", "And in a period, times hours: VCPU=5000.")
    limit_period_days: int = option(30, "The period of limit_hours, wherever it begins.")


@dataclass(frozen=True)
class BeforeEndOptions:
    webhook_origins: str = option(
        "",
        "Where webhooks of leases may go: https://hooks.example.org,https://ci.example.org:8443. No redirect is followed. "
        "Empty: nowhere.",
    )
    smtp_server: str = option("", "Mail server, host:port, that mail of leases goes through. Empty: no mail.")
    smtp_security: str = option("starttls", "How it is spoken to.", choices=("starttls", "tls", "none"))
    smtp_user: str = option("", "Whom to log in as. Empty: nobody.")
    smtp_password: str = option("", "That user's password. Never sent where smtp_security is none.")
    mail_sender: str = option("", "Address that mail comes from.")
    mail_domains: str = option(
        "", "Where mail may go: domains of addresses, example.org,example.com. *: anywhere. Empty: nowhere."
    )
    lent_hosts: str = option(
        "nothing",
        "What is done before the end with servers on lent hosts whose before_end is default.",
        choices=("nothing", "snapshot"),
    )
