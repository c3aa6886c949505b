"""Accelerators: from the card in a host to a device in a server.

* `model`    values, states and decisions; pure
* `drivers`  one class per way to access cards, and a simulated one
* `host`     the agent of one host: discovers devices, programs regions, attaches and releases handles for `os_acc`
* `store`    SQL of the central service
* `service`  the central service: reports of hosts, device profiles, accelerator requests (ARQs), history, changes by
             operators
* `api`      the Accelerator API v2 over HTTP, compatible with Cyborg's, and the routes for agents
* `client`   the client of that API for other services and agents

A field that Cyborg's devices have passes through the following. One that only Moorage has goes as far as
`DeviceRecord` and then into `_handle_document` (`api/handlers/history.py`), without a microversion. A value that nobody
filters by needs none of it: put it into `Device.details`, which ``vendor_board_info`` shows.

    a driver's `discover`      fills it
    `Device`                   `model/devices.py`; with a default, because the agent's checkpoint may be older
    `_kept_form`               `model/nesting.py`; copy it there if it may change while a device waits for its release
    `DeviceReport`             `model/reports.py`, from `_device_report`; with a default, because an agent may be older
    `_check_device`            `model/reports.py`: refuse what the column cannot hold, such as a text that is too
                               long; nothing later checks it
    `_device_values`           `service/service.py`
    the table `devices`        `store/tables.py`, and a migration with ``phase = "expand"``; the store reads all columns
    `DeviceRecord`             `model/rows.py`; the field has the column's name
    `device_document`          `api/handlers/shapes.py`
    `list_devices`, `show_device`   `api/handlers/devices.py`; check the microversion here, as for `STATUS_SINCE`
    `VERSIONS`                 `api/handlers/versions.py`: raise it last, with everything that Cyborg added up to it
    `RemoteDevice`             `client.py`, if another service of Moorage reads the field; name the version in the
                               request, and give the field a default, which `AcceleratorClient.devices` takes if the
                               answer of an older service lacks the field

Tests: `tests/wire/accelerator/test_routes.py`, and for the checks `test_lying_host.py` beside it; row A1 of
docs/evidence/proof/accelerators.md.

The microversions are Cyborg's. The health is Moorage's own field, and is also in the text ``std_board_info``, which the
stock client lists; ``/moorage/v1/handles`` shows such fields of devices that have handles.

Not here: the provider tree in Placement (`moorage.agent.tree` adds the agent's nodes to it and publishes them), and
the bytes of bitstreams (`moorage.images`).
Callers: `moorage.wiring` starts the service and the agents; compute, reservation, audit and the CLI use `client`.
"""
