"""Registered hosts and addresses, and what happens to leases when a host fails.

`host_service` and `floating_ip_service` are the use cases of ``/os-hosts`` and ``/floatingips``. `host_monitor` is the
background task that watches hosts, and `healing` moves the slots of leases off hosts that are down:

    host_monitor (reads from compute which hosts are up) -> healing -> admission -> an update event with its steps

`booking` selects the new hosts, and `events` runs the steps.
"""
