"""Sections [plane], [server], [database] and [endpoints]: the process, its address, its databases, other services."""

from dataclasses import dataclass

from moorage.options.declaration import option


@dataclass(frozen=True)
class PlaneOptions:
    state_path: str = option(".", "Directory for all files of this process, relative to this configuration file.")
    services: str = option(
        "identity,placement,compute,accelerator,reservation,network,image,agent,dashboard",
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
        "How waiting hosts and workers are woken: empty (within this process), postgresql://... or amqp://..., "
        "with several hosts as in [database]. A lost hint costs one poll period, never a job.",
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
        "URL of Neutron, without /v2.0, for reservations of floating IPs, and for the ports of servers unless there is "
        "a network service of Moorage. If empty, floating IPs cannot be reserved, and the catalogue has Moorage's "
        "network service, if there is one.",
    )
    moorage_network: str = option(
        "",
        "URL, with its prefix, of Moorage's network service if another process runs it. A process that runs compute "
        "gets the ports of servers there, also if it runs a network service itself. If empty, this process runs it, "
        "or servers have the networks of the Neutron in network, or none.",
    )
    ca_file: str = option(
        "",
        "PEM file, relative to state_path, of authorities that are trusted in addition to the machine's when this "
        "process, or a command, calls https URLs. May also hold the certificate of a server, which is then trusted "
        "without its authority. Read at the start.",
    )
