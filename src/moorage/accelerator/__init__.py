"""Accelerators: from the card in a host to a device in a server.

* `model`    values, states and decisions; pure
* `drivers`  one class per way to access cards, and a simulated one
* `host`     the agent of one host: discovers devices, programs regions, attaches and releases handles for `os_acc`
* `store`    SQL of the central service
* `service`  the central service: reports of hosts, device profiles, accelerator requests (ARQs), history, changes by
             operators
* `api`      the Accelerator API v2 over HTTP, compatible with Cyborg's, and the routes for agents
* `client`   the client of that API for other services and agents

To add a field to a device's answer, choose where clients shall see it:

    a text for people          nothing but a pair (name, value) in `Device.details`, which a driver's `discover` fills;
                               ``vendor_board_info`` shows it
    a field of Moorage's own   the chain below as far as `DeviceRecord`; then, without a microversion, the text
                               ``std_board_info`` in `device_document`, and ``/moorage/v1/handles`` in
                               `_handle_document` (`api/handlers/history.py`). An example is `health`,
                               which `DeviceRegistry` fills instead of a driver's `discover`
    a field that Cyborg has    the whole chain, with Cyborg's microversion

    a driver's `discover`      fills it; PCI devices in `_device` (`drivers/pci.py`). Leave it empty if it cannot be
                               read: a `DriverError` makes all devices of the driver unknown
    `Device`                   `model/devices.py`; with a default, because the agent's checkpoint may be older
    `_kept_form`               `model/nesting.py`; copy it from `now` if it may change while a device is in use
    `DeviceReport`             `model/reports.py`, from `_device_report`; with a default, because an agent may be older.
                               `api/handlers/agents.py` decodes it by its types; there is no other schema
    `_check_device`            `model/reports.py`: refuse what the column cannot hold, such as a text that is too
                               long; nothing later checks it
    `_device_values`           `service/service.py`: the values of the columns
    the table `devices`        `store/tables.py`, and a migration with ``phase = "expand"`` like
                               `0007_physical_network`; the store reads all columns
    `DeviceRecord`             `model/rows.py`; the field has the column's name
    `device_document`          `api/handlers/shapes.py`
    `list_devices`, `show_device`   `api/handlers/devices.py`; check the microversion here, as for `STATUS_SINCE`
    `VERSIONS`                 `api/handlers/versions.py`: raise it last, with everything that Cyborg added up to it
    `RemoteDevice`             `client.py`, if another service of Moorage reads the field; name the version in the
                               request, and give the field a default, which `AcceleratorClient.devices` takes if the
                               answer of an older service lacks the field

Tests: the driver's in `tests/unit/accelerator/drivers`, `tests/wire/accelerator/test_routes.py`, and for the checks
`test_lying_host.py` beside it (`test_routes.py` compares the exact keys of a device, so it fails until it knows the new
one); row A1 of docs/evidence/proof/accelerators.md. A line in CHANGELOG.md; for a microversion also
docs/wire/adding-a-microversion.md. Rolling upgrades: "Upgrades while processes run" in docs/guides/operations.md.

Not here: the provider tree in Placement (`moorage.agent.tree` adds the agent's nodes to it and publishes them), and
the bytes of bitstreams (`moorage.images`).
Callers: `moorage.wiring` starts the service and the agents; compute, reservation, audit and the CLI use `client`.
"""
