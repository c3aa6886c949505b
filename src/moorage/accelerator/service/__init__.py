"""Use cases of the central accelerator service. Each method is one transaction, followed by wake-ups of hosts.

* `service`           reports of hosts, and device profiles; `AcceleratorService` contains the other services
* `request_service`   accelerator requests (ARQs): create, bind, unbind, delete
* `operator_service`  enable and disable devices, program regions, attributes; which bitstreams could be loaded
* `history_service`   the history of devices
* `deps`              what they share
* `report_order`      which reports of a host are old
* `host_jobs`         jobs for agents, and what follows from their results
* `event_task`        sends events to compute when requests are bound

Not here: SQL (`store`), HTTP (`api`), anything on a host (`host`). Callers: `api`, and `moorage.wiring.services`.
"""
