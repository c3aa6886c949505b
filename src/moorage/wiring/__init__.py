"""Builds a plane from its configuration. Only the CLI, the WSGI entries and tests import it.

A plane is its WSGI application (the mounted services of this process), its background tasks, and actions at start and
stop. Services of other processes are reached over HTTP with the same clients.

    config -> plane -> services (one function per service) -> components (clock, ids, databases, clients, mounts)
                    -> host (agent, virt driver, accelerators), dashboard, audit

`plane` defines the order; `components` holds what all parts share; `auth` decides how callers are authenticated and how
services call each other; `reservation_settings`, `scheduler`, `telemetry` and `libvirt_host` convert their sections of
the configuration.

Not here: any behaviour of a service.
"""

from moorage.wiring.components import Plane
from moorage.wiring.plane import build_plane

__all__ = ["Plane", "build_plane"]
