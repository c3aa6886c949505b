"""Registered hosts and addresses, and what happens to leases when a host fails.

`host_service` and `floating_ip_service` are the use cases of ``/os-hosts`` and ``/floatingips``. `healing` has the
background task that watches hosts and moves the slots of leases off hosts that are down:

    HostMonitor (asks compute which hosts are up) -> Healing -> admission -> an update event with its steps

Choosing the new hosts is left to `booking`, and carrying out the steps to `events`.
"""
