"""Checks access: settings that are easily left open when a rehearsal becomes a service."""

from collections.abc import Iterator
from ipaddress import ip_address

from moorage.cli.doctor.finding import CheckFinding, broken, fine, warning
from moorage.config import Config, comma_separated


def check_policy(config: Config) -> Iterator[CheckFinding]:
    found = [*_authentication(config), *_authorization(config), *_exposure(config)]
    yield from found
    if not found:
        yield fine("policy", f"identity {config.identity.mode}, placement's policy {config.placement.policy}")


def _authentication(config: Config) -> Iterator[CheckFinding]:
    identity, where = config.identity, f"{config.source} [identity]"
    is_open = not _is_loopback(config.server.address)
    if identity.mode == "none" and is_open:
        if identity.allow_none_beyond_loopback:
            remedy = "use mode = keystone or embedded, or keep others out with a firewall"
            yield warning(
                "policy", f"everyone who can reach {config.server.address} is an administrator", where, remedy
            )
        else:
            remedy = "listen on 127.0.0.1, or use another mode"
            yield broken("policy", f"mode none does not listen on {config.server.address}", where, remedy)
    if identity.mode in ("embedded", "http_basic") and is_open and not config.server.public_url.startswith("https:"):
        remedy = "put a TLS proxy in front and set [server] public_url to its URL"
        yield warning("policy", f"passwords are sent to {config.server.address} unencrypted", where, remedy)
    if identity.mode == "keystone":
        if not identity.keystone_url:
            yield broken("policy", "keystone_url is empty", where, "set it to Keystone's URL with /v3")
        if not identity.password:
            yield broken("policy", "there is no password for the login at Keystone", where, "set password")


def _authorization(config: Config) -> Iterator[CheckFinding]:
    if config.placement.policy == "open" and "placement" in config.runs:
        where = f"{config.source} [placement]"
        yield warning("policy", "every user with a project can change Placement", where, "set policy to new")


def _exposure(config: Config) -> Iterator[CheckFinding]:
    where = f"{config.source} [server]"
    for origin in comma_separated(config.server.cors_origins):
        if origin == "*" or origin.startswith("http://"):
            remedy = "list only your own https:// origins"
            yield warning("policy", f"web pages from {origin} can call these APIs", where, remedy)
    if config.server.metrics == "everywhere" and not _is_private(config.server.address):
        remedy = "listen on the management network only, or set metrics to loopback"
        yield warning("policy", f"everyone who can reach {config.server.address} can read the metrics", where, remedy)
    if config.plane.clock == "adjustable" and not _is_loopback(config.server.address):
        remedy = "set [plane] clock to system, unless this is a rehearsal"
        yield warning("policy", "an administrator can move the clock", f"{config.source} [plane]", remedy)


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _is_private(address: str) -> bool:
    """Whether the address is private. 0.0.0.0 is not: it listens on every network."""
    try:
        return ip_address(address).is_private and not ip_address(address).is_unspecified
    except ValueError:
        return address == "localhost"
