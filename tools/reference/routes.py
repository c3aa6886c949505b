"""Generates docs/reference/routes.md from the route tables of the services."""

from collections.abc import Iterator

from moorage.accelerator.api import routes as accelerator
from moorage.compute.api import routes as compute
from moorage.identity.api import routes as identity
from moorage.images import routes as images
from moorage.network import routes as network
from moorage.placement.api import routes as placement
from moorage.reservation.api import routes as reservation
from moorage.wire.app import ServiceApi
from moorage.wire.http import Route
from tools.reference.tables import code, heading, table

WORDS = """
This page lists every path of the APIs, with its microversions and the policy rule that the service checks (none: everybody
may call it). [Placement](../wire/differences.md), [Compute](../wire/compute.md) and [Reservation](../wire/reservation.md)
list the differences from the peers. `moorage:absent` marks paths of the peer that this service answers with "not supported".
"""
SERVICES: list[ServiceApi] = [
    placement.API,
    compute.API,
    accelerator.API,
    reservation.API,
    images.API,
    identity.API,
    network.API,
]


def page() -> str:
    return heading("Routes", WORDS) + "".join(section(api) for api in SERVICES)


def section(api: ServiceApi) -> str:
    versions = "" if api.versions is None else f"\nMicroversions {api.versions.minimum} to {api.versions.maximum}.\n"
    return f"\n## {api.name}\n{versions}" + table(["path", "methods", "microversions", "rule"], rows(api))


def rows(api: ServiceApi) -> Iterator[list[str]]:
    """One row per path, range of microversions and rule, in the order of the service's table."""
    merged: dict[tuple[str, str, str], list[str]] = {}
    for route in api.routes:
        merged.setdefault((route.path, span(route, api), route.rule or "none"), []).append(route.method)
    for (path, versions, rule), methods in merged.items():
        yield [code(path), " ".join(methods), versions, code(rule) if rule != "none" else rule]


def span(route: Route, api: ServiceApi) -> str:
    since, until = route.since, route.until
    if api.versions is not None and since == api.versions.minimum:
        since = None
    if since and until:
        return f"{since} to {until}"
    return f"from {since}" if since else f"to {until}" if until else "all"
