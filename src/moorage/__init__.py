"""Moorage: who may hold which part of which machine, from when to when.

In it: four services (`placement`, `compute`, `accelerator`, `reservation`), the small services beside them
(`identity`, `images`, `network`), the `agent` of a host, the `audit` and the `dashboard`; the choice of hosts
(`scheduler`); and their common parts: `jobs`, `wire`, `db`, `telemetry`, `config`, `options`, `core`. `wiring` builds
a running plane from them, for the commands (`cli`) and for other WSGI servers (`wsgi`).

Not in it: the library of compute agents, `os_acc`, which is a package of its own. ARCHITECTURE.md has the layers, the
table of the packages and three flows.
"""
