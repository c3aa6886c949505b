"""Our own planes, started as operators do: `moorage up` with a configuration file."""

import dataclasses
from pathlib import Path

from bench.databases import DatabaseServer
from bench.servers import Server, our_command
from bench.wire import Connection
from moorage.config import Config, render_config
from moorage.core.clock import SystemClock
from moorage.identity.client import PasswordTokens
from moorage.identity.first_start.first_credentials import first_credentials
from moorage.wire.client import ServiceClient
from moorage.wire.transports import SocketTransport


def moorage(on: DatabaseServer, name: str, port: int, **sections: dict[str, object]) -> Server:
    directory = on.directory / name
    (directory / "provider_config").mkdir(parents=True, mode=0o700)
    given: dict[str, dict[str, object]] = {
        "plane": {"state_path": ".", "log_file": "moorage.log", "log_level": "warning"},
        "server": {"port": port},
        "compute": {"provider_config_location": str(directory / "provider_config")},
    }
    for section, options in sections.items():
        given[section] = given.get(section, {}) | options
    config = Config()
    for section, options in given.items():
        config = dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **options)})
    path = directory / "moorage.conf"
    path.write_text(render_config(config))
    command, source = our_command("up", "--config", str(path))
    log = directory / "server.log"
    return Server("ours", f"http://127.0.0.1:{port}", on, command, log, source, says="Moorage is up")


def state(server: Server) -> Path:
    return server.log.parent


def client(services: Server, name: str) -> ServiceClient:
    return ServiceClient(
        SocketTransport(f"{services.url}/{name}"), service_type=name, credentials=credentials_of(services)
    )


def connection(services: Server, name: str, version: str, *, user: str = "admin") -> Connection:
    """A connection of one of the first users, valid as long as its token: an hour."""
    token = credentials_of(services, user).headers()["x-auth-token"]
    return Connection(f"{services.url}/{name}", token=token, version=f"{name} {version}")


def credentials_of(services: Server, user: str = "admin") -> PasswordTokens:
    password, project = first_credentials(state(services), user)
    return PasswordTokens(
        SocketTransport(f"{services.url}/identity"), username=user, password=password, project=project,
        clock=SystemClock(),
    )  # fmt: skip
