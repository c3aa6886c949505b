"""The tree of options: INI, as operators know it. Every option is here, documented; an unknown key is an error.

``moorage config show`` prints this tree with the values in force. Nobody below the wiring sees it: what a part
needs is passed to it.
"""

import configparser
import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from moorage.core.errors import StartError

#: Service -> path of its endpoint below the plane's address; the first segment is its mount prefix.
ENDPOINT_PATHS = {
    "identity": "/identity/v3",
    "placement": "/placement",
    "compute": "/compute/v2.1",
    "accelerator": "/accelerator/v2",
    "reservation": "/reservation/v1",
    "image": "/image",
}

#: What [plane] services may name.
SERVICES = (*ENDPOINT_PATHS, "agent")


def option(default: Any, help_text: str, *, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"help": help_text, "choices": choices})


@dataclass(frozen=True)
class PlaneOptions:
    state_path: str = option("state", "Directory of everything this process keeps on disk. Relative to this file.")
    services: str = option(
        "identity,placement,compute,accelerator,reservation,image,agent",
        "What this process runs, comma separated. Others are reached over HTTP, see [endpoints].",
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
    threads: int = option(32, "Requests served at the same time; writes that wait together share a commit.")
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
    allow_none_beyond_loopback: bool = option(False, "Let mode 'none' listen on other addresses than loopback.")
    keystone_url: str = option("", "Keystone's URL with /v3, for mode 'keystone'.")
    username: str = option("moorage", "The user that the services call each other as.")
    password: str = option("", "Its password. Empty: the one made for the users file at the first start.")
    project: str = option("service", "Its project.")


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
    poll_period_s: float = option(5.0, "How often servers to be placed are looked for when no hint came.")
    host_down_after_s: int = option(60, "A host whose agent was silent for longer counts as down.")


@dataclass(frozen=True)
class AgentOptions:
    host: str = option("compute-1", "Name of the host, of its compute service and of its resource provider.")
    host_description: str = option("", "YAML file that describes the simulated host. Empty: the built-in one.")
    workers: int = option(4, "Jobs this host works on at the same time.")
    heartbeat_period_s: float = option(10.0, "How often the host says that it is there.")
    update_period_s: float = option(60.0, "How often the provider tree is compared with Placement.")
    poll_period_s: float = option(2.0, "How often jobs are asked for when no hint came.")
    job_lease_s: float = option(60.0, "A job whose worker was silent for longer is given out again.")


@dataclass(frozen=True)
class AcceleratorOptions:
    bitstream_cache_bytes: int = option(4 << 30, "Bound of the host's cache of bitstreams.")
    report_period_s: float = option(30.0, "How often a host tells the accelerator service everything again.")
    agent_socket: str = option("", "Unix socket that os_acc reaches the accelerator agent by. Empty: in state_path.")


@dataclass(frozen=True)
class ReservationOptions:
    freepool: str = option("freepool", "Name of the aggregate that holds the hosts under reservation.")
    minutes_before_end: int = option(60, "When before_end_lease is due, where a lease gives no time.")
    cleaning_time_s: int = option(0, "A host stays taken for so long after each lease.")
    poll_period_s: float = option(5.0, "How often leases are looked for that another process wrote.")
    start_deadline_s: int = option(
        3600, "A start that fails is repeated for so long, and never beyond the lease's end."
    )


@dataclass(frozen=True)
class Config:
    """All sections. Build it with `load`; `source` is the file it came from."""

    plane: PlaneOptions = PlaneOptions()
    server: ServerOptions = ServerOptions()
    identity: IdentityOptions = IdentityOptions()
    database: DatabaseOptions = DatabaseOptions()
    endpoints: EndpointOptions = EndpointOptions()
    placement: PlacementOptions = PlacementOptions()
    compute: ComputeOptions = ComputeOptions()
    agent: AgentOptions = AgentOptions()
    accelerator: AcceleratorOptions = AcceleratorOptions()
    reservation: ReservationOptions = ReservationOptions()
    source: Path = Path("moorage.conf")

    @property
    def state(self) -> Path:
        """`state_path`, absolute."""
        return (self.source.parent / self.plane.state_path).resolve()

    @property
    def url(self) -> str:
        """Where this process is reached from its own machine; `public_url` is for everybody else."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.server.address, self.server.address)  # noqa: S104 - compared, not bound
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server.port}"

    @property
    def runs(self) -> frozenset[str]:
        return frozenset(name.strip() for name in self.plane.services.split(",") if name.strip())

    @property
    def has_users(self) -> bool:
        """Whether people log in here: with Keystone they do so there, with mode none nowhere."""
        return self.identity.mode in ("embedded", "http_basic") and "identity" in self.runs

    def database_url(self, service: str) -> str:
        given: str = getattr(self.database, service)
        return given or f"sqlite:///{self.state / service}.db"


def sections() -> dict[str, type]:
    """Section name -> dataclass of its options, in the order they are printed."""
    hints = get_type_hints(Config)
    return {item.name: hints[item.name] for item in dataclasses.fields(Config) if item.name != "source"}


def load(path: Path) -> Config:
    """The options in the INI file `path`; what it does not name keeps its default.

    Raises `StartError` naming file, section and key for anything unknown or malformed.
    """
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        parser.read_string(path.read_text(encoding="utf-8"), source=str(path))
    except OSError as error:
        raise StartError(f"{path}: cannot be read: {error.strerror}") from error
    except (configparser.Error, UnicodeDecodeError) as error:
        raise StartError(f"{path}: is not an INI file: {error}") from error
    known = sections()
    values: dict[str, Any] = {}
    for section in parser.sections():
        if section not in known:
            raise StartError(f"{path}: there is no section [{section}]; there are {', '.join(known)}")
        values[section] = _section(path, section, known[section], dict(parser[section]))
    config = Config(**values, source=path.resolve())
    if unknown := config.runs.difference(SERVICES):
        raise StartError(
            f"{path}: [plane] services names {', '.join(sorted(unknown))}; there are {', '.join(SERVICES)}"
        )
    return config


def _section(path: Path, name: str, kind: type, given: dict[str, str]) -> Any:
    fields = {item.name: item for item in dataclasses.fields(kind)}
    types = get_type_hints(kind)
    values = {}
    for key, text in given.items():
        if key not in fields:
            raise StartError(f"{path}: [{name}] has no option {key!r}; it has {', '.join(fields)}")
        values[key] = _value(f"{path}: [{name}] {key}", types[key], fields[key].metadata["choices"], text.strip())
    return kind(**values)


def _value(where: str, kind: type, choices: tuple[str, ...], text: str) -> object:
    if kind is bool:
        states = configparser.ConfigParser.BOOLEAN_STATES
        if text.lower() not in states:
            raise StartError(f"{where} is {text!r}; use one of {', '.join(sorted(states))}")
        return states[text.lower()]
    if choices and text not in choices:
        raise StartError(f"{where} is {text!r}; use one of {', '.join(choices)}")
    try:
        return kind(text)
    except ValueError as error:
        raise StartError(f"{where} is {text!r}; it must be {_A_NUMBER.get(kind, 'text')}") from error


_A_NUMBER = {int: "a whole number", float: "a number"}


def render(config: Config) -> str:
    """`config` as a commented INI file that `load` reads back to the same options."""
    lines: list[str] = []
    for section, kind in sections().items():
        lines.append(f"[{section}]")
        for item in dataclasses.fields(kind):
            choices = item.metadata["choices"]
            lines.append(f"# {item.metadata['help']}" + (f" One of: {', '.join(choices)}." if choices else ""))
            value = getattr(getattr(config, section), item.name)
            lines.append(f"{item.name} = {str(value).lower() if isinstance(value, bool) else value}")
        lines.append("")
    return "\n".join(lines)
