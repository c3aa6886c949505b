"""Who is let in: what is easily left open when a rehearsal becomes a service."""

from collections.abc import Iterator
from ipaddress import ip_address

from moorage.cli.doctor.finding import CheckFinding, broken, fine, warning
from moorage.config import Config


def check(config: Config) -> Iterator[CheckFinding]:
    found = [*_callers(config), *_what_they_may(config), *_onlookers(config)]
    yield from found
    if not found:
        yield fine("policy", f"identity {config.identity.mode}, placement's policy {config.placement.policy}")


def _callers(config: Config) -> Iterator[CheckFinding]:
    identity, where = config.identity, f"{config.source} [identity]"
    is_open = not _is_loopback(config.server.address)
    if identity.mode == "none" and is_open:
        if identity.allow_none_beyond_loopback:
            remedy = "use mode = keystone or embedded, or let a firewall keep others away"
            yield warning("policy", f"everybody who reaches {config.server.address} is admin", where, remedy)
        else:
            remedy = "listen on 127.0.0.1, or use another mode"
            yield broken("policy", f"mode none does not listen on {config.server.address}", where, remedy)
    if identity.mode in ("embedded", "http_basic") and is_open and not config.server.public_url.startswith("https:"):
        remedy = "put a proxy with TLS before it and name it in [server] public_url"
        yield warning("policy", f"passwords go in clear to {config.server.address}", where, remedy)
    if identity.mode == "keystone":
        if not identity.keystone_url:
            yield broken("policy", "keystone_url is empty", where, "set it to Keystone's URL with /v3")
        if not identity.password:
            yield broken("policy", "there is no password to log in to Keystone with", where, "set password")


def _what_they_may(config: Config) -> Iterator[CheckFinding]:
    if config.placement.policy == "open" and "placement" in config.runs:
        where = f"{config.source} [placement]"
        yield warning("policy", "every user with a project may change Placement", where, "set policy to new")


def _onlookers(config: Config) -> Iterator[CheckFinding]:
    where = f"{config.source} [server]"
    origins = [origin.strip() for origin in config.server.cors_origins.split(",") if origin.strip()]
    for origin in origins:
        if origin == "*" or origin.startswith("http://"):
            remedy = "name https:// origins of your own"
            yield warning("policy", f"web pages of {origin} may call these APIs", where, remedy)
    if config.server.metrics == "everywhere" and not _is_private(config.server.address):
        remedy = "listen on the management network only, or set metrics to loopback"
        yield warning("policy", f"whoever reaches {config.server.address} reads the metrics", where, remedy)
    if config.plane.clock == "adjustable" and not _is_loopback(config.server.address):
        remedy = "set [plane] clock to system where it is no rehearsal"
        yield warning("policy", "an admin can move the plane's clock", f"{config.source} [plane]", remedy)


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _is_private(address: str) -> bool:
    """0.0.0.0 is every network that there is."""
    try:
        return ip_address(address).is_private and not ip_address(address).is_unspecified
    except ValueError:
        return address == "localhost"
