"""Sections of the services with one section each: [identity], [placement], [accelerator], [image] and [network]."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.options.declaration import option


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
class OidcOptions:
    issuer: str = option(
        "",
        "URL of the OpenID provider with which people may sign in, as the provider itself writes it. If empty, people "
        "sign in with passwords only. Needs the built-in identity service and the extra oidc.",
    )
    name: str = option("single sign-on", "Name of the provider on the page of sign-in.")
    client_id: str = option("", "ID that the provider gave to the dashboard.")
    client_secret_file: str = option(
        "",
        "File with the secret of that client; a relative path is below state_path. If empty, the client is a public "
        "one, protected by PKCE alone.",
    )
    device_client_id: str = option(
        "",
        "ID of a public client with the device authorization grant, for `moorage login`. If empty, the command line "
        "cannot sign in with the provider.",
    )
    mapping_file: str = option(
        "",
        "YAML file with the rules that give people roles in projects; a relative path is below state_path. It is read "
        "at the start.",
    )
    projects_claim: str = option("groups", "Claim of the ID token whose values the rules name: a text, or a list.")
    person_claim: str = option(
        "sub",
        "Claim that identifies a person at the provider for ever. Never one that can change or be given to somebody "
        "else, such as email.",
    )
    name_claim: str = option("preferred_username", "Claim with the name to show. It identifies nobody.")
    scopes: str = option("openid profile", "Scopes to ask for, separated by spaces.")
    redirect_uri: str = option(
        "",
        "URL to which the provider sends browsers back. If empty, /ui/sign-in/provider/callback below the address of "
        "this process ([server] public_url).",
    )
    algorithms: str = option("RS256, ES256", "Algorithms with which ID tokens may be signed, comma-separated.")
    timeout_s: float = option(5.0, "Seconds after which a request to the provider is given up.")


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
        "Devices of the driver 'simulated': FPGAs and GPUs, or in addition a time card, a GPU with shares, a "
        "QuickAssist card and a network card.",
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
            "help": "Every other key names a network, such as lab5 = vlan 5 on br0 subnet 198.51.100.0/24. Without "
            "any, a process that also runs simulated hosts has lab = bridge br0 subnet 192.0.2.0/24, while there is no "
            "other network. See docs/guides/networks.md.",
            "choices": (),
        },
    )
