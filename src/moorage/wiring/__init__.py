"""Builds a plane from its configuration: the one place where everything meets. Only the CLI, the WSGI entries and tests import it.

A plane is its WSGI application (the services of this process, mounted), its tasks (what goes on in the background)
and what must happen at start and stop. Services that another process runs are reached over HTTP with the same clients.

`plane`: the order of things · `components`: what all parts share, and the ways between them · `auth`: who is calling ·
`services`: one function per service · `host`: the agent
"""

from moorage.wiring.components import Plane
from moorage.wiring.plane import build_plane

__all__ = ["Plane", "build_plane"]
