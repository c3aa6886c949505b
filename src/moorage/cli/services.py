"""Clients for commands: the services of OS_AUTH_URL's catalogue, or those of a plane's configuration."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from click.core import ParameterSource

from moorage.accelerator.client import AcceleratorClient
from moorage.cli.state import open_config
from moorage.compute.client.compute_client import ComputeClient
from moorage.config import DASHBOARD_PATH, ENDPOINT_PATHS, Config
from moorage.core.clock import SystemClock
from moorage.core.errors import NotFound, StartError
from moorage.identity.client import PasswordTokens
from moorage.identity.first_start.first_credentials import first_credentials
from moorage.network.client.moorage_ports import AuditablePorts
from moorage.placement.client.placement_client import PlacementClient
from moorage.reservation.client import ReservationClient
from moorage.wire.client import NoCredentials, ServiceClient, TokenSource
from moorage.wire.transports import SocketTransport

#: Version suffix that clients add themselves: ``/v2.1``, ``/v1/<project>``.
_VERSION = re.compile(r"/v\d+(\.\d+)?(/[^/]+)?/?\Z")

_REQUIRED = ("OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_NAME")


@dataclass(frozen=True)
class Endpoints:
    """Clients for services. `urls`: {service type: URL without a version}; missing services are left out.

    `ca_file`: additional authorities for https URLs.
    """

    urls: Mapping[str, str]
    tokens: TokenSource
    ca_file: Path | None = None

    def client(self, service_type: str, version: str | None = None) -> ServiceClient | None:
        if service_type not in self.urls:
            return None
        return ServiceClient(
            SocketTransport(self.urls[service_type], ca_file=self.ca_file),
            service_type=service_type,
            version=version,
            credentials=self.tokens,
        )

    @property
    def placement(self) -> PlacementClient:
        http = self.client("placement")
        if http is None:
            raise StartError("there is no placement service: neither in the catalogue nor in the configuration")
        return PlacementClient(http)

    @property
    def compute(self) -> ComputeClient | None:
        http = self.client("compute")
        return None if http is None else ComputeClient(http)

    @property
    def accelerator(self) -> AcceleratorClient | None:
        http = self.client("accelerator")
        return None if http is None else AcceleratorClient(http)

    @property
    def reservation(self) -> ReservationClient | None:
        http = self.client("reservation")
        return None if http is None else ReservationClient(http)

    @property
    def server_ports(self) -> AuditablePorts | None:
        http = self.client("network")
        return None if http is None else AuditablePorts(http)


def endpoints(config_path: Path | None) -> Endpoints:
    """The services of the plane that ``--config`` names; else of OS_AUTH_URL, if set; else of the default plane."""
    if _uses_catalogue():
        return _of_catalogue(os.environ)
    return plane_endpoints(open_config(config_path))


def accounts_client(config_path: Path | None) -> ServiceClient:
    """The Identity API where the users are; see `endpoints`. Raises `StartError` if the plane has no users itself."""
    if not _uses_catalogue():
        identity_url(open_config(config_path))
    http = endpoints(config_path).client("identity")
    if http is None:
        raise StartError("there is no identity service: neither in the catalogue nor in the configuration")
    return http


def dashboard_url(config_path: Path | None) -> str:
    """Where browsers find the dashboard: beside the Identity API of `accounts_client`, where a plane serves it."""
    return endpoints(config_path).urls["identity"].removesuffix("/identity") + DASHBOARD_PATH


def _uses_catalogue() -> bool:
    source = click.get_current_context().get_parameter_source("config_path")
    return source is not ParameterSource.COMMANDLINE and bool(os.environ.get("OS_AUTH_URL"))


def plane_endpoints(config: Config) -> Endpoints:
    """The services of a plane, with the administrator's token. Raises `StartError` if it does not manage its users."""
    return Endpoints(urls_of(config), plane_tokens(config), config.ca_file)


def urls_of(config: Config) -> dict[str, str]:
    """{service: URL without a version} of the services that a plane runs or has in [endpoints]."""
    urls = {}
    for name, path in ENDPOINT_PATHS.items():
        elsewhere = config.elsewhere(name)
        if elsewhere or name in config.runs:
            urls[name] = (elsewhere or f"{config.base_url}/{path.split('/')[1]}").rstrip("/")
    return urls


def _of_catalogue(environment: Mapping[str, str]) -> Endpoints:
    if missing := [name for name in _REQUIRED if not environment.get(name)]:
        raise StartError(
            f"OS_AUTH_URL is set, but not {', '.join(missing)}; set them too, or use --config to name a plane"
        )
    auth_url = environment["OS_AUTH_URL"].rstrip("/").removesuffix("/v3")
    ca_file = Path(environment["OS_CACERT"]) if environment.get("OS_CACERT") else None
    tokens = PasswordTokens(
        SocketTransport(auth_url, ca_file=ca_file),
        username=environment["OS_USERNAME"],
        password=environment["OS_PASSWORD"],
        project=environment["OS_PROJECT_NAME"],
        clock=SystemClock(),
        user_domain_id=_domain(environment, "OS_USER_DOMAIN"),
        project_domain_id=_domain(environment, "OS_PROJECT_DOMAIN"),
    )
    interface = environment.get("OS_INTERFACE", "public").removesuffix("URL")
    urls = {}
    for name in ENDPOINT_PATHS:
        try:
            found = tokens.endpoint(name, interface, environment.get("OS_REGION_NAME"))
        except NotFound:
            continue
        urls[name] = _VERSION.sub("", found).rstrip("/")
    return Endpoints(urls, tokens, ca_file)


def _domain(environment: Mapping[str, str], prefix: str) -> str:
    """The domain ID from the environment. The domain named Default always has the ID ``default``."""
    name = environment.get(f"{prefix}_NAME", "Default")
    if given := environment.get(f"{prefix}_ID"):
        return given
    if name.lower() != "default":
        raise StartError(f"{prefix}_NAME is {name!r}: only domain IDs are supported; set {prefix}_ID")
    return "default"


def identity_url(config: Config) -> str:
    """The URL where clients log in. Raises `StartError` if there is no login, or only one in Keystone."""
    if config.identity.mode == "none":
        raise StartError("identity mode 'none' has no users: every caller on this machine is an administrator")
    if config.identity.mode == "keystone":
        raise StartError(f"the users of this plane are in Keystone at {config.identity.keystone_url}; log in there")
    return config.endpoints.identity or f"{config.base_url}/identity"


def plane_client(config: Config) -> ServiceClient:
    """A client for the plane's own routes (`/moorage`), with the admin's token."""
    transport = SocketTransport(config.base_url, ca_file=config.ca_file)
    return ServiceClient(transport, service_type="moorage", credentials=plane_tokens(config))


def plane_tokens(config: Config) -> TokenSource:
    """The token source for commands: the administrator or, with Keystone, the services' own user."""
    if config.identity.mode == "none":
        return NoCredentials()
    if config.identity.mode == "keystone" and config.identity.password:
        return _services_user(config)
    auth_url = identity_url(config)
    password, project = first_credentials(config.state, "admin")
    return PasswordTokens(
        SocketTransport(auth_url, ca_file=config.ca_file),
        username="admin",
        password=password,
        project=project,
        clock=SystemClock(),
    )


def _services_user(config: Config) -> TokenSource:
    """The services' own user in Keystone. Its password is in the configuration file anyway."""
    identity = config.identity
    return PasswordTokens(
        SocketTransport(identity.keystone_url.rstrip("/").removesuffix("/v3"), ca_file=config.ca_file),
        username=identity.username,
        password=identity.password,
        project=identity.project,
        clock=SystemClock(),
    )
