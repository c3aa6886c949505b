"""The configuration: an INI file whose sections and options are declared in `moorage.options`. Unknown keys are errors.

``moorage config show`` prints it with the current values. Code below the wiring never sees it; the wiring passes each
part the values that it needs.
"""

import configparser
import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

from moorage.core.errors import StartError
from moorage.options.compute import ComputeOptions, SchedulerOptions
from moorage.options.host import AgentOptions, LibvirtOptions
from moorage.options.plane import DatabaseOptions, EndpointOptions, PlaneOptions, ServerOptions
from moorage.options.reservation import BeforeEndOptions, EnforcementOptions, ReservationOptions
from moorage.options.services import (
    AcceleratorOptions,
    IdentityOptions,
    ImageOptions,
    NetworkOptions,
    OidcOptions,
    PlacementOptions,
)
from moorage.options.telemetry import AuditOptions, TracingOptions, TrailOptions

#: {service: path of its endpoint below the plane's address}. The first segment is the mount prefix.
ENDPOINT_PATHS = {
    "identity": "/identity/v3",
    "placement": "/placement",
    "compute": "/compute/v2.1",
    "accelerator": "/accelerator/v2",
    "reservation": "/reservation/v1",
    "image": "/image",
    "network": "/network",
}

#: Path of the dashboard for browsers. It is not an API, so the catalogue does not contain it.
DASHBOARD_PATH = "/ui"

#: Valid names in [plane] services.
SERVICES = (*ENDPOINT_PATHS, "agent", "accelerator-agent", "dashboard")

#: Default name of the agent's socket in `state_path`.
AGENT_SOCKET = "agent.sock"

#: Directory of provider configuration files that describe this machine, as for Nova.
PROVIDER_CONFIG = Path("/etc/nova/provider_config")

#: Name of that directory in `state_path` for a simulated host.
SIMULATED_PROVIDER_CONFIG = "provider_config"

#: The networks of a plane with simulated hosts whose file names none, so that clients that wait for a server's address
#: find one. The bridge need not exist, and the addresses are those for documentation (RFC 5737).
SIMULATED_NETWORKS: Mapping[str, str] = MappingProxyType({"lab": "bridge br0 subnet 192.0.2.0/24"})

#: File name in the directory of a host.
CREDENTIAL = "credential.json"

#: Field of a section whose keys are names that the operator chooses.
_LINES = "lines"

_NUMBERED = re.compile(r"(.*?)(\d+)\Z")


@dataclass(frozen=True)
class Config:
    """All sections. Create it with `load_config`. `source` is the configuration file."""

    plane: PlaneOptions = field(default_factory=PlaneOptions)
    server: ServerOptions = field(default_factory=ServerOptions)
    identity: IdentityOptions = field(default_factory=IdentityOptions)
    oidc: OidcOptions = field(default_factory=OidcOptions)
    database: DatabaseOptions = field(default_factory=DatabaseOptions)
    endpoints: EndpointOptions = field(default_factory=EndpointOptions)
    placement: PlacementOptions = field(default_factory=PlacementOptions)
    compute: ComputeOptions = field(default_factory=ComputeOptions)
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)
    agent: AgentOptions = field(default_factory=AgentOptions)
    libvirt: LibvirtOptions = field(default_factory=LibvirtOptions)
    accelerator: AcceleratorOptions = field(default_factory=AcceleratorOptions)
    reservation: ReservationOptions = field(default_factory=ReservationOptions)
    image: ImageOptions = field(default_factory=ImageOptions)
    network: NetworkOptions = field(default_factory=NetworkOptions)
    audit: AuditOptions = field(default_factory=AuditOptions)
    trail: TrailOptions = field(default_factory=TrailOptions)
    tracing: TracingOptions = field(default_factory=TracingOptions)
    enforcement: EnforcementOptions = field(default_factory=EnforcementOptions)
    before_end: BeforeEndOptions = field(default_factory=BeforeEndOptions)
    source: Path = Path("moorage.conf")

    @property
    def state(self) -> Path:
        """`state_path`, absolute."""
        return (self.source.parent / self.plane.state_path).resolve()

    @property
    def images(self) -> Path:
        """Directory in which the built-in image service keeps images."""
        return self.state / (self.image.directory or "images")

    @property
    def provider_config(self) -> Path:
        """Directory of the provider configuration files."""
        if self.compute.provider_config_location:
            return self.state / self.compute.provider_config_location
        is_simulated = self.agent.virt_driver == "simulated"
        return self.state / SIMULATED_PROVIDER_CONFIG if is_simulated else PROVIDER_CONFIG

    @property
    def log(self) -> Path | None:
        """The log file; None: standard error."""
        return self.state / self.plane.log_file if self.plane.log_file else None

    @property
    def url(self) -> str:
        """URL of this process on its own machine; other clients use `base_url`."""
        loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here
        host = loopback.get(self.server.address, self.server.address)
        scheme = "https" if self.server.certificate_file else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.server.port}"

    @property
    def base_url(self) -> str:
        """URL at which clients reach this process."""
        return (self.server.public_url or self.url).rstrip("/")

    @property
    def ca_file(self) -> Path | None:
        """File of additional authorities for https URLs; None: the machine's only."""
        return self.state / self.endpoints.ca_file if self.endpoints.ca_file else None

    @property
    def certificate(self) -> tuple[Path, Path] | None:
        """Files of the server's certificate and key; None: it speaks plain HTTP."""
        names = self.server.certificate_file, self.server.key_file
        return (self.state / names[0], self.state / names[1]) if any(names) else None

    @property
    def runs(self) -> frozenset[str]:
        return frozenset(comma_separated(self.plane.services))

    @property
    def cors_origins(self) -> frozenset[str]:
        """Origins whose pages may call these APIs."""
        return frozenset(comma_separated(self.server.cors_origins))

    @property
    def agent_poll_s(self) -> float:
        """Seconds between two requests of the agent for jobs, if no hint arrives."""
        is_hinted = bool(self.plane.hints) or "compute" in self.runs
        return self.agent.poll_period_s or (10.0 if is_hinted else 2.0)

    @property
    def agent_socket(self) -> Path:
        """Socket on which commands on this machine reach the agent."""
        return Path(self.agent.socket) if self.agent.socket else self.state / AGENT_SOCKET

    @property
    def hosts(self) -> list[str]:
        """Names of the hosts whose agents this process runs: one, or many if simulated."""
        return list(names_of(self.agent.host, self.agent.simulated_hosts))

    def elsewhere(self, service: str) -> str:
        """The URL in [endpoints] at which clients find the service; empty: it is in this process, if anywhere."""
        url: str = getattr(self.endpoints, service)
        return self.endpoints.moorage_network if service == "network" and not url else url

    @property
    def default_networks(self) -> Mapping[str, str]:
        """{name: text} of the networks that this process has because the file names none.

        Only a process that itself runs simulated hosts has any: no bridge of a real host may get them.
        """
        has_real_hosts = "agent" not in self.runs or self.agent.virt_driver != "simulated"
        if self.network.lines or has_real_hosts or self.endpoints.moorage_network:
            return {}
        return SIMULATED_NETWORKS

    def credential_of(self, host: str) -> Path:
        """File with the credential of the agent of `host`."""
        directory = self.state / "host" if host == self.agent.host else self.state / "hosts" / host
        return directory / CREDENTIAL

    @property
    def has_users(self) -> bool:
        """Whether users sign in at this plane. With Keystone they sign in there; with mode none, not at all."""
        return self.identity.mode in ("embedded", "http_basic") and "identity" in self.runs

    def database_urls(self) -> dict[str, str]:
        """{service: URL} for the databases that this process uses."""
        used = self.runs if self.has_users else self.runs - {"identity"}
        return {name: self.database_url(name) for name in get_type_hints(DatabaseOptions) if name in used}

    def database_url(self, service: str) -> str:
        given: str = getattr(self.database, service)
        return given or f"sqlite:///{self.state / service}.db"


def sections() -> dict[str, type]:
    """{section name: dataclass of its options}, in the order of the file."""
    hints = get_type_hints(Config)
    return {item.name: hints[item.name] for item in dataclasses.fields(Config) if item.name != "source"}


def load_config(path: Path) -> Config:
    """Reads the INI file `path`. Options that it does not set keep their defaults.

    A section may appear more than once, and an option again with the same value. oslo.config takes the last value of
    an option without a word; here a second, different value is an error, because one of the two has no effect.

    Raises `StartError` naming the file, section and key of anything unknown, contradictory or malformed.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise StartError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StartError(f"{path}: is not an INI file: {error}") from error
    return parse_config(text, path)


def parse_config(text: str, path: Path) -> Config:
    """The configuration that `text` would be in the file `path`. Raises `StartError`."""
    given = _read_sections(text, path)
    known = sections()
    values: dict[str, Any] = {}
    for section, options in given.items():
        if section not in known:
            raise StartError(
                f"{path}: unknown section [{section}];{_suggested(section, known)} sections are {', '.join(known)}"
            )
        values[section] = _section(path, section, known[section], options)
    config = Config(**values, source=path.resolve())
    if "state_path" not in given.get("plane", {}):
        _refuse_former_state(config)
    if unknown := sorted(config.runs.difference(SERVICES)):
        raise StartError(
            f"{path}: [plane] services names {', '.join(unknown)};{_suggested(unknown[0], SERVICES)} valid names are "
            f"{', '.join(SERVICES)}"
        )
    if bool(config.server.certificate_file) != bool(config.server.key_file):
        raise StartError(f"{path}: [server] certificate_file and key_file belong together; set both, or neither")
    return config


def _read_sections(text: str, path: Path) -> dict[str, dict[str, str]]:
    """{section: {option: value}}. Raises `StartError` for a text that is not INI or gives an option two values."""
    repeated: list[tuple[str, str, list[str], list[str]]] = []

    class Options(dict[str, Any]):
        """A dict as the parser fills it: {section: its options}, {option: lines}, and at the end {option: text}."""

        section = ""

        def __setitem__(self, key: str, value: Any) -> None:
            if isinstance(value, Options):
                value.section = key
            elif isinstance(value, list) and key in self:
                repeated.append((self.section, key, self[key], value))  # lines that continue them are still to come
            super().__setitem__(key, value)

    parser = configparser.ConfigParser(interpolation=None, default_section="", strict=False, dict_type=Options)
    try:
        parser.read_string(text, source=str(path))
    except configparser.Error as error:
        raise StartError(f"{path}: is not an INI file: {error}") from error
    for section, key, *lines in repeated:
        first, second = ("\n".join(some).strip() for some in lines)
        if first != second:
            raise StartError(f"{path}: [{section}] {key} is set twice, to different values: remove one of them")
    return {section: dict(parser[section]) for section in parser.sections()}


def _refuse_former_state(config: Config) -> None:
    """Refuses to leave behind a plane that was started when the default of state_path was ``state``."""
    former = config.source.parent / "state"
    if (former / "lock").exists() and not (config.state / "lock").exists():
        raise StartError(
            f"{config.source}: without [plane] state_path, the state is beside this file now; it was in {former}, "
            "which has one: set state_path = state, or rename that directory"
        )


def _section(path: Path, name: str, kind: type, given: dict[str, str]) -> Any:
    fields = {item.name: item for item in dataclasses.fields(kind)}
    types = get_type_hints(kind)
    values: dict[str, object] = {}
    if _LINES in fields:
        lines = {key: text.strip() for key, text in given.items() if key not in fields or key == _LINES}
        values[_LINES] = lines
        given = {key: text for key, text in given.items() if key not in lines}
    for key, text in given.items():
        if key not in fields:
            raise StartError(
                f"{path}: [{name}] has no option {key!r};{_suggested_option(key, fields)} its options are "
                f"{', '.join(fields)}"
            )
        values[key] = _value(f"{path}: [{name}] {key}", types[key], fields[key].metadata["choices"], text.strip())
    return kind(**values)


def _suggested_option(key: str, fields: Collection[str]) -> str:
    """The option of this section that `key` resembles; else the section that has `key`."""
    if close := _suggested(key, fields):
        return close
    homes = [
        f"[{name}]" for name, kind in sections().items() if key in (item.name for item in dataclasses.fields(kind))
    ]
    return f" it belongs to {' or '.join(homes)};" if homes else ""


def _suggested(word: str, known: Collection[str]) -> str:
    close = get_close_matches(word, known, n=1)
    return f" did you mean {close[0]}?" if close else ""


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


def render_config(config: Config) -> str:
    """`config` as a commented INI file. `load_config` reads it back to the same options."""
    lines: list[str] = []
    for section, kind in sections().items():
        lines.append(f"[{section}]")
        for item in dataclasses.fields(kind):
            choices = item.metadata["choices"]
            lines.append(f"# {item.metadata['help']}" + (f" One of: {', '.join(choices)}." if choices else ""))
            value = getattr(getattr(config, section), item.name)
            if item.name == _LINES:
                lines += [f"{key} = {text}" for key, text in value.items()]
                continue
            lines.append(f"{item.name} = {str(value).lower() if isinstance(value, bool) else value}")
        lines.append("")
    return "\n".join(lines)


def names_of(first: str, number: int) -> Iterator[str]:
    """`number` host names, counted up from `first`.

    >>> list(names_of("compute-09", 3))
    ['compute-09', 'compute-10', 'compute-11']
    """
    match = _NUMBERED.match(first)
    stem, digits = (match[1], match[2]) if match else (f"{first}-", "1")
    yield first
    for count in range(int(digits) + 1, int(digits) + number):
        yield f"{stem}{count:0{len(digits)}d}"


def comma_separated(text: str) -> list[str]:
    """The words of a list in an option, stripped; empty ones are left out."""
    return [word for part in text.split(",") if (word := part.strip())]
