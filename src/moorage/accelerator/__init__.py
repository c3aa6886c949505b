"""Accelerators: from the card in a host to a device in a server.

* `model`    values, states and decisions; pure
* `drivers`  one class per way to talk to cards, and a simulated one
* `host`     the agent of one host: discovers devices, programs regions, attaches and releases handles for `os_acc`
* `store`    SQL of the central service
* `service`  the central service: reports of hosts, device profiles, accelerator requests (ARQs), history, operators' orders
* `api`      the Accelerator API v2 over HTTP, as Cyborg speaks it, and the routes for agents
* `client`   the API as other services call it

A field of a device passes through: `Device` (`model/devices.py`) -> `DeviceReport` (`model/reports.py`) ->
`_device_values` (`service/service.py`) -> the table `devices` (`store/tables.py`, with a migration) -> `DeviceRecord`
(`model/rows.py`) -> `device_document` (`api/handlers/shapes.py`; a field that Cyborg does not have: `_handle_document`
in `api/handlers/history.py`). `Device` and `DeviceReport` say why a new field needs a default.

Not here: the provider tree in Placement (`moorage.agent.tree` grafts the agent's nodes onto it and publishes them), and
the bytes of bitstreams (`moorage.images`).
Callers: `moorage.wiring` starts the service and the agents; compute, reservation, audit and the CLI use `client`.
"""
